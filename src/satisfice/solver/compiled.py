"""``torch.compile`` of the reference: the path on CUDA, and a yardstick on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from satisfice.solver.passes import Pass
from satisfice.solver.philox import uniform_words
from satisfice.solver.reference import reference

__all__ = ["compiled"]


def compiled(given: Pass) -> tuple[Tensor, Tensor]:
    """Run the compiled reference.

    What changes from step to step goes in as tensors, so that nothing is compiled twice but for
    another shape, dtype or device.
    """
    mask = 0xFFFFFFFF
    seed, first = given.seed, given.offset >> 2
    device = given.gradients.device
    counter = torch.tensor(
        [seed & mask, seed >> 32, given.step, first & mask, first >> 32],
        dtype=torch.int64,
        device=device,
    )
    scalars = [
        torch.as_tensor(value, dtype=torch.float64, device=device)
        for value in (given.beta, given.rate)
    ]
    read = (given.gradients, given.penalty_gradient, given.gamma)
    written = (given.out, given.gamma_out)
    variant = (given.candidates, given.iterations, given.draw, given.offset & 3)
    layout = [(tensor.shape, tensor.stride()) for tensor in (*read, *written)]
    run = _whole(variant, *layout, given.gradients.dtype, device)
    return run(*read, *scalars, counter, *written)


@cache
def _whole(
    variant: tuple[str, int | None, str, int], *layout: object
) -> Callable[..., tuple[Tensor, Tensor]]:
    """Return the function for one variant and one layout of [E, P], compiled at its first call."""
    candidates, iterations, draw, lead = variant

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

    # torch.compile counts what it compiles by code object, and gives up at the eighth: each variant
    # and layout gets its own.
    whole.__code__ = whole.__code__.replace(co_name=f"sdg_{hash((variant, layout)) & 0xFFFFFFFF:x}")
    return torch.compile(whole, dynamic=False, fullgraph=True)
