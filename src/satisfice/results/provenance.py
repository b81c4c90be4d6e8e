"""The machine, the versions and the commit behind a figure."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

__all__ = ["provenance"]

_PACKAGES = ("satisfice", "torch", "numpy", "numba")


def provenance(folder: Path, *, outputs: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return what a record says of its origin, as JSON's own types.

    Parameters
    ----------
    folder
        A folder in the git checkout whose commit counts; outside one the commit is None.
    outputs
        Paths from the checkout's top whose changes don't count as changes of the code.
    """
    excluded = [f":(exclude,top){path}" for path in outputs]
    changes = _git(folder, "status", "--porcelain", "--", ":/", *excluded)
    return {
        "machine": {
            "platform": platform.platform(),
            "processor": _processor(),
            "cpus": os.cpu_count(),
        },
        "versions": {"python": platform.python_version(), **_versions()},
        "commit": {"id": _git(folder, "rev-parse", "HEAD") or None, "dirty": bool(changes)},
    }


def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
