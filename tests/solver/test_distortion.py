from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from solver.reference import DTYPES
from torch import Tensor

from satisfice.solver import PenaltyDistortion, penalty_distortion


def by_pairs(penalty: Tensor, distortion: Tensor, allowed: float) -> float:
    """min E[penalty] over mixtures with E[distortion] ≤ allowed: one candidate, or a pair's mix."""
    points = list(zip(distortion.tolist(), penalty.tolist(), strict=True))
    best = min((p for d, p in points if d <= allowed), default=math.inf)
    for (d0, p0), (d1, p1) in itertools.permutations(points, 2):
        if d0 <= allowed < d1:
            best = min(best, p0 + (p1 - p0) * (allowed - d0) / (d1 - d0))
    return best


def sums_of_choices(values: Tensor) -> Tensor:
    """For values [2, P], the 2^P sums over coordinates of one of the two."""
    choices = itertools.product(*values.T.tolist())
    return torch.tensor([math.fsum(choice) for choice in choices], dtype=torch.float64)


def tensors(draw: st.DrawFn, *shape: int) -> Tensor:
    """Small integers, which tie often, or decimals."""
    unit = draw(st.sampled_from([1.0, 0.1237]))
    count = math.prod(shape)
    values = draw(st.lists(st.integers(-4, 4), min_size=count, max_size=count))
    return unit * torch.tensor(values, dtype=torch.float64).reshape(shape)


@st.composite
def one_choice(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    count = draw(st.integers(1, 8))
    return tensors(draw, count), tensors(draw, count)


@st.composite
def choices_by_coordinate(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    count = draw(st.integers(1, 5))
    return tensors(draw, 2, count), tensors(draw, 2, count)


def assert_curve(curve: PenaltyDistortion, penalty: Tensor, distortion: Tensor) -> None:
    """``curve`` is the R(D) of the points, and its corners are convex and in order."""
    slopes = curve.penalty.diff() / curve.distortion.diff()
    assert (curve.distortion.diff() > 0).all()
    assert (slopes < 0).all()
    assert (slopes.diff() >= -1e-9).all()
    low, high = distortion.min().item(), distortion.max().item()
    assert curve.distortion[0].item() == pytest.approx(low, abs=1e-12)
    assert curve.penalty[-1].item() == pytest.approx(penalty.min().item(), abs=1e-12)
    for share in (0, 0.1, 0.25, 1 / 3, 0.5, 0.9, 1, 1.5):
        allowed = low + share * (high - low) + 1e-9  # off the corners, where rounding decides
        found = curve.at(allowed).item()
        assert found == pytest.approx(by_pairs(penalty, distortion, allowed), abs=1e-7)


@given(one_choice())
def test_one_choice_is_the_best_mix_of_two_candidates(points: tuple[Tensor, Tensor]) -> None:
    assert_curve(penalty_distortion(*points), *points)


@given(choices_by_coordinate())
def test_choices_by_coordinate_are_one_choice_among_their_sums(
    points: tuple[Tensor, Tensor],
) -> None:
    penalty, distortion = points
    assert_curve(penalty_distortion(*points), sums_of_choices(penalty), sums_of_choices(distortion))


@given(one_choice())
def test_adding_a_mix_of_candidates_changes_nothing(points: tuple[Tensor, Tensor]) -> None:
    penalty, distortion = points
    before = penalty_distortion(penalty, distortion)
    after = penalty_distortion(
        torch.cat([penalty, penalty.mean()[None]]), torch.cat([distortion, distortion.mean()[None]])
    )
    at = torch.linspace(distortion.min(), distortion.max(), 7, dtype=torch.float64) + 1e-9
    torch.testing.assert_close(after.at(at), before.at(at), rtol=0, atol=1e-7)


def test_at_is_infinite_before_the_curve_linear_on_it_and_constant_after_it() -> None:
    curve = PenaltyDistortion(torch.tensor([1.0, 2.0, 4.0]), torch.tensor([8.0, 4.0, 2.0]))
    found = curve.at(torch.tensor([0.9, 1.0, 1.25, 2.0, 3.0, 4.0, 9.0, math.inf]))
    assert found.tolist() == [math.inf, 8.0, 7.0, 4.0, 3.0, 2.0, 2.0, 2.0]
    assert curve.at(1.5).item() == 6.0


def test_a_single_corner_is_a_step() -> None:
    curve = penalty_distortion(torch.tensor([3.0]), torch.tensor([1.0]))
    assert curve.at(torch.tensor([0.5, 1.0, 2.0])).tolist() == [math.inf, 3.0, 3.0]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(40,), (2, 40)])
def test_the_curve_is_float64_and_keeps_the_device(
    shape: tuple[int, ...], dtype: torch.dtype, device: str
) -> None:
    penalty = torch.rand(shape, dtype=dtype, device=device)
    curve = penalty_distortion(penalty, 1 - penalty**2)
    for corner in (*curve, curve.at(0.5)):
        assert corner.dtype == torch.float64
        assert corner.device.type == device


def test_many_coordinates_keep_their_small_exchanges() -> None:
    """Corners add up in float64: in float32 the 3e5-th exchange would be lost beside the sum."""
    count = 300_000
    penalty = torch.stack([torch.full((count,), 1.0), torch.full((count,), 0.9)])
    curve = penalty_distortion(penalty, torch.tensor([[0.0], [1.0]]).expand(2, count))
    assert curve.penalty[-1].item() == pytest.approx(0.9 * count, rel=1e-6)
    assert curve.distortion[-1].item() == count


def test_shapes_that_differ_are_refused() -> None:
    with pytest.raises(ValueError, match=r"penalty \[3\] and distortion \[2\] must have the same"):
        penalty_distortion(torch.zeros(3), torch.zeros(2))


@pytest.mark.parametrize("shape", [(0,), (), (3, 4), (2, 2, 2)])
def test_other_shapes_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"must have shape \[K\] or \[2, P\], not"):
        penalty_distortion(torch.zeros(shape), torch.zeros(shape))


def test_nan_is_refused() -> None:
    with pytest.raises(ValueError, match="must not hold NaN"):
        penalty_distortion(torch.tensor([1.0, torch.nan]), torch.tensor([0.0, 1.0]))
