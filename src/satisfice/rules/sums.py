"""Sums over the whole model, in float64: a norm must not overflow where its gradient does not."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["dot", "squared_distance", "squared_norm"]

_CHUNK = 1 << 18  # coordinates widened at a time, so that no float64 copy of a model is made


def dot(left: Tensor, right: Tensor) -> Tensor:
    """Return left·right, a float64 scalar."""
    total = torch.zeros((), dtype=torch.float64, device=left.device)
    for a, b in zip(left.split(_CHUNK), right.split(_CHUNK), strict=True):
        total = total + torch.dot(a.double(), b.double())
    return total


def squared_norm(values: Tensor) -> Tensor:
    """Return ‖values‖²."""
    return dot(values, values)


def squared_distance(left: Tensor, right: Tensor) -> Tensor:
    """Return ‖left − right‖²."""
    total = torch.zeros((), dtype=torch.float64, device=left.device)
    for a, b in zip(left.split(_CHUNK), right.split(_CHUNK), strict=True):
        difference = a.double() - b.double()
        total = total + torch.dot(difference, difference)
    return total
