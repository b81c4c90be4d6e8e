"""How likely the first of two candidates is to be chosen, for every coordinate."""

from __future__ import annotations

import torch
from torch import Tensor

from satisfice.errors import UserError, in_range
from satisfice.solver.ascent import iterate
from satisfice.solver.candidates import candidates as make_candidates
from satisfice.solver.candidates import widened
from satisfice.solver.exact import exact_limit

__all__ = [
    "check_iterations",
    "log_odds_shifts",
    "probability",
    "sign_probability",
]


def check_iterations(iterations: int | None) -> None:
    """Refuse a number of iterations below 1; None is the exact limit."""
    if iterations is None:
        return
    if not isinstance(iterations, int):
        raise UserError(f"iterations={iterations!r} must be a whole number, or None for the limit.")
    in_range("iterations", iterations, 1)


def log_odds_shifts(
    gradients: Tensor,
    penalty_gradient: Tensor,
    plus: Tensor,
    minus: Tensor,
    *,
    beta: float | Tensor,
    gamma: float | Tensor,
) -> Tensor:
    """Return Δ_e = (c_e(G₋) − c_e(G₊))/γ of shape [E, ...], and 0 where γ is zero or subnormal.

    It is formed as (G₊−G₋)·(β(2g_e−G₊−G₋) + q)/γ: the difference of two rounded costs loses digits.
    Where γ is infinite, because a cost was, Δ is NaN, so that the step is seen not to be finite.
    """
    shape = plus.shape
    gamma = torch.as_tensor(gamma, dtype=plus.dtype, device=plus.device).expand(shape)
    alive = ~(gamma < torch.finfo(plus.dtype).tiny)
    shifts = (plus - minus) * (beta * (2 * gradients - plus - minus) + penalty_gradient)
    return torch.where(alive, shifts / torch.where(alive, gamma, 1.0) + (gamma - gamma), 0.0)


def probability(shifts: Tensor, *, iterations: int | None = 25) -> Tensor:
    """Return p, the probability of G₊, for the domains' log-odds shifts.

    Parameters
    ----------
    shifts
        Δ_e, of shape ``[E, ...]``.
    iterations
        How often p ← (1/E) Σ_e σ(logit p + Δ_e) is applied, from 1/2; None is its limit, exactly.

    Returns
    -------
    p of shape ``[...]``, in float32 or wider.
    """
    check_iterations(iterations)
    shifts = widened(shifts)
    if shifts.dim() < 1 or not len(shifts):
        raise UserError("shifts must have at least one domain, in their first dimension.")
    return exact_limit(shifts) if iterations is None else iterate(shifts, iterations)


def sign_probability(
    gradients: Tensor,
    penalty_gradient: Tensor,
    *,
    beta: float | Tensor,
    gamma: float | Tensor,
    candidates: str = "split",
    iterations: int | None = 25,
) -> Tensor:
    """Return p, the probability of G₊, for every coordinate.

    Parameters
    ----------
    gradients
        g_e, of shape ``[E, ...]`` and any floating dtype.
    penalty_gradient
        q = ∇(λ·Penalty), of shape ``[...]``.
    beta, gamma
        β^t, and γ: a number, or a tensor that broadcasts to ``[...]``.
    candidates, iterations
        As in ``candidates`` and ``probability``.

    Returns
    -------
    p of shape ``[...]``, in float32 or wider.
    """
    check_iterations(iterations)
    plus, minus = make_candidates(gradients, candidates)
    shifts = log_odds_shifts(
        widened(gradients),
        widened(penalty_gradient),
        plus,
        minus,
        beta=beta,
        gamma=gamma,
    )
    return probability(shifts, iterations=iterations)
