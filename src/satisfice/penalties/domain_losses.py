"""Each domain's own risk."""

from __future__ import annotations

from torch import Tensor

from satisfice.errors import UserError
from satisfice.penalties.groups import group, wide

__all__ = ["domain_losses"]


def domain_losses(losses: Tensor, domain: Tensor) -> Tensor:
    """Return L_e, the mean loss over each domain's examples.

    Parameters
    ----------
    losses
        One loss per example, ``[N]``; ``[N, ...]`` is averaged per example first.
    domain
        Integer ids, ``[N]``.

    Returns
    -------
    ``[E]`` in the ascending order of the ids, in float32 or wider.
    """
    if losses.dim() < 1:
        raise UserError("losses must hold one loss per example; use reduction='none'.")
    with wide(losses) as values:
        return group(domain, len(values)).means(values.reshape(len(values), -1).mean(1))
