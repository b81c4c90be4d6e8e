"""Penalties: what should not differ between domains, as a number to lower."""

from satisfice.penalties.coral import coral
from satisfice.penalties.domain_losses import domain_losses
from satisfice.penalties.fish import fish_direction
from satisfice.penalties.groups import Groups, group
from satisfice.penalties.irm import cross_entropy, irm
from satisfice.penalties.mmd import mmd
from satisfice.penalties.vrex import vrex, vrex_weights

__all__ = [
    "Groups",
    "coral",
    "cross_entropy",
    "domain_losses",
    "fish_direction",
    "group",
    "irm",
    "mmd",
    "vrex",
    "vrex_weights",
]
