"""How far SDG's expected update is from the risk's gradient: ‖E[G] − g‖/‖g‖.

Domain gradients are g_e = √ρ·z + √(1−ρ)·z_e, Gaussian for every coordinate, so that ρ is how much
the domains agree. γ is the current cost, per coordinate but where said otherwise.

    python docs/evidence/biases.py
"""

from __future__ import annotations

import math

import torch
from _record import rounded, slope, table, write
from torch import Tensor

from satisfice import solver

SEED = 0
COORDINATES = 200_000
RHOS = (0.0, 0.3, 0.7, 1.0)
WAYS = [(kind, iterations) for kind in solver.CANDIDATES for iterations in (25, None)]
NAMES = [f"{kind}, {iterations or 'exact'}" for kind, iterations in WAYS]
BETA_LARGE = 1e8
BETAS = (0.01, 0.1, 1.0)
PROGRESS = [20 ** (i / 12 - 1) for i in range(13)]  # 1/20 to 1, evenly on a logarithmic scale
SIGMA = 2.0
REPEATS = 21


def domain_gradients(rho: float, generator: torch.Generator, domains: int = 4) -> Tensor:
    """Return g_e, [E, P], whose coordinates correlate by ρ between domains."""
    shape = (domains + 1, COORDINATES)
    z = torch.randn(shape, generator=generator, dtype=torch.float64)
    return math.sqrt(rho) * z[0] + math.sqrt(1 - rho) * z[1:]


def bias(
    gradients: Tensor,
    q: Tensor,
    *,
    beta: float,
    kind: str,
    iterations: int | None,
    share_gamma: bool = False,
) -> float:
    """Return ‖E[G] − g‖/‖g‖ of one step whose γ is the current cost."""
    plus, minus = solver.candidates(gradients, kind)
    gamma = solver.cost_magnitude(gradients, q, plus, minus, beta=beta)
    _, _, deviation, norm = solver.sdg_update(
        gradients,
        q,
        gamma.mean().expand_as(gamma) if share_gamma else gamma,
        beta=beta,
        rate=0.0,
        seed=0,
        step=1,
        candidates=kind,
        iterations=iterations,
        draw="expectation",
    )
    return math.sqrt(deviation / norm)


def disagreement(generator: torch.Generator) -> dict[str, list[float]]:
    """β = 1e8 and no penalty: what stays however dear the bias is made."""
    result = {}
    for rho in RHOS:
        g = domain_gradients(rho, generator)
        q = torch.zeros_like(g[0])
        values = [bias(g, q, beta=BETA_LARGE, kind=kind, iterations=n) for kind, n in WAYS]
        result[f"{rho:g}"] = [rounded(value, 3) for value in values]
    return result


def whole_model(generator: torch.Generator) -> dict[str, dict[str, float]]:
    """One γ for all coordinates, whose scales are log-normal; ρ = 0."""
    found: dict[str, list[float]] = {name: [] for name in NAMES}
    for _ in range(REPEATS):
        scale = torch.randn(COORDINATES, generator=generator, dtype=torch.float64).mul(SIGMA).exp()
        g = scale * domain_gradients(0.0, generator)
        q = torch.zeros_like(scale)
        for name, (kind, n) in zip(NAMES, WAYS, strict=True):
            value = bias(g, q, beta=BETA_LARGE, kind=kind, iterations=n, share_gamma=True)
            found[name].append(value)
    ends = {"least": 0, "median": REPEATS // 2, "greatest": -1}
    return {
        name: {end: rounded(sorted(values)[i], 3) for end, i in ends.items()}
        for name, values in found.items()
    }


def over_a_run(generator: torch.Generator) -> dict[str, dict[str, dict[str, list[float]]]]:
    """‖q‖ = ‖g‖ and β^t = β°·√progress: [bias at 1/20, bias at 1, log-log slope against t]."""
    result: dict[str, dict[str, dict[str, list[float]]]] = {}
    for rho in RHOS:
        g = domain_gradients(rho, generator)
        q = torch.randn(COORDINATES, generator=generator, dtype=torch.float64)
        q *= g.mean(0).norm() / q.norm()
        for initial in BETAS:
            at = result.setdefault(f"{initial:g}", {}).setdefault(f"{rho:g}", {})
            for name, (kind, n) in zip(NAMES, WAYS, strict=True):
                betas = [solver.beta(p, initial=initial) for p in PROGRESS]
                values = [bias(g, q, beta=b, kind=kind, iterations=n) for b in betas]
                numbers = (values[0], values[-1], slope(PROGRESS, values))
                at[name] = [rounded(number, 3) for number in numbers]
    return result


def lone_domain() -> dict[str, dict[str, list[float]]]:
    """E[G]/g for a parameter that one of E domains touches: [25 iterations, exact], `split`."""
    result: dict[str, dict[str, list[float]]] = {"q = 0": {}, "q = βg": {}}
    for domains in (2, 4, 8, 16, 32):
        gradients = torch.zeros(domains, 1, dtype=torch.float64)
        gradients[0] = 1.0
        g = gradients.mean(0)
        for label, q in (("q = 0", 0 * g), ("q = βg", g)):
            # E[G] lies between G₋ = 0 and G₊ = g, so its share of g is 1 less the bias.
            lost = [bias(gradients, q, beta=1.0, kind="split", iterations=n) for n in (25, None)]
            result[label][str(domains)] = [rounded(1 - value, 3) for value in lost]
    return result


def main() -> None:
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(SEED)
    first, model = disagreement(generator), whole_model(generator)
    run, lone = over_a_run(generator), lone_domain()

    print("β = 1e8, q = 0, E = 4, γ per coordinate:\n")
    print(table(["ρ", *NAMES], [[rho, *map(str, row)] for rho, row in first.items()]))
    print(f"\nγ for the whole model, scales exp({SIGMA:g}·normal), ρ = 0, {REPEATS} draws:\n")
    rows = [[name, *map(str, values.values())] for name, values in model.items()]
    print(table(["", "least", "median", "greatest"], rows))
    print("\n‖q‖ = ‖g‖: bias at progress 1/20 → 1 (slope):\n")
    cells = [
        [b, rho, *(f"{v[0]} → {v[1]} ({v[2]})" for v in at.values())]
        for b, by_rho in run.items()
        for rho, at in by_rho.items()
    ]
    print(table(["β°", "ρ", *NAMES], cells))
    print("\nA parameter that one of E domains touches, E[G]/g, 25 / exact:\n")
    rows = [[q, *(f"{v[0]} / {v[1]}" for v in by_e.values())] for q, by_e in lone.items()]
    print(table(["", *(f"E = {e}" for e in lone["q = 0"])], rows))

    settings = {"coordinates": COORDINATES, "domains": 4, "beta": BETA_LARGE, "columns": NAMES}
    settings |= {"scale": f"exp({SIGMA:g}·normal)", "repeats": REPEATS, "dtype": "float64"}
    results = {"disagreement": first, "whole_model": model, "over_a_run": run, "lone_domain": lone}
    write("biases", seed=SEED, settings=settings, results=results)


if __name__ == "__main__":
    main()
