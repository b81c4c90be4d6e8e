"""The limit of the Blahut-Arimoto iteration for two candidates, without iterating to it.

The limit maximises the concave f(p) = Σ_e log(p + (1−p)·exp(−Δ_e)) on [0, 1].
"""

from __future__ import annotations

import torch
from torch import Tensor

from satisfice.solver.ascent import slope_terms

__all__ = ["exact_limit"]

_NEWTON_STEPS = 12
"""No case recorded in tests/hostile needs as many."""


def exact_limit(shifts: Tensor) -> Tensor:
    """Return the p to which the iteration from 1/2 converges, for ``shifts`` Δ of shape [E, ...].

    An end where f has its maximum there; between them the root of f', in closed form for two and
    three domains and by Newton's method for more; and where max|Δ| is so small that rounding would
    decide between the ends, the root of f' to first order. All Δ_e = 0 gives 1/2.
    """
    largest = shifts.abs().amax(0)
    count = len(shifts)
    if count == 1:
        interior = torch.full_like(largest, 0.5)
    elif count == 2:
        interior = _two(shifts)
    elif count == 3:
        interior = _three(shifts)
    else:
        interior = _newton(shifts)
    one = torch.expm1(-shifts).sum(0) <= 0
    zero = torch.expm1(shifts).sum(0) <= 0
    p = torch.where(one, 1.0, torch.where(zero, 0.0, interior))
    tiny = largest < torch.finfo(shifts.dtype).eps ** 0.5
    p = torch.where(tiny, _first_order(shifts, largest), p)
    return torch.where(largest.isnan(), largest, p)


def _first_order(shifts: Tensor, largest: Tensor) -> Tensor:
    """p = 1/2 + ΣΔ/ΣΔ², clipped; formed with u = Δ/max|Δ|, whose squares don't underflow."""
    scale = torch.where(largest > 0, largest, 1.0)
    u = shifts / scale
    squares = (u * u).sum(0)
    offset = u.sum(0) / torch.where(squares > 0, squares, 1.0) / scale
    return (0.5 + offset).clamp(0.0, 1.0)


def _roots(shifts: Tensor) -> Tensor:
    """a_e = 1/expm1(Δ_e), so that f' ∝ Σ 1/(p + a_e)."""
    return 1.0 / torch.expm1(shifts)


def _two(shifts: Tensor) -> Tensor:
    return -_roots(shifts).sum(0) / 2


def _three(shifts: Tensor) -> Tensor:
    """The root of a quadratic between 0 and 1, in the form that does not cancel."""
    zero = shifts.abs() < torch.finfo(shifts.dtype).tiny  # 1/Δ would be infinite
    a = torch.where(zero, 0.0, _roots(torch.where(zero, 1.0, shifts)))
    pair = -a.sum(0) / 2  # one Δ is 0, says nothing, and leaves two domains

    scale = a.abs().amax(0)  # keeps squares of 1/Δ in range
    a0, a1, a2 = a / torch.where(scale > 0, scale, 1.0)
    sign = torch.where((shifts > 0).sum(0) == 2, 1.0, -1.0).to(shifts.dtype)
    total = a0 + a1 + a2
    products = a0 * a1 + a0 * a2 + a1 * a2
    spread = (0.5 * ((a0 - a1) ** 2 + (a0 - a2) ** 2 + (a1 - a2) ** 2)).sqrt()
    sharp = total + sign * spread
    root = torch.where(
        sign * total > 0,
        -products / torch.where(sharp != 0, sharp, 1.0),
        (sign * spread - total) / 3,
    )
    return torch.where(zero.any(0), pair, scale * root)


def _newton(shifts: Tensor) -> Tensor:
    """Newton's method on 1/A − 1/B, A and B the sums of |terms| of f' over either sign of Δ.

    1/A − 1/B is nearly linear in p and increasing, where f' itself has poles beside [0, 1]. The
    bracket is inclusive: a strict one would bisect away from an iterate that has converged.
    """
    weight, floor = slope_terms(shifts)
    positive = shifts > 0
    low, high = torch.zeros_like(shifts[0]), torch.ones_like(shifts[0])
    p = torch.full_like(shifts[0], 0.5)
    for _ in range(_NEWTON_STEPS):
        term = weight / (floor + p * weight)
        above = torch.where(positive, term, 0.0)
        below = torch.where(positive, 0.0, term)
        a, b = above.sum(0), -below.sum(0)
        value = 1 / a - 1 / b
        slope = (above * above).sum(0) / (a * a) + (below * below).sum(0) / (b * b)
        low = torch.where(value <= 0, p, low)
        high = torch.where(value >= 0, p, high)
        step = p - value / slope
        # A step past an end that was not tried yet tries it: Newton's method converges from there,
        # where bisection would take a step per binary digit of a root beside that end.
        inside = (step >= low) & (step <= high)
        outside = torch.where((step < low) & (low == 0) & (p > 0), 0.0, (low + high) / 2)
        outside = torch.where((step > high) & (high == 1) & (p < 1), 1.0, outside)
        p = torch.where(inside, step, outside)
    return p
