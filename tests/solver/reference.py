"""What the solver's tests share: cases, plain formulas to compare with, and tolerances."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from satisfice.solver import (
    CANDIDATES,
    DRAWS,
    candidates,
    cost_magnitude,
    log_odds_shifts,
    probability,
    sdg_update,
    uniform_range,
)

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


Result = tuple[Tensor, Tensor, Tensor, Tensor]


class Pass(NamedTuple):
    """What one whole pass of the solver is given."""

    gradients: Tensor  # [E, P]
    penalty_gradient: Tensor  # [P]
    gamma: Tensor  # broadcasts to [P]
    options: dict[str, Any]


def some_pass(
    domains: int = 4,
    size: int = 2100,
    dtype: torch.dtype = torch.float32,
    *,
    seed: int = 0,
    scale: float = 1.0,
    **options: Any,
) -> Pass:
    """Normal gradients of about ``scale``, and a γ between a third and three times the cost."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return scale * torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

    known = {"beta": 0.3, "rate": 0.1, "seed": seed, "step": 3, "offset": 5, **options}
    gradients, q = normal(domains, size), normal(size)
    pair = candidates(gradients, known.get("candidates", "split"))
    cost = cost_magnitude(gradients, q, *pair, beta=known["beta"])
    return Pass(gradients, q, cost * torch.exp(normal(size) / scale), known)


LAYOUTS = ("rows", "apart", "columns", "every second", "one row")
"""How [E, P] may lie in memory: together, in a wider buffer, transposed, strided, or expanded."""


def laid_out(values: Tensor, layout: str) -> Tensor:
    """Return the same values [E, P] (of the first row, for ``one row``), laid out so."""
    count, size = values.shape
    if layout == "apart":
        return torch.cat([values, values[:, :5]], 1)[:, :size] if size > 4 else values
    if layout == "columns":
        return values.T.contiguous().T
    if layout == "every second":
        return values.repeat_interleave(2, 1)[:, ::2]
    if layout == "one row":
        return values[:1].expand(count, size)
    return values


@st.composite
def passes(draw: st.DrawFn) -> Pass:
    """1 to 64 domains, any size, layout and scale, γ above or below the cost, every option."""
    count = draw(st.one_of(st.integers(1, 9), st.sampled_from([12, 15, 16, 17, 31, 33, 63, 64])))
    size = draw(st.one_of(st.integers(1, 70), st.sampled_from([511, 513, 1023, 1025, 2111])))
    dtype = draw(st.sampled_from(DTYPES))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    scale = 10.0 ** draw(st.integers(-6, 2)) * torch.exp(normal(size))
    agreement = draw(st.sampled_from([0.0, 0.3, 0.99, 1.0]))
    own = (1 - agreement) ** 0.5 * normal(count, size)
    gradients = (scale * (agreement**0.5 * normal(size) + own)).to(dtype)
    q = (draw(st.sampled_from([0.0, 1e-3, 1.0, 30.0])) * scale * normal(size)).to(dtype)
    if draw(st.booleans()):
        q = q[:1].expand(size)  # of stride 0, as a missing penalty is
    gradients = laid_out(gradients, draw(st.sampled_from(LAYOUTS)))
    options = {
        "beta": draw(st.sampled_from([0.01, 0.3, 1.0])),
        "rate": draw(st.sampled_from([1.0, 0.01, 0.0])),
        "seed": draw(st.integers(0, 2**64 - 1)),
        "step": draw(st.integers(1, 2**32 - 1)),
        "offset": draw(st.integers(0, 2**40)),
        "candidates": draw(st.sampled_from(CANDIDATES)),
        "iterations": draw(st.sampled_from([25, None, 1, 2, 7])),
        "draw": draw(st.sampled_from(DRAWS)),
    }
    pair = candidates(gradients, options["candidates"])
    cost = cost_magnitude(gradients, q, *pair, beta=options["beta"])
    gamma = cost * 10.0 ** draw(st.integers(-2, 3))
    kind = draw(st.sampled_from(["coordinate", "model", "none"]))
    if kind == "model":
        gamma = gamma.mean()
    elif kind == "none":
        gamma = torch.zeros((), dtype=dtype)
    return Pass(gradients, q, gamma, options)


def run(case: Pass, **options: Any) -> Result:
    return sdg_update(
        case.gradients, case.penalty_gradient, case.gamma, **{**case.options, **options}
    )


def agreement(shifts: Tensor, iterations: int | None) -> Tensor:
    """How far two ways to p may differ: 1e-6, and for the limit 2·E·eps/max|Δ| more.

    One ulp in a shift moves the limit that much. In float64 1e-12 takes the place of 1e-6.
    """
    rest = 1e-6 if shifts.dtype == torch.float32 else 1e-12
    largest = shifts.double().abs().amax(0)
    if iterations is not None:
        return torch.full_like(largest, rest)
    moved = 2 * len(shifts) * torch.finfo(shifts.dtype).eps / largest
    return torch.where(largest == 0, rest, moved + rest)


class Agreement(NamedTuple):
    """How two results differed, where they were allowed to."""

    flips: int
    """Draws that fell on the other side, because p did."""
    margin: float
    """The farthest that u lay from p where a draw flipped."""
    worst: float
    """The largest difference of p over what is allowed, where an expectation shows it."""


def same(found: Tensor, expected: Tensor) -> None:
    """Every value equal, NaN to NaN."""
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


def assert_agrees(case: Pass, found: Result, expected: Result) -> Agreement:
    """γ and the update to the bit, but for what a small difference of p does to them."""
    options = case.options
    kind, iterations = options.get("candidates", "split"), options.get("iterations", 25)
    same(found[1], expected[1])
    plus, minus = candidates(case.gradients, kind)
    mean = plus + minus if kind == "split" else plus
    shifts = log_odds_shifts(
        case.gradients,
        case.penalty_gradient,
        plus,
        minus,
        beta=options["beta"],
        gamma=expected[1],
    )
    p = probability(shifts, iterations=iterations)
    certain = p.isnan() | ~plus.isfinite() | ~minus.isfinite()  # p decides nothing there
    same(found[0][certain], expected[0][certain])

    allowed = agreement(shifts, iterations).nan_to_num(0.0)
    eps = torch.finfo(mean.dtype).eps
    plus_, minus_ = plus.double().nan_to_num(), minus.double().nan_to_num()
    off = allowed * (plus_ - minus_).abs() + 4 * eps * (plus_.abs() + minus_.abs())
    flips, margin, worst = 0, 0.0, 0.0
    if options.get("draw", "sample") == "sample":
        flipped = (found[0] != expected[0]) & ~certain
        u = uniform_range(options["seed"], options["step"], options["offset"], len(plus))
        distance = (u.double() - p.double()).abs()[flipped]
        flips = int(flipped.sum())
        assert (distance <= allowed[flipped]).all(), distance
        assert (found[0][flipped] == torch.stack([plus, minus])[:, flipped]).any(0).all()
        margin = max(distance.tolist(), default=0.0)
    else:
        gap = (found[0].double() - expected[0].double()).abs()[~certain]
        assert (gap <= off[~certain]).all(), (gap - off[~certain]).max()
        worst = max((gap / off[~certain].clamp(min=1e-300)).tolist(), default=0.0)

    # ‖E[G] − g‖² may be off by what p is; E[G] − g is formed in the gradients' own dtype.
    bias = (p * plus + (1 - p) * minus - mean).double().abs()
    slack = (off * (2 * bias + off))[bias.isfinite()].sum()
    for value, reference, more in zip(found[2:], expected[2:], (slack, 0.0), strict=True):
        assert value.dtype == torch.float64
        assert value.dim() == 0
        if reference.isfinite():
            assert abs(value - reference) <= more + 1e-10 * reference
        else:
            same(value, reference)
    return Agreement(flips, margin, worst)
