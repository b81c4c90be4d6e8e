"""What a rule is, and what all rules share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, final

import torch
from torch import Tensor

from satisfice.errors import UserError, in_range
from satisfice.rules.gradients import Gradients, Update
from satisfice.rules.sums import squared_distance, squared_norm
from satisfice.solver import widened

__all__ = ["AdditiveRule", "Directive", "Needs", "Rule"]

Needs = Literal["weights", "risk", "domains"]


class Rule(ABC):
    """How the domains' gradients become one update. No autograd, no model, no random state.

    A call advances the rule's state where the step is finite, and leaves it alone where a g_e or q
    is not. Arguments are never written to, and the update never shares memory with them.

    Parameters
    ----------
    strength
        λ: multiplies the penalty's gradient (β° is 1, so for SDG it is λ/β°).
    """

    needs: ClassVar[Needs]
    """``weights``: Σ w_e·g_e with w known from the losses. ``risk``: g and q. ``domains``: all."""
    takes_penalty: ClassVar[bool] = True
    default_strength: ClassVar[float] = 1.0

    def __init__(self, *, strength: float | None = None) -> None:
        strength = self.default_strength if strength is None else strength
        in_range("strength", strength, 0)
        self.strength = strength

    @abstractmethod
    def __call__(
        self,
        gradients: Gradients,
        *,
        segments: Sequence[int],
        progress: float,
        seed: int,
        step: int,
        offset: int = 0,
        out: Tensor | None = None,
    ) -> Update:
        """Make the update.

        Parameters
        ----------
        gradients
            What the batch says.
        segments
            The parameter tensors' offsets in P: 0 = s₀ < … < s_T = P.
        progress
            In (0, 1].
        seed, step, offset
            They, with a coordinate's index counted from ``offset``, determine its draw.
        out
            Where the update is written, [P].
        """

    def commit(self, finite: Tensor) -> None:  # noqa: B027 - a rule without state has nothing to do
        """Keep the state that the last call proposed, where ``finite``."""

    def state_dict(self) -> dict[str, Any]:
        """Return plain numbers and CPU tensors."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take what ``state_dict`` gave."""
        known = self.state_dict().keys()
        if state.keys() != known:
            raise UserError(
                f"{type(self).__name__}'s state has {sorted(known)}, not {sorted(state)}."
            )

    @final
    def penalty_gradient(self, gradients: Gradients) -> Tensor | None:
        """Return q = strength·∇Penalty, having refused gradients that this rule cannot use."""
        name = type(self).__name__
        if self.needs == "domains" and gradients.domain is None:
            raise UserError(f"{name} needs the domains' gradients, domain [E, P], not the risk's.")
        if gradients.penalty is None:
            return None
        if not self.takes_penalty:
            raise UserError(f"{name} takes no penalty; use Joint for the sum of risk and penalty.")
        return gradients.penalty if self.strength == 1 else gradients.penalty * self.strength

    @final
    def finish(
        self,
        update: Tensor,
        penalty: Tensor | None,
        *,
        deviation: Tensor,
        norm: Tensor,
        valid: Tensor | None = None,
    ) -> Update:
        """Commit the state where the step was finite, and wrap up."""
        finite = torch.isfinite(norm)
        if penalty is not None:
            finite = finite & torch.isfinite(squared_norm(penalty))
        if valid is not None:
            finite = finite & valid
        self.commit(finite)
        return Update(update, deviation, norm, {"finite": finite})


class Directive(Rule):
    """A rule that draws nothing: its update is a function of g_e, g and q. Write ``direction``."""

    @abstractmethod
    def direction(
        self,
        gradients: Gradients,
        *,
        risk: Tensor,
        penalty: Tensor | None,
        segments: Sequence[int],
    ) -> Tensor:
        """Return the update [P] from the gradients, with ``risk`` g and ``penalty`` q (or None).

        State that should only move where the step is finite is kept in ``commit``.
        """

    def valid(self) -> Tensor | None:
        """Say whether the proposed state may be kept, where more than g_e and q decides that."""
        return None

    @final
    def __call__(
        self,
        gradients: Gradients,
        *,
        segments: Sequence[int],
        progress: float,
        seed: int,
        step: int,
        offset: int = 0,
        out: Tensor | None = None,
    ) -> Update:
        """Make the update: see ``Rule``."""
        del progress, seed, step, offset
        penalty = self.penalty_gradient(gradients)
        risk = gradients.mean()
        update = self.direction(gradients, risk=risk, penalty=penalty, segments=segments)
        if out is not None:
            update = out.copy_(update)
        elif _shared(update, gradients):
            update = update.clone()
        return self.finish(
            update,
            penalty,
            deviation=squared_distance(update, risk),
            norm=squared_norm(risk),
            valid=self.valid(),
        )


class AdditiveRule(Directive):
    """Σ_e w_e·g_e + q with w known from the losses, so that one backward pass can make it whole."""

    def weights(self, ids: Tensor, losses: Tensor) -> Tensor:
        """Return w [E], which sums to 1. It proposes the state that ``commit`` keeps."""
        del ids
        return torch.full_like(widened(losses), 1 / len(losses))

    def direction(
        self,
        gradients: Gradients,
        *,
        risk: Tensor,
        penalty: Tensor | None,
        segments: Sequence[int],
    ) -> Tensor:
        """Return the weighted sum; with equal weights it is g itself."""
        del gradients, segments
        return risk if penalty is None else risk + penalty


def _shared(update: Tensor, gradients: Gradients) -> bool:
    inputs = (gradients.risk, gradients.domain, gradients.penalty)
    storage = update.untyped_storage().data_ptr()
    return any(x is not None and x.untyped_storage().data_ptr() == storage for x in inputs)
