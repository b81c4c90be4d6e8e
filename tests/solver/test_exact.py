from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from solver.reference import DTYPES, hostile, limit_tolerance, objective, shift_tensors
from torch import Tensor

from satisfice.solver.ascent import iterate
from satisfice.solver.exact import exact_limit


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_limit_agrees_with_50_digits(dtype: torch.dtype, device: str) -> None:
    for case in hostile():
        p = exact_limit(case.shifts.to(device, dtype)).cpu().double()
        excess = (p - case.limit).abs() - limit_tolerance(case.shifts, dtype)
        assert excess.max() <= 0, case.shifts[:, excess.argmax()].tolist()


@pytest.mark.parametrize("dtype", DTYPES)
def test_golden_shifts(dtype: torch.dtype, golden: dict[str, Any]) -> None:
    for vector in golden["shifts"]:
        shifts = torch.tensor(vector["shifts"], dtype=dtype)[:, None]
        largest = shifts.abs().max().item()
        if dtype == torch.float64:
            iterated, limit = 1e-10, 1e-10 if largest >= 1e-5 else 1e-7  # it is ill-conditioned
        else:
            # Rounding the shifts moves the logit by 25 of their eps, and p by a quarter of that;
            # it moves the limit by as much again as rounding the sum does.
            eps = torch.finfo(dtype).eps
            iterated = 1e-6 + 25 / 4 * eps * largest
            limit = 1e-6 + 2 * limit_tolerance(shifts, dtype).item() if largest else 0.0
        assert iterate(shifts, 25).item() == pytest.approx(vector["probability_25"], abs=iterated)
        assert exact_limit(shifts).item() == pytest.approx(vector["probability_exact"], abs=limit)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("domains", [1, 2, 3, 4, 7, 32])
def test_domains_that_agree_take_an_end_at_every_scale(domains: int, dtype: torch.dtype) -> None:
    scale = 10.0 ** torch.arange(-30, 5, dtype=dtype)
    shifts = scale * torch.linspace(0, 1, domains + 1, dtype=dtype)[1:, None]
    torch.testing.assert_close(exact_limit(shifts), torch.ones_like(scale), rtol=0, atol=0)
    torch.testing.assert_close(exact_limit(-shifts), torch.zeros_like(scale), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("domains", [1, 2, 3, 4, 7, 32])
def test_shifts_of_zero_give_one_half(domains: int, dtype: torch.dtype) -> None:
    assert exact_limit(torch.zeros(domains, 2, dtype=dtype)).tolist() == [0.5, 0.5]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("zeros", [0, 1, 2, 6])
def test_opposite_shifts_give_one_half_at_every_scale(zeros: int, dtype: torch.dtype) -> None:
    x = 10.0 ** torch.arange(-30, 5, dtype=dtype)
    p = exact_limit(torch.stack([x, -x, *[torch.zeros_like(x)] * zeros]))
    assert ((p - 0.5).abs() <= limit_tolerance(x[None], dtype)).all()
    assert (p[x < 1e-9] == 0.5).all()  # where the tolerance says nothing


@given(shift_tensors(), st.integers(0, 100))
def test_nothing_on_the_unit_interval_has_a_higher_objective(shifts: Tensor, percent: int) -> None:
    best = objective(exact_limit(shifts), shifts)
    other = objective(torch.full_like(shifts[0], percent / 100), shifts)
    assert (best >= other - 1e-12 * (1 + shifts.abs().amax(0))).all()


@given(shift_tensors())
def test_the_iteration_stays_at_the_limit(shifts: Tensor) -> None:
    p = exact_limit(shifts)
    moved = (p / (p + (1 - p) * torch.exp(-shifts))).mean(0)
    torch.testing.assert_close(moved, p, rtol=0, atol=1e-9)


@given(shift_tensors())
def test_swapping_the_candidates_gives_the_complement(shifts: Tensor) -> None:
    gap = exact_limit(shifts) + exact_limit(-shifts) - 1
    assert (gap.abs() <= 2 * limit_tolerance(shifts, shifts.dtype)).all()


@given(shift_tensors())
def test_the_order_of_domains_does_not_matter(shifts: Tensor) -> None:
    gap = exact_limit(shifts) - exact_limit(shifts.flip(0))
    assert (gap.abs() <= 2 * limit_tolerance(shifts, shifts.dtype)).all()


@pytest.mark.parametrize(
    ("votes", "expected"),
    [([1, -1], 1 / 2), ([1, 1, -1], 2 / 3), ([1, 1, 1, -1], 3 / 4), ([1, 1, 1], 1.0)],
)
def test_infinite_shifts_are_votes(votes: list[int], expected: float) -> None:
    shifts = math.inf * torch.tensor(votes, dtype=torch.float64)
    assert exact_limit(shifts[:, None]).item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("domains", [1, 2, 3, 4, 8])
def test_a_nan_leaves_other_coordinates_alone(domains: int) -> None:
    shifts = torch.randn(domains, 5)
    clean = exact_limit(shifts)
    shifts[0, 2] = math.nan
    rest = [0, 1, 3, 4]
    torch.testing.assert_close(exact_limit(shifts)[rest], clean[rest], rtol=0, atol=0)


def test_a_limit_beside_an_end_is_found() -> None:
    s = torch.tensor([0.8, 0.1, -0.7, -1.7561827864157193], dtype=torch.float64)[:, None]
    assert exact_limit(s).item() == pytest.approx(4.9509818e-10, abs=1e-12)
    assert exact_limit(-s).item() == pytest.approx(1 - 4.9509818e-10, abs=1e-12)


@pytest.mark.parametrize("domains", [1, 2, 3, 4, 9])
def test_nan_stays_nan(domains: int) -> None:
    s = torch.randn(domains, 2, dtype=torch.float64)
    s[0, 0] = torch.nan
    p = exact_limit(s)
    assert p[0].isnan()
    assert not p[1].isnan()


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_subnormal_shift_counts_as_none(dtype: torch.dtype) -> None:
    tiny = torch.finfo(dtype).tiny / 8
    s = torch.tensor([[tiny], [-1.0], [1.1]], dtype=dtype)
    torch.testing.assert_close(exact_limit(s), exact_limit(s[1:]))
