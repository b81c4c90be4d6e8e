"""The bound: what Proposition 1 asks for, enforced at every step."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from satisfice.errors import UserError, in_range
from satisfice.rules.gradients import Gradients, Update
from satisfice.solver import RunningMean, tolerance

__all__ = ["Bound", "bounded"]


def bounded(
    update: Tensor, risk_gradient: Tensor, *, deviation: Tensor, distance: float | Tensor
) -> Tensor:
    """Return g + min(1, D^t/‖E[G] − g‖)·(G − g).

    Parameters
    ----------
    update, risk_gradient
        G and g, ``[P]``.
    deviation
        ‖E[G] − g‖² over the whole model.
    distance
        D^t.
    """
    return torch.lerp(risk_gradient, update, _factor(deviation, distance).to(update))


def _factor(deviation: Tensor, distance: float | Tensor) -> Tensor:
    """1 where E[G] = g, but 0 where D^t = 0: then a draw that is unbiased must go too."""
    distance = torch.as_tensor(distance, dtype=deviation.dtype, device=deviation.device)
    length = deviation.sqrt()
    within = (length <= distance) & (distance > 0)
    return torch.where(within, 1.0, distance / torch.where(length == 0, 1.0, length))


class Bound:
    """Keep the expected update within D^t of the risk's gradient, after any rule.

    D^t = D·m/√(20·max(progress, 1/20)), with m the running mean of ‖g‖: so D is the first
    twentieth's bound relative to the risk's own gradient. It speaks of the gradient that is handed
    to the optimizer; docs/mathematics/guarantee.md says what follows for plain SGD, and that
    Adam's preconditioned step is another thing.

    Parameters
    ----------
    distance
        D ≥ 0. With 0 every rule is ERM; with infinity it is itself.
    """

    def __init__(self, distance: float) -> None:
        in_range("bound", distance, 0, infinite=True)
        self.distance = distance
        self._norm = RunningMean()

    def __call__(self, update: Update, gradients: Gradients, *, progress: float) -> Update:
        """Write the bounded update over ``update.update`` and return it with its deviation."""
        norm = self._norm.propose(update.norm.sqrt())
        self._norm.commit(update.statistics["finite"])
        if math.isinf(self.distance):
            return update
        allowed = tolerance(progress, distance=self.distance, norm=norm)
        factor = _factor(update.deviation, allowed)
        kept = torch.lerp(
            gradients.mean(), update.update, factor.to(update.update), out=update.update
        )
        statistics = update.statistics | {"bound": allowed, "bound_factor": factor}
        return Update(kept, update.deviation * factor.square(), update.norm, statistics)

    def state_dict(self) -> dict[str, Any]:
        """Return m and the number of steps in it."""
        return {"norm": self._norm.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take what ``state_dict`` gave."""
        if state.keys() != {"norm"}:
            raise UserError(f"Bound's state has ['norm'], not {sorted(state)}.")
        self._norm.load_state_dict(state["norm"])
