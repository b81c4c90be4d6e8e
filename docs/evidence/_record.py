"""What every record holds beside its numbers: the machine, the versions, the seed, the commit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from satisfice.results import provenance

RECORDS = Path(__file__).parent / "records"


def write(name: str, *, seed: int, settings: dict[str, Any], results: dict[str, Any]) -> Path:
    """Write ``records/<name>.json`` and say where it is.

    Parameters
    ----------
    name
        The script's name, which is also the record's.
    seed
        What the script seeded its generators with.
    settings
        Everything else that determines the numbers.
    results
        The numbers.

    Returns
    -------
    The record's path.
    """
    record = {
        "command": f"python docs/evidence/{name}.py",
        "seed": seed,
        "settings": settings,
        "results": results,
        **provenance(RECORDS.parent, outputs=("docs/evidence/records",)),
    }
    RECORDS.mkdir(exist_ok=True)
    path = RECORDS / f"{name}.json"
    text = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False)
    path.write_text(text + "\n", "utf-8")
    print(f"\nRecord: {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}")
    return path


def rounded(value: float, digits: int = 4) -> float:
    """Round to significant ``digits``, so that a record shows no more than was measured."""
    return float(f"{value:.{digits}g}")


def table(header: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def slope(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Return the least-squares slope of log y against log x."""
    x, y = torch.tensor(xs).double().log(), torch.tensor(ys).double().log()
    x = x - x.mean()
    return float((x * y).sum() / (x * x).sum())
