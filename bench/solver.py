"""The solver's pass over [E, P]: the fused kernel beside torch.compile, eager PyTorch and a copy.

All run in one process, interleaved in random order; a cell is a median in milliseconds. Before each
timed call the gradients are written once, by all threads, as an engine has just done in a training
step: otherwise a short call would be timed with sleeping threads and a cold cache. Options:
``--sizes 4x30000,8x1000000``, ``--rounds N``, ``--threads N``, ``--device cuda``, ``--out FILE``.

    python bench/solver.py
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from satisfice.results import provenance
from satisfice.solver import choose_backend, sdg_update, uniform_range
from satisfice.solver.reference import reference

FOLDER = Path(__file__).parent
SIZES = "4x30000,2x300000,4x1000000,8x1000000,4x25000000"
BUDGET_S = 20.0  # of one way at one size
PREPARE = "prepare"
Way = Callable[[], object]


def inputs(domains: int, size: int, device: str) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients that agree in part, with scales that differ from coordinate to coordinate."""
    generator = torch.Generator().manual_seed(0)
    scale = torch.randn(size, generator=generator).exp() * 1e-3
    shared = torch.randn(size, generator=generator)
    gradients = torch.randn(domains, size, generator=generator)
    gradients.add_(shared).mul_(scale)
    q = torch.randn(size, generator=generator) * scale
    return gradients.to(device), q.to(device), (scale**2).to(device)


def ways(domains: int, size: int, device: str) -> dict[str, Way]:
    """What is compared, by name; every call writes into the same buffers."""
    gradients, q, gamma = inputs(domains, size, device)
    written = gradients.clone()
    out, gamma_out = torch.empty_like(gamma), torch.empty_like(gamma)

    def eager(iterations: int | None) -> None:
        uniform = uniform_range(1, 2, 0, size, device=device)
        reference(
            gradients,
            q,
            gamma,
            uniform,
            beta=0.5,
            rate=0.01,
            candidates="split",
            iterations=iterations,
        )

    def solver(backend: str, iterations: int | None) -> None:
        sdg_update(
            gradients,
            q,
            gamma,
            beta=0.5,
            rate=0.01,
            seed=1,
            step=2,
            iterations=iterations,
            out=out,
            gamma_out=gamma_out,
            backend=backend,
        )

    fast = choose_backend(device)
    found: dict[str, Way] = {
        PREPARE: lambda: gradients.copy_(written),
        "clone": gradients.clone,
    }
    for name, iterations in (("25", 25), ("exact", None)):
        found[f"eager {name}"] = functools.partial(eager, iterations)
        for backend in dict.fromkeys(("reference", "compile", fast)):
            found[f"{backend} {name}"] = functools.partial(solver, backend, iterations)
    return found


def timed(way: Way, device: str) -> float:
    """Seconds of one call."""
    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    way()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def measure(domains: int, size: int, device: str, rounds: int) -> dict[str, Any]:
    """Median milliseconds of each way, after a first call that may compile."""
    found = ways(domains, size, device)
    prepare = found.pop(PREPARE)
    first, repeats = {}, {}
    for name, way in found.items():
        first[name] = timed(way, device)
        plain = name.startswith(("eager", "reference"))  # nothing to compile, nothing to warm up
        again = first[name] if plain and first[name] > 1 else timed(way, device)
        repeats[name] = max(1, min(rounds, int(BUDGET_S / max(again, 1e-6))))
    schedule = [name for name, count in repeats.items() for _ in range(count)]
    random.Random(0).shuffle(schedule)  # noqa: S311 - an order, not a secret
    times: dict[str, list[float]] = {name: [] for name in found}
    for name in schedule:
        prepare()
        times[name].append(timed(found[name], device))
    return {
        "domains": domains,
        "size": size,
        "first_call_s": {name: round(value, 3) for name, value in first.items()},
        "median_ms": {n: round(1e3 * statistics.median(t), 4) for n, t in times.items()},
        "quartiles_ms": {
            n: [round(1e3 * q, 4) for q in statistics.quantiles(t, n=4)[::2]]
            for n, t in times.items()
            if len(t) > 3
        },
        "calls": repeats,
    }


def first_calls() -> dict[str, float]:
    """Seconds of the first call of each variant, in a process of its own: cold, then from disk."""
    code = (
        "import time, torch, satisfice; from satisfice.solver import sdg_update\n"
        "g = torch.ones(2, 100, dtype=torch.{dtype}); q = g[0].clone()\n"
        "t = time.perf_counter(); sdg_update(g, q, q, beta=1., rate=.1, seed=0, step=1, "
        "iterations={iterations}, backend='numba'); print(time.perf_counter() - t)"
    )
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for dtype in ("float32", "float64"):
            for iterations in (25, None):
                for when in ("cold", "cached"):
                    done = subprocess.run(  # noqa: S603 - our own code
                        [sys.executable, "-c", code.format(dtype=dtype, iterations=iterations)],
                        env=os.environ | {"SATISFICE_CACHE": folder},
                        capture_output=True,
                        text=True,
                        check=True,
                    )
                    kind = "25" if iterations else "exact"
                    found[f"{dtype} {kind} {when}"] = round(float(done.stdout), 3)
    return found


def show(rows: list[dict[str, Any]], fast: str) -> None:
    """Print times and the ratios that the targets are about."""
    for kind in ("25", "exact"):
        title = "25 iterations" if kind == "25" else "the exact limit"
        print(f"\n{title}, ms\n")
        names = list(dict.fromkeys(["reference", "compile", fast]))
        heads = ["clone", "eager", *names, f"{fast}/compile", f"eager/{fast}", f"{fast}/clone"]
        print(f"{'E x P':>12}" + "".join(f"{head:>15}" for head in heads))
        for row in rows:
            ms = row["median_ms"]
            ours = ms[f"{fast} {kind}"]
            cells = [ms["clone"], ms[f"eager {kind}"], *(ms[f"{n} {kind}"] for n in names)]
            cells += [ours / ms[f"compile {kind}"], ms[f"eager {kind}"] / ours, ours / ms["clone"]]
            size = f"{row['domains']} x {row['size'] / 1e6:g}M"
            print(f"{size:>12}" + "".join(f"{cell:15.3f}" for cell in cells))


def main() -> None:
    """Measure, print, record."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", default=SIZES)
    parser.add_argument("--rounds", type=int, default=51)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=FOLDER / "records" / "solver.json")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    fast = choose_backend(options.device)
    rows = []
    for text in options.sizes.split(","):
        domains, size = (int(part) for part in text.split("x"))
        torch.compiler.reset()
        rows.append(measure(domains, size, options.device, options.rounds))
        show(rows[-1:], fast)
    print("\n=== all sizes ===")
    show(rows, fast)
    record = {
        "command": "python " + " ".join(["bench/solver.py", *sys.argv[1:]]),
        "threads": options.threads,
        "device": options.device,
        "rows": rows,
        **provenance(FOLDER, outputs=("bench/records",)),
    }
    if options.device == "cuda":
        record["machine"]["gpu"] = torch.cuda.get_device_name()
    else:
        record["first_call_s"] = first_calls()
        print("\nfirst call, s:", record["first_call_s"])
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(record, indent=1) + "\n", "utf-8")
    print("\nRecord:", options.out)


if __name__ == "__main__":
    main()
