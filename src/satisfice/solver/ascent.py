"""The 25 Blahut-Arimoto iterations for two candidates, in a form that rounding does not bend."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["iterate", "slope_terms"]


def slope_terms(shifts: Tensor) -> tuple[Tensor, Tensor]:
    """Return v and b with f'(p) = Σ_e v_e/(b_e + p·v_e), for f(p) = Σ_e log(p + (1−p)·e^(−Δ_e)).

    With a = e^(−|Δ|) and u = 1 − a: v = u and b = a where Δ > 0, v = −u and b = 1 elsewhere. Both
    lie in [−1, 1] for every Δ, infinite ones included, and v keeps all the digits of a small Δ.
    """
    size = shifts.abs()
    u = -torch.expm1(-size)
    positive = shifts > 0
    return torch.where(positive, u, -u), torch.where(positive, torch.exp(-size), 1.0)


def iterate(shifts: Tensor, iterations: int) -> Tensor:
    """Return p after ``iterations`` of p ← (1/E) Σ_e σ(logit p + Δ_e) from 1/2; shifts [E, ...].

    The iteration is EM for a mixture weight, and one step of it is p ← p + p(1−p)·f'(p)/E. Formed
    so, a small shift adds a small correction to p; formed as (1/E) Σ_e p/(p + (1−p)·e^(−Δ_e)), it
    would be lost in the rounding of a sum near 1.
    """
    weight, floor = slope_terms(shifts)
    p = torch.full_like(shifts[0], 0.5)
    for _ in range(iterations):
        slope = torch.zeros_like(p)
        for v, b in zip(weight, floor, strict=True):  # the order in which the fused kernel adds
            slope = slope + v / (b + p * v)
        p = p + p * (1 - p) * (slope / len(shifts))
    return p
