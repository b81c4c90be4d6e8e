from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from solver.reference import SOLVERS, Step, steps
from torch import Tensor

from satisfice.solver import (
    CANDIDATES,
    DRAWS,
    candidates,
    cost_magnitude,
    log_odds_shifts,
    probability,
    sdg_update,
    uniform,
)

Update = tuple[Tensor, Tensor, Tensor, Tensor]

kinds = st.sampled_from(CANDIDATES)
solvers = st.sampled_from(SOLVERS)
draws = st.sampled_from(DRAWS)


def update_of(step: Step, gamma: Tensor | None = None, /, **options: Any) -> Update:
    gamma = torch.zeros_like(step.penalty_gradient) if gamma is None else gamma
    settings = {"rate": 1.0, "seed": 7, "step": 3, **options}
    return sdg_update(step.gradients, step.penalty_gradient, gamma, beta=step.beta, **settings)


def some_step(domains: int = 4, width: int = 50, dtype: torch.dtype = torch.float32) -> Step:
    return Step(torch.randn(domains, width).to(dtype), torch.randn(width).to(dtype), 0.3)


@given(steps(), kinds, solvers, draws, st.integers(0, 2**40), st.floats(0.01, 1))
def test_it_is_its_parts_one_coordinate_at_a_time(
    step: Step, kind: str, iterations: int | None, draw: str, offset: int, rate: float
) -> None:
    gamma = torch.linspace(0, 1, len(step.penalty_gradient), dtype=torch.float64)
    updates, gammas, deviation, norm = [], [], 0.0, 0.0
    for i, q in enumerate(step.penalty_gradient):
        g = step.gradients[:, i]
        plus, minus = candidates(g, kind)
        m = cost_magnitude(g, q, plus, minus, beta=step.beta)
        gammas.append(gamma[i] + (m - gamma[i]) * rate)
        shifts = log_odds_shifts(g, q, plus, minus, beta=step.beta, gamma=gammas[-1])
        p = probability(shifts, iterations=iterations)
        expected = p * plus + (1 - p) * minus
        chosen = plus if uniform(5, 9, torch.tensor(offset + i)) < p else minus
        updates.append(chosen if draw == "sample" else expected)
        deviation += (expected - g.mean()).item() ** 2
        norm += g.mean().item() ** 2
    found = update_of(
        step,
        gamma,
        rate=rate,
        seed=5,
        step=9,
        offset=offset,
        candidates=kind,
        iterations=iterations,
        draw=draw,
    )
    torch.testing.assert_close(found[0], torch.stack(updates), rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(found[1], torch.stack(gammas), rtol=1e-12, atol=0)
    assert found[2].item() == pytest.approx(deviation, rel=1e-9, abs=1e-24 * norm)
    assert found[3].item() == pytest.approx(norm, rel=1e-9)


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("iterations", SOLVERS)
@pytest.mark.parametrize("kind", CANDIDATES)
def test_a_device_agrees_with_float64_on_the_cpu(
    kind: str, iterations: int | None, draw: str, device: str
) -> None:
    step = some_step(width=4096)
    options = {"candidates": kind, "iterations": iterations, "draw": draw}
    wide = Step(step.gradients.double(), step.penalty_gradient.double(), step.beta)
    near = Step(step.gradients.to(device), step.penalty_gradient.to(device), step.beta)
    expected, found = update_of(wide, **options), update_of(near, **options)
    gap = (found[0].cpu() - expected[0]).abs()
    # In float32 p is off by more where max|Δ| is small (see limit_tolerance), and then a draw may
    # fall on the other side; neither happens in more than a few of 4,096 coordinates.
    assert (gap > 1e-4).sum() <= 4
    torch.testing.assert_close(found[1].cpu().double(), expected[1], rtol=1e-5, atol=1e-6)
    for scalar, exact in zip(found[2:], expected[2:], strict=True):
        assert scalar.dtype == torch.float64
        assert scalar.dim() == 0
        assert scalar.item() == pytest.approx(exact.item(), rel=1e-3)


@pytest.mark.parametrize("draw", DRAWS)
def test_the_update_of_a_shard_is_the_shard_of_the_update(draw: str, device: str) -> None:
    step = some_step(width=103)
    step = Step(step.gradients.to(device), step.penalty_gradient.to(device), step.beta)
    gamma = torch.rand(103, device=device)
    whole = update_of(step, gamma, rate=0.1, draw=draw)
    for start, stop in ((0, 1), (1, 50), (50, 103), (60, 60)):
        part = Step(step.gradients[:, start:stop], step.penalty_gradient[start:stop], step.beta)
        shard = update_of(part, gamma[start:stop], rate=0.1, draw=draw, offset=start)
        for of_part, of_whole in zip(shard[:2], whole[:2], strict=True):
            torch.testing.assert_close(of_part, of_whole[start:stop], rtol=0, atol=0)


@pytest.mark.parametrize("iterations", SOLVERS)
@pytest.mark.parametrize("kind", CANDIDATES)
def test_plus_is_drawn_as_often_as_p_says(kind: str, iterations: int | None) -> None:
    count, width = 1500, 100
    step = some_step(width=width)
    # A γ of 10 times the cost keeps most p away from 0 and 1, for 25 iterations at least.
    pair = candidates(step.gradients, kind)
    gamma = 10 * cost_magnitude(step.gradients, step.penalty_gradient, *pair, beta=step.beta)
    options = {"candidates": kind, "iterations": iterations, "rate": 0.0, "seed": 1}
    shifts = log_odds_shifts(
        step.gradients, step.penalty_gradient, *pair, beta=step.beta, gamma=gamma
    )
    p = probability(shifts, iterations=iterations)
    plus = torch.zeros(width)
    for n in range(1, count + 1):
        update = update_of(step, gamma, step=n, **options)[0]
        plus += update == pair[0]
    deviation = (p * (1 - p) / count).sqrt()
    assert ((plus / count - p).abs() <= 4.5 * deviation + 1e-12).all()
    if iterations == 25:
        assert ((p > 0.05) & (p < 0.95)).sum() > width / 4


@given(steps(), kinds, solvers, draws)
def test_every_update_lies_between_its_candidates(
    step: Step, kind: str, iterations: int | None, draw: str
) -> None:
    pair = torch.stack(candidates(step.gradients, kind))
    update = update_of(step, candidates=kind, iterations=iterations, draw=draw)[0]
    slack = 1e-15 * pair.abs().amax(0)
    assert (update >= pair.amin(0) - slack).all()
    assert (update <= pair.amax(0) + slack).all()


@given(steps(), kinds, solvers, draws, st.integers(-20, 20))
def test_the_update_ignores_a_common_factor_of_penalty_and_beta(
    step: Step, kind: str, iterations: int | None, draw: str, power: int
) -> None:
    a = 2.0**power  # exact, so that nothing may change
    options = {"candidates": kind, "iterations": iterations, "draw": draw}
    scaled = step._replace(penalty_gradient=a * step.penalty_gradient, beta=a * step.beta)
    update, gamma, deviation, _ = update_of(step, **options)
    other = update_of(scaled, **options)
    torch.testing.assert_close(other[0], update, rtol=0, atol=0)
    torch.testing.assert_close(other[1], a * gamma, rtol=0, atol=0)
    torch.testing.assert_close(other[2], deviation, rtol=0, atol=0)


@given(steps(), kinds, solvers, draws, st.integers(-20, 20))
def test_the_update_scales_with_gradients_and_penalty(
    step: Step, kind: str, iterations: int | None, draw: str, power: int
) -> None:
    s = 2.0**power
    options = {"candidates": kind, "iterations": iterations, "draw": draw}
    scaled = Step(s * step.gradients, s * step.penalty_gradient, step.beta)
    found, other = update_of(step, **options), update_of(scaled, **options)
    for value, expected in zip(
        other, (s * found[0], s**2 * found[1], s**2 * found[2], s**2 * found[3]), strict=True
    ):
        torch.testing.assert_close(value, expected, rtol=0, atol=0)


@given(steps(domains=(1, 1)), kinds)
def test_one_domain_without_a_penalty_takes_its_own_gradient(step: Step, kind: str) -> None:
    alone = step._replace(penalty_gradient=torch.zeros_like(step.penalty_gradient))
    update, _, deviation, norm = update_of(alone, candidates=kind, iterations=None)
    torch.testing.assert_close(update, step.gradients[0], rtol=0, atol=0)
    assert deviation.item() == 0
    assert norm.item() == pytest.approx(step.gradients.square().sum().item())


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("kind", CANDIDATES)
def test_a_dead_coordinate_takes_the_risk_gradient(kind: str, draw: str, device: str) -> None:
    # Squares of 1e-20 are subnormal in float32, and those of 1e-30 are 0.
    scale = torch.tensor([1e-20, 1e-30, 1.0], device=device)
    gradients = scale * torch.tensor([[1.0, 1.0, 1.0], [2.0, -3.0, 2.0]], device=device)
    step = Step(gradients, torch.zeros(3, device=device), 0.3)
    update, gamma, _, _ = update_of(step, candidates=kind, draw=draw)
    torch.testing.assert_close(update[:2], gradients.mean(0)[:2], rtol=1e-6, atol=0)
    assert (gamma[:2] < torch.finfo(torch.float32).tiny).all()
    assert gamma[2] > 0


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("iterations", SOLVERS)
def test_a_nan_leaves_other_coordinates_alone(iterations: int | None, draw: str) -> None:
    step = some_step()
    options = {"iterations": iterations, "draw": draw}
    clean = update_of(step, **options)
    step.gradients[1, 10] = math.nan
    step.penalty_gradient[20] = math.nan
    found = update_of(step, **options)
    rest = torch.ones(50, dtype=torch.bool)
    rest[[10, 20]] = False
    for value, expected in zip(found[:2], clean[:2], strict=True):
        torch.testing.assert_close(value[rest], expected[rest], rtol=0, atol=0)
    assert found[1][[10, 20]].isnan().all()
    assert found[0][10].isnan()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("draw", DRAWS)
def test_narrow_gradients_are_widened(draw: str, dtype: torch.dtype) -> None:
    step = some_step(dtype=dtype)
    wide = Step(step.gradients.float(), step.penalty_gradient.float(), step.beta)
    gamma = torch.rand(50)
    for value, expected in zip(
        update_of(step, gamma, rate=0.1, draw=draw),
        update_of(wide, gamma, rate=0.1, draw=draw),
        strict=True,
    ):
        assert value.dtype == expected.dtype
        torch.testing.assert_close(value, expected, rtol=0, atol=0)


def test_results_are_written_where_asked_and_nothing_else_is() -> None:
    step, gamma = some_step(), torch.rand(50)
    kept = [values.clone() for values in (step.gradients, step.penalty_gradient, gamma)]
    out, gamma_out = torch.empty(50), torch.empty(50)
    expected = update_of(step, gamma, rate=0.1)
    found = update_of(step, gamma, rate=0.1, out=out, gamma_out=gamma_out)
    assert found[0] is out
    assert found[1] is gamma_out
    torch.testing.assert_close(out, expected[0], rtol=0, atol=0)
    torch.testing.assert_close(gamma_out, expected[1], rtol=0, atol=0)
    for now, before in zip((step.gradients, step.penalty_gradient, gamma), kept, strict=True):
        torch.testing.assert_close(now, before, rtol=0, atol=0)


def test_gamma_may_be_overwritten_in_place() -> None:
    step, gamma = some_step(), torch.rand(50)
    expected = update_of(step, gamma, rate=0.1)
    found = update_of(step, gamma, rate=0.1, gamma_out=gamma)
    torch.testing.assert_close(found[0], expected[0], rtol=0, atol=0)
    torch.testing.assert_close(gamma, expected[1], rtol=0, atol=0)


def test_beta_and_rate_may_be_tensors() -> None:
    step = some_step()
    expected = update_of(step, rate=0.5)
    found = update_of(step._replace(beta=torch.tensor(step.beta)), rate=torch.tensor(0.5))
    for value, number in zip(found, expected, strict=True):
        torch.testing.assert_close(value, number)


def test_the_draw_changes_with_seed_and_step_and_nothing_else() -> None:
    step = some_step(width=200)
    gamma = torch.full((200,), 10.0)  # p near 1/2
    first = update_of(step, gamma, rate=0.0)[0]
    torch.testing.assert_close(update_of(step, gamma, rate=0.0)[0], first, rtol=0, atol=0)
    for other in ({"seed": 8}, {"step": 4}, {"offset": 200}):
        assert (update_of(step, gamma, rate=0.0, **other)[0] != first).sum() > 50


def test_the_global_random_state_is_untouched() -> None:
    step = some_step()
    before = torch.get_rng_state()
    update_of(step)
    torch.testing.assert_close(torch.get_rng_state(), before, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"draw": "mean"}, "draw='mean' is not known"),
        ({"draw": "expected"}, r"draw='expected' is not known: did you mean 'expectation'\?"),
        ({"candidates": "splits"}, r"candidates='splits' is not known: did you mean 'split'\?"),
        ({"iterations": 0}, "iterations=0 must be >= 1"),
    ],
)
def test_unknown_options_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        update_of(some_step(), **options)


@pytest.mark.parametrize(
    ("gradients", "penalty_gradient", "words"),
    [
        ((4, 5), (4,), r"penalty_gradient must have shape \[5\], .* not \[4\]"),
        ((5,), (5,), r"gradients must have shape \[E, P\] with E >= 1, not \[5\]"),
        ((2, 3, 4), (3, 4), r"gradients must have shape \[E, P\] with E >= 1"),
        ((0, 4), (4,), r"gradients must have shape \[E, P\] with E >= 1"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(
    gradients: tuple[int, ...], penalty_gradient: tuple[int, ...], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        update_of(Step(torch.zeros(gradients), torch.zeros(penalty_gradient), 1.0))


def test_a_gamma_of_another_shape_is_refused() -> None:
    g = torch.ones(2, 3)
    with pytest.raises(ValueError, match=r"gamma must have shape \[3\] or be one number"):
        sdg_update(g, g[0], torch.ones(2), beta=1.0, rate=0.1, seed=0, step=1)


def test_buffers_that_share_memory_are_refused() -> None:
    g, buffer = torch.ones(2, 3), torch.zeros(3)
    with pytest.raises(ValueError, match="out and gamma_out must not share memory"):
        sdg_update(g, g[0], g[0], beta=1.0, rate=0.1, seed=0, step=1, out=buffer, gamma_out=buffer)


@pytest.mark.parametrize("name", ["beta", "rate"])
def test_numbers_are_single(name: str) -> None:
    g = torch.ones(2, 3)
    numbers: dict[str, Any] = {"beta": 1.0, "rate": 0.1, name: torch.ones(3)}
    with pytest.raises(ValueError, match=f"{name} must be one number"):
        sdg_update(g, g[0], g[0], seed=0, step=1, **numbers)


def test_an_offset_past_the_counter_is_refused() -> None:
    g = torch.ones(2, 3)
    with pytest.raises(ValueError, match="offset="):
        sdg_update(g, g[0], g[0], beta=1.0, rate=0.1, seed=0, step=1, offset=2**63 - 2)


def test_tensors_on_two_devices_are_refused() -> None:
    g = torch.ones(2, 3)
    with pytest.raises(ValueError, match="penalty_gradient is on meta, gradients on cpu"):
        sdg_update(g, g[0].to("meta"), g[0], beta=1.0, rate=0.1, seed=0, step=1)
