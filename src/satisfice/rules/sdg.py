"""SDG: the penalty is lowered by updates that are to minimise the risk all the same."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from satisfice.errors import one_of
from satisfice.rules.rule import At, Needs, Rule
from satisfice.solver import (
    CANDIDATES,
    DRAWS,
    SCOPES,
    RunningMean,
    beta,
    check_iterations,
    cost_in_blocks,
    sdg_update,
    segment_means,
)

__all__ = ["SDG"]


class SDG(Rule):
    """Satisficing domain generalization, by a rate-distortion problem per coordinate.

    Sener and Koltun, "Domain generalization without excess empirical risk", NeurIPS 2022. Each
    coordinate of the update is one of two candidates, chosen so that the penalty falls, to first
    order, at a price in squared distance to every domain's own gradient. The candidates' cost is
    c_e(G) = β(G − g_e)² − q·G, and p is reached by Blahut-Arimoto iterations. Where this departs
    from the printed text, docs/mathematics/corrections.md says why. It does not by itself keep
    ‖E[G] − g‖ within D/√t: see ``Bound``.

    Parameters
    ----------
    strength
        λ/β°, the one ratio that counts: γ follows the costs, so (aλ, aβ°) gives the same update.
    candidates
        ``"split"`` (Algorithm 1) or ``"flip"`` (the main text).
    gamma
        What one γ is kept for: ``"coordinate"``, ``"tensor"`` or ``"model"``.
    iterations
        25 as in the paper, or None for their exact limit, which does not lag behind γ.
    draw
        ``"sample"``, or ``"expectation"`` for the expected update.
    """

    needs: ClassVar[Needs] = "domains"

    def __init__(
        self,
        *,
        strength: float | None = None,
        candidates: str = "split",
        gamma: str = "coordinate",
        iterations: int | None = 25,
        draw: str = "sample",
    ) -> None:
        super().__init__(strength=strength)
        one_of("candidates", candidates, CANDIDATES)
        one_of("gamma", gamma, SCOPES)
        one_of("draw", draw, DRAWS)
        check_iterations(iterations)
        if candidates == "flip" and draw == "sample" and iterations is not None:
            warnings.warn(
                "candidates='flip' with a draw steps uphill nearly half the time while γ lags "
                "behind the costs; use iterations=None (the exact limit) or candidates='split'.",
                stacklevel=2,
            )
        self.candidates = candidates
        self.scope = gamma
        self.iterations = iterations
        self.draw = draw
        self._gamma = RunningMean()

    def make(self, at: At, out: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Return the update, ‖E[G] − g‖² and ‖g‖², having proposed the next γ."""
        q = at.penalty
        if q is None:
            q = at.domain.new_zeros(()).expand(at.gradients.size)
        price = beta(at.progress)
        rate: Tensor | float = 0.0
        gamma_out: Tensor | None = None
        if self.scope == "coordinate":
            gamma, rate, gamma_out = self._gamma.current(q), self._gamma.rate, self._gamma.spare
        else:
            gamma = self._shared_gamma(at.domain, q, at.segments, price)
        update, _, deviation, norm = sdg_update(
            at.domain,
            q,
            gamma,
            beta=price,
            rate=rate,
            seed=at.seed,
            step=at.step,
            offset=at.offset,
            candidates=self.candidates,
            iterations=self.iterations,
            draw=self.draw,
            out=out,
            gamma_out=gamma_out,
        )
        return update, deviation, norm

    def _shared_gamma(
        self, domain: Tensor, q: Tensor, segments: Sequence[int], price: float
    ) -> Tensor:
        """Propose one γ per tensor, or one in all, from this step's costs; spread it over [P]."""
        magnitude = cost_in_blocks(domain, q, candidates=self.candidates, beta=price)
        if self.scope == "model":
            return self._gamma.propose(magnitude.mean())
        gamma = self._gamma.propose(segment_means(magnitude, segments))
        lengths = torch.tensor(segments, device=domain.device).diff()
        return gamma.repeat_interleave(lengths, output_size=len(magnitude))

    def commit(self, finite: Tensor) -> None:
        """Keep γ where the step was finite."""
        self._gamma.commit(finite)

    def state_dict(self) -> dict[str, Any]:
        """Return γ and the number of steps in it."""
        return {"gamma": self._gamma.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take what ``state_dict`` gave."""
        super().load_state_dict(state)
        self._gamma.load_state_dict(state["gamma"])
