"""On which threads the fused kernel runs, and what its parts cost.

Medians in milliseconds, fp32, the draw included: on torch's own OpenMP team, on threads of ours,
and on one thread; with nothing before the call, and right after one of torch's parallel operations,
whose team then spins. One thread's pass with 25 iterations, with one, and with the exact limit. And
a copy of [E, P] into fresh memory beside one into a buffer that is kept.

    python bench/threads.py
"""

from __future__ import annotations

import functools
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from solver import inputs

from satisfice.results import provenance
from satisfice.solver import sdg_update, threads

FOLDER = Path(__file__).parent
SIZES = ((4, 30_000), (2, 300_000), (4, 1_000_000), (8, 1_000_000))
COPIED = (4, 25_000_000)
CALLS = 40


def median_ms(call: Callable[[], object], before: Callable[[], object]) -> float:
    """Median of CALLS calls, each after an untimed ``before``."""
    call()
    found = []
    for _ in range(CALLS):
        before()
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    return round(1e3 * statistics.median(found), 4)


def measure(domains: int, size: int) -> dict[str, Any]:
    """All conditions at one size."""
    gradients, q, gamma = inputs(domains, size, "cpu")
    out, gamma_out = torch.empty_like(gamma), torch.empty_like(gamma)
    values = torch.ones(2_000_000)

    def solve(iterations: int | None) -> None:
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
            backend="numba",
        )

    befores: dict[str, Callable[[], object]] = {
        "alone": lambda: None,
        "after an operation": lambda: values.add(1.0),
    }
    row: dict[str, Any] = {"domains": domains, "size": size}
    for name, before in befores.items():
        run = functools.partial(median_ms, functools.partial(solve, 25), before)
        torch.set_num_threads(2)
        row[f"team, {name}"] = run()
        with mock.patch.object(threads, "_team", return_value=None):
            row[f"ours, {name}"] = run()
        torch.set_num_threads(1)
        row[f"one thread, {name}"] = run()
    for label, iterations in (("one iteration", 1), ("the limit", None)):
        call = functools.partial(solve, iterations)
        row[f"one thread, {label}"] = median_ms(call, befores["alone"])
    torch.set_num_threads(2)
    return row


def main() -> None:
    """Measure, print, record."""
    rows = [measure(*size) for size in SIZES]
    for row in rows:
        print("\n".join(f"{name:36}{value}" for name, value in row.items()), end="\n\n")
    gradients = inputs(*COPIED, "cpu")[0]
    kept = torch.empty_like(gradients)
    nothing = functools.partial(int, 0)
    copies = {
        "clone": median_ms(gradients.clone, nothing),
        "copy into a kept buffer": median_ms(lambda: kept.copy_(gradients), nothing),
    }
    print("4 x 25M:", copies)
    record = {
        "command": "python bench/threads.py",
        "calls": CALLS,
        "rows": rows,
        "copies of 4 x 25M": copies,
        **provenance(FOLDER, outputs=("bench/records",)),
    }
    path = FOLDER / "records" / "threads.json"
    path.write_text(json.dumps(record, indent=1) + "\n", "utf-8")
    print("Record:", path)


if __name__ == "__main__":
    main()
