"""VREx: the domains' risks should be equal."""

from __future__ import annotations

from torch import Tensor

from satisfice.errors import UserError
from satisfice.penalties.groups import wide

__all__ = ["vrex", "vrex_weights"]


def vrex(losses: Tensor) -> Tensor:
    """mean_e (L_e − L)², for the domains' losses ``[E]``.

    Krueger et al., "Out-of-distribution generalization via risk extrapolation", ICML 2021.
    """
    _check(losses)
    with wide(losses) as values:
        return (values - values.mean()).square().mean()


def vrex_weights(losses: Tensor) -> Tensor:
    """Return w with ∇vrex = Σ_e w_e·g_e: w_e = (2/E)(L_e − L). It needs no backward pass."""
    _check(losses)
    with wide(losses.detach()) as values:
        return (values - values.mean()) * (2 / len(values))


def _check(losses: Tensor) -> None:
    if losses.dim() != 1 or not len(losses):
        raise UserError(
            f"losses must hold one loss per domain, [E], not shape {list(losses.shape)}; "
            "satisfice.penalties.domain_losses makes them."
        )
