"""GroupDRO: domains with a high loss weigh more."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import torch
from torch import Tensor

from satisfice.errors import UserError, in_range
from satisfice.rules.rule import AdditiveRule, At, Needs

__all__ = ["GroupDRO"]


class GroupDRO(AdditiveRule):
    """First w_e ← w_e·exp(η·L_e) for the batch's domains, then Σ w_e·g_e / Σ w_e, plus q.

    Sagawa et al., "Distributionally robust neural networks", ICLR 2020. The batch's domains keep
    their total weight between them, so that the weights over all known domains sum to 1 and absent
    ones keep theirs.

    Parameters
    ----------
    strength
        λ of the penalty, if there is one.
    eta
        η ≥ 0.
    domains
        The ids of all known domains, uniform at first; another is then refused. None: a new id
        enters with 1/(K+1) while the K known ones shrink by K/(K+1).

    Weights are looked up by id on the host: ids that lie on a device are waited for.
    """

    needs: ClassVar[Needs] = "weights"

    def __init__(
        self,
        *,
        strength: float | None = None,
        eta: float = 0.01,
        domains: Iterable[int] | None = None,
    ) -> None:
        super().__init__(strength=strength)
        in_range("eta", eta, 0)
        self.eta = eta
        self._closed = domains is not None
        known = sorted(set(domains or ()))
        if self._closed and not known:
            raise UserError("domains=[] names no domain; leave it out to learn them from batches.")
        self._place = {domain: place for place, domain in enumerate(known)}
        self._weights = torch.full((len(known),), 1 / max(len(known), 1), dtype=torch.float64)
        self._proposed: tuple[dict[int, int], Tensor] | None = None

    def weights(self, ids: Tensor, losses: Tensor) -> Tensor:
        """Return the batch's weights [E], scaled to sum to 1, having moved them by the losses."""
        listed = ids.tolist()
        if len(set(listed)) < len(listed):
            raise UserError(f"ids must name each domain of the batch once, not {listed}.")
        place, known = self._with_new(listed, losses.device)
        index = torch.tensor([place[domain] for domain in listed], device=losses.device)
        present = known[index]
        # A weight that has underflowed can come back: its domain may be alone in a batch.
        logits = present.clamp(min=torch.finfo(present.dtype).tiny).log()
        logits = logits + self.eta * losses.detach().double()
        shares = torch.softmax(logits, 0)
        self._proposed = place, known.index_copy(0, index, shares * present.sum())
        return shares.to(torch.promote_types(losses.dtype, torch.float32))

    def _with_new(self, ids: list[int], device: torch.device) -> tuple[dict[int, int], Tensor]:
        known = self._weights.to(device)
        new = [domain for domain in ids if domain not in self._place]
        if new and self._closed:
            raise UserError(
                f"domain {new[0]} is not among domains={sorted(self._place)}; name every training "
                "domain, or leave the option out."
            )
        if not new:
            return self._place, known
        total = len(known) + len(new)
        place = self._place | {domain: len(known) + i for i, domain in enumerate(new)}
        entered = known.new_full((len(new),), 1 / total)
        return place, torch.cat([known * (len(known) / total), entered])

    def direction(self, at: At) -> Tensor:
        """Return Σ w_e·g_e + q with the batch's weights."""
        if at.gradients.domain is None:
            raise UserError(
                "GroupDRO weighs domains: give it their gradients, domain [E, P], or take weights()"
                " and differentiate the weighted sum of the losses."
            )
        weights = self.weights(at.gradients.ids, at.gradients.losses).to(at.domain)
        update = torch.zeros_like(at.domain[0]) if at.penalty is None else at.penalty.clone()
        for weight, gradient in zip(weights, at.domain, strict=True):
            update.addcmul_(gradient, weight)
        return update

    def commit(self, finite: Tensor) -> None:
        """Keep the weights where the step was finite."""
        if self._proposed is None:
            return
        place, proposed = self._proposed
        self._proposed = None
        if len(place) == len(self._place):
            self._weights = torch.where(finite, proposed, self._weights.to(proposed.device))
        elif finite:
            self._place, self._weights = place, proposed

    def state_dict(self) -> dict[str, Any]:
        """Return {id: weight} over all known domains."""
        values = self._weights.tolist()
        return {"weights": {domain: values[place] for domain, place in self._place.items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take what ``state_dict`` gave."""
        super().load_state_dict(state)
        weights = {int(domain): weight for domain, weight in state["weights"].items()}
        if self._closed and weights.keys() != self._place.keys():
            raise UserError(
                f"the state knows domains {sorted(weights)}, this rule {sorted(self._place)}."
            )
        self._place = {domain: place for place, domain in enumerate(weights)}
        self._weights = torch.tensor(list(weights.values()), dtype=torch.float64)
        self._proposed = None
