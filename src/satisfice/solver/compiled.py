"""``torch.compile`` of the reference: the path on CUDA, and a yardstick on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from satisfice.solver.philox import uniform_words
from satisfice.solver.reference import reference

__all__ = ["compiled"]


def compiled(
    gradients: Tensor,
    penalty_gradient: Tensor,
    gamma: Tensor,
    *,
    beta: float | Tensor,
    rate: float | Tensor,
    seed: int,
    step: int,
    offset: int,
    candidates: str,
    iterations: int | None,
    draw: str,
    out: Tensor,
    gamma_out: Tensor,
) -> tuple[Tensor, Tensor]:
    """Fill ``out`` and ``gamma_out`` as ``sdg_update`` says; return deviation and norm.

    What changes from step to step goes in as tensors, so that nothing is compiled twice but for
    another shape, dtype or device.
    """
    mask = 0xFFFFFFFF
    first = offset >> 2
    counter = torch.tensor(
        [seed & mask, (seed >> 32) & mask, step & mask, first & mask, first >> 32],
        dtype=torch.int64,
        device=gradients.device,
    )
    scalars = [torch.as_tensor(value, dtype=torch.float64) for value in (beta, rate)]
    run = _whole(candidates, iterations, draw, offset & 3)
    return run(gradients, penalty_gradient, gamma, *scalars, counter, out, gamma_out)


@cache
def _whole(
    candidates: str, iterations: int | None, draw: str, lead: int
) -> Callable[..., tuple[Tensor, Tensor]]:
    def whole(
        gradients: Tensor,
        penalty_gradient: Tensor,
        gamma: Tensor,
        beta: Tensor,
        rate: Tensor,
        counter: Tensor,
        out: Tensor,
        gamma_out: Tensor,
    ) -> tuple[Tensor, Tensor]:
        size = gradients.shape[1]
        uniform = None
        if draw == "sample":
            uniform = uniform_words(counter, (lead + size + 3) // 4)[lead : lead + size]
        update, new_gamma, deviation, norm = reference(
            gradients,
            penalty_gradient,
            gamma,
            uniform,
            beta=beta,
            rate=rate,
            candidates=candidates,
            iterations=iterations,
        )
        out.copy_(update)
        gamma_out.copy_(new_gamma)
        return deviation, norm

    return torch.compile(whole, dynamic=False, fullgraph=True)
