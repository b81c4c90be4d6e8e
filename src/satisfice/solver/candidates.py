"""The candidate updates: two for every parameter coordinate on its own."""

from __future__ import annotations

import torch
from torch import Tensor

from satisfice.errors import UserError, one_of

__all__ = ["CANDIDATES", "candidates", "ordered_mean", "widened"]

CANDIDATES = ("split", "flip")


def widened(values: Tensor) -> Tensor:
    """Return ``values`` in float32 or wider: in bf16 shifts of 0.003 vanish and γ's mean stalls."""
    if not values.is_floating_point():
        raise UserError(f"expected floating-point values, not {values.dtype}.")
    return values if values.dtype in (torch.float32, torch.float64) else values.float()


def candidates(gradients: Tensor, kind: str = "split") -> tuple[Tensor, Tensor]:
    """Return G₊ and G₋ for every coordinate.

    ``split`` (the paper's Algorithm 1): G₊ = (1/E) Σ max(g_e, 0) and G₋ = (1/E) Σ min(g_e, 0), so
    that G₊ + G₋ = g.
    ``flip`` (the paper's main text): G₊ = g and G₋ = −g.

    Parameters
    ----------
    gradients
        g_e, of shape ``[E, ...]``.
    kind
        ``"split"`` or ``"flip"``.

    Returns
    -------
    G₊ and G₋ of shape ``[...]``, in float32 or wider.
    """
    one_of("candidates", kind, CANDIDATES)
    gradients = widened(gradients)
    if not gradients.dim() or not len(gradients):
        raise UserError("gradients must have at least one domain, in their first dimension.")
    if kind == "flip":
        mean = ordered_mean(gradients)
        return mean, -mean
    return ordered_mean(gradients.clamp(min=0)), ordered_mean(gradients.clamp(max=0))


def ordered_mean(values: Tensor) -> Tensor:
    """Mean over the first dimension, added in the order of the domains as the fused kernel does."""
    total = torch.zeros_like(values[0])
    for value in values:
        total = total + value
    return total / len(values)
