"""Where a penalty opposes what all domains agree on, SDG without a bound stops early.

Logistic regression on three synthetic sites with a spurious feature, full batches, gradient descent
from 0, IRM as the penalty. `python docs/evidence/stall.py`
"""

from __future__ import annotations

from typing import Any

import torch
from _record import rounded, table, write
from torch import Tensor
from torch.nn import functional

from satisfice import penalties, registry, rules, solver

SEED = 0
SITES = (1.0, 0.4, 0.7)  # how well the spurious feature follows the label, site by site
ROWS, STEPS, RATE = 500, 400, 0.3


def site(correlation: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return [real feature, spurious feature, 1] and labels in {−1, 1}."""
    y = torch.randint(2, (ROWS,), generator=generator) * 2.0 - 1
    real = y + torch.randn(ROWS, generator=generator)
    spurious = correlation * y + 0.5 * torch.randn(ROWS, generator=generator)
    return torch.stack([real, spurious, torch.ones(ROWS)], 1), y


def losses(score: Tensor, y: Tensor) -> Tensor:
    """The logistic loss of each row."""
    return functional.softplus(-y * score)


def train(name: str, strength: float | None, bound: float, **options: Any) -> float:
    """Return the mean risk after the run."""
    generator = torch.Generator().manual_seed(SEED)
    x, y = (torch.cat(part) for part in zip(*(site(c, generator) for c in SITES), strict=True))
    domain = torch.arange(len(SITES)).repeat_interleave(ROWS)
    rule = registry.build(name, strength=strength, **options).rule
    ball = rules.Bound(bound)
    weights = torch.zeros(3)
    risk = torch.zeros(())
    for step in range(1, STEPS + 1):
        weights.requires_grad_()
        score = x @ weights
        risks = penalties.domain_losses(losses(score, y), domain)
        rows = [torch.autograd.grad(r, weights, retain_graph=True)[0] for r in risks]
        penalty = penalties.irm(score, y, domain, losses)
        (slope,) = torch.autograd.grad(penalty, weights)
        weights, risk = weights.detach(), risks.detach().mean()
        batch = rules.Gradients(
            ids=torch.arange(len(SITES)),
            losses=risks.detach(),
            counts=torch.full((len(SITES),), ROWS),
            domain=torch.stack(rows),
            penalty=slope if rule.takes_penalty else None,
        )
        progress = solver.progress(step, STEPS)
        made = rule(batch, segments=[0, 3], progress=progress, seed=SEED, step=step)
        weights = weights - RATE * ball(made, batch, progress=progress).update
    return float(risk)


def main() -> None:
    """Measure, print, record."""
    torch.set_num_threads(1)
    free = float("inf")
    runs: list[tuple[str, str, float | None, float, dict[str, Any]]] = [
        ("ERM", "erm", None, free, {})
    ]
    for strength in (1.0, 10.0, 100.0):
        runs += [
            (f"the sum, strength {strength:g}", "irm", strength, free, {}),
            (f"SDG, strength {strength:g}", "irm+sdg", strength, free, {}),
            (f"SDG exact, {strength:g}", "irm+sdg", strength, free, {"iterations": None}),
            (f"SDG bound=1, {strength:g}", "irm+sdg", strength, 1.0, {}),
        ]
    risks = {
        label: rounded(train(name, strength, bound, **kind))
        for label, name, strength, bound, kind in runs
    }
    print(table(["method", "risk"], [[label, f"{risk:.4f}"] for label, risk in risks.items()]))
    settings = {"sites": SITES, "rows": ROWS, "steps": STEPS, "rate": RATE, "penalty": "irm"}
    write("stall", seed=SEED, settings=settings, results={"risk": risks})


if __name__ == "__main__":
    main()
