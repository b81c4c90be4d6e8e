"""γ: the running mean of the cost's magnitude, and the recursion that all running means share."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from satisfice.errors import UserError

__all__ = ["SCOPES", "RunningMean", "cost_magnitude", "running_rate", "segment_means"]

SCOPES = ("coordinate", "tensor", "model")
"""What one γ is kept for: each coordinate, each parameter tensor, or the whole model."""


def running_rate(n: int, *, floor: float = 1 / 100) -> float:
    """Return max(1/n, floor): with it v ← v + (x − v)·rate is a mean that becomes a running one.

    ``n`` counts steps from 1, the current one included.
    """
    return max(1.0 / n, floor)


def cost_magnitude(
    gradients: Tensor,
    penalty_gradient: Tensor,
    plus: Tensor,
    minus: Tensor,
    *,
    beta: float | Tensor,
) -> Tensor:
    """Return m, the mean over domains and both candidates of ``|β(G − g_e)² − q·G|``.

    Parameters
    ----------
    gradients
        g_e, of shape ``[E, ...]``.
    penalty_gradient, plus, minus
        q and the two candidates, of shape ``[...]``.
    beta
        β^t.

    Returns
    -------
    m of shape ``[...]``.
    """
    total = torch.zeros_like(plus)
    gain_plus, gain_minus = penalty_gradient * plus, penalty_gradient * minus
    for gradient in gradients:  # in the order of the domains: the fused kernel adds in this order
        total = total + (beta * (plus - gradient) ** 2 - gain_plus).abs()
        total = total + (beta * (minus - gradient) ** 2 - gain_minus).abs()
    return total / (2 * len(gradients))


def segment_means(values: Tensor, segments: Sequence[int]) -> Tensor:
    """Return the mean of ``values`` [P] over each tensor, [T], at offsets 0 = s₀ < … < s_T = P."""
    bounds = itertools.pairwise(segments)
    return torch.stack([values[start:stop].mean() for start, stop in bounds])


class RunningMean:
    """v ← v + (x − v)·max(1/n, floor), in two steps, so that a non-finite step leaves no trace.

    ``propose`` makes the next value, in a second buffer; ``commit`` makes it the value where the
    step was finite. Neither waits for the device. Whoever computes the next value elsewhere
    (``sdg_update``) reads ``current`` and ``rate`` and writes into ``spare``.
    """

    def __init__(self, *, floor: float = 1 / 100) -> None:
        self._floor = floor
        self._n = torch.zeros((), dtype=torch.float64)
        self._value: Tensor | None = None
        self._spare: Tensor | None = None
        self._proposed = False

    def current(self, like: Tensor) -> Tensor:
        """Return v, of the shape, dtype and device of ``like``; 0 before the first step."""
        if self._value is None:
            self._value = torch.zeros_like(like)
        elif self._value.shape != like.shape:
            raise UserError(
                f"a running mean of shape {list(self._value.shape)} met values of shape "
                f"{list(like.shape)}; a rule's state belongs to one model."
            )
        self._value = self._value.to(like)
        self._n = self._n.to(like.device)
        return self._value

    @property
    def rate(self) -> Tensor:
        """Return how far the next value moves: max(1/n, floor), the coming step included."""
        return torch.clamp(1 / (self._n + 1), min=self._floor)

    @property
    def spare(self) -> Tensor:
        """Return the buffer in which the next value is made; to ask for it is to propose."""
        if self._value is None:
            raise RuntimeError("current() comes first: it says how large the buffer is.")
        if self._spare is None or self._spare.shape != self._value.shape:
            self._spare = torch.empty_like(self._value)
        self._spare = self._spare.to(self._value)
        self._proposed = True
        return self._spare

    def propose(self, x: Tensor) -> Tensor:
        """Return the next value, which counts only once it is committed."""
        value = self.current(x)
        return torch.add(value, (x - value) * self.rate, out=self.spare)

    def commit(self, finite: Tensor) -> None:
        """Keep the proposed value, and count the step, where ``finite``."""
        if self._value is None or not self._proposed:
            return
        self._n = self._n + finite
        if _may_wait(finite):
            if finite:
                self._value, self._spare = self.spare, self._value
        else:
            self._value = torch.where(finite, self.spare, self._value)
        self._proposed = False

    def state_dict(self) -> dict[str, Any]:
        """Return n and a copy of v on the CPU."""
        value = None if self._value is None else self._value.detach().to("cpu", copy=True)
        return {"n": int(self._n), "value": value}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take what ``state_dict`` gave."""
        if state.keys() != {"n", "value"}:
            raise UserError(f"a running mean's state has ['n', 'value'], not {sorted(state)}.")
        self._n = torch.tensor(state["n"], dtype=torch.float64)
        value = state["value"]
        self._value = None if value is None else value.clone()
        self._spare, self._proposed = None, False


def _may_wait(flag: Tensor) -> bool:
    """Say whether a branch on ``flag`` costs nothing."""
    return flag.device.type == "cpu"
