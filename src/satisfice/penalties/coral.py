"""CORAL: means and covariances of the features should agree between domains."""

from __future__ import annotations

import torch
from torch import Tensor

from satisfice.penalties.groups import rows_by_domain, wide

__all__ = ["coral"]


def coral(features: Tensor, domain: Tensor) -> Tensor:
    """Mean over pairs of domains of ‖mean_i − mean_j‖²/d + ‖Cov_i − Cov_j‖²_F/d².

    Sun and Saenko, "Deep CORAL", ECCV 2016 workshops. Pairs are never formed:
    Σ_{i<j} ‖A_i − A_j‖² = E·Σ_i ‖A_i − Ā‖², which costs O(E) and, being centred, keeps its digits
    in float32 where domains nearly agree.

    Parameters
    ----------
    features
        ``[N, d]``; with more dimensions, each row of the last one counts as an example.
    domain
        Integer ids, ``[N]``; domains may differ in size. A domain with one example adds no
        covariance term, and one domain alone gives 0.

    Returns
    -------
    A scalar, in float32 or wider.
    """
    with wide(features) as values:
        rows = rows_by_domain(values, domain)
        size = values.shape[-1]
        means = [row.mean(0) for row in rows]
        covariances = [
            centred.mT @ centred / (len(centred) - 1)
            for centred in (row - mean for row, mean in zip(rows, means, strict=True))
            if len(centred) > 1
        ]
        total = _pairwise(means) / size
        if covariances:
            total = total + _pairwise(covariances) / size**2
        pairs = len(rows) * (len(rows) - 1) / 2
        return total / max(pairs, 1)


def _pairwise(values: list[Tensor]) -> Tensor:
    """Σ_{i<j} ‖A_i − A_j‖²."""
    stacked = torch.stack(values)
    return len(values) * (stacked - stacked.mean(0)).square().sum()
