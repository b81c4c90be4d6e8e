from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from solver.reference import (
    DTYPES,
    SOLVERS,
    Step,
    costs,
    golden_step,
    limit_tolerance,
    steps,
)
from torch import Tensor

from satisfice.solver import (
    CANDIDATES,
    candidates,
    cost_magnitude,
    log_odds_shifts,
    probability,
    sign_probability,
)

kinds = st.sampled_from(CANDIDATES)
solvers = st.sampled_from(SOLVERS)


def shifts_of(step: Step, kind: str, gamma: Tensor) -> Tensor:
    pair = candidates(step.gradients, kind)
    return log_odds_shifts(
        step.gradients, step.penalty_gradient, *pair, beta=step.beta, gamma=gamma
    )


def current_cost(step: Step, kind: str) -> Tensor:
    pair = candidates(step.gradients, kind)
    return cost_magnitude(step.gradients, step.penalty_gradient, *pair, beta=step.beta)


def solve(step: Step, kind: str, iterations: int | None, gamma: Tensor) -> Tensor:
    return sign_probability(
        step.gradients,
        step.penalty_gradient,
        beta=step.beta,
        gamma=gamma,
        candidates=kind,
        iterations=iterations,
    )


def expectation(step: Step, kind: str, p: Tensor) -> Tensor:
    plus, minus = candidates(step.gradients, kind)
    return p * plus + (1 - p) * minus


@pytest.mark.parametrize("name", ["two_candidates", "two_candidates_hard"])
def test_golden_probabilities_in_float64(name: str, golden: dict[str, Any], device: str) -> None:
    for vector in golden[name]:
        step = golden_step(vector, torch.float64)
        step["gradients"] = step["gradients"].to(device)
        step["penalty_gradient"] = step["penalty_gradient"].to(device)
        for iterations, key in ((25, "probability_25"), (None, "probability_exact")):
            p = sign_probability(**step, iterations=iterations)
            expected = torch.tensor(vector[key], dtype=torch.float64)
            torch.testing.assert_close(p.cpu(), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ["two_candidates", "two_candidates_hard"])
def test_golden_probabilities_in_float32(name: str, golden: dict[str, Any], device: str) -> None:
    """Within what rounding g_e, q, G₊ and G₋ to float32 does to the shifts, times its effect on p.

    A shift is a product of sums of E terms: it is off by (E + 4)·eps of the sum of their sizes.
    The logit of p₂₅ moves by at most 25 times that, p by a quarter; and the limit, where it is
    inside (0, 1), by E/min(1, max|Δ|)² times that.
    """
    eps = torch.finfo(torch.float32).eps
    for vector in golden[name]:
        wide = golden_step(vector, torch.float64)
        if wide["gamma"] == 0:
            continue
        g, q = wide["gradients"], wide["penalty_gradient"]
        plus, minus = candidates(g, wide["candidates"])
        exact = log_odds_shifts(g, q, plus, minus, beta=wide["beta"], gamma=wide["gamma"])
        scale = g.abs().amax(0)
        size = (plus - minus).abs() * (4 * wide["beta"] * scale + q.abs())
        size = size + scale * (wide["beta"] * (2 * g - plus - minus) + q).abs().amax(0)
        moved = (len(g) + 4) * eps * size / wide["gamma"]
        largest = exact.abs().amax(0)
        tolerances = {
            25: 1e-6 + 25 / 4 * moved,
            None: limit_tolerance(exact, torch.float32)
            + len(g) * moved / largest.clamp(max=1) ** 2,
        }
        narrow = golden_step(vector, torch.float32)
        narrow["gradients"] = narrow["gradients"].to(device)
        narrow["penalty_gradient"] = narrow["penalty_gradient"].to(device)
        for iterations, key in ((25, "probability_25"), (None, "probability_exact")):
            p = sign_probability(**narrow, iterations=iterations).cpu()
            gap = (p - torch.tensor(vector[key], dtype=torch.float64)).abs()
            assert p.dtype == torch.float32
            assert ((gap <= tolerances[iterations]) | (largest == 0)).all()


@pytest.mark.parametrize("name", ["two_candidates", "two_candidates_hard"])
def test_golden_shifts_in_float32_solve_to_what_float64_makes_of_them(
    name: str, golden: dict[str, Any]
) -> None:
    """The solver by itself: the same shifts, as float32 has them, in both dtypes."""
    for vector in golden[name]:
        given = golden_step(vector, torch.float32)
        g, q, gamma = given["gradients"], given["penalty_gradient"], given["gamma"]
        plus, minus = candidates(g, given["candidates"])
        shifts = log_odds_shifts(g, q, plus, minus, beta=given["beta"], gamma=gamma)
        narrow, wide = probability(shifts), probability(shifts.double())
        torch.testing.assert_close(narrow.double(), wide, rtol=0, atol=1e-6)
        narrow = probability(shifts, iterations=None).double()
        away = (narrow - probability(shifts.double(), iterations=None)).abs()
        assert (away <= limit_tolerance(shifts.double(), torch.float32)).all()


@pytest.mark.parametrize("iterations", SOLVERS)
def test_golden_dead_coordinates_in_float32(iterations: int | None, golden: dict[str, Any]) -> None:
    dead = [vector for vector in golden["two_candidates_hard"] if vector["gamma"] == 0]
    assert dead
    for vector in dead:
        p = sign_probability(**golden_step(vector, torch.float32), iterations=iterations)
        assert p.tolist() == vector["probability_exact"]


@given(steps(), kinds, st.floats(0.1, 10))
def test_a_shift_is_the_difference_of_the_candidates_costs(
    step: Step, kind: str, factor: float
) -> None:
    plus, minus = candidates(step.gradients, kind)
    gamma = factor * current_cost(step, kind)
    plain = (costs(step, minus) - costs(step, plus)) / gamma
    torch.testing.assert_close(shifts_of(step, kind, gamma), plain, rtol=0, atol=1e-11)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("iterations", SOLVERS)
@pytest.mark.parametrize("kind", CANDIDATES)
def test_a_gamma_of_zero_or_subnormal_leaves_p_at_one_half(
    kind: str, iterations: int | None, dtype: torch.dtype, device: str
) -> None:
    tiny = torch.finfo(dtype).tiny
    gamma = torch.tensor([0.0, tiny / 2, tiny, 1.0], dtype=dtype, device=device)
    gradients = torch.ones(3, 4, dtype=dtype, device=device)
    p = sign_probability(
        gradients, gradients[0], beta=1.0, gamma=gamma, candidates=kind, iterations=iterations
    )
    assert p[:2].tolist() == [0.5, 0.5]
    assert (p[2:] > 0.99).all()


@pytest.mark.parametrize("iterations", SOLVERS)
@pytest.mark.parametrize("kind", CANDIDATES)
@pytest.mark.parametrize("where", ["gradients", "penalty_gradient", "gamma"])
def test_a_nan_leaves_other_coordinates_alone(
    where: str, kind: str, iterations: int | None
) -> None:
    values = {
        "gradients": torch.randn(4, 3),
        "penalty_gradient": torch.randn(3),
        "gamma": torch.ones(3),
    }
    clean = sign_probability(**values, beta=0.3, candidates=kind, iterations=iterations)
    values[where][..., 1] = math.nan
    p = sign_probability(**values, beta=0.3, candidates=kind, iterations=iterations)
    torch.testing.assert_close(p[[0, 2]], clean[[0, 2]], rtol=0, atol=0)


@given(steps(), kinds, solvers, st.integers(-20, 20))
def test_scaling_penalty_beta_and_gamma_together_changes_nothing(
    step: Step, kind: str, iterations: int | None, power: int
) -> None:
    a = 2.0**power  # exact, so that nothing may change
    gamma = current_cost(step, kind)
    scaled = step._replace(penalty_gradient=a * step.penalty_gradient, beta=a * step.beta)
    torch.testing.assert_close(current_cost(scaled, kind), a * gamma, rtol=0, atol=0)
    p = solve(step, kind, iterations, gamma)
    torch.testing.assert_close(solve(scaled, kind, iterations, a * gamma), p, rtol=0, atol=0)


@given(steps(), kinds, solvers, st.integers(-20, 20))
def test_scaling_gradients_and_penalty_together_changes_nothing(
    step: Step, kind: str, iterations: int | None, power: int
) -> None:
    s = 2.0**power
    gamma = current_cost(step, kind)
    scaled = Step(s * step.gradients, s * step.penalty_gradient, step.beta)
    torch.testing.assert_close(current_cost(scaled, kind), s**2 * gamma, rtol=0, atol=0)
    p = solve(step, kind, iterations, gamma)
    torch.testing.assert_close(solve(scaled, kind, iterations, s**2 * gamma), p, rtol=0, atol=0)


@given(steps(), kinds, st.floats(0.01, 100), st.booleans())
def test_only_the_ratio_of_penalty_to_beta_matters(
    step: Step, kind: str, a: float, order: bool
) -> None:
    """The same for factors that round, and for the order of the domains."""
    gamma = current_cost(step, kind)
    other = step._replace(penalty_gradient=a * step.penalty_gradient, beta=a * step.beta)
    if order:
        other = other._replace(gradients=other.gradients.flip(0))
    for iterations in SOLVERS:
        gap = solve(other, kind, iterations, a * gamma) - solve(step, kind, iterations, gamma)
        # Rounding moves the limit of small shifts by more: see limit_tolerance. A shift may itself
        # be a difference, of numbers 1/|Δ| times as large.
        largest = shifts_of(step, kind, gamma).abs().amax(0).clamp(1e-12, 1)
        assert (gap.abs() <= 1e-9 + 100 * len(step.gradients) * 2.2e-16 / largest**2).all()


@given(steps(), kinds, solvers, st.floats(0.1, 10))
def test_the_expected_penalty_change_is_no_worse_than_without_a_penalty(
    step: Step, kind: str, iterations: int | None, factor: float
) -> None:
    """−q·E[G], for the same γ; one coordinate at a time."""
    q = step.penalty_gradient
    gamma = factor * current_cost(step, kind)
    without = step._replace(penalty_gradient=torch.zeros_like(q))
    change = [
        -q * expectation(case, kind, solve(case, kind, iterations, gamma))
        for case in (step, without)
    ]
    size = q.abs() * step.gradients.abs().amax(0)
    assert (change[0] <= change[1] + 1e-7 * size).all()


@given(steps(domains=(1, 1)), st.integers(1, 6), kinds, solvers)
def test_with_equal_domain_gradients_and_a_large_beta_the_update_is_the_risk_gradient(
    step: Step, domains: int, kind: str, iterations: int | None
) -> None:
    g = step.gradients[0]
    beta = 1e3 * (step.penalty_gradient / g).abs().max().item() + 1.0
    same = Step(g.expand(domains, -1), step.penalty_gradient, beta)
    p = solve(same, kind, iterations, current_cost(same, kind))
    torch.testing.assert_close(expectation(same, kind, p), g, rtol=1e-9, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("iterations", SOLVERS)
def test_narrow_gradients_are_widened(iterations: int | None, dtype: torch.dtype) -> None:
    gradients, q = torch.randn(3, 5).to(dtype), torch.randn(5).to(dtype)
    p = sign_probability(gradients, q, beta=0.3, gamma=0.1, iterations=iterations)
    wide = sign_probability(
        gradients.float(), q.float(), beta=0.3, gamma=0.1, iterations=iterations
    )
    assert p.dtype == torch.float32
    torch.testing.assert_close(p, wide, rtol=0, atol=0)


def test_gradients_may_have_any_shape() -> None:
    gradients, q, gamma = torch.randn(3, 2, 5), torch.randn(2, 5), torch.rand(2, 5) + 0.1
    p = sign_probability(gradients, q, beta=0.3, gamma=gamma)
    flat = sign_probability(gradients.flatten(1), q.flatten(), beta=0.3, gamma=gamma.flatten())
    torch.testing.assert_close(p, flat.view(2, 5), rtol=0, atol=0)


@pytest.mark.parametrize("iterations", [0, -3])
def test_no_iteration_is_refused(iterations: int) -> None:
    words = f"iterations={iterations} must be >= 1"
    with pytest.raises(ValueError, match=words):
        probability(torch.zeros(2, 3), iterations=iterations)
    with pytest.raises(ValueError, match=words):
        sign_probability(torch.zeros(2, 3), torch.zeros(3), beta=1, gamma=1, iterations=iterations)


@pytest.mark.parametrize("shape", [(), (0,), (0, 3)])
def test_shifts_without_a_domain_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="shifts must have at least one domain"):
        probability(torch.zeros(shape))


def test_an_unknown_kind_of_candidates_is_refused() -> None:
    with pytest.raises(ValueError, match="candidates='sign' is not known"):
        sign_probability(torch.zeros(2, 3), torch.zeros(3), beta=1, gamma=1, candidates="sign")


def test_an_infinite_gamma_makes_the_shift_nan() -> None:
    """A cost overflowed: the step must be seen not to be finite."""
    g = torch.tensor([[1.0, 1.0], [2.0, 2.0]])
    gamma = torch.tensor([torch.inf, 1.0])
    p = sign_probability(g, g[0], beta=1.0, gamma=gamma)
    assert p[0].isnan()
    assert p[1].isfinite()
