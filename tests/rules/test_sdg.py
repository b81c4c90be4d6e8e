"""SDG is a thin shell around the solver: what it hands over is tested by hand."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from satisfice import rules, solver
from satisfice.errors import UserError
from satisfice.rules import SDG, Gradients

SEGMENTS = [0, 3, 10, 30]
SIZE = SEGMENTS[-1]
STEPS = 130  # past the hundredth, where γ's mean becomes a running one


def batch(step: int) -> Gradients:
    generator = torch.Generator().manual_seed(step)
    made = torch.randn(5, SIZE, generator=generator, dtype=torch.float64)
    made[:, 3:10] *= 50  # tensors of uneven size
    return Gradients(
        torch.arange(4), torch.ones(4), torch.ones(4), domain=made[:4], penalty=made[4]
    )


def shared(m: Tensor, scope: str) -> Tensor:
    if scope == "model":
        return m.mean().expand(SIZE)
    parts = [m[a:b].mean().expand(b - a) for a, b in itertools.pairwise(SEGMENTS)]
    return torch.cat(parts)


@pytest.mark.parametrize("scope", ["coordinate", "tensor", "model"])
@pytest.mark.parametrize("iterations", [25, None])
def test_it_hands_the_solver_its_schedule_its_gamma_and_its_offset(
    scope: str, iterations: int | None
) -> None:
    strength, seed, offset = 2.0, 11, 5
    rule = SDG(strength=strength, gamma=scope, iterations=iterations)
    gamma = torch.zeros(SIZE, dtype=torch.float64)
    for step in range(1, STEPS + 1):
        progress, made = step / STEPS, batch(step)
        assert made.domain is not None
        assert made.penalty is not None
        beta, q = math.sqrt(progress), strength * made.penalty
        plus, minus = solver.candidates(made.domain)
        m = solver.cost_magnitude(made.domain, q, plus, minus, beta=beta)
        target = m if scope == "coordinate" else shared(m, scope)
        gamma = gamma + (target - gamma) * max(1 / step, 1 / 100)
        result = rule(
            made, segments=SEGMENTS, progress=progress, seed=seed, step=step, offset=offset
        )
        if step not in (1, 2, 50, STEPS):
            continue
        expected = solver.sdg_update(
            made.domain,
            q,
            gamma,
            beta=beta,
            rate=0.0,
            seed=seed,
            step=step,
            offset=offset,
            iterations=iterations,
            backend="reference",
        )
        torch.testing.assert_close(result.update, expected[0], rtol=1e-12, atol=0)
        torch.testing.assert_close(result.deviation, expected[2], rtol=1e-9, atol=1e-15)
        kept = rule.state_dict()["gamma"]
        assert kept["n"] == step
        first = {"coordinate": gamma, "tensor": gamma[[0, 3, 10]], "model": gamma[0]}[scope]
        torch.testing.assert_close(kept["value"], first, rtol=1e-12, atol=0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"candidates": "splits"}, "did you mean 'split'"),
        ({"gamma": "layer"}, "gamma='layer' is not known"),
        ({"draw": "mean"}, "draw='mean' is not known"),
        ({"iterations": 0}, "iterations=0 must be >= 1"),
        ({"iterations": 2.5}, "iterations=2.5 must be a whole number"),
        ({"iterations": True}, "must be a number"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        SDG(**options)


def test_a_state_of_another_model_is_refused() -> None:
    rule, other = SDG(), SDG(gamma="tensor")
    made = batch(1)
    for each in (rule, other):
        each(made, segments=SEGMENTS, progress=1.0, seed=0, step=1)
    rule.load_state_dict(other.state_dict())
    with pytest.raises(UserError, match="a rule's state belongs to one model"):
        rule(made, segments=SEGMENTS, progress=1.0, seed=0, step=2)


@pytest.mark.parametrize(
    ("make", "floor"),
    [
        (lambda: rules.SDG(), 1 / 100),
        (lambda: rules.Bloop(), 1 / 100),
        (lambda: rules.PCD(), 1 / 1000),
    ],
    ids=["sdg", "bloop", "pcd"],
)
def test_running_means_forget_at_the_documented_pace(make: Any, floor: float) -> None:
    """After n ones and then k zeros a running mean is (1 − floor)^k, once n is past 1/floor."""
    rule, n, k = make(), 1200, 5

    def mean(state: Any) -> float:
        while isinstance(state, dict):
            state = state.get("value", next(iter(state.values())))
        return float(state.flatten()[0])

    def feed(scale: float) -> None:
        one = torch.ones(1, dtype=torch.float64) * scale
        made = Gradients(
            torch.arange(1), torch.ones(1), torch.ones(1), domain=one[None], penalty=one * 0
        )
        rule(made, segments=[0, 1], progress=1.0, seed=0, step=1)

    for _ in range(n):
        feed(1.0)
    before = mean(rule.state_dict())
    for _ in range(k):
        feed(0.0)
    assert mean(rule.state_dict()) / before == pytest.approx((1 - floor) ** k, rel=1e-3)


@pytest.mark.parametrize("rule", [rules.Mean(), rules.Joint()], ids=["mean", "joint"])
def test_additive_weights_are_equal_and_sum_to_one(rule: rules.AdditiveRule) -> None:
    weights = rule.weights(torch.arange(4), torch.rand(4))
    assert weights.tolist() == pytest.approx([0.25] * 4)
