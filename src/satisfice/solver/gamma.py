"""γ: the running mean of the cost's magnitude, and the recursion that all running means share."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["SCOPES", "cost_magnitude", "running_rate", "segment_means"]

SCOPES = ("coordinate", "tensor", "model")
"""What one γ is kept for: each coordinate, each parameter tensor, or the whole model."""


def running_rate(n: int | Tensor, *, floor: float = 1 / 100) -> float | Tensor:
    """Return max(1/n, floor): with it v ← v + (x − v)·rate is a mean that becomes a running one.

    ``n`` counts steps from 1, the current one included.
    """
    if isinstance(n, Tensor):
        return (1.0 / n).clamp(min=floor)
    return max(1.0 / n, floor)


def cost_magnitude(
    gradients: Tensor,
    penalty_gradient: Tensor,
    plus: Tensor,
    minus: Tensor,
    *,
    beta: float | Tensor,
) -> Tensor:
    """Return m, the mean over domains and both candidates of |β(G − g_e)² − q·G|.

    Parameters
    ----------
    gradients
        g_e, of shape ``[E, ...]``.
    penalty_gradient, plus, minus
        q and the two candidates, of shape ``[...]``.
    beta
        β^t.

    Returns
    -------
    m of shape ``[...]``.
    """
    total = torch.zeros_like(plus)
    gain_plus, gain_minus = penalty_gradient * plus, penalty_gradient * minus
    for gradient in gradients:  # in the order of the domains: the fused kernel adds in this order
        total = total + (beta * (plus - gradient) ** 2 - gain_plus).abs()
        total = total + (beta * (minus - gradient) ** 2 - gain_minus).abs()
    return total / (2 * len(gradients))


def segment_means(values: Tensor, segments: Sequence[int]) -> Tensor:
    """Return the mean of ``values`` [P] over each tensor, [T], at offsets 0 = s₀ < … < s_T = P."""
    bounds = zip(segments[:-1], segments[1:], strict=True)
    return torch.stack([values[start:stop].mean() for start, stop in bounds])
