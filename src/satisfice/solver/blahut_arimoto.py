"""The general solver: any number of candidates, any cost."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from satisfice.errors import UserError, in_range
from satisfice.solver.candidates import widened

__all__ = ["blahut_arimoto"]


def blahut_arimoto(
    cost: Tensor,
    *,
    gamma: float | Tensor,
    iterations: int = 25,
    prior: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Solve min over p(k|e) of E[cost] + γ·I(k; e) by Blahut-Arimoto iterations.

    p(k|e) ∝ p(k)·exp(−cost(e, k)/γ), then p(k) = (1/E) Σ_e p(k|e), starting from the prior. It
    works with logarithms, so that every finite cost is harmless.

    Parameters
    ----------
    cost
        ``[..., E, K]``: for each of E equally likely domains, the cost of each of K candidates.
    gamma
        The price of information, positive: a number, or a tensor that broadcasts to ``[...]`` (a
        tensor's values are not checked, which would wait for the device).
    iterations
        At least 1.
    prior
        The candidates' first probabilities, ``[..., K]`` up to a factor, not negative and not all
        0; uniform if None. A candidate whose prior is 0 is never chosen.

    Returns
    -------
    conditional
        p(k|e) of the last iteration, ``[..., E, K]``.
    marginal
        Its mean over domains, ``[..., K]``.
    """
    in_range("iterations", iterations, 1)
    if cost.dim() < 2 or 0 in cost.shape[-2:]:
        raise UserError(f"cost must have shape [..., E, K], not {list(cost.shape)}.")
    cost = widened(cost)
    if not isinstance(gamma, Tensor):
        in_range("gamma", gamma, 0, above=True)
    gamma = torch.as_tensor(gamma, dtype=cost.dtype, device=cost.device)[..., None, None]

    if prior is None:
        log_marginal = cost.new_full((cost.shape[-1],), -math.log(cost.shape[-1]))
    else:
        if prior.shape[-1:] != cost.shape[-1:]:
            raise UserError(
                f"prior must have {cost.shape[-1]} values, one a candidate, not shape "
                f"{list(prior.shape)}."
            )
        log_marginal = prior.to(cost).log()
    # Costs count from the cheapest allowed candidate of each domain: what overflows then is a
    # candidate that is infinitely dearer, and every domain keeps one at 0.
    allowed = cost.masked_fill(torch.isneginf(log_marginal).unsqueeze(-2), math.inf)
    spread = allowed - allowed.amin(-1, keepdim=True)
    excess = torch.where(spread == 0, 0.0, spread / gamma)  # γ may round to 0 in cost's dtype

    log_domains = math.log(cost.shape[-2])
    log_conditional = excess
    for _ in range(iterations):
        log_conditional = torch.log_softmax(log_marginal.unsqueeze(-2) - excess, -1)
        log_marginal = torch.logsumexp(log_conditional, -2) - log_domains
    return log_conditional.exp(), log_marginal.exp()
