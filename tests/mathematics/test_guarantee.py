"""What Proposition 1 needs, who gives it, and what a lagging γ takes."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import ModuleType

import pytest
import torch
from torch import Tensor

from satisfice import solver
from satisfice.rules import SDG, Bound, Gradients, Joint, Update, bounded

SIZE = 400
STEPS = 60


def batch(domain: Tensor, penalty: Tensor | None = None) -> Gradients:
    e = len(domain)
    ids, losses = torch.arange(e), torch.zeros(e, dtype=torch.float64)
    return Gradients(ids, losses, torch.ones(e), domain=domain, penalty=penalty)


def call(rule: SDG | Joint, gradients: Gradients, step: int) -> Update:
    at = solver.progress(step, STEPS)
    return rule(gradients, segments=[0, gradients.size], progress=at, seed=3, step=step)


def trajectory(step: int) -> Gradients:
    """Domains that disagree, under a penalty's gradient as long as the risk's own."""
    generator = torch.Generator().manual_seed(step)
    domain = torch.randn(4, SIZE, generator=generator, dtype=torch.float64)
    q = torch.randn(SIZE, generator=generator, dtype=torch.float64)
    return batch(domain, q * domain.mean(0).norm() / q.norm())


@pytest.mark.parametrize("candidates", solver.CANDIDATES)
@pytest.mark.parametrize("iterations", [25, None])
@pytest.mark.parametrize("distance", [0.0, 0.1, 1.0])
def test_the_bound_keeps_the_expected_update_in_the_ball(
    candidates: str, iterations: int | None, distance: float
) -> None:
    rule = SDG(candidates=candidates, iterations=iterations, draw="expectation")
    bound = Bound(distance)
    norm, left = 0.0, 0
    for step in range(1, STEPS + 1):
        gradients = trajectory(step)
        g = gradients.mean()
        norm += (g.norm().item() - norm) * solver.running_rate(step)
        allowed = solver.tolerance(solver.progress(step, STEPS), distance=distance, norm=norm)
        update = call(rule, gradients, step)
        left += int((update.update - g).norm().item() > allowed)
        kept = bound(update, gradients, progress=solver.progress(step, STEPS))
        assert (kept.update - g).norm().item() <= allowed * (1 + 1e-12) + 1e-12
    assert left > 0  # the control: without the bound, steps leave the ball


def test_a_bounded_draw_has_the_bounded_expectation() -> None:
    """A draw is scaled by what its expectation needs: on average it is the bounded expectation."""
    gradients = trajectory(1)
    g = gradients.mean()
    drawn = torch.zeros_like(g)
    draws = 1000
    for seed in range(draws):
        update, _, deviation, _ = solver.sdg_update(
            gradients.domain, gradients.penalty, torch.zeros_like(g), beta=0.3, rate=1.0, seed=seed,
            step=1,
        )  # fmt: skip
        drawn += bounded(update, g, deviation=deviation, distance=0.2 * g.norm()) / draws
    assert deviation.sqrt() > 0.2 * g.norm()
    plus, minus = solver.candidates(gradients.domain)
    error = (plus - minus).norm() / math.sqrt(4 * draws)  # at most, the draws' standard error
    assert (drawn - g).norm() <= 0.2 * g.norm() + 3 * error


def test_the_constrained_first_order_problem_has_a_closed_form() -> None:
    """No point of the ball ‖G − g‖ ≤ D has a larger q·G than g + D·q/‖q‖."""
    g, q = torch.randn(2, 6, dtype=torch.float64)
    distance = 0.7
    best = g + distance * q / q.norm()
    inside = torch.randn(20_000, 6, dtype=torch.float64)
    inside *= distance * torch.rand(20_000, 1, dtype=torch.float64) / inside.norm(dim=1)[:, None]
    gain = (g + inside) @ q
    assert (gain <= best @ q).all()
    assert gain.max() > best @ q - 0.2 * distance * q.norm()


@pytest.mark.parametrize(("size", "same"), [(1.5, True), (0.5, False)])
def test_joint_with_a_bound_is_the_closed_form(size: float, same: bool) -> None:
    """Where ‖q‖ ≥ D^t; a shorter q is taken whole and stays inside the ball."""
    domain = torch.randn(3, SIZE, dtype=torch.float64)
    g = domain.mean(0)
    at = solver.progress(30, STEPS)
    allowed = solver.tolerance(at, distance=1.0, norm=g.norm())
    q = torch.randn(SIZE, dtype=torch.float64)
    q *= size * allowed / q.norm()
    kept = Bound(1.0)(call(Joint(), batch(domain, q), 30), batch(domain, q), progress=at)
    closed = g + allowed * q / q.norm()
    assert torch.allclose(kept.update, closed) is same
    assert torch.allclose(kept.update, g + q) is not same


@pytest.fixture
def lag(evidence: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    script = evidence("lag")
    monkeypatch.setattr(script, "SIZE", SIZE)
    return script


@pytest.mark.parametrize("scope", ["coordinate", "tensor"])
@pytest.mark.parametrize("candidates", solver.CANDIDATES)
def test_the_exact_limit_does_not_lag(lag: ModuleType, scope: str, candidates: str) -> None:
    ratio = lag.update_ratio(scope, candidates=candidates, iterations=None, draw="expectation")
    torch.testing.assert_close(ratio, torch.ones_like(ratio), rtol=1e-9, atol=0)


@pytest.mark.parametrize(("scope", "most"), [("coordinate", 0.55), ("tensor", 0.8)])
def test_iterations_with_a_lagging_gamma_lose_up_to_half_a_step(
    lag: ModuleType, scope: str, most: float
) -> None:
    ratio = lag.update_ratio(scope, candidates="split", iterations=25, draw="expectation")
    assert ratio.min().item() == pytest.approx(0.5, abs=0.02)
    assert ratio.mean() < most


@pytest.mark.parametrize(("iterations", "least", "most"), [(25, 0.4, 0.5), (None, 0.0, 0.0)])
def test_flip_with_a_draw_steps_uphill_nearly_half_the_time(
    lag: ModuleType, iterations: int | None, least: float, most: float
) -> None:
    ratio = lag.update_ratio("coordinate", candidates="flip", iterations=iterations, draw="sample")
    assert least <= (ratio < 0).double().mean().item() <= most


def test_flip_with_a_draw_and_iterations_warns() -> None:
    with pytest.warns(UserWarning, match="uphill"):
        SDG(candidates="flip")
