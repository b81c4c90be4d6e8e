"""Fish: the domains' gradients should point the same way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from satisfice.errors import UserError, in_range, one_of
from satisfice.solver import uniform

__all__ = ["INNER", "ORDERS", "fish_direction"]

INNER = ("sgd", "adam")
ORDERS = ("permuted", "given")
_ORDER_STREAM = 1


def fish_direction(
    featurizer: nn.Module,
    classifier: nn.Module | None,
    batches: Sequence[tuple[Any, Any]],
    *,
    loss: Callable[[Tensor, Any], Tensor],
    rate: float,
    seed: int,
    step: int,
    inner: str = "sgd",
    order: str = "permuted",
    state: dict[str, Any] | None = None,
) -> Tensor:
    """q = (θ − θ̃)/α, where θ̃ is reached from θ by one inner step of rate α per domain.

    Shi et al., "Gradient matching for domain generalization", ICLR 2022. On average over orders
    q ≈ Σ_e g_e − (α/2)·∇Σ_{i<j} g_i·g_j: it holds the risk's own descent too. The paper of SDG
    takes θ̃ − θ as it is; dividing by α is ours, and makes the direction's scale a gradient's.

    The inner run works on copies: parameters and buffers are left as they were. (Dropout draws from
    the global random state, as in any forward pass.)

    Parameters
    ----------
    featurizer, classifier
        The model, in two parts or (``classifier=None``) one that returns logits or
        ``(features, logits)``.
    batches
        One ``(x, y)`` per domain.
    loss
        ``loss(logits, y) -> [n]``.
    rate
        α.
    seed, step
        They determine the order of domains.
    inner
        ``"sgd"``, or ``"adam"`` as in DomainBed.
    order
        ``"permuted"``: a fresh order every step. ``"given"``: the order of ``batches``.
    state
        A dict that keeps Adam's state from call to call; None forgets it.

    Returns
    -------
    q over the trainable parameters in the order of ``parameters()``, featurizer then classifier:
    ``[P]`` in float32, or float64 where a parameter is.
    """
    one_of("inner", inner, INNER)
    one_of("order", order, ORDERS)
    in_range("rate", rate, 0, above=True)
    if not batches:
        raise UserError("batches needs at least one domain's (x, y).")
    model = _Chain([featurizer] if classifier is None else [featurizer, classifier])
    start = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
    if not start:
        raise UserError("the model has no parameter that requires a gradient.")
    buffers = {name: b.clone() for name, b in model.named_buffers()}
    wide = any(p.dtype == torch.float64 for p in start.values())
    # What moves is the distance travelled, in float32 or wider: θ̃ − θ as a difference of rounded
    # parameters would keep no digits at small rates.
    travelled = {
        name: torch.zeros_like(p, dtype=torch.float64 if wide else torch.float32)
        for name, p in start.items()
    }
    optimizer = _optimizer(inner, list(travelled.values()), rate, state)

    for domain in _order(len(batches), order, seed, step):
        x, y = batches[domain]
        moved = {
            name: (p + travelled[name]).to(p.dtype).requires_grad_() for name, p in start.items()
        }
        with torch.enable_grad():
            losses = loss(functional_call(model, moved | buffers, (x,)), y)
            if losses.dim() != 1:
                raise UserError(
                    f"loss must return one value per example, not shape {list(losses.shape)}; use "
                    "reduction='none'."
                )
            gradients = torch.autograd.grad(losses.mean(), list(moved.values()), allow_unused=True)
        for place, gradient in zip(travelled.values(), gradients, strict=True):
            place.grad = None if gradient is None else gradient.to(place.dtype)
        optimizer.step()

    if state is not None:
        state.update(optimizer.state_dict())
    return torch.cat([place.reshape(-1) for place in travelled.values()]) / -rate


class _Chain(nn.Module):
    """Featurizer, then classifier; a whole model's logits."""

    def __init__(self, parts: list[nn.Module]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, x: Any) -> Tensor:
        output = x
        for part in self.parts:
            output = part(output)
        logits: Tensor = output[-1] if isinstance(output, tuple) else output
        return logits


def _order(count: int, order: str, seed: int, step: int) -> list[int]:
    if order == "given":
        return list(range(count))
    draws = uniform(seed, step, torch.arange(count), stream=_ORDER_STREAM)
    permutation: list[int] = draws.argsort(stable=True).tolist()
    return permutation


def _optimizer(
    inner: str, parameters: list[Tensor], rate: float, state: dict[str, Any] | None
) -> torch.optim.Optimizer:
    if inner == "sgd":
        return torch.optim.SGD(parameters, lr=rate)
    optimizer = torch.optim.Adam(parameters, lr=rate)
    if state:
        optimizer.load_state_dict(state)
        for group in optimizer.param_groups:
            group["lr"] = rate  # the state is Adam's moments, not the rate of another call
    return optimizer
