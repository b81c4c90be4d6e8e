"""Bloop: the penalty's gradient, without its part along the risk's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from satisfice.rules.gradients import Gradients
from satisfice.rules.rule import Directive, Needs
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

    def direction(
        self,
        gradients: Gradients,
        *,
        risk: Tensor,
        penalty: Tensor | None,
        segments: Sequence[int],
    ) -> Tensor:
        """Return g plus what of q stands at a right angle to m."""
        del gradients, segments
        mean = self._mean.propose(risk)
        if penalty is None:
            return risk
        norm = squared_norm(mean)
        share = torch.where(norm > 0, dot(penalty, mean) / torch.where(norm > 0, norm, 1.0), 0.0)
        return risk + penalty - share.to(mean) * mean

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
