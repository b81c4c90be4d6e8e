"""How progress, β and the tolerated deviation D move over a run."""

from __future__ import annotations

import math
from typing import overload

from torch import Tensor

from satisfice.errors import in_range

__all__ = ["FLOOR", "beta", "progress", "tolerance"]

FLOOR = 1 / 20
"""Progress by steps, and D's schedule, never use less than this: D is the first twentieth's."""


def progress(step: int, steps: int) -> float:
    """Return max(step/steps, 1/20) for ``step`` from 1, and 1 past the planned steps."""
    in_range("steps", steps, 1)
    in_range("step", step, 1)
    return min(1.0, max(step / steps, FLOOR))


def beta(progress: float, *, initial: float = 1.0) -> float:
    """β^t = β°·√progress: it grows as the tolerated bias shrinks."""
    in_range("progress", progress, 0, 1, above=True)
    return initial * math.sqrt(progress)


@overload
def tolerance(progress: float, *, distance: float, norm: float) -> float: ...
@overload
def tolerance(progress: float, *, distance: float, norm: Tensor) -> Tensor: ...
def tolerance(progress: float, *, distance: float, norm: float | Tensor) -> float | Tensor:
    """D^t = D·m/√(20·max(progress, 1/20)), with m the running mean of ‖g‖.

    So ``distance`` (D) is the first twentieth's bound relative to the risk's own gradient, and
    D/4.47 the last step's.
    """
    in_range("progress", progress, 0, 1, above=True)
    return distance / math.sqrt(20 * max(progress, FLOOR)) * norm
