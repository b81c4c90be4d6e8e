"""What every rule owes: the same tests for ours and for one that a user writes."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from satisfice import rules
from satisfice.errors import UserError
from satisfice.rules import Gradients, Rule, Update
from satisfice.solver import RunningMean

SEGMENTS = [0, 3, 10, 12]
SIZE = SEGMENTS[-1]


class Median(rules.Directive):
    """A user's own: the median of the domains' gradients, plus the penalty's."""

    needs = "domains"

    def direction(self, at: rules.At) -> Tensor:
        median = at.domain.median(0).values
        return median if at.penalty is None else median + at.penalty


class First(Median):
    """A user's own that hands back a view of its input."""

    def direction(self, at: rules.At) -> Tensor:
        return at.domain[0]


class Momentum(rules.Directive):
    """A user's own that hands back its state."""

    needs = "risk"

    def __init__(self, *, strength: float | None = None) -> None:
        super().__init__(strength=strength)
        self.mean = RunningMean()

    def direction(self, at: rules.At) -> Tensor:
        g = at.risk if at.penalty is None else at.risk + at.penalty
        return self.mean.propose(g)

    def commit(self, finite: Tensor) -> None:
        self.mean.commit(finite)

    def state_dict(self) -> dict[str, Any]:
        return {"mean": self.mean.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.mean.load_state_dict(state["mean"])


RULES: dict[str, Callable[[], Rule]] = {
    "mean": rules.Mean,
    "joint": rules.Joint,
    "sdg": rules.SDG,
    "sdg-exact": lambda: rules.SDG(iterations=None),
    "sdg-flip": lambda: rules.SDG(candidates="flip", iterations=None),
    "sdg-tensor": lambda: rules.SDG(gamma="tensor"),
    "sdg-model": lambda: rules.SDG(gamma="model"),
    "sdg-expectation": lambda: rules.SDG(draw="expectation"),
    "and-mask": rules.AndMask,
    "sand-mask": rules.SandMask,
    "groupdro": lambda: rules.GroupDRO(eta=0.5),
    "bloop": rules.Bloop,
    "pcd": lambda: rules.PCD(strength=2.0),
    "median": Median,
    "first": First,
    "momentum": Momentum,
}
STATELESS = {"mean", "joint", "and-mask", "sand-mask", "median", "first"}


@pytest.fixture(params=RULES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def batch(
    step: int = 1,
    *,
    domains: int = 4,
    dtype: torch.dtype = torch.float64,
    device: str = "cpu",
    penalty: bool = True,
    scale: float = 1.0,
) -> Gradients:
    generator = torch.Generator().manual_seed(step)
    made = torch.randn(domains + 1, SIZE, generator=generator, dtype=torch.float64) * scale
    made = made.to(device, dtype)
    return Gradients(
        ids=torch.arange(domains, device=device) * 3 + 1,
        losses=torch.rand(domains, generator=generator).to(device),
        counts=torch.full((domains,), 8, device=device),
        domain=made[:-1],
        penalty=made[-1] if penalty else None,
    )


def call(rule: Rule, gradients: Gradients, step: int = 1, **given: Any) -> Update:
    return rule(gradients, segments=SEGMENTS, progress=0.5, seed=7, step=step, **given)


def run(rule: Rule, steps: range, **kind: Any) -> list[Tensor]:
    kind = {"penalty": rule.takes_penalty} | kind
    return [call(rule, batch(step, **kind), step).update.clone() for step in steps]


def same(left: Any, right: Any) -> bool:
    """Compare nested states to the bit."""
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[k], right[k]) for k in left)
    return torch.equal(left, right) if isinstance(left, Tensor) else bool(left == right)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_update_has_the_gradients_dtype_shape_and_device(
    name: str, dtype: torch.dtype, device: str
) -> None:
    rule = RULES[name]()
    result = call(rule, batch(dtype=dtype, device=device, penalty=rule.takes_penalty))
    assert result.update.shape == (SIZE,)
    assert result.update.dtype == dtype
    assert result.update.device.type == device
    for scalar in (result.deviation, result.norm):
        assert scalar.shape == ()
        assert scalar.dtype == torch.float64
        assert scalar.device.type == device
    assert bool(result.statistics["finite"])


def test_float32_agrees_with_float64(name: str) -> None:
    narrow, wide = RULES[name](), RULES[name]()
    a = run(narrow, range(1, 6), dtype=torch.float32)
    b = run(wide, range(1, 6), dtype=torch.float64)
    # A draw may flip where p is within rounding of u; none does with this seed.
    torch.testing.assert_close(torch.stack(a).double(), torch.stack(b), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_gradients_are_widened(name: str, dtype: torch.dtype) -> None:
    rule = RULES[name]()
    assert call(rule, batch(dtype=dtype, penalty=rule.takes_penalty)).update.dtype == torch.float32


def test_norm_and_deviation_are_of_the_expected_update(name: str) -> None:
    rule = RULES[name]()
    gradients = batch(penalty=rule.takes_penalty)
    result = call(rule, gradients)
    mean = gradients.mean()
    torch.testing.assert_close(result.norm, mean.square().sum())
    if isinstance(rule, rules.SDG):
        expecting = RULES[name]()
        assert isinstance(expecting, rules.SDG)
        expecting.draw = "expectation"
        expected = call(expecting, gradients).update
    else:
        expected = result.update
    torch.testing.assert_close(result.deviation, (expected - mean).square().sum())


def test_state_round_trip_continues_to_the_bit(name: str) -> None:
    rule, restored, fresh = RULES[name](), RULES[name](), RULES[name]()
    run(rule, range(1, 4), scale=9.0)
    restored.load_state_dict(rule.state_dict())
    assert same(restored.state_dict(), rule.state_dict())
    expected = torch.stack(run(rule, range(4, 7)))
    assert torch.equal(torch.stack(run(restored, range(4, 7))), expected)
    control = torch.stack(run(fresh, range(4, 7)))
    assert torch.equal(control, expected) == (name in STATELESS)


def test_state_holds_plain_numbers_and_cpu_tensors_of_its_own(name: str, device: str) -> None:
    rule = RULES[name]()
    run(rule, range(1, 3), device=device)
    state = rule.state_dict()

    def plain(value: Any) -> bool:
        if isinstance(value, dict):
            return all(isinstance(k, (str, int)) and plain(v) for k, v in value.items())
        if isinstance(value, Tensor):
            return value.device.type == "cpu" and not value.requires_grad
        return value is None or isinstance(value, (int, float, str))

    assert plain(state)
    before = rule.state_dict()
    run(rule, range(3, 5), device=device)
    assert same(state, before)


def test_another_rules_state_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="state has"):
        RULES[name]().load_state_dict({"nonsense": 1})


def test_order_of_domains_is_of_no_consequence(name: str) -> None:
    if name == "first":
        pytest.skip("it takes the first domain, whichever that is")
    rule, permuted = RULES[name](), RULES[name]()
    gradients = batch(penalty=rule.takes_penalty)
    order = torch.tensor([2, 0, 3, 1])
    assert gradients.domain is not None
    shuffled = Gradients(
        ids=gradients.ids[order],
        losses=gradients.losses[order],
        counts=gradients.counts[order],
        domain=gradients.domain[order],
        penalty=gradients.penalty,
    )
    a, b = call(rule, gradients).update, call(permuted, shuffled).update
    torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-13)


def test_zero_gradients_give_a_zero_update(name: str) -> None:
    rule = RULES[name]()
    result = call(rule, batch(penalty=rule.takes_penalty, scale=0.0))
    assert torch.equal(result.update, torch.zeros(SIZE, dtype=torch.float64))
    assert result.deviation == result.norm == 0
    assert bool(result.statistics["finite"])
    assert torch.isfinite(torch.stack(run(rule, range(2, 5)))).all()


def test_one_domain(name: str) -> None:
    rule = RULES[name]()
    gradients = batch(domains=1, penalty=False)
    if isinstance(rule, rules.SandMask):
        with pytest.raises(UserError, match="at least two domains"):
            call(rule, gradients)
    elif isinstance(rule, rules.AndMask):  # every sign agrees with itself
        update = call(rule, gradients).update
        torch.testing.assert_close(update, gradients.mean(), rtol=1e-9, atol=0)
    else:
        torch.testing.assert_close(call(rule, gradients).update, gradients.mean())


def test_a_penalty_is_used_or_refused(name: str) -> None:
    rule = RULES[name]()
    if not rule.takes_penalty:
        with pytest.raises(UserError, match="takes no penalty"):
            call(rule, batch())
        return
    with_penalty = call(rule, batch()).update
    without = call(RULES[name](), batch(penalty=False)).update
    assert torch.equal(with_penalty, without) == (name == "first")


def test_strength_multiplies_the_penalty(name: str) -> None:
    rule, scaled = RULES[name](), RULES[name]()
    if not rule.takes_penalty or isinstance(rule, rules.PCD):
        pytest.skip("no factor on a penalty here: Mean takes none, and in PCD it drops out")
    gradients = batch()
    assert gradients.penalty is not None
    rule.strength = 2.5
    by_hand = Gradients(
        gradients.ids,
        gradients.losses,
        gradients.counts,
        domain=gradients.domain,
        penalty=2.5 * gradients.penalty,
    )
    assert torch.equal(call(rule, gradients).update, call(scaled, by_hand).update)


def test_negative_strength_is_refused() -> None:
    for rule in (rules.Joint, rules.SDG, rules.AndMask, rules.GroupDRO, rules.Bloop, rules.PCD):
        for value in (-1.0, float("nan"), float("inf")):
            with pytest.raises(UserError, match="strength"):
                rule(strength=value)


def test_the_update_shares_memory_with_no_input_and_no_state(name: str) -> None:
    rule = RULES[name]()
    for kind in ("domain", "risk"):
        gradients = batch(penalty=rule.takes_penalty)
        if kind == "risk":
            if rule.needs == "domains" or isinstance(rule, rules.GroupDRO):
                continue
            gradients = Gradients(
                gradients.ids,
                gradients.losses,
                gradients.counts,
                risk=gradients.mean(),
                penalty=gradients.penalty,
            )
        inputs = [x for x in (gradients.domain, gradients.risk, gradients.penalty) if x is not None]
        copies = [x.clone() for x in inputs]
        result = call(rule, gradients)
        state = rule.state_dict()
        result.update.fill_(torch.nan)
        assert all(torch.equal(x, copy) for x, copy in zip(inputs, copies, strict=True))
        assert same(rule.state_dict(), state)


def test_global_random_state_is_untouched(name: str) -> None:
    before = torch.get_rng_state()
    run(RULES[name](), range(1, 4))
    assert torch.equal(torch.get_rng_state(), before)


def test_out_is_where_the_update_goes(name: str) -> None:
    out = torch.full((SIZE,), torch.nan, dtype=torch.float64)
    rule = RULES[name]()
    gradients = batch(penalty=rule.takes_penalty)
    result = call(rule, gradients, out=out)
    assert result.update.data_ptr() == out.data_ptr()
    assert torch.equal(out, call(RULES[name](), gradients).update)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("where", ["domain", "penalty"])
def test_a_non_finite_step_leaves_the_state_alone(
    name: str, bad: float, where: str, device: str
) -> None:
    rule, spared = RULES[name](), RULES[name]()
    if where == "penalty" and not rule.takes_penalty:
        pytest.skip("it takes no penalty")
    run(rule, range(1, 3), device=device)
    run(spared, range(1, 3), device=device)
    gradients = batch(3, penalty=rule.takes_penalty, device=device)
    target = getattr(gradients, where)
    target[(0,) * target.dim()] = bad
    result = call(rule, gradients, 3)
    assert not bool(result.statistics["finite"])
    assert same(rule.state_dict(), spared.state_dict())
    later = torch.stack(run(rule, range(3, 5), device=device))
    assert torch.equal(later, torch.stack(run(spared, range(3, 5), device=device)))


def test_a_huge_finite_step_does_no_harm_for_good(name: str) -> None:
    """In float32 squares overflow from 1e19 on: the step may count or not, later ones are sound."""
    rule = RULES[name]()
    run(rule, range(1, 3), dtype=torch.float32)
    huge = batch(3, dtype=torch.float32, penalty=rule.takes_penalty, scale=1e25)
    call(rule, huge, 3)
    for step in range(4, 7):
        result = call(rule, batch(step, dtype=torch.float32, penalty=rule.takes_penalty), step)
        assert bool(result.statistics["finite"])
        assert torch.isfinite(result.update).all()
        assert torch.isfinite(result.deviation)


def test_a_shard_draws_what_the_whole_draws(name: str) -> None:
    """Rules that work by coordinate, or by tensor where the cut is between tensors."""
    rule, sharded = RULES[name](), RULES[name]()
    if name in ("bloop", "pcd", "sdg-model"):
        pytest.skip("its sums run over the whole model, which a shard does not see")
    whole = batch(penalty=rule.takes_penalty)
    cut = SEGMENTS[2]
    assert whole.domain is not None
    part = Gradients(
        whole.ids,
        whole.losses,
        whole.counts,
        domain=whole.domain[:, cut:],
        penalty=None if whole.penalty is None else whole.penalty[cut:],
    )
    expected = call(rule, whole).update[cut:]
    found = sharded(part, segments=[0, SIZE - cut], progress=0.5, seed=7, step=1, offset=cut)
    assert torch.equal(found.update, expected)


@pytest.mark.parametrize(
    "segments", [[0, 3], [0, 3, 3, SIZE], [1, SIZE], [0, SIZE + 1], [SIZE], []], ids=str
)
def test_segments_that_leave_coordinates_out_are_refused(name: str, segments: list[int]) -> None:
    rule = RULES[name]()
    with pytest.raises(UserError, match=f"segments must rise from 0 to {SIZE}"):
        rule(batch(penalty=False), segments=segments, progress=1.0, seed=0, step=1)


def test_a_graph_behind_the_gradients_is_let_go(name: str) -> None:
    rule = RULES[name]()
    made = batch(penalty=False)
    assert made.domain is not None
    leaf = made.domain.clone().requires_grad_()
    gradients = Gradients(made.ids, made.losses, made.counts, domain=leaf * 2)
    result = call(rule, gradients)
    assert not any(x.requires_grad for x in result[:3])
    run(rule, range(2, 4))


def test_the_same_seed_and_step_draw_the_same(name: str) -> None:
    a, b = RULES[name](), RULES[name]()
    assert torch.equal(torch.stack(run(a, range(1, 4))), torch.stack(run(b, range(1, 4))))


def test_needs_are_declared_and_enforced(name: str) -> None:
    rule = RULES[name]()
    assert rule.needs in ("weights", "risk", "domains")
    given = batch(penalty=False)
    risk = Gradients(given.ids, given.losses, given.counts, risk=given.mean())
    if rule.needs == "domains" or isinstance(rule, rules.GroupDRO):
        with pytest.raises(UserError, match=r"domain \[E, P\]"):
            call(rule, risk)
    else:
        assert torch.equal(call(rule, risk).update, call(RULES[name](), given).update)


def test_flip_with_a_draw_and_few_iterations_warns() -> None:
    with pytest.warns(UserWarning, match="uphill nearly half the time"):
        rules.SDG(candidates="flip")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rules.SDG(candidates="flip", iterations=None)
        rules.SDG(candidates="flip", draw="expectation")
