"""IRM: one classifier should be optimal in every domain."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from satisfice.errors import UserError
from satisfice.penalties.groups import group, wide

__all__ = ["cross_entropy", "irm"]


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """One cross-entropy per example, the default loss."""
    return functional.cross_entropy(logits, targets, reduction="none")


def irm(
    logits: Tensor,
    targets: Tensor,
    domain: Tensor,
    loss: Callable[[Tensor, Tensor], Tensor] = cross_entropy,
) -> Tensor:
    """Mean over domains of the product of two estimates of ∂L_e(s·logits)/∂s at s = 1.

    Arjovsky et al., "Invariant risk minimization", 2019 (IRMv1). The two estimates come from the
    even and from the odd rows of the domain's batch, so their product estimates the squared
    derivative without bias, and single values may be negative. A domain with one example adds 0.

    Parameters
    ----------
    logits
        ``[N, ...]``.
    targets
        What ``loss`` compares them with, examples first.
    domain
        Integer ids, ``[N]``.
    loss
        ``loss(logits, targets) -> [N]``, each value a function of its own example alone.

    Returns
    -------
    A scalar, in float32 or wider.
    """
    groups = group(domain, len(logits))
    derivative = _scale_derivative(logits, targets, loss)
    count = len(groups.ids)
    slot = 2 * groups.index + _parity(groups.index)
    ones = torch.ones_like(derivative)
    total = derivative.new_zeros(2 * count).index_add(0, slot, derivative)
    rows = derivative.new_zeros(2 * count).index_add(0, slot, ones)
    even, odd = (total / rows.clamp(min=1)).reshape(count, 2).unbind(1)
    return (even * odd).mean()


def _scale_derivative(
    logits: Tensor, targets: Tensor, loss: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    """∂loss_i/∂s_i at s_i = 1 with s_i multiplying example i's logits: all N in one pass."""
    keep = torch.is_grad_enabled() and logits.requires_grad
    with torch.inference_mode(False), torch.enable_grad(), wide(logits) as values:
        scale = torch.ones(len(values), dtype=values.dtype, device=values.device)
        scale.requires_grad_()
        values = values.clone() if values.is_inference() else values
        losses = loss(values * scale.reshape(-1, *[1] * (values.dim() - 1)), targets)
        if losses.shape != scale.shape:
            raise UserError(
                f"loss must return one value per example, shape [{len(logits)}], not "
                f"{list(losses.shape)}; use reduction='none'."
            )
        if not losses.requires_grad:
            raise UserError("loss must depend on the logits: IRM differentiates it in their scale.")
        (derivative,) = torch.autograd.grad(losses.sum(), scale, create_graph=keep)
    return derivative


def _parity(index: Tensor) -> Tensor:
    """0 for each domain's first row, 1 for its second, 0 for its third, …"""
    order = index.argsort(stable=True)
    position = torch.empty_like(index)
    position[order] = torch.arange(len(index), device=index.device)
    first = torch.full_like(index, len(index)).scatter_reduce(0, index, position, "amin")
    return (position - first[index]) % 2
