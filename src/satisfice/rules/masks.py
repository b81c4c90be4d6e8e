"""AND-mask and SAND-mask: move only where the domains agree."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from satisfice.errors import UserError, in_range
from satisfice.rules.rule import At, Directive, Needs
from satisfice.solver import widened

__all__ = ["AndMask", "SandMask", "and_mask", "sand_mask"]


def and_mask(gradients: Tensor, *, tau: float) -> Tensor:
    """Return m·mean_e h_e / (1e-10 + mean(m)) with ``m = 1[|mean_e sign(h_e)| ≥ τ]``.

    Parameters
    ----------
    gradients
        One tensor's h_e, ``[E, n]``.
    tau
        τ in [0, 1]; sign(0) is 0.
    """
    gradients = widened(gradients)
    agreement = gradients.sign().mean(0).abs()
    return _masked(gradients, (agreement >= tau).to(gradients.dtype))


def sand_mask(gradients: Tensor, *, tau: float, k: float) -> Tensor:
    """The same with ``m = max(0, tanh(k·(|mean_e sign(h_e)| − τ)/Var_e(h_e)))``.

    Parameters
    ----------
    gradients
        One tensor's h_e, ``[E, n]`` with E ≥ 2; the variance has E − 1. Where it is 0, tanh becomes
        the sign of its numerator.
    tau, k
        τ in [0, 1], and the slope k ≥ 0.
    """
    gradients = widened(gradients)
    if len(gradients) < 2:
        raise UserError("sand-mask needs at least two domains in a batch: it uses their variance.")
    numerator = k * (gradients.sign().mean(0).abs() - tau)
    variance = gradients.var(0)
    constant = variance == 0
    slope = numerator / torch.where(constant, 1.0, variance)
    mask = torch.where(constant, numerator.sign(), slope.tanh())
    return _masked(gradients, mask.clamp(min=0))


def _masked(gradients: Tensor, mask: Tensor) -> Tensor:
    return mask * gradients.mean(0) / (1e-10 + mask.mean())


class _Mask(Directive):
    """A mask on h_e = g_e + q, tensor by tensor: each domain's share of the penalty is q itself."""

    needs: ClassVar[Needs] = "domains"

    def direction(self, at: At) -> Tensor:
        """Return the masked means of all tensors."""
        update = torch.empty_like(at.risk)
        for start, stop in itertools.pairwise(at.segments):
            shifted = at.domain[:, start:stop]
            if at.penalty is not None:
                shifted = shifted + at.penalty[start:stop]
            update[start:stop] = self.mask(shifted)
        return update

    @abstractmethod
    def mask(self, gradients: Tensor) -> Tensor:
        """Return one tensor's masked mean."""


class AndMask(_Mask):
    """Keep a coordinate if a share τ of the domains' gradients agrees in sign.

    Parascandolo et al., "Learning explanations that are hard to vary", ICLR 2021.

    Parameters
    ----------
    strength
        λ of the penalty, if there is one.
    tau
        τ in [0, 1].
    """

    def __init__(self, *, strength: float | None = None, tau: float = 0.75) -> None:
        super().__init__(strength=strength)
        in_range("tau", tau, 0, 1)
        self.tau = tau

    def mask(self, gradients: Tensor) -> Tensor:
        """Return one tensor's masked mean."""
        return and_mask(gradients, tau=self.tau)


class SandMask(_Mask):
    """A soft AND-mask that also weighs the gradients' variance.

    Shahtalebi et al., "SAND-mask: an enhanced gradient masking strategy for the discovery of
    invariances in domain generalization", 2021. At DomainBed's τ = 1 its mask is 0 everywhere.

    Parameters
    ----------
    strength
        λ of the penalty, if there is one.
    tau, k
        τ in [0, 1], and the slope k.
    """

    def __init__(self, *, strength: float | None = None, tau: float = 0.5, k: float = 10.0) -> None:
        super().__init__(strength=strength)
        in_range("tau", tau, 0, 1)
        in_range("k", k, 0)
        self.tau = tau
        self.k = k

    def mask(self, gradients: Tensor) -> Tensor:
        """Return one tensor's masked mean."""
        return sand_mask(gradients, tau=self.tau, k=self.k)
