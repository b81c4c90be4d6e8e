"""What a rule is, and what all rules share."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, final

import torch
from torch import Tensor

from satisfice.errors import UserError, in_range
from satisfice.rules.gradients import Gradients, Update
from satisfice.rules.sums import squared_distance, squared_norm
from satisfice.solver import widened

__all__ = ["AdditiveRule", "At", "Directive", "Needs", "Rule"]

Needs = Literal["weights", "risk", "domains"]


@dataclass(frozen=True, eq=False)
class At:
    """All that a rule sees of one step."""

    gradients: Gradients
    penalty: Tensor | None
    """q, the penalty's gradient times the strength, [P]."""
    segments: Sequence[int]
    progress: float
    seed: int
    step: int
    offset: int

    @cached_property
    def risk(self) -> Tensor:
        """g, [P]."""
        return self.gradients.mean()

    @property
    def domain(self) -> Tensor:
        """g_e, [E, P]."""
        if self.gradients.domain is None:
            raise UserError("the domains' gradients, domain [E, P], are needed, not the risk's.")
        return self.gradients.domain


class Rule(ABC):
    """How the domains' gradients become one update. No autograd, no model, no random state.

    A call advances the rule's state where the step is finite, and leaves it alone where it is not.
    Arguments are never written to, and the update shares memory with nothing but ``out``.

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
        name = type(self).__name__
        if self.needs == "domains" and gradients.domain is None:
            raise UserError(f"{name} needs the domains' gradients, domain [E, P], not the risk's.")
        if gradients.penalty is not None and not self.takes_penalty:
            raise UserError(f"{name} takes no penalty; use Joint for the sum of risk and penalty.")
        _check_segments(segments, gradients.size)
        q = gradients.penalty
        if q is not None and self.strength != 1:
            q = q * self.strength
        at = At(gradients, q, segments, progress, seed, step, offset)
        update, deviation, norm = self.make(at, out)
        finite = torch.isfinite(norm) & torch.isfinite(deviation)
        if q is not None:
            finite = finite & torch.isfinite(squared_norm(q))
        self.commit(finite)
        return Update(update, deviation, norm, {"finite": finite})

    @abstractmethod
    def make(self, at: At, out: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Return the update [P], in ``out`` if given, ‖E[G] − g‖² and ‖g‖².

        State that this step moves is only proposed here, and kept in ``commit``.
        """

    def commit(self, finite: Tensor) -> None:  # noqa: B027 - a rule without state has nothing to do
        """Keep the state that was proposed, where ``finite``."""

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


class Directive(Rule):
    """A rule that draws nothing: its update is a function of g_e, g and q. Write ``direction``."""

    @abstractmethod
    def direction(self, at: At) -> Tensor:
        """Return the update [P] from ``at.risk``, ``at.domain`` and ``at.penalty`` (or None)."""

    @final
    def make(self, at: At, out: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Return the direction, copied, with its distance from g and g's norm."""
        direction = self.direction(at)
        update = direction.clone() if out is None else out.copy_(direction)
        return update, squared_distance(update, at.risk), squared_norm(at.risk)


class AdditiveRule(Directive):
    """Σ_e w_e·g_e + q with w known from the losses, so that one backward pass can make it whole."""

    def weights(self, ids: Tensor, losses: Tensor) -> Tensor:
        """Return w [E], which sums to 1. It proposes the state that ``commit`` keeps."""
        del ids
        return torch.full_like(widened(losses), 1 / len(losses))

    def direction(self, at: At) -> Tensor:
        """Return the weighted sum; with equal weights it is g itself."""
        return at.risk if at.penalty is None else at.risk + at.penalty


def _check_segments(segments: Sequence[int], size: int) -> None:
    """Refuse offsets that leave coordinates out."""
    rising = all(start < stop for start, stop in itertools.pairwise(segments))
    if len(segments) < 2 or segments[0] != 0 or segments[-1] != size or not rising:
        raise UserError(
            f"segments must rise from 0 to {size}, the number of coordinates, not "
            f"{list(segments[:4])}{' …' if len(segments) > 4 else ''}."
        )
