"""Rules: how the domains' gradients become one update."""

from satisfice.rules.bloop import Bloop
from satisfice.rules.bound import Bound, bounded
from satisfice.rules.gradients import Gradients, Update
from satisfice.rules.groupdro import GroupDRO
from satisfice.rules.joint import Joint
from satisfice.rules.masks import AndMask, SandMask, and_mask, sand_mask
from satisfice.rules.mean import Mean
from satisfice.rules.pcd import PCD
from satisfice.rules.rule import AdditiveRule, At, Directive, Rule
from satisfice.rules.sdg import SDG

__all__ = [
    "PCD",
    "SDG",
    "AdditiveRule",
    "AndMask",
    "At",
    "Bloop",
    "Bound",
    "Directive",
    "Gradients",
    "GroupDRO",
    "Joint",
    "Mean",
    "Rule",
    "SandMask",
    "Update",
    "and_mask",
    "bounded",
    "sand_mask",
]
