from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from satisfice.solver import beta, progress, tolerance


def test_golden_schedules(golden: dict[str, Any]) -> None:
    for vector in golden["schedules"]:
        now = progress(vector["step"], vector["steps"])
        assert now == pytest.approx(vector["progress"], rel=1e-10)
        assert beta(now, initial=vector["beta0"]) == pytest.approx(vector["beta"], rel=1e-10)
        allowed = tolerance(now, distance=vector["D"], norm=vector["m"])
        assert allowed == pytest.approx(vector["D_t"], rel=1e-10)


def test_progress_rises_from_its_floor_to_1_and_stays() -> None:
    values = [progress(step, 60) for step in range(1, 80)]
    assert values == sorted(values)
    assert values[0] == 1 / 20
    assert set(values[59:]) == {1.0}


def test_progress_by_hand_has_no_floor_for_beta_but_one_for_the_tolerance() -> None:
    assert beta(0.01) == pytest.approx(0.1)
    assert tolerance(0.01, distance=2.0, norm=3.0) == pytest.approx(6.0)


def test_the_last_tolerance_is_the_first_over_the_root_of_20() -> None:
    first, last = (tolerance(at, distance=1.0, norm=1.0) for at in (1 / 20, 1.0))
    assert first / last == pytest.approx(math.sqrt(20))


@pytest.mark.parametrize(("distance", "expected"), [(0.0, 0.0), (math.inf, math.inf)])
def test_a_distance_of_0_and_of_infinity_keep_their_meaning(
    distance: float, expected: float
) -> None:
    assert tolerance(0.5, distance=distance, norm=1.7) == expected


def test_a_norm_on_a_device_stays_there(device: str) -> None:
    allowed = tolerance(1.0, distance=2.0, norm=torch.tensor(3.0, device=device))
    assert allowed.device.type == device
    assert allowed.item() == pytest.approx(6 / math.sqrt(20))


@pytest.mark.parametrize(
    ("step", "steps", "words"),
    [
        (0, 10, "step=0 must be >= 1"),
        (1, 0, "steps=0 must be >= 1"),
        (math.nan, 10, "step=nan must be >= 1"),
    ],
)
def test_steps_below_1_are_refused(step: int, steps: int, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        progress(step, steps)


@pytest.mark.parametrize("value", [0.0, -0.1, 1.1, math.nan])
def test_progress_outside_0_to_1_is_refused(value: float) -> None:
    words = f"progress={value!r} must be > 0 and <= 1"
    with pytest.raises(ValueError, match=words):
        beta(value)
    with pytest.raises(ValueError, match=words):
        tolerance(value, distance=1.0, norm=1.0)
