"""What the solver's tests share: cases, plain formulas to compare with, and tolerances."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

DTYPES = (torch.float32, torch.float64)
SOLVERS = (25, None)


class Hostile(NamedTuple):
    """Shifts [E, N] that are exact in float32, with p from 50 digits."""

    shifts: Tensor
    iterated: Tensor
    limit: Tensor


def hostile() -> Iterator[Hostile]:
    path = Path(__file__).parents[1] / "hostile" / "probabilities.npz"
    with np.load(path, allow_pickle=False) as arrays:
        for name in arrays.files:
            if name.startswith("shifts_"):
                count = name.removeprefix("shifts_")
                yield Hostile(
                    torch.from_numpy(arrays[name]),
                    torch.from_numpy(arrays[f"iterated_{count}"]),
                    torch.from_numpy(arrays[f"limit_{count}"]),
                )


class Step(NamedTuple):
    """What one step's coordinates are given, float64."""

    gradients: Tensor  # [E, P]
    penalty_gradient: Tensor  # [P]
    beta: float


@st.composite
def steps(
    draw: st.DrawFn, *, domains: tuple[int, int] = (1, 8), coordinates: tuple[int, int] = (1, 12)
) -> Step:
    """Domains that agree more or less, coordinates of uneven scale, and a penalty of any weight."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    count, width = draw(st.integers(*domains)), draw(st.integers(*coordinates))
    agreement = draw(st.sampled_from([0.0, 0.3, 0.9, 1.0]))

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    scale = 10.0 ** draw(st.integers(-6, 2)) * torch.exp(normal(width))
    shared = agreement**0.5 * normal(width)
    gradients = scale * (shared + (1 - agreement) ** 0.5 * normal(count, width))
    weight = draw(st.sampled_from([0.0, 1e-3, 1.0, 30.0]))
    return Step(gradients, weight * scale * normal(width), draw(st.sampled_from([0.01, 0.3, 1.0])))


@st.composite
def shift_tensors(draw: st.DrawFn, *, low: float = -3, high: float = 2) -> Tensor:
    """Shifts [E, 20], float64, each column of its own scale between 10^low and 10^high."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    count = draw(st.integers(1, 9))
    scale = 10 ** (low + (high - low) * torch.rand(20, generator=generator, dtype=torch.float64))
    values = torch.randn(count, 20, generator=generator, dtype=torch.float64)
    return scale * (values - draw(st.sampled_from([0.0, 1.0])) * values.mean(0))


def objective(p: Tensor, shifts: Tensor) -> Tensor:
    """The mean over domains of log(p + (1−p)·e^(−Δ)), which the iterations raise."""
    return torch.logaddexp(p.log(), (-p).log1p() - shifts).mean(0)


def costs(step: Step, candidate: Tensor) -> Tensor:
    """c_e(G) = β·(G − g_e)² − q·G, of shape [E, P]."""
    return step.beta * (candidate - step.gradients) ** 2 - step.penalty_gradient * candidate


def limit_tolerance(shifts: Tensor, dtype: torch.dtype) -> Tensor:
    """2·E·eps/max|Δ|, plus 8·eps for what is left of p's own rounding (measured: 2·eps).

    Where max|Δ| is small, f'(p) = ΣΔ − O(ΣΔ²): rounding ΣΔ by E·eps·max|Δ| moves the root by up to
    E·eps/max|Δ|, whatever the method.
    """
    eps = torch.finfo(dtype).eps
    return 2 * len(shifts) * eps / shifts.double().abs().amax(0) + 8 * eps


def golden_step(vector: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    """The arguments of ``sign_probability`` in a golden vector."""
    return {
        "gradients": torch.tensor(vector["gradients"], dtype=dtype),
        "penalty_gradient": torch.tensor(vector["penalty_gradient"], dtype=dtype),
        "beta": vector["beta"],
        "gamma": vector["gamma"],
        "candidates": vector["candidates"],
    }
