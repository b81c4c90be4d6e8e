"""One step of SDG over all coordinates: the readable reference, in plain PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor

from satisfice.solver.candidates import candidates as make_candidates
from satisfice.solver.gamma import cost_magnitude
from satisfice.solver.passes import Pass
from satisfice.solver.philox import uniform_range
from satisfice.solver.two_candidates import log_odds_shifts, probability

__all__ = ["cost_in_blocks", "reference", "reference_in_blocks"]

_BLOCK = 4096  # coordinates: what eager PyTorch's temporaries leave of a cache


def reference(
    gradients: Tensor,
    penalty_gradient: Tensor,
    gamma: Tensor,
    uniform: Tensor | None,
    *,
    beta: float | Tensor,
    rate: float | Tensor,
    candidates: str,
    iterations: int | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return update, γ, deviation and norm: see ``sdg_update``.

    ``uniform`` [P] draws G₊ where it is below p; None takes the expectation.
    """
    plus, minus = make_candidates(gradients, candidates)
    mean = plus + minus if candidates == "split" else plus

    magnitude = cost_magnitude(gradients, penalty_gradient, plus, minus, beta=beta)
    gamma = gamma + (magnitude - gamma) * rate
    shifts = log_odds_shifts(gradients, penalty_gradient, plus, minus, beta=beta, gamma=gamma)
    p = probability(shifts, iterations=iterations)

    dead = gamma < torch.finfo(plus.dtype).tiny
    expected = torch.where(dead, mean, p * plus + (1 - p) * minus)
    if uniform is None:
        update = expected
    else:
        update = torch.where(dead, mean, torch.where(uniform < p, plus, minus))
    deviation = (expected - mean).double().square().sum()
    norm = mean.double().square().sum()
    return update, gamma, deviation, norm


def reference_in_blocks(given: Pass) -> tuple[Tensor, Tensor]:
    """Run the reference block by block."""
    size, device = given.gradients.shape[1], given.gradients.device
    sums = torch.zeros(2, dtype=torch.float64, device=device)
    for part in _blocks(size, device):
        uniform = None
        if given.draw == "sample":
            start, length = given.offset + part.start, part.stop - part.start
            uniform = uniform_range(given.seed, given.step, start, length, device=device)
        update, new_gamma, deviation, norm = reference(
            given.gradients[:, part],
            given.penalty_gradient[part],
            given.gamma[part],
            uniform,
            beta=given.beta,
            rate=given.rate,
            candidates=given.candidates,
            iterations=given.iterations,
        )
        given.out[part], given.gamma_out[part] = update, new_gamma
        sums = sums + torch.stack([deviation, norm])
    return sums[0], sums[1]


def cost_in_blocks(
    gradients: Tensor, penalty_gradient: Tensor, *, candidates: str, beta: float | Tensor
) -> Tensor:
    """Return the costs' magnitude m [P]: see ``cost_magnitude``."""
    magnitude = torch.empty_like(gradients[0])
    for part in _blocks(len(magnitude), gradients.device):
        plus, minus = make_candidates(gradients[:, part], candidates)
        magnitude[part] = cost_magnitude(
            gradients[:, part], penalty_gradient[part], plus, minus, beta=beta
        )
    return magnitude


def _blocks(size: int, device: torch.device) -> list[slice]:
    block = _BLOCK if device.type == "cpu" else max(size, 1)
    return [slice(start, min(start + block, size)) for start in range(0, size, block)]
