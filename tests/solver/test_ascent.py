from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from solver.reference import DTYPES, hostile, objective, shift_tensors
from torch import Tensor

from satisfice.solver import blahut_arimoto
from satisfice.solver.ascent import iterate, slope_terms
from satisfice.solver.exact import exact_limit


@pytest.mark.parametrize("dtype", DTYPES)
def test_25_iterations_agree_with_50_digits(dtype: torch.dtype, device: str) -> None:
    # 25 roundings of a p near 1: 7.4e-7 is the worst in float32, 1.3e-15 in float64.
    tolerance = 1e-6 if dtype == torch.float32 else 1e-14
    count = 0
    for case in hostile():
        p = iterate(case.shifts.to(device, dtype), 25)
        torch.testing.assert_close(p.cpu().double(), case.iterated, rtol=0, atol=tolerance)
        count += len(p)
    assert count > 3000


@given(shift_tensors(), st.integers(1, 40))
def test_an_iteration_is_the_mean_over_domains_of_shifted_odds(shifts: Tensor, n: int) -> None:
    p = torch.full_like(shifts[0], 0.5)
    for _ in range(n):
        p = torch.sigmoid(torch.logit(p) + shifts).mean(0)
    torch.testing.assert_close(iterate(shifts, n), p, rtol=0, atol=1e-12)


@given(shift_tensors(high=3), st.integers(1, 30))
def test_it_is_blahut_arimoto_with_two_candidates(shifts: Tensor, n: int) -> None:
    cost = torch.stack([torch.zeros_like(shifts), shifts], -1).movedim(1, 0)  # [N, E, 2]
    _, marginal = blahut_arimoto(cost, gamma=1.0, iterations=n)
    torch.testing.assert_close(iterate(shifts, n), marginal[:, 0], rtol=0, atol=1e-12)


@given(shift_tensors(low=-8, high=4))
def test_no_iteration_lowers_the_objective(shifts: Tensor) -> None:
    values = torch.stack([objective(iterate(shifts, n), shifts) for n in range(26)])
    # The objective's own rounding: it is a mean of terms of the size of the shifts.
    slack = 4 * torch.finfo(torch.float64).eps * (1 + shifts.abs().amax(0))
    assert (values.diff(dim=0) >= -slack).all()


@given(shift_tensors(low=-8, high=4), st.integers(1, 100))
def test_after_n_iterations_the_objective_lacks_at_most_log_2_over_n(
    shifts: Tensor, n: int
) -> None:
    lack = objective(exact_limit(shifts), shifts) - objective(iterate(shifts, n), shifts)
    assert (lack <= math.log(2) / n + 1e-12).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_small_shifts_are_not_lost(dtype: torch.dtype) -> None:
    p = iterate(torch.full((3, 1), 1e-6, dtype=dtype), 25)
    # logit p = 25·Δ; what is left is the spacing of numbers at 1/2, 25 times.
    assert p.item() - 0.5 == pytest.approx(25e-6 / 4, abs=25 * torch.finfo(dtype).eps / 4)


def test_infinite_shifts_are_votes() -> None:
    shifts = torch.tensor([math.inf, math.inf, -math.inf])
    torch.testing.assert_close(iterate(shifts, 25), torch.tensor(2 / 3))


def test_a_nan_stays_in_its_coordinate() -> None:
    shifts = torch.tensor([[1.0, math.nan, -1.0], [0.5, 1.0, 2.0]])
    p = iterate(shifts, 25)
    torch.testing.assert_close(p[[0, 2]], iterate(shifts[:, [0, 2]], 25), rtol=0, atol=0)
    assert p[1].isnan()


@given(shift_tensors(low=-8, high=1), st.floats(0.01, 0.99))
def test_slope_terms_are_those_of_the_derivative(shifts: Tensor, p: float) -> None:
    v, b = slope_terms(shifts)
    assert v.abs().max() <= 1
    assert b.max() <= 1
    a = torch.exp(-shifts)
    torch.testing.assert_close(v / (b + p * v), -torch.expm1(-shifts) / (p + (1 - p) * a))
