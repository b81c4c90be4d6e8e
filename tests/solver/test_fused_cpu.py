"""The fused kernel does what the reference does: the same γ, the same draws, p to its tolerance."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numba
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from solver.reference import (
    DTYPES,
    LAYOUTS,
    SOLVERS,
    Agreement,
    Pass,
    agreement,
    assert_agrees,
    hostile,
    laid_out,
    passes,
    run,
    same,
    some_pass,
)
from torch import Tensor

from satisfice.solver import (
    CANDIDATES,
    DRAWS,
    candidates,
    log_odds_shifts,
    probability,
    uniform_range,
)
from satisfice.solver.fused_cpu import _scratch
from satisfice.solver.fused_probability import TERMS, make_iterations, make_limit

REAL: dict[torch.dtype, type[np.floating[Any]]] = {
    torch.float32: np.float32,
    torch.float64: np.float64,
}


def compare(case: Pass, **options: Any) -> Agreement:
    case = case._replace(options={**case.options, **options})
    return assert_agrees(case, run(case, backend="numba"), run(case, backend="reference"))


@cache
def _solver(dtype: torch.dtype, exact: bool) -> Callable[..., None]:
    """The kernel's own way from shifts to p, by itself."""
    solve = (make_limit if exact else make_iterations)(REAL[dtype])

    @numba.njit(error_model="numpy")
    def block_by_block(
        shifts: Any, p: Any, work: Any, power: Any, iterations: int
    ) -> None:  # pragma: no cover - compiled
        domains, size = shifts.shape
        for start in range(0, size, len(power)):
            n = min(len(power), size - start)
            for e in range(domains):
                work[TERMS + 2 * e, :n] = shifts[e, start : start + n]
            solve(work, power, n, domains, iterations)
            p[start : start + n] = work[3, :n]

    return block_by_block  # type: ignore[no-any-return]


def kernel_probability(shifts: Tensor, iterations: int | None) -> Tensor:
    p = torch.empty_like(shifts[0])
    work, power, _ = _scratch(len(shifts), REAL[shifts.dtype])
    solve = _solver(shifts.dtype, iterations is None)
    solve(shifts.contiguous().numpy(), p.numpy(), work, power, iterations or 0)
    return p


# Against the reference


@settings(max_examples=200)
@given(passes())
def test_it_is_the_reference(case: Pass) -> None:
    assert compare(case).flips <= 1


@pytest.mark.parametrize("iterations", SOLVERS)
@pytest.mark.parametrize("domains", range(1, 65))
def test_every_number_of_domains(domains: int, iterations: int | None) -> None:
    case = some_pass(domains, 130, seed=domains, iterations=iterations, draw="expectation")
    compare(case)


@pytest.mark.parametrize("size", [0, 1, 2, 63, 64, 65, 127, 128, 511, 513, 1023, 1024, 1025, 3333])
def test_every_size(size: int) -> None:
    for offset in range(4):
        assert compare(some_pass(3, size, offset=offset)).flips == 0


@pytest.mark.parametrize("domains", [65, 100])
def test_more_domains_than_most_have(domains: int) -> None:
    for iterations in SOLVERS:
        compare(some_pass(domains, 130, iterations=iterations, draw="expectation"))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("iterations", SOLVERS)
@pytest.mark.parametrize("kind", CANDIDATES)
def test_draws_fall_on_the_same_side(kind: str, iterations: int | None, dtype: torch.dtype) -> None:
    case = some_pass(4, 100_003, dtype, candidates=kind, iterations=iterations)
    found = compare(case)
    assert found.flips <= 1


@pytest.mark.slow
@pytest.mark.parametrize("iterations", SOLVERS)
def test_hardly_any_of_four_million_draws_flips(iterations: int | None) -> None:
    found = compare(some_pass(4, 4_000_001, iterations=iterations, scale=1e-3))
    assert found.flips <= 8


def nearly_tied(size: int, dtype: torch.dtype) -> Pass:
    """Shifts of 1e-3 that cancel but for rounding, so that rounding decides where the limit is."""
    case = some_pass(4, size, dtype, candidates="flip", iterations=None, rate=0.0, beta=0.5)
    mean = candidates(case.gradients, "flip")[0]
    size_of_shifts = (2 * mean * case.gradients).abs().amax(0)
    return case._replace(penalty_gradient=-mean, gamma=1e3 * size_of_shifts)


@pytest.mark.parametrize("dtype", DTYPES)
def test_where_rounding_moves_p_a_draw_flips_only_beside_it(dtype: torch.dtype) -> None:
    found = compare(nearly_tied(100_003, dtype))
    assert found.flips <= (40 if dtype == torch.float32 else 0)


def test_the_comparison_counts_a_flip_beside_p_and_refuses_any_other() -> None:
    case = nearly_tied(100_003, torch.float32)
    expected = run(case, backend="reference")
    shifts = log_odds_shifts(
        case.gradients,
        case.penalty_gradient,
        *candidates(case.gradients, "flip"),
        beta=0.5,
        gamma=case.gamma,
    )
    options = case.options
    u = uniform_range(options["seed"], options["step"], options["offset"], shifts.shape[1])
    distance = (u - probability(shifts, iterations=None)).abs()
    for where, fine in ((distance.argmin(), True), (distance.argmax(), False)):
        update = expected[0].clone()
        update[where] *= -1
        found = (update, *expected[1:])
        if fine:
            assert assert_agrees(case, found, expected).flips == 1
        else:
            with pytest.raises(AssertionError):
                assert_agrees(case, found, expected)


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_may_lie_anywhere(layout: str, draw: str) -> None:
    case = some_pass(5, 1500, draw=draw)
    case = case._replace(gradients=laid_out(case.gradients, layout))
    plain = case._replace(gradients=case.gradients.contiguous().clone())
    compare(case)
    for found, expected in zip(
        run(case, backend="numba"), run(plain, backend="numba"), strict=True
    ):
        same(found, expected)


def test_a_slice_that_starts_inside_its_buffer() -> None:
    buffer = torch.randn(7, 3000)
    case = some_pass(3, 1111)
    compare(case._replace(gradients=buffer[2:5, 901:2012]))
    compare(case._replace(gradients=buffer[1::2, 901:2012]))  # every second row
    compare(case._replace(gradients=buffer[:3, 5:2227:2]))
    one = some_pass(4, 1)
    compare(one._replace(gradients=torch.randn(8, 2)[::2, 1:]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_penalty_and_a_gamma_of_stride_zero(dtype: torch.dtype) -> None:
    case = some_pass(4, 1500, dtype)
    compare(
        case._replace(
            penalty_gradient=torch.zeros((), dtype=dtype).expand(1500),
            gamma=torch.tensor(0.7, dtype=dtype),
        )
    )
    compare(case._replace(gamma=torch.full((1,), 0.7, dtype=dtype).expand(1500)))
    compare(case._replace(gamma=torch.rand(3000, dtype=dtype)[::2]))


@pytest.mark.parametrize("iterations", SOLVERS)
def test_results_go_where_asked_and_nothing_beside_them_is_touched(iterations: int | None) -> None:
    case = some_pass(4, 1500, iterations=iterations)
    expected = run(case, backend="numba")
    for step in (1, 2, 3):
        wide, wide_gamma = torch.full((4500,), -7.0), torch.full((4500,), -8.0)
        ours = slice(0, 1500 * step, step)
        out, gamma_out = wide[ours], wide_gamma[ours]
        found = run(case, backend="numba", out=out, gamma_out=gamma_out)
        assert found[0] is out
        assert found[1] is gamma_out
        for value, reference in zip(found, expected, strict=True):
            same(value, reference)
        rest = torch.ones(4500, dtype=torch.bool)
        rest[ours] = False
        assert (wide[rest] == -7).all()
        assert (wide_gamma[rest] == -8).all()


@pytest.mark.parametrize("step", [1, 2])
def test_inputs_are_left_alone_and_gamma_may_be_overwritten(step: int) -> None:
    case = some_pass(4, 1500)
    case = case._replace(gamma=case.gamma.repeat_interleave(step)[::step])
    kept = [values.clone() for values in case[:3]]
    expected = run(case, backend="numba")
    for value, before in zip(case[:3], kept, strict=True):
        same(value, before)
    found = run(case, backend="numba", gamma_out=case.gamma)
    same(found[0], expected[0])
    same(case.gamma, expected[1])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("iterations", SOLVERS)
def test_narrow_gradients_are_widened_on_the_way_in(
    iterations: int | None, dtype: torch.dtype
) -> None:
    case = some_pass(4, 1500, iterations=iterations, draw="expectation")
    narrow = case._replace(
        gradients=case.gradients.to(dtype), penalty_gradient=case.penalty_gradient.to(dtype)
    )
    wide = case._replace(
        gradients=narrow.gradients.float(), penalty_gradient=narrow.penalty_gradient.float()
    )
    found, expected = run(narrow, backend="numba"), run(wide, backend="numba")
    for value, reference in zip(found, expected, strict=True):
        assert value.dtype == reference.dtype
        same(value, reference)
    assert_agrees(wide, found, run(narrow, backend="reference"))


@pytest.mark.parametrize(
    "options",
    [
        {"seed": 0, "step": 0, "offset": 0},
        {"seed": 2**64 - 1, "step": 2**32 - 1},
        {"seed": 2**63},
        {"offset": 2**34 - 700},  # the index of a block of four passes 2³² inside
        {"offset": 2**40 + 3},
        {"beta": torch.tensor(0.3), "rate": torch.tensor(0.5, dtype=torch.float64)},
    ],
)
def test_counters_and_numbers_of_every_kind(options: dict[str, Any]) -> None:
    case = some_pass(3, 1500)
    pair = candidates(case.gradients)
    undecided = case._replace(gamma=1e3 * case.gamma)  # p near 1/2
    assert compare(undecided, **{**options, "rate": 0.0}).flips == 0
    update = run(undecided, backend="numba", **{**options, "rate": 0.0})[0]
    assert 600 < (update == pair[0]).sum() < 900
    compare(case, **options)


# Probabilities


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("iterations", SOLVERS)
def test_probabilities_agree_with_50_digits(iterations: int | None, dtype: torch.dtype) -> None:
    worst = 0.0
    for case in hostile():
        shifts = case.shifts.to(dtype)
        p = kernel_probability(shifts, iterations)
        gap = (p.double() - (case.limit if iterations is None else case.iterated)).abs()
        share = gap / agreement(shifts, iterations)
        worst = max(worst, share.max().item())
        assert worst <= 1, (case.shifts[:, share.argmax()].tolist(), gap[share.argmax()].item())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("iterations", SOLVERS)
@pytest.mark.parametrize("domains", [1, 2, 3, 4, 5, 8, 63, 64])
def test_infinite_and_undefined_shifts(
    domains: int, iterations: int | None, dtype: torch.dtype
) -> None:
    values = torch.tensor([math.inf, -math.inf, math.nan, 0.0, -0.0, 1.0, 1e-30, 1e-37, 3e38])
    generator = torch.Generator().manual_seed(domains)
    shifts = values[torch.randint(len(values), (domains, 400), generator=generator)]
    shifts[:, :100] = shifts[:, :100].nan_to_num(0.0, math.inf, -math.inf)
    shifts[:, 100:110], shifts[:, 110:120], shifts[:, 120:130] = math.inf, -math.inf, math.nan
    shifts = shifts.to(dtype)
    p, expected = kernel_probability(shifts, iterations), probability(shifts, iterations=iterations)
    assert (p.isnan() == expected.isnan()).all()
    assert p[100:110].tolist() == [1.0] * 10
    assert p[110:120].tolist() == [0.0] * 10
    gap = (p.double() - expected.double()).abs()
    assert (gap <= agreement(shifts, iterations))[~p.isnan()].all()


# Hostile inputs

HOSTILE = [
    (dtype, iterations, draw) for dtype in DTYPES for iterations in SOLVERS for draw in DRAWS
]


@pytest.mark.parametrize(("dtype", "iterations", "draw"), HOSTILE)
@pytest.mark.parametrize("kind", CANDIDATES)
def test_gradients_of_every_size(
    kind: str, dtype: torch.dtype, iterations: int | None, draw: str
) -> None:
    """From subnormal to where costs overflow, every coordinate and then every value of its own."""
    ends = (-45, 38) if dtype == torch.float32 else (-320, 308)
    for domains in (1, 2, 3, 4, 7, 64):
        case = some_pass(domains, 700, torch.float64, seed=domains)
        for shape in ((700,), (domains, 700)):
            power = ends[0] + (ends[1] - ends[0]) * torch.rand(shape, dtype=torch.float64)
            scale = 10.0**power
            gradients = (case.gradients.sign() * scale).to(dtype)
            q = case.penalty_gradient * scale.reshape(-1, 700)[0]
            assert (gradients != 0).any()
            for gamma in (torch.zeros(()), torch.ones(()), torch.tensor(1e30)):
                compare(
                    Pass(gradients, q.to(dtype), gamma.to(dtype), case.options),
                    rate=1.0 if gamma == 0 else 0.5,
                    candidates=kind,
                    iterations=iterations,
                    draw=draw,
                )


@pytest.mark.parametrize(("dtype", "iterations", "draw"), HOSTILE)
@pytest.mark.parametrize("domains", [2, 3, 4, 5, 64])
def test_shifts_that_cancel_exactly(
    domains: int, dtype: torch.dtype, iterations: int | None, draw: str
) -> None:
    """Pairs ±x: their mean is 0, and with ``split`` their shifts cancel."""
    generator = torch.Generator().manual_seed(domains)
    half = torch.randint(1, 9, (domains // 2, 900), generator=generator).to(dtype)
    gradients = torch.cat([half, -half, torch.zeros(domains % 2, 900, dtype=dtype)])
    q = torch.zeros(900, dtype=dtype)
    options = some_pass().options
    for kind in CANDIDATES:
        for scale in (1e-12, 1e-4, 1.0, 1e6):
            case = Pass(scale * gradients, q, torch.zeros((), dtype=dtype), options)
            compare(case, candidates=kind, iterations=iterations, draw=draw, rate=1.0)
    # With flip a mean of m gives shifts 4βm(m ± x)/γ, and a penalty of −2βm takes m out.
    level = torch.full((900,), 0.25, dtype=dtype)
    case = Pass(gradients + level, -0.5 * level, 3 * torch.ones((), dtype=dtype), options)
    compare(case, beta=0.25, rate=0.0, candidates="flip", iterations=iterations, draw=draw)


@pytest.mark.parametrize(("dtype", "iterations", "draw"), HOSTILE)
@pytest.mark.parametrize("kind", CANDIDATES)
def test_gamma_at_its_ends(
    kind: str, dtype: torch.dtype, iterations: int | None, draw: str
) -> None:
    info = torch.finfo(dtype)
    values = [0.0, -0.0, info.tiny / 4, info.tiny, 2 * info.tiny, 1.0, info.max, math.inf]
    gamma = torch.tensor([*values, math.nan, -1.0], dtype=dtype)
    case = some_pass(4, len(gamma), dtype)._replace(gamma=gamma)
    options = {"candidates": kind, "iterations": iterations, "draw": draw}
    compare(case, **options, rate=0.0)
    compare(case, **options, rate=0.1)
    update = run(case, backend="numba", **options, rate=0.0)[0]
    mean = candidates(case.gradients, kind)
    dead = [0, 1, 2, 9]  # zero, subnormal or negative
    same(update[dead], (mean[0] + mean[1] if kind == "split" else mean[0])[dead])


@pytest.mark.parametrize(("dtype", "iterations", "draw"), HOSTILE)
@pytest.mark.parametrize("kind", CANDIDATES)
@pytest.mark.parametrize("where", ["gradients", "penalty_gradient", "gamma"])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_one_bad_coordinate(
    bad: float, where: str, kind: str, dtype: torch.dtype, iterations: int | None, draw: str
) -> None:
    options = {"candidates": kind, "iterations": iterations, "draw": draw}
    for domains in (1, 3, 4):
        case = some_pass(domains, 70, dtype, **options)
        clean = run(case, backend="numba")
        values = getattr(case, where)
        values[(-1, 17) if where == "gradients" else 17] = bad
        found, expected = run(case, backend="numba"), run(case, backend="reference")
        rest = torch.arange(70) != 17
        for value, before, reference in zip(found[:2], clean[:2], expected[:2], strict=True):
            same(value[rest], before[rest])
            same(value[17], reference[17])
        compare(case)


@pytest.mark.parametrize(("dtype", "iterations", "draw"), HOSTILE)
def test_a_step_that_is_nothing_but_nan(
    dtype: torch.dtype, iterations: int | None, draw: str
) -> None:
    case = some_pass(4, 300, dtype, iterations=iterations, draw=draw)
    case = case._replace(gradients=torch.full_like(case.gradients, math.nan))
    found = run(case, backend="numba")
    assert all(value.isnan().all() for value in found)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("iterations", SOLVERS)
def test_p_at_both_ends(iterations: int | None, dtype: torch.dtype) -> None:
    """Shifts so large that p is 0 or 1 exactly: the update is a candidate, drawn or expected."""
    case = some_pass(4, 1500, dtype, iterations=iterations, rate=0.0, beta=1e-6)
    case = case._replace(penalty_gradient=case.penalty_gradient.sign(), gamma=1e-4 * case.gamma)
    plus, minus = candidates(case.gradients)
    expected = torch.where(case.penalty_gradient > 0, plus, minus)
    for draw in DRAWS:
        assert compare(case, draw=draw).flips == 0
        both = (plus - minus) > 1e-2
        same(run(case, draw=draw, backend="numba")[0][both], expected[both])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("iterations", SOLVERS)
def test_one_domain(iterations: int | None, dtype: torch.dtype) -> None:
    case = some_pass(1, 1500, dtype, iterations=iterations)
    compare(case)
    alone = case._replace(penalty_gradient=torch.zeros_like(case.penalty_gradient))
    compare(alone)
    update, _, deviation, norm = run(alone, iterations=None, backend="numba")
    same(update, case.gradients[0])
    assert deviation == 0
    assert norm.item() == pytest.approx(case.gradients.double().square().sum().item(), rel=1e-12)


def test_deviation_and_norm_are_sums_in_float64() -> None:
    case = some_pass(4, 50_001, scale=1e3, draw="expectation")
    update, _, deviation, norm = run(case, backend="numba")
    mean = sum(candidates(case.gradients), start=torch.zeros(()))
    wide = (update - mean).double().square().sum()
    assert deviation.item() == pytest.approx(wide.item(), rel=1e-12)
    assert norm.item() == pytest.approx(mean.double().square().sum().item(), rel=1e-12)
    drawn = run(case, draw="sample", backend="numba")
    same(drawn[2], deviation)  # the expectation's, though the update is drawn
