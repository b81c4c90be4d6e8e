"""Rows and the domains they belong to."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from satisfice.errors import UserError
from satisfice.solver import widened

__all__ = ["Groups", "group", "rows_by_domain", "wide"]


@dataclass(frozen=True)
class Groups:
    """Which domain each row belongs to."""

    ids: Tensor  # [E], ascending
    index: Tensor  # [N], each row's place in ids
    counts: Tensor  # [E]

    def means(self, values: Tensor) -> Tensor:
        """Return the mean of ``values`` [N] over each domain's rows, [E]."""
        total = values.new_zeros(len(self.ids)).index_add(0, self.index, values)
        return total / self.counts


def group(domain: Tensor, rows: int) -> Groups:
    """Read one integer domain id for each of ``rows`` examples."""
    if domain.is_floating_point() or domain.is_complex() or domain.dtype == torch.bool:
        raise UserError(f"domain must hold integer ids, not {domain.dtype}.")
    if domain.dim() != 1 or len(domain) != rows:
        raise UserError(
            f"domain must have one id for each of the {rows} examples, not shape "
            f"{list(domain.shape)}."
        )
    if not rows:
        raise UserError("a batch needs at least one example.")
    return Groups(*torch.unique(domain, return_inverse=True, return_counts=True))


@contextlib.contextmanager
def wide(values: Tensor) -> Iterator[Tensor]:
    """Give ``values`` in float32 or wider, with autocast off: a penalty is a small difference."""
    with torch.autocast(values.device.type, enabled=False):
        yield widened(values)


def rows_by_domain(features: Tensor, domain: Tensor) -> tuple[Tensor, ...]:
    """Return one [n_e, d] per domain; more than two dimensions are flattened to rows of the last.

    A domain keeps the order of its rows.
    """
    if features.dim() < 2:
        raise UserError(f"features must have shape [N, ..., d], not {list(features.shape)}.")
    groups = group(domain, len(features))
    features = features.index_select(0, groups.index.argsort(stable=True))
    return tuple(
        rows.reshape(-1, features.shape[-1])
        for rows in torch.split(features, groups.counts.tolist())
    )
