from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from solver.reference import DTYPES
from torch import Tensor

from satisfice.solver import blahut_arimoto, penalty_distortion


def information(conditional: Tensor, marginal: Tensor) -> Tensor:
    """I(k; e) of p(k|e) [..., E, K] and p(k) [..., K]."""
    own = torch.xlogy(conditional, conditional)
    return (own - torch.xlogy(conditional, marginal.unsqueeze(-2))).sum(-1).mean(-1)


@st.composite
def problems(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """A penalty [K] and distortions [E, K], float64."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    domains, count = draw(st.integers(1, 5)), draw(st.integers(2, 5))
    penalty = torch.rand(count, generator=generator, dtype=torch.float64)
    return penalty, torch.rand(domains, count, generator=generator, dtype=torch.float64)


def curve(
    penalty: Tensor, distortion: Tensor, gamma: float, betas: Tensor, iterations: int
) -> tuple[Tensor, Tensor, Tensor]:
    """E[distortion], E[penalty] and I at each β."""
    cost = penalty + betas[:, None, None] * distortion
    conditional, marginal = blahut_arimoto(cost, gamma=gamma, iterations=iterations)
    return (
        (conditional * distortion).sum(-1).mean(-1),
        (conditional * penalty).sum(-1).mean(-1),
        information(conditional, marginal),
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_golden_general(dtype: torch.dtype, golden: dict[str, Any], device: str) -> None:
    # In float32 the rounding of cost/γ adds up over the iterations until they converge.
    tolerance = 1e-10 if dtype == torch.float64 else 1e-5
    for vector in golden["general"]:
        cost = torch.tensor(vector["cost"], dtype=dtype, device=device)
        found = blahut_arimoto(cost, gamma=vector["gamma"], iterations=vector["iterations"])
        for name, got in zip(("conditional", "marginal"), found, strict=True):
            expected = torch.tensor(vector[name], dtype=torch.float64)
            torch.testing.assert_close(got.cpu().double(), expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("gamma", [0.1, 1.0, 3.0])
def test_the_binary_symmetric_source_has_its_rate_distortion_function(gamma: float) -> None:
    """Cover and Thomas: R(D) = log 2 − H(D), at D = 1/(1 + exp(β/γ))."""
    betas = torch.linspace(0.01, 5, 50, dtype=torch.float64) * gamma
    hamming = 1 - torch.eye(2, dtype=torch.float64)
    found, _, rate = curve(torch.zeros(2, dtype=torch.float64), hamming, gamma, betas, 25)
    d = 1 / (1 + torch.exp(betas / gamma))
    entropy = -torch.xlogy(d, d) - torch.xlogy(1 - d, 1 - d)
    torch.testing.assert_close(found, d)
    torch.testing.assert_close(rate, math.log(2) - entropy)


@given(problems(), st.sampled_from([0.03, 0.3, 3.0]))
def test_penalty_and_information_against_distortion_are_convex_and_fall(
    problem: tuple[Tensor, Tensor], gamma: float
) -> None:
    betas = torch.logspace(-2, 2, 25, dtype=torch.float64)
    iterations = 200
    distortion, penalty, rate = curve(*problem, gamma, betas, iterations)
    value = penalty + gamma * rate
    # Every point lies above every other's supporting line, whose slope −β is negative. n iterations
    # reach the minimum within γ·log(K)/n.
    slack = gamma * math.log(len(problem[0])) / iterations + 1e-12
    lines = value + betas * (distortion - distortion[:, None])  # [at, line]
    assert (value[:, None] >= lines - slack).all()
    assert (distortion.diff() * betas.diff() <= 2 * slack).all()


def test_the_penalty_alone_may_rise_with_the_distortion() -> None:
    penalty = torch.tensor([0.1, 0.0], dtype=torch.float64)
    distortion = torch.tensor([[0, 1], [0, 1], [1, 0]], dtype=torch.float64)
    betas = torch.logspace(2, -3, 200, dtype=torch.float64)
    found, expected, _ = curve(penalty, distortion, 1.0, betas, 5000)
    assert (found.diff() >= -1e-9).all()
    assert expected[0].item() == pytest.approx(0.0667, abs=1e-4)
    assert expected.max().item() == pytest.approx(0.081, abs=1e-3)
    assert expected[-1].item() == pytest.approx(0.0, abs=1e-6)


@given(problems(), st.sampled_from([1e-2, 1e-3, 1e-4]))
def test_cheap_information_leaves_the_penalty_distortion_curve(
    problem: tuple[Tensor, Tensor], gamma: float
) -> None:
    """Each domain chooses between two candidates as a coordinate does, with weight 1/E."""
    penalty, distortion = problem[0][:2], problem[1][:, :2]
    count = len(distortion)
    limit = penalty_distortion(penalty[:, None].expand(2, count) / count, distortion.T / count)
    betas = torch.logspace(-3, 3, 25, dtype=torch.float64)
    found, expected, rate = curve(penalty, distortion, gamma, betas, 50)
    gap = expected + gamma * rate - limit.at(found + 1e-12)
    assert (gap >= -1e-9 * (1 + betas)).all()
    assert (gap <= gamma * math.log(2) * (1 + 1 / 50) + 1e-9 * (1 + betas)).all()


@given(problems())
def test_the_curve_ends_at_the_least_distortion_and_at_the_least_penalty(
    problem: tuple[Tensor, Tensor],
) -> None:
    penalty, distortion = problem
    ends = torch.tensor([0.0, 1e9], dtype=torch.float64)
    found, expected, _ = curve(penalty, distortion, 1e-6, ends, 200)
    # 200 iterations reach the minimum within γ·log(K)/200.
    assert expected[0].item() == pytest.approx(penalty.min().item(), abs=1e-8)
    assert found[1].item() == pytest.approx(distortion.amin(-1).mean().item(), abs=1e-9)


@given(problems(), st.floats(0.05, 5), st.integers(1, 20))
def test_it_is_the_iteration_as_written(
    problem: tuple[Tensor, Tensor], gamma: float, n: int
) -> None:
    cost = problem[0] + problem[1]
    marginal = torch.full_like(problem[0], 1 / len(problem[0]))
    for _ in range(n):
        weights = marginal * torch.exp(-cost / gamma)
        conditional = weights / weights.sum(-1, keepdim=True)
        marginal = conditional.mean(0)
    found = blahut_arimoto(cost, gamma=gamma, iterations=n)
    torch.testing.assert_close(found[0], conditional, rtol=0, atol=1e-12)
    torch.testing.assert_close(found[1], marginal, rtol=0, atol=1e-12)


def test_a_batch_equals_a_loop() -> None:
    cost, gamma = torch.randn(2, 3, 4, 5), torch.rand(2, 3) + 0.1
    prior = torch.rand(2, 3, 5)
    conditional, marginal = blahut_arimoto(cost, gamma=gamma, prior=prior)
    for i in range(2):
        for j in range(3):
            one = blahut_arimoto(cost[i, j], gamma=gamma[i, j], prior=prior[i, j])
            torch.testing.assert_close(conditional[i, j], one[0])
            torch.testing.assert_close(marginal[i, j], one[1])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("gamma", [1e-30, 1.0, 1e30])
def test_every_finite_cost_is_harmless(dtype: torch.dtype, gamma: float) -> None:
    largest = torch.finfo(dtype).max
    values = torch.tensor([-largest, -1.0, 0.0, 1e-30, 1.0, largest], dtype=dtype)
    cost = torch.cartesian_prod(*[values] * 4).reshape(-1, 2, 2)
    for found in blahut_arimoto(cost, gamma=gamma):
        assert found.isfinite().all()
        torch.testing.assert_close(found.sum(-1), torch.ones_like(found[..., 0]))


def test_costs_count_by_their_differences() -> None:
    cost = torch.tensor([[1e300, 1e300, 2e300], [0.0, 1.0, 1e300]], dtype=torch.float64)
    conditional, _ = blahut_arimoto(cost, gamma=1.0, iterations=1)
    assert conditional[0].tolist() == pytest.approx([0.5, 0.5, 0.0])
    assert conditional[1].tolist() == pytest.approx([1 / (1 + math.exp(-1)), 1 / (1 + math.e), 0])


@pytest.mark.parametrize("cost", [[[-1e30, 0, 1], [-1e30, 1, 0]], [[0.0, 0, 0], [-5, 2, 1]]])
def test_a_candidate_with_prior_0_is_never_chosen(cost: list[list[float]]) -> None:
    values = torch.tensor(cost)
    found = blahut_arimoto(values, gamma=0.5, prior=torch.tensor([0.0, 0.4, 0.6]))
    rest = blahut_arimoto(values[:, 1:], gamma=0.5, prior=torch.tensor([0.4, 0.6]))
    for all_three, two in zip(found, rest, strict=True):
        assert (all_three[..., 0] == 0).all()
        torch.testing.assert_close(all_three[..., 1:], two)


def test_the_prior_counts_up_to_a_factor() -> None:
    cost, prior = torch.randn(3, 4, dtype=torch.float64), torch.rand(4, dtype=torch.float64)
    for one, other in zip(
        blahut_arimoto(cost, gamma=1.0, prior=prior),
        blahut_arimoto(cost, gamma=1.0, prior=7 * prior),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


def test_a_nan_stays_in_its_problem() -> None:
    cost = torch.randn(3, 2, 4)
    clean, _ = blahut_arimoto(cost, gamma=1.0)
    cost[1, 0, 0] = math.nan
    conditional, _ = blahut_arimoto(cost, gamma=1.0)
    torch.testing.assert_close(conditional[[0, 2]], clean[[0, 2]], rtol=0, atol=0)


@pytest.mark.parametrize("shape", [(3,), (0, 3), (3, 0)])
def test_a_cost_without_domains_or_candidates_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"cost must have shape \[\.\.\., E, K\], not"):
        blahut_arimoto(torch.zeros(shape), gamma=1.0)


@pytest.mark.parametrize("gamma", [0.0, -1.0, math.nan])
def test_a_gamma_that_is_not_positive_is_refused(gamma: float) -> None:
    with pytest.raises(ValueError, match=f"gamma={gamma!r} must be > 0"):
        blahut_arimoto(torch.zeros(2, 2), gamma=gamma)


def test_no_iteration_is_refused() -> None:
    with pytest.raises(ValueError, match="iterations=0 must be >= 1"):
        blahut_arimoto(torch.zeros(2, 2), gamma=1.0, iterations=0)


def test_a_gamma_that_rounds_to_zero_picks_the_cheapest() -> None:
    conditional, marginal = blahut_arimoto(torch.tensor([[1.0, 0.0], [2.0, 0.5]]), gamma=1e-50)
    assert conditional.tolist() == [[0.0, 1.0], [0.0, 1.0]]
    assert marginal.tolist() == [0.0, 1.0]


def test_a_prior_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="prior must have 3 values"):
        blahut_arimoto(torch.ones(2, 3), gamma=1.0, prior=torch.ones(2))
