"""Proposition 1 in simulation: what a vanishing bias gives, and what a lasting one takes."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import ModuleType

import pytest

from satisfice import solver

HORIZONS = (256, 1024, 4096)
RUNS = 32


@pytest.fixture
def proposition(evidence: Callable[[str], ModuleType]) -> ModuleType:
    return evidence("proposition")


@pytest.mark.parametrize("noise", [0.2, 1.0])
def test_a_vanishing_bias_keeps_the_rate(proposition: ModuleType, noise: float) -> None:
    case = proposition.Case("vanishing", 0.3, noise)
    outcomes = [proposition.simulate(case, steps, runs=RUNS) for steps in HORIZONS]
    averages = [outcome.average for outcome in outcomes]
    assert all(outcome.average <= outcome.bound for outcome in outcomes)
    assert proposition.slope(HORIZONS, averages) < -0.4


def test_a_constant_bias_of_the_same_size_stalls(proposition: ModuleType) -> None:
    """The control: the same simulation breaks the inequality and loses the rate."""
    case = proposition.Case("constant", 0.3, 0.2)
    outcomes = [proposition.simulate(case, steps, runs=RUNS) for steps in HORIZONS]
    averages = [outcome.average for outcome in outcomes]
    assert outcomes[-1].average > outcomes[-1].bound
    assert proposition.slope(HORIZONS, averages) > -0.1
    assert averages[-1] == pytest.approx(case.distance**2, rel=0.1)  # where ‖∇R‖ meets the bias


def test_a_bound_at_fixed_distance_has_a_floor(proposition: ModuleType) -> None:
    """It stays below the rate's part plus ℓ·mean(D^t), and does not fall as 1/√T does."""
    case = proposition.Case("bound", 1.0, 0.2)
    outcomes = [proposition.simulate(case, steps, runs=RUNS) for steps in HORIZONS]
    variance = (proposition.LIPSCHITZ + case.distance) ** 2 + case.noise**2
    rate = 2 * math.sqrt(proposition.RANGE * proposition.SMOOTHNESS * variance)
    for steps, outcome in zip(HORIZONS, outcomes, strict=True):
        floor = proposition.LIPSCHITZ * outcome.allowed
        assert outcome.allowed_squared < outcome.average < rate / math.sqrt(steps) + floor
    averages = [outcome.average for outcome in outcomes]
    assert proposition.slope(HORIZONS, averages) > -0.3


def test_the_bound_averages_two_fifths_of_its_distance() -> None:
    """Mean of D^t/(D·m) over a run: the .4 of the floor; and √(T/20) is D^t's scale by D/√t."""
    steps = 2000
    at = [solver.progress(step, steps) for step in range(1, steps + 1)]
    allowed = [solver.tolerance(p, distance=1.0, norm=1.0) for p in at]
    assert sum(allowed) / steps == pytest.approx(0.397, abs=1e-3)
    scaled = [value * math.sqrt(step) for step, value in enumerate(allowed, 1)]
    assert max(scaled) == pytest.approx(math.sqrt(steps / 20))
