"""What 25 iterations lose where γ is far above the current costs, and the exact limit does not.

Four domains that agree, no penalty: the step should be the risk's gradient. γ lags where gradients
shrink, or where one γ serves coordinates of uneven size.

    python docs/evidence/lag.py
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from _record import rounded, table, write
from torch import Tensor

from satisfice import solver
from satisfice.rules import SDG, Gradients

SEED = 0
SIZE, DOMAINS, STEPS = 2000, 4, 300
SHRINK = 0.97
SCOPES = {
    "coordinate": f"γ per coordinate, gradients shrink to {SHRINK:g} of themselves every step",
    "tensor": "γ per tensor, coordinates from 1e-6 to 1, steady gradients",
}


def update_ratio(scope: str, *, candidates: str, iterations: int | None, draw: str) -> Tensor:
    """Return G/g, [P], at the last of STEPS steps; with draw="expectation", E[G]/g."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `flip` with a draw warns, and is measured here
        rule = SDG(candidates=candidates, iterations=iterations, draw=draw, gamma=scope)
    generator = torch.Generator().manual_seed(SEED)
    g = torch.randn(SIZE, generator=generator, dtype=torch.float64)
    if scope == "tensor":
        g *= torch.logspace(-6, 0, SIZE, dtype=torch.float64)
    ratio = g
    for step in range(1, STEPS + 1):
        if scope == "coordinate":
            g = g * SHRINK
        gradients = Gradients(
            torch.arange(DOMAINS),
            torch.zeros(DOMAINS),
            torch.ones(DOMAINS),
            domain=g.expand(DOMAINS, -1).contiguous(),
        )
        update = rule(gradients, segments=[0, SIZE], progress=1.0, seed=SEED, step=step)
        ratio = update.update / g
    return ratio


def main() -> None:
    torch.set_num_threads(1)
    results: dict[str, Any] = {}
    rows = []
    for scope, title in SCOPES.items():
        for kind in solver.CANDIDATES:
            for iterations in (25, None):
                expected = update_ratio(
                    scope, candidates=kind, iterations=iterations, draw="expectation"
                )
                drawn = update_ratio(scope, candidates=kind, iterations=iterations, draw="sample")
                numbers = {
                    "mean": expected.mean().item(),
                    "least": expected.min().item(),
                    "uphill": (drawn < 0).double().mean().item(),
                }
                name = f"{kind}, {iterations or 'exact'}"
                results.setdefault(scope, {})[name] = {k: rounded(v) for k, v in numbers.items()}
                rows.append([title, name, *(f"{value:.3f}" for value in numbers.values())])
    print(table(["", "", "mean E[G]/g", "least", "share drawn uphill"], rows))
    settings = {"size": SIZE, "domains": DOMAINS, "steps": STEPS, "shrink": SHRINK} | SCOPES
    write("lag", seed=SEED, settings=settings, results=results)


if __name__ == "__main__":
    main()
