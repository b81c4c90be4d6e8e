"""MMD: the features' distributions should agree between domains, by a kernel."""

from __future__ import annotations

import torch
from torch import Tensor

from satisfice.penalties.groups import rows_by_domain, wide

__all__ = ["mmd"]

_SCALES = (1e-3, 1e-2, 1e-1, 1.0, 1e1, 1e2, 1e3)


def mmd(features: Tensor, domain: Tensor) -> Tensor:
    """Mean over pairs of domains of K(i, i) + K(j, j) − 2K(i, j).

    Gretton et al., "A kernel two-sample test", JMLR 2012; the kernel is Σ_a exp(−a‖x − y‖²) over a
    in {10⁻³, …, 10³}, and K(i, j) its mean over all pairs of examples, the diagonal included.
    With w_e the weights that average over domain e, the mean is 2/(E−1)·Σ_e (w_e − w̄)ᵀK(w_e − w̄):
    the kernel is evaluated once for all domains.

    Parameters
    ----------
    features
        ``[N, d]``; with more dimensions, each row of the last one counts as an example.
    domain
        Integer ids, ``[N]``; domains may differ in size. One domain alone gives 0.

    Returns
    -------
    A scalar, in float32 or wider.
    """
    with wide(features) as values:
        rows = rows_by_domain(values, domain)
        counts = [len(row) for row in rows]
        weights: Tensor = torch.block_diag(*[values.new_full((1, n), 1 / n) for n in counts])
        weights = weights - weights.mean(0)
        kernel = _kernel(torch.cat(rows))
        return ((weights @ kernel) * weights).sum() * (2 / max(len(rows) - 1, 1))


def _kernel(rows: Tensor) -> Tensor:
    # Not through ‖x‖² + ‖y‖² − 2x·y, which loses the distances that the sharp kernels see.
    distance = torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist") ** 2
    kernel = torch.zeros_like(distance)
    for scale in _SCALES:
        kernel = kernel + torch.exp(-scale * distance)
    return kernel
