"""The bound: after every rule, at every step, E[G] lies in the ball around g."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from satisfice import rules
from satisfice.errors import UserError
from satisfice.rules import Bound, Gradients, Rule
from satisfice.solver import tolerance

SIZE = 24

EXPECTING: dict[str, Callable[[], Rule]] = {
    "mean": rules.Mean,
    "joint": rules.Joint,
    "split": lambda: rules.SDG(strength=3, draw="expectation"),
    "flip": lambda: rules.SDG(candidates="flip", draw="expectation"),
    "exact": lambda: rules.SDG(iterations=None, draw="expectation"),
    "model": lambda: rules.SDG(gamma="model", draw="expectation"),
    "and-mask": rules.AndMask,
    "sand-mask": rules.SandMask,
    "groupdro": lambda: rules.GroupDRO(eta=1.0),
    "bloop": rules.Bloop,
    "pcd": rules.PCD,
}


def gradients(seed: int, *, scale: float = 1.0, penalty: bool = True) -> Gradients:
    generator = torch.Generator().manual_seed(seed)
    made = torch.randn(5, SIZE, generator=generator, dtype=torch.float64) * scale
    losses = torch.rand(4, generator=generator)
    return Gradients(
        torch.arange(4),
        losses,
        torch.ones(4),
        domain=made[:4],
        penalty=made[4] if penalty else None,
    )


def call(rule: Rule, batch: Gradients, step: int = 1, progress: float = 0.5) -> rules.Update:
    return rule(batch, segments=[0, 10, SIZE], progress=progress, seed=3, step=step)


@pytest.mark.parametrize("name", EXPECTING)
@given(
    seed=st.integers(0, 2**31),
    distance=st.floats(0, 5),
    scale=st.floats(1e-6, 1e6),
    start=st.floats(0.01, 1),
)
def test_the_expected_update_never_leaves_the_ball(
    name: str, seed: int, distance: float, scale: float, start: float
) -> None:
    rule, bound = EXPECTING[name](), Bound(distance)
    norms: list[Tensor] = []
    for step in range(1, 5):
        progress = min(1.0, start * step)
        batch = gradients(seed + step, scale=scale, penalty=rule.takes_penalty)
        result = bound(call(rule, batch, step, progress), batch, progress=progress)
        norms.append(batch.mean().norm())
        m = torch.stack(norms).mean()
        allowed = tolerance(progress, distance=distance, norm=m)
        left = (result.update - batch.mean()).norm()
        assert left <= allowed * (1 + 1e-9) + 1e-12 * scale
        torch.testing.assert_close(result.deviation.sqrt(), left, rtol=1e-6, atol=1e-9 * scale)


@pytest.mark.parametrize("make", [rules.SDG, lambda: rules.SDG(candidates="flip", iterations=None)])
def test_the_mean_of_bounded_draws_lies_in_the_ball(make: Callable[[], Rule]) -> None:
    batch, distance, draws = gradients(1), 0.2, 4000
    total = torch.zeros(SIZE, dtype=torch.float64)
    for step in range(1, draws + 1):
        bound = Bound(distance)
        total += bound(call(make(), batch, step), batch, progress=0.05).update
    mean = batch.mean()
    spread = 3 * mean.norm() / draws**0.5  # a draw's own deviation shrinks with their number
    assert (total / draws - mean).norm() <= distance * mean.norm() + spread
    free = torch.stack([call(make(), batch, step).update for step in range(1, 401)]).mean(0)
    assert (free - mean).norm() > 2 * distance * mean.norm()  # and it is the bound that does it


@pytest.mark.parametrize("name", EXPECTING)
def test_zero_is_erm_and_infinity_the_rule_itself(name: str) -> None:
    rule = EXPECTING[name]()
    batch = gradients(5, penalty=rule.takes_penalty)
    free = call(EXPECTING[name](), batch).update
    erm = Bound(0.0)(call(EXPECTING[name](), batch), batch, progress=1.0)
    assert torch.equal(erm.update, batch.mean())
    same = Bound(float("inf"))(call(EXPECTING[name](), batch), batch, progress=1.0)
    assert torch.equal(same.update, free)


def test_zero_is_erm_for_a_draw_too() -> None:
    batch = gradients(6)
    result = Bound(0.0)(call(rules.SDG(), batch), batch, progress=1.0)
    assert torch.equal(result.update, batch.mean())


def test_zero_takes_a_draw_away_whose_expectation_is_g() -> None:
    g = torch.randn(SIZE, dtype=torch.float64)
    drawn = g + torch.randn(SIZE, dtype=torch.float64)
    nothing = torch.zeros((), dtype=torch.float64)
    assert torch.equal(rules.bounded(drawn, g, deviation=nothing, distance=0.0), g)
    assert torch.equal(rules.bounded(drawn, g, deviation=nothing, distance=0.1), drawn)


def test_an_unknown_deviation_is_not_taken_for_none() -> None:
    g, nan = torch.randn(SIZE), torch.tensor(torch.nan, dtype=torch.float64)
    assert rules.bounded(g + 1, g, deviation=nan, distance=3.0).isnan().all()


def test_a_rule_within_the_ball_is_left_to_the_bit() -> None:
    batch = gradients(7)
    free = call(rules.SDG(), batch).update
    kept = Bound(1e6)(call(rules.SDG(), batch), batch, progress=1.0).update
    assert torch.equal(kept, free)


def test_the_ball_shrinks_as_the_root_of_progress() -> None:
    batch = gradients(8)
    allowed = [
        float(Bound(1.0)(call(rules.Joint(), batch), batch, progress=p).statistics["bound"])
        for p in (0.01, 0.05, 0.2, 1.0)
    ]
    m = float(batch.mean().norm())
    assert allowed == pytest.approx([m, m, m / 2, m / 20**0.5])


def test_a_non_finite_step_leaves_the_mean_norm_alone() -> None:
    bound, batch = Bound(1.0), gradients(9)
    bound(call(rules.Joint(), batch), batch, progress=1.0)
    before = bound.state_dict()
    bad = gradients(10)
    assert bad.domain is not None
    bad.domain[0, 0] = torch.inf
    bound(call(rules.Joint(), bad), bad, progress=1.0)
    after = bound.state_dict()
    assert after["norm"]["n"] == before["norm"]["n"] == 1
    assert torch.equal(after["norm"]["value"], before["norm"]["value"])


def test_state_round_trip() -> None:
    bound, restored, fresh = Bound(0.3), Bound(0.3), Bound(0.3)
    for step in range(1, 4):
        batch = gradients(step, scale=step)
        bound(call(rules.Joint(), batch), batch, progress=0.5)
    restored.load_state_dict(bound.state_dict())
    batch = gradients(11)

    def later(which: Bound) -> Tensor:
        return which(call(rules.Joint(), batch), batch, progress=0.5).update

    expected = later(bound)
    assert torch.equal(later(restored), expected)
    assert not torch.equal(later(fresh), expected)


def test_another_state_is_refused() -> None:
    with pytest.raises(UserError, match="Bound's state has"):
        Bound(1.0).load_state_dict({})
    with pytest.raises(UserError, match="running mean's state has"):
        Bound(1.0).load_state_dict({"norm": {}})


@pytest.mark.parametrize("value", [-1.0, float("nan")])
def test_a_bound_is_not_negative(value: float) -> None:
    with pytest.raises(UserError, match=r"bound=.* must be >= 0"):
        Bound(value)


def test_inputs_are_not_written_to() -> None:
    batch = gradients(12)
    given: list[Any] = [batch.domain, batch.penalty]
    copies = [x.clone() for x in given]
    Bound(0.1)(call(rules.Joint(), batch), batch, progress=1.0)
    assert all(torch.equal(x, copy) for x, copy in zip(given, copies, strict=True))
