"""Which way SDG's penalty term has to point: −q·G beside the printed +∇Penalty·G.

Four small problems of four known domains and one unseen, a featurizer and a linear classifier,
CORAL, two optimizers. ERM, SDG with the cost β·d − q·G, and SDG with Algorithm 1's β·d + q·G.

    python docs/evidence/penalty_sign.py
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from _record import rounded, table, write
from torch import Tensor, nn

from satisfice import solver
from satisfice.penalties import coral

PROBLEMS = ("shifted", "scaled", "shortcut", "signals")
METHODS = {
    "ERM": (0, 1.0),
    "−q·G, λ = 1": (1, 1.0),
    "−q·G, λ = 10": (1, 10.0),
    "as printed, λ = 1": (-1, 1.0),
    "as printed, λ = 10": (-1, 10.0),
}
SEEDS = (0, 1, 2)
KNOWN, BATCH, TRAIN, TEST = 4, 64, 256, 1000
STEPS = 600
OPTIMIZERS = {"Adam": (torch.optim.Adam, 3e-3), "SGD": (torch.optim.SGD, 0.1)}


class Outcome(NamedTuple):
    """A run's end; ``penalty`` is CORAL's, the median over the last 50 steps' batches."""

    penalty: float
    known: float
    unseen: float
    steps: int


def sample(problem: str, e: int, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw domain ``e``: two coordinates tell the class, and the others differ by domain."""
    y = torch.randint(0, 2, (n,), generator=generator)
    sign = (2 * y - 1).float()
    if problem == "signals":  # the frequency tells the class; gain and offset are the domain's
        cycles = torch.where(y == 1, 0.25, 0.12) + 0.02 * torch.randn(n, generator=generator)
        phase = torch.rand(n, 1, generator=generator)
        wave = torch.sin(2 * math.pi * (cycles[:, None] * torch.arange(32.0) + phase))
        noise = 0.7 * torch.randn(n, 32, generator=generator)
        x = (0.6, 1.0, 1.5, 2.0, 0.8)[e] * wave + noise + (0.0, 0.4, -0.4, 0.8, -0.8)[e]
        return x[:, None], y
    x = torch.randn(n, 10, generator=generator)
    x[:, 0] += 1.5 * sign
    x[:, 1] += 0.75 * sign
    if problem == "shifted":
        x[:, 2:] += 1.5 * torch.randn(8, generator=torch.Generator().manual_seed(100 + e))
    elif problem == "scaled":
        x[:, 2:] *= (0.5, 1.0, 2.0, 3.0, 1.5)[e]
    else:  # a shortcut whose strength is the domain's, and which turns round in the unseen one
        x[:, 2] += (2.0, 1.5, 1.0, 0.5, -1.0)[e] * sign
    return x, y


def model(problem: str) -> tuple[nn.Module, nn.Module]:
    """Return a featurizer (linear, convolutional, or a perceptron) and a classifier."""
    if problem == "shifted":
        return nn.Linear(10, 8), nn.Linear(8, 2)
    last = [nn.Linear(32, 16), nn.ReLU()]
    if problem == "signals":
        pooled = [nn.Conv1d(1, 8, 7), nn.ReLU(), nn.AdaptiveAvgPool1d(4), nn.Flatten()]
        return nn.Sequential(*pooled, *last), nn.Linear(16, 2)
    return nn.Sequential(nn.Linear(10, 32), nn.ReLU(), *last), nn.Linear(16, 2)


def flat_gradient(value: Tensor, parameters: list[Tensor]) -> Tensor:
    """Return the gradient over all parameters as one vector, zero where nothing reaches."""
    found = torch.autograd.grad(value, parameters, retain_graph=True, materialize_grads=True)
    return torch.cat([gradient.reshape(-1) for gradient in found])


def train(problem: str, name: str, sign: int, strength: float, seed: int) -> Outcome:
    """Train for STEPS, or until a gradient is no longer finite."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    featurizer, classifier = model(problem)
    parameters: list[Tensor] = [*featurizer.parameters(), *classifier.parameters()]
    sizes = [p.numel() for p in parameters]
    kind, learning_rate = OPTIMIZERS[name]
    optimizer = kind(parameters, lr=learning_rate)
    data = [sample(problem, e, TRAIN, generator) for e in range(KNOWN)]
    tests = [sample(problem, e, TEST, generator) for e in range(KNOWN + 1)]
    domain = torch.arange(KNOWN).repeat_interleave(BATCH)
    gamma = torch.zeros(sum(sizes))
    penalties: list[float] = []
    for step in range(1, STEPS + 1):
        rows = torch.randint(0, TRAIN, (KNOWN, BATCH), generator=generator)
        x, y = (torch.cat([d[i][r] for d, r in zip(data, rows, strict=True)]) for i in (0, 1))
        features = featurizer(x)
        losses = F.cross_entropy(classifier(features), y, reduction="none").view(KNOWN, -1).mean(1)
        penalty = coral(features, domain)
        if sign:
            g = torch.stack([flat_gradient(loss, parameters) for loss in losses])
            q = sign * strength * flat_gradient(penalty, parameters)
            if not (g.isfinite().all() and q.isfinite().all()):
                break
            beta, rate = solver.beta(solver.progress(step, STEPS)), solver.running_rate(step)
            update, gamma, _, _ = solver.sdg_update(
                g, q, gamma, beta=beta, rate=rate, seed=seed, step=step
            )
        else:
            update = flat_gradient(losses.mean(), parameters)
        penalties.append(penalty.item())
        for parameter, piece in zip(parameters, update.split(sizes), strict=True):
            parameter.grad = piece.view_as(parameter)
        optimizer.step()
    with torch.no_grad():
        right = [(classifier(featurizer(x)).argmax(1) == y).float().mean().item() for x, y in tests]
    last = sorted(penalties[-50:])
    known = sum(right[:KNOWN]) / KNOWN
    return Outcome(last[len(last) // 2], known, right[KNOWN], len(penalties))


def main() -> None:
    torch.set_num_threads(1)
    results: dict[str, dict[str, list[dict[str, float]]]] = {}
    rows = []
    for problem in PROBLEMS:
        for optimizer in OPTIMIZERS:
            cells = [problem, optimizer]
            for label, (sign, strength) in METHODS.items():
                runs = [train(problem, optimizer, sign, strength, seed) for seed in SEEDS]
                results.setdefault(f"{problem}, {optimizer}", {})[label] = [
                    {key: rounded(value, 3) for key, value in run._asdict().items()} for run in runs
                ]
                middle = Outcome(*(sorted(column)[1] for column in zip(*runs, strict=True)))
                cell = f"{middle.penalty:.2g}; {middle.known:.3f}, {middle.unseen:.3f}"
                stop = "" if middle.steps == STEPS else f" (stopped at {middle.steps})"
                cells.append(cell + stop)
            rows.append(cells)
    print(f"CORAL's penalty; accuracy on known, unseen domains; medians of {len(SEEDS)} seeds:\n")
    print(table(["problem", "optimizer", *METHODS], rows))
    settings = {"steps": STEPS, "batch": [KNOWN, BATCH], "seeds": SEEDS, "beta": 1.0}
    settings |= {"rates": {name: rate for name, (_, rate) in OPTIMIZERS.items()}}
    settings |= {"candidates": "split", "iterations": 25, "draw": "sample"}
    write("penalty_sign", seed=SEEDS[0], settings=settings, results=results)


if __name__ == "__main__":
    main()
