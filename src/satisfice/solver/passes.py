"""What one pass of the solver is given: the interface between ``sdg_update`` and its backends."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

__all__ = ["Pass"]


@dataclass(frozen=True, eq=False)
class Pass:
    """One checked call of ``sdg_update``; all tensors have one dtype and one device.

    A backend takes it, fills ``out`` and ``gamma_out``, and returns deviation and norm.
    """

    gradients: Tensor  # [E, P]
    penalty_gradient: Tensor  # [P]
    gamma: Tensor  # [P], perhaps expanded from one number
    beta: float | Tensor
    rate: float | Tensor
    seed: int
    step: int
    offset: int
    candidates: str
    iterations: int | None
    draw: str
    out: Tensor  # [P]
    gamma_out: Tensor  # [P]
