"""Bloop: the penalty's gradient, without its part along the risk's."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from satisfice.rules.rule import At, Directive, Needs
from satisfice.rules.sums import dot, squared_norm
from satisfice.solver import RunningMean

__all__ = ["Bloop"]


class Bloop(Directive):
    """g + q − (q·m/‖m‖²)·m with m the running mean of g; where m = 0 it gives g + q.

    "Careful with that Scalpel: improving gradient surgery with an EMA", ICML 2024.
    """

    needs: ClassVar[Needs] = "risk"

    def __init__(self, *, strength: float | None = None) -> None:
        super().__init__(strength=strength)
        self._mean = RunningMean()

    def direction(self, at: At) -> Tensor:
        """Return g plus what of q stands at a right angle to m."""
        mean = self._mean.propose(at.risk)
        if at.penalty is None:
            return at.risk
        norm = squared_norm(mean)
        along = dot(at.penalty, mean)
        share = torch.where(norm > 0, along / torch.where(norm > 0, norm, 1.0), 0.0)
        return at.risk + at.penalty - share.to(mean) * mean

    def commit(self, finite: Tensor) -> None:
        """Keep m where the step was finite."""
        self._mean.commit(finite)

    def state_dict(self) -> dict[str, Any]:
        """Return m and the number of steps in it."""
        return {"mean": self._mean.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take what ``state_dict`` gave."""
        super().load_state_dict(state)
        self._mean.load_state_dict(state["mean"])
