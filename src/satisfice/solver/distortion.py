"""R(D): the least penalty that a given distortion allows."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from satisfice.errors import UserError
from satisfice.solver.candidates import widened

__all__ = ["PenaltyDistortion", "penalty_distortion"]


class PenaltyDistortion(NamedTuple):
    """A piecewise linear, convex, decreasing curve, by its corners in the order of distortion."""

    distortion: Tensor
    penalty: Tensor

    def at(self, distortion: float | Tensor) -> Tensor:
        """Return R(D): infinite below the least distortion, constant past the last corner."""
        d = torch.as_tensor(distortion, dtype=self.distortion.dtype, device=self.distortion.device)
        right = torch.searchsorted(self.distortion, d).clamp(1, max(1, len(self.distortion) - 1))
        right = right.clamp(max=len(self.distortion) - 1)
        left = (right - 1).clamp(min=0)
        width = self.distortion[right] - self.distortion[left]
        share = (d - self.distortion[left]) / torch.where(width > 0, width, 1.0)
        value = torch.lerp(self.penalty[left], self.penalty[right], share.clamp(0, 1))
        return torch.where(d < self.distortion[0], torch.inf, value)


def penalty_distortion(penalty: Tensor, distortion: Tensor) -> PenaltyDistortion:
    """Return R(D) = min E[penalty] over the choices among candidates with E[distortion] ≤ D.

    The curve's ends are the least distortion that the candidates allow and the least penalty. Its
    length depends on the values, so on an accelerator this waits for them. It is float64.

    Parameters
    ----------
    penalty, distortion
        ``[K]``: one choice among K candidates, whose curve is the lower convex hull of the K
        points. Or ``[2, P]``: for each of P coordinates a choice between two candidates, summed
        over coordinates, whose curve takes the exchanges in the order of what they gain per
        distortion.
    """
    if penalty.shape != distortion.shape:
        raise UserError(
            f"penalty {list(penalty.shape)} and distortion {list(distortion.shape)} must have "
            "the same shape."
        )
    penalty, distortion = widened(penalty).double(), widened(distortion).double()
    if penalty.isnan().any() or distortion.isnan().any():
        raise UserError("penalty and distortion must not hold NaN.")
    if penalty.dim() == 1 and len(penalty):
        return _hull(penalty, distortion)
    if penalty.dim() == 2 and len(penalty) == 2:
        return _slopes(penalty, distortion)
    raise UserError(f"penalty must have shape [K] or [2, P], not {list(penalty.shape)}.")


def _hull(penalty: Tensor, distortion: Tensor) -> PenaltyDistortion:
    by_penalty = torch.argsort(penalty, stable=True)
    order = by_penalty[torch.argsort(distortion[by_penalty], stable=True)]
    corners: list[tuple[float, float]] = []
    points = zip(distortion[order].tolist(), penalty[order].tolist(), strict=True)
    for d, value in points:
        if corners and value >= corners[-1][1]:
            continue  # more distortion for no less penalty
        while len(corners) > 1:
            (d0, p0), (d1, p1) = corners[-2], corners[-1]
            if (p1 - p0) * (d - d0) < (value - p0) * (d1 - d0):
                break
            corners.pop()
        corners.append((d, value))
    d_corners, p_corners = zip(*corners, strict=True)
    return PenaltyDistortion(distortion.new_tensor(d_corners), penalty.new_tensor(p_corners))


def _slopes(penalty: Tensor, distortion: Tensor) -> PenaltyDistortion:
    # Start from each coordinate's candidate of least distortion (the better penalty on a tie).
    second = (distortion[1] < distortion[0]) | (
        (distortion[1] == distortion[0]) & (penalty[1] < penalty[0])
    )
    near_d = torch.where(second, distortion[1], distortion[0])
    near_p = torch.where(second, penalty[1], penalty[0])
    more = (distortion[1] - distortion[0]).abs()
    gain = near_p - torch.where(second, penalty[0], penalty[1])
    useful = (gain > 0) & (more > 0)
    more, gain = more[useful], gain[useful]
    order = torch.argsort(gain / more, descending=True, stable=True)
    start_d, start_p = near_d.sum().reshape(1), near_p.sum().reshape(1)
    d = torch.cat([start_d, start_d + more[order].cumsum(0)])
    p = torch.cat([start_p, start_p - gain[order].cumsum(0)])
    return PenaltyDistortion(d, p)
