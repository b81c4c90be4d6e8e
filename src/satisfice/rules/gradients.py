"""Where engines and rules meet: gradients in, one update out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from satisfice.errors import UserError
from satisfice.solver import ordered_mean, widened

__all__ = ["Gradients", "Update"]


@dataclass(frozen=True, eq=False)
class Gradients:
    """What one batch says: per domain its id, loss and count, and the gradients over P coordinates.

    Just one of ``risk`` and ``domain`` is given. All are detached here, and gradients made float32
    or wider; ``penalty`` is ∇Penalty, unscaled. Ids are best on the CPU, where a rule with a state
    per domain reads them.
    """

    ids: Tensor  # [E], ascending
    losses: Tensor  # [E]
    counts: Tensor  # [E], examples
    risk: Tensor | None = None  # [P]
    domain: Tensor | None = None  # [E, P]
    penalty: Tensor | None = None  # [P]

    def __post_init__(self) -> None:
        if (self.risk is None) == (self.domain is None):
            raise UserError("Gradients take just one of risk [P] and domain [E, P].")
        if not self.ids.shape == self.losses.shape == self.counts.shape or self.ids.dim() != 1:
            raise UserError(
                "ids, losses and counts must each hold one value per domain, [E], not "
                f"{list(self.ids.shape)}, {list(self.losses.shape)} and {list(self.counts.shape)}."
            )
        if self.ids.is_floating_point() or self.ids.is_complex():
            raise UserError(f"ids must be integers, not {self.ids.dtype}.")
        if self.domain is not None and (
            self.domain.dim() != 2 or len(self.domain) != len(self.ids) or not len(self.ids)
        ):
            raise UserError(
                f"domain must have shape [E, P] with E = {len(self.ids)} >= 1, not "
                f"{list(self.domain.shape)}."
            )
        if self.penalty is not None and self.penalty.shape != (self.size,):
            raise UserError(
                f"penalty must have shape [{self.size}], not {list(self.penalty.shape)}."
            )
        for name in ("risk", "domain", "penalty"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, widened(value.detach()))
        object.__setattr__(self, "losses", self.losses.detach())

    @property
    def size(self) -> int:
        """P, the number of coordinates."""
        given = self.risk if self.domain is None else self.domain
        assert given is not None  # noqa: S101 - one of the two is there since construction
        return given.shape[-1]

    def mean(self) -> Tensor:
        """Return g, the risk's gradient, [P]."""
        if self.domain is None:
            assert self.risk is not None  # noqa: S101 - as above
            return self.risk
        return ordered_mean(self.domain)


class Update(NamedTuple):
    """What a rule makes of gradients."""

    update: Tensor
    """G, what the optimizer takes for the gradient, [P]."""
    deviation: Tensor
    """‖E[G] − g‖², a float64 scalar."""
    norm: Tensor
    """‖g‖², a float64 scalar."""
    statistics: dict[str, Tensor]
    """Scalars; ``finite`` is always there, and says whether every g_e and q was."""
