"""Proposition 1 in simulation: biased SGD on a bounded, Lipschitz, smooth, non-convex risk.

R(θ) = Σ_i θ_i²/(1 + θ_i²)/√d. The bias always opposes the gradient, which is its worst direction;
the noise is Gaussian. Four biases: D/√t, as the proposition asks; D, constant, as a control; and
that which `bound=D` allows, D·m/√(20·progress), with and without noise.

    python docs/evidence/proposition.py
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from _record import rounded, slope, table, write
from torch import Tensor

from satisfice import solver

SEED = 0
DIMENSIONS = 16
LIPSCHITZ = 9 / (8 * math.sqrt(3))  # ℓ: the largest |h′| of h(x) = x²/(1 + x²), by √d/√d
SMOOTHNESS = 2 / math.sqrt(DIMENSIONS)  # μ: the largest |h″| is 2
RANGE = math.sqrt(DIMENSIONS)  # Δ: every h lies in [0, 1]
HORIZONS = (256, 1024, 4096, 16384, 65536)


class Case(NamedTuple):
    """A bias (`vanishing`, `constant` or `bound`), its D, and the noise's root mean square."""

    bias: str
    distance: float
    noise: float


CASES = (
    Case("vanishing", 0.3, 0.2),
    Case("vanishing", 0.3, 1.0),
    Case("constant", 0.3, 0.2),
    Case("bound", 1.0, 0.2),
    Case("bound", 0.5, 0.0),
)


class Outcome(NamedTuple):
    """(1/T) Σ E‖∇R‖², its bound, and the means over steps of D^t, of its square, and of m."""

    average: float
    bound: float
    allowed: float
    allowed_squared: float
    norm: float


def risk_gradient(theta: Tensor) -> Tensor:
    """Return ∇R."""
    return 2 * theta / (1 + theta**2) ** 2 / math.sqrt(DIMENSIONS)


def bias_norm(case: Case, step: int, steps: int, norm: Tensor) -> Tensor:
    """Return the norm of the bias at ``step``, one for every run."""
    if case.bias == "vanishing":
        return torch.full_like(norm, case.distance / math.sqrt(step))
    if case.bias == "constant":
        return torch.full_like(norm, case.distance)
    at = solver.progress(step, steps)
    return solver.tolerance(at, distance=case.distance, norm=norm)


def simulate(case: Case, steps: int, *, runs: int, seed: int = SEED) -> Outcome:
    """Run SGD with the proposition's rate, 2√(Δ/(μTV)), and average over ``runs``."""
    generator = torch.Generator().manual_seed(seed)
    shape = (runs, DIMENSIONS)
    theta = 1.5 * torch.randn(shape, generator=generator, dtype=torch.float64)
    variance = (LIPSCHITZ + case.distance) ** 2 + case.noise**2  # V, since m < 1 here
    rate = 2 * math.sqrt(RANGE / (SMOOTHNESS * steps * variance))
    total, norm, allowed, squared = (torch.zeros(runs, dtype=torch.float64) for _ in range(4))
    for step in range(1, steps + 1):
        gradient = risk_gradient(theta)
        length = gradient.norm(dim=1)
        total += length**2
        noise = torch.randn(shape, generator=generator, dtype=torch.float64)
        g = gradient + case.noise / math.sqrt(DIMENSIONS) * noise
        norm += (g.norm(dim=1) - norm) * solver.running_rate(step)
        bias = bias_norm(case, step, steps, norm)
        allowed += bias
        squared += bias**2
        theta -= rate * (g - (bias / length.clamp(min=1e-300))[:, None] * gradient)
    bound = 2 * (math.sqrt(RANGE * SMOOTHNESS * variance) + LIPSCHITZ * case.distance)
    means = (float(value.mean()) / steps for value in (total, allowed, squared))
    average, mean_allowed, mean_squared = means
    return Outcome(
        average, bound / math.sqrt(steps), mean_allowed, mean_squared, float(norm.mean())
    )


def main() -> None:
    torch.set_num_threads(1)
    runs = 64
    results: list[dict[str, Any]] = []
    rows = []
    for case in CASES:
        outcomes = [simulate(case, steps, runs=runs) for steps in HORIZONS]
        averages = [outcome.average for outcome in outcomes]
        last = outcomes[-1]
        numbers = {
            "average": averages,
            "bound": [outcome.bound for outcome in outcomes],
            "mean_allowed": [outcome.allowed for outcome in outcomes],
            "mean_allowed_squared": [outcome.allowed_squared for outcome in outcomes],
            "norm": [outcome.norm for outcome in outcomes],
        }
        result: dict[str, Any] = dict(case._asdict())
        result |= {key: [rounded(value) for value in row] for key, row in numbers.items()}
        result["slope"] = rounded(slope(HORIZONS[1:], averages[1:]), 3)
        results.append(result)
        cells = [f"{o.average:.2g} ({o.bound:.2g})" for o in outcomes]
        ends = f"{last.allowed_squared:.2g}, {LIPSCHITZ * last.allowed:.2g}"
        name = f"{case.bias}, D = {case.distance:g}, noise {case.noise:g}"
        rows.append([name, *cells, f"{result['slope']:.2f}", ends])
    print(f"(1/T) Σ E‖∇R‖² over {runs} runs, and 2(√(ΔμV) + ℓD)/√T in brackets:\n")
    header = [
        "bias",
        *(f"T = {steps}" for steps in HORIZONS),
        "slope from 1024",
        "last T: mean (D^t)², ℓ·mean D^t",
    ]
    print(table(header, rows))
    settings = {"horizons": HORIZONS, "runs": runs, "dimensions": DIMENSIONS}
    settings |= {"lipschitz": LIPSCHITZ, "smoothness": SMOOTHNESS, "range": RANGE}
    write("proposition", seed=SEED, settings=settings, results={"cases": results})


if __name__ == "__main__":
    main()
