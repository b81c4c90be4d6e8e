from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from solver.reference import DTYPES, Step, costs, golden_step, steps

from satisfice.solver import (
    CANDIDATES,
    RunningMean,
    candidates,
    cost_magnitude,
    log_odds_shifts,
    running_rate,
    segment_means,
)


@pytest.mark.parametrize("dtype", DTYPES)
def test_golden_mean_cost(dtype: torch.dtype, golden: dict[str, Any], device: str) -> None:
    for vector in golden["two_candidates"]:
        step = golden_step(vector, dtype)
        gradients = step["gradients"].to(device)
        q = step["penalty_gradient"].to(device)
        plus, minus = candidates(gradients, step["candidates"])
        m = cost_magnitude(gradients, q, plus, minus, beta=step["beta"]).cpu()
        expected = torch.tensor(vector["mean_cost"], dtype=torch.float64)
        # A cost is a difference, so its rounding is relative to the terms, here to their largest.
        size = (
            step["beta"] * 4 * gradients.abs().amax(0) ** 2 + (q * plus).abs() + (q * minus).abs()
        )
        relative = 1e-10 if dtype == torch.float64 else 1e-6
        # The recorded magnitude of a dead coordinate is floored at 1e-300.
        gap = (m.double().clamp(min=1e-300) - expected).abs()
        assert (gap <= 1e-300 + relative * size.cpu()).all()


def test_golden_running_mean(golden: dict[str, Any]) -> None:
    recorded = golden["running_mean"]
    mean = 0.0
    for n, (value, expected) in enumerate(
        zip(recorded["values"], recorded["means"], strict=True), 1
    ):
        mean += (value - mean) * running_rate(n, floor=recorded["rate"])
        assert mean == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 2e-6)])
def test_golden_running_mean_by_its_class(
    golden: dict[str, Any], dtype: torch.dtype, tolerance: float, device: str
) -> None:
    recorded = golden["running_mean"]
    mean, yes = RunningMean(floor=recorded["rate"]), torch.tensor(True, device=device)
    for value, expected in zip(recorded["values"], recorded["means"], strict=True):
        proposed = mean.propose(torch.tensor(value, dtype=dtype, device=device))
        assert float(proposed) == pytest.approx(expected, abs=tolerance)
        mean.commit(yes)


def test_nothing_proposed_is_nothing_committed() -> None:
    mean = RunningMean()
    mean.current(torch.ones(2))
    mean.commit(torch.tensor(True))
    assert mean.state_dict()["n"] == 0
    assert mean.state_dict()["value"].tolist() == [0.0, 0.0]
    mean.propose(torch.ones(2))
    for _ in range(2):
        mean.commit(torch.tensor(True))
    assert mean.state_dict()["n"] == 1


@pytest.mark.parametrize("keep", [True, False])
def test_committing_without_waiting_does_the_same(
    keep: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an accelerator does, on the CPU: a choice of tensors, not a branch."""
    waiting, other = RunningMean(), RunningMean()
    for mean in (waiting, other):
        mean.propose(torch.tensor([1.0, 2.0]))
        mean.commit(torch.tensor(True))
        mean.propose(torch.tensor([5.0, 7.0]))
    waiting.commit(torch.tensor(keep))
    monkeypatch.setattr("satisfice.solver.gamma._may_wait", lambda _: False)
    other.commit(torch.tensor(keep))
    assert torch.equal(waiting.state_dict()["value"], other.state_dict()["value"])
    assert waiting.state_dict()["n"] == other.state_dict()["n"] == 1 + keep


@pytest.mark.parametrize("state", [{}, {"n": 1}, {"n": 1, "value": None, "more": 2}])
def test_another_state_is_refused(state: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="a running mean's state has"):
        RunningMean().load_state_dict(state)


def test_the_default_rate_stops_at_one_hundredth() -> None:
    assert [running_rate(n) for n in (1, 4, 100, 500)] == [1.0, 0.25, 0.01, 0.01]


@given(steps(), st.sampled_from(CANDIDATES))
def test_the_magnitude_is_the_mean_over_domains_and_candidates(step: Step, kind: str) -> None:
    pair = candidates(step.gradients, kind)
    plain = torch.stack([costs(step, candidate).abs() for candidate in pair]).mean((0, 1))
    m = cost_magnitude(step.gradients, step.penalty_gradient, *pair, beta=step.beta)
    torch.testing.assert_close(m, plain, rtol=1e-12, atol=0)


@given(st.integers(0, 2**32), st.integers(1, 6), st.integers(1, 150), st.sampled_from(CANDIDATES))
def test_shifts_stay_within_twice_the_domains_times_the_steps(
    seed: int, domains: int, n: int, kind: str
) -> None:
    """|Δ_e| ≤ 2·E·min(n, 100) with γ per coordinate, even if the last step is a shock."""
    generator = torch.Generator().manual_seed(seed)
    gamma = torch.zeros(10, dtype=torch.float64)
    for k in range(1, n + 1):
        shock = 1e3 if k == n else 1.0
        gradients = shock * torch.randn(domains, 10, generator=generator, dtype=torch.float64)
        q = shock * torch.randn(10, generator=generator, dtype=torch.float64)
        pair = candidates(gradients, kind)
        m = cost_magnitude(gradients, q, *pair, beta=0.3)
        gamma = gamma + (m - gamma) * running_rate(k)
    shifts = log_odds_shifts(gradients, q, *pair, beta=0.3, gamma=gamma)
    assert shifts.abs().max() <= 2 * domains * min(n, 100) * (1 + 1e-12)


@given(st.lists(st.integers(1, 7), min_size=1, max_size=6))
def test_segment_means_are_the_tensors_means(sizes: list[int]) -> None:
    segments = [0]
    for size in sizes:
        segments.append(segments[-1] + size)
    values = torch.arange(segments[-1], dtype=torch.float64) ** 2
    plain = [values[start:stop].mean().item() for start, stop in pairwise(segments)]
    assert segment_means(values, segments).tolist() == pytest.approx(plain)


@pytest.mark.parametrize("floor", [1 / 100, 1 / 10])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_running_mean_is_the_recursion(dtype: torch.dtype, floor: float, device: str) -> None:
    mean, plain = RunningMean(floor=floor), torch.zeros(3, dtype=torch.float64)
    for n in range(1, 40):
        x = torch.randn(3, dtype=dtype)
        plain = plain + (x - plain) * running_rate(n, floor=floor)
        proposed = mean.propose(x.to(device)).cpu()
        # Every step rounds once, and later ones shrink what it left.
        torch.testing.assert_close(
            proposed.double(), plain, rtol=0, atol=64 * torch.finfo(dtype).eps
        )
        assert proposed.dtype == dtype
        mean.commit(torch.tensor(True, device=device))


def test_a_step_that_is_not_committed_leaves_no_trace(device: str) -> None:
    """The control commits the same step, and differs."""
    finite, not_finite = torch.tensor([True, False], device=device)
    x = torch.tensor([1.0, 3.0], device=device)
    means = {}
    for name, verdict in {"refused": not_finite, "counted": finite}.items():
        mean = RunningMean()
        for value, outcome in ((x, finite), (x * math.nan, verdict), (3 * x, finite)):
            mean.propose(value)
            mean.commit(outcome)
        means[name] = mean.current(x).tolist()
        assert mean.state_dict()["n"] == (2 if name == "refused" else 3)
    assert means["refused"] == [2.0, 6.0]
    assert all(math.isnan(value) for value in means["counted"])


def test_a_running_mean_resumes_where_it_was_saved() -> None:
    values = torch.randn(12, 4)
    whole, first, second = RunningMean(), RunningMean(), RunningMean()
    yes = torch.tensor(True)
    for k, x in enumerate(values):
        if k == 5:
            state = first.state_dict()
            second.load_state_dict(state)
        for mean in (whole, first if k < 5 else second):
            mean.propose(x)
            mean.commit(yes)
    torch.testing.assert_close(second.current(x), whole.current(x), rtol=0, atol=0)
    for _ in range(2):  # both of its buffers
        first.propose(x)
        first.commit(yes)
    torch.testing.assert_close(state["value"], values[:5].mean(0))  # a copy, not a view
    assert state["n"] == 5


def test_proposing_changes_neither_the_value_nor_what_it_was_given() -> None:
    mean, x = RunningMean(), torch.ones(2)
    mean.propose(x)
    mean.propose(5 * x)
    assert mean.current(x).tolist() == [0.0, 0.0]
    assert mean.rate.item() == 1.0
    assert x.tolist() == [1.0, 1.0]


def test_a_running_mean_of_another_shape_is_refused() -> None:
    mean = RunningMean()
    mean.propose(torch.ones(2))
    with pytest.raises(ValueError, match=r"shape \[2\] met values of shape \[3\]"):
        mean.propose(torch.ones(3))


def test_the_spare_buffer_needs_a_value_first() -> None:
    with pytest.raises(RuntimeError, match=r"current\(\) comes first"):
        _ = RunningMean().spare
