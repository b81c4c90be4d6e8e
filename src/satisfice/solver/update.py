"""One step of SDG over all coordinates, from the domains' gradients to the update."""

from __future__ import annotations

import torch
from torch import Tensor

from satisfice.errors import UserError, one_of
from satisfice.solver.candidates import candidates as make_candidates
from satisfice.solver.candidates import widened
from satisfice.solver.gamma import cost_magnitude
from satisfice.solver.philox import uniform_range
from satisfice.solver.two_candidates import check_iterations, log_odds_shifts, probability

__all__ = ["DRAWS", "sdg_update"]

DRAWS = ("sample", "expectation")


def sdg_update(
    gradients: Tensor,
    penalty_gradient: Tensor,
    gamma: Tensor,
    *,
    beta: float | Tensor,
    rate: float | Tensor,
    seed: int,
    step: int,
    offset: int = 0,
    candidates: str = "split",
    iterations: int | None = 25,
    draw: str = "sample",
    out: Tensor | None = None,
    gamma_out: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Choose one of two candidate updates for every coordinate; the readable reference.

    Parameters
    ----------
    gradients
        g_e, ``[E, P]``.
    penalty_gradient
        q = ∇(λ·Penalty), ``[P]``.
    gamma
        γ before this step, ``[P]`` or broadcasting to it.
    beta
        β^t.
    rate
        How far γ moves to this step's cost m before the shifts are formed: γ ← γ + (m − γ)·rate.
    seed, step, offset
        They, with the coordinate's index counted from ``offset``, determine the draw.
    candidates, iterations
        As in ``solver.candidates`` and ``solver.probability``.
    draw
        ``"sample"``: G₊ with probability p, else G₋. ``"expectation"``: p·G₊ + (1−p)·G₋.
    out, gamma_out
        Where the update and the new γ are written, ``[P]``; new tensors if None.

    Returns
    -------
    update, gamma
        ``[P]``, in float32 or wider. A dead coordinate (γ zero or subnormal) has the update g.
    deviation, norm
        ‖E[G] − g‖² and ‖g‖², float64 scalars.
    """
    one_of("draw", draw, DRAWS)
    check_iterations(iterations)
    if gradients.dim() != 2 or penalty_gradient.shape != gradients.shape[1:]:
        raise UserError(
            f"gradients must have shape [E, P] and penalty_gradient [P], not "
            f"{list(gradients.shape)} and {list(penalty_gradient.shape)}."
        )
    gradients, q = widened(gradients), widened(penalty_gradient)
    plus, minus = make_candidates(gradients, candidates)
    mean = plus + minus if candidates == "split" else plus

    magnitude = cost_magnitude(gradients, q, plus, minus, beta=beta)
    new_gamma = gamma + (magnitude - gamma) * rate
    shifts = log_odds_shifts(gradients, q, plus, minus, beta=beta, gamma=new_gamma)
    p = probability(shifts, iterations=iterations)

    dead = new_gamma < torch.finfo(plus.dtype).tiny
    expected = torch.where(dead, mean, p * plus + (1 - p) * minus)
    if draw == "sample":
        u = uniform_range(seed, step, offset, plus.numel(), device=plus.device)
        update = torch.where(dead, mean, torch.where(u < p, plus, minus))
    else:
        update = expected
    deviation = (expected - mean).double().square().sum()
    norm = mean.double().square().sum()
    return _written(update, out), _written(new_gamma, gamma_out), deviation, norm


def _written(values: Tensor, out: Tensor | None) -> Tensor:
    return values if out is None else out.copy_(values)
