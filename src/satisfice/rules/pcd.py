"""PCD: as much of the penalty's direction as keeps a fixed rate of progress along it."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from satisfice.rules.rule import At, Directive, Needs
from satisfice.rules.sums import dot, squared_norm
from satisfice.solver import RunningMean

__all__ = ["PCD"]


class PCD(Directive):
    """d·‖g‖/‖d‖ with d = ĝ + max(0, τ − ĝ·q̂/‖q̂‖²)·q̂, and ĝ, q̂ over running means of their norms.

    "Priority-constrained descent", 2026. Where q = 0 it gives g, and where g = 0 it gives 0.

    Parameters
    ----------
    strength
        Its one knob, τ. A factor on the penalty itself would drop out.
    """

    needs: ClassVar[Needs] = "risk"
    default_strength: ClassVar[float] = 0.02

    def __init__(self, *, strength: float | None = None) -> None:
        super().__init__(strength=strength)
        self._risk_norm = RunningMean(floor=1 / 1000)
        self._penalty_norm = RunningMean(floor=1 / 1000)

    def direction(self, at: At) -> Tensor:
        """Return d·‖g‖/‖d‖."""
        risk, q = at.risk, at.gradients.penalty  # unscaled: the strength is τ, and λ drops out
        q = torch.zeros_like(risk) if q is None else q
        norms = squared_norm(risk).sqrt(), squared_norm(q).sqrt()
        g_scale = _positive(self._risk_norm.propose(norms[0]))
        q_scale = _positive(self._penalty_norm.propose(norms[1]))
        along = dot(risk, q) * q_scale / (g_scale * _positive(norms[1]) ** 2)
        push = torch.where(norms[1] > 0, (self.strength - along).clamp(min=0), 0.0)
        d = risk / g_scale.to(risk) + (push / q_scale).to(risk) * q
        return d * (norms[0] / _positive(squared_norm(d).sqrt())).to(risk)

    def commit(self, finite: Tensor) -> None:
        """Keep the mean norms where the step was finite."""
        self._risk_norm.commit(finite)
        self._penalty_norm.commit(finite)

    def state_dict(self) -> dict[str, Any]:
        """Return the mean norms and the number of steps in them."""
        return {
            "risk_norm": self._risk_norm.state_dict(),
            "penalty_norm": self._penalty_norm.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take what ``state_dict`` gave."""
        super().load_state_dict(state)
        self._risk_norm.load_state_dict(state["risk_norm"])
        self._penalty_norm.load_state_dict(state["penalty_norm"])


def _positive(value: Tensor) -> Tensor:
    """1 in the place of 0, for a quotient whose numerator is 0 too."""
    return torch.where(value > 0, value, 1.0)
