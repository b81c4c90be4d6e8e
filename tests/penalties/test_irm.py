"""IRM against autograd, domain by domain."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from satisfice.errors import UserError
from satisfice.penalties import irm


def plain(logits: Tensor, targets: Tensor, domain: Tensor) -> Tensor:
    values = []
    for e in domain.unique():
        rows, labels = logits[domain == e], targets[domain == e]
        if len(rows) < 2:
            values.append(logits.sum() * 0)
            continue
        scale = torch.ones((), dtype=logits.dtype, requires_grad=True)
        halves = [
            torch.autograd.grad(
                functional.cross_entropy(rows[half::2] * scale, labels[half::2]),
                scale,
                create_graph=True,
            )[0]
            for half in (0, 1)
        ]
        values.append(halves[0] * halves[1])
    return torch.stack(values).mean()


@given(counts=st.lists(st.integers(1, 6), min_size=1, max_size=5), seed=st.integers(0, 2**31))
def test_value_and_gradient_equal_autograd_by_domain(counts: list[int], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    domain = torch.cat([torch.full((n,), 4 - e) for e, n in enumerate(counts)])
    domain = domain[torch.randperm(len(domain), generator=generator)]
    logits = torch.randn(len(domain), 3, generator=generator, dtype=torch.float64)
    logits.requires_grad_()
    targets = torch.randint(3, (len(domain),), generator=generator)
    value, expected = irm(logits, targets, domain), plain(logits, targets, domain)
    torch.testing.assert_close(value, expected, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(
        torch.autograd.grad(value, logits)[0],
        torch.autograd.grad(expected, logits)[0],
        rtol=1e-9,
        atol=1e-12,
    )


def test_it_estimates_the_squared_derivative_without_bias() -> None:
    logits, targets = torch.randn(4, 2, dtype=torch.float64), torch.tensor([0, 1, 1, 0])
    domain = torch.zeros(2, dtype=torch.int64)
    # Over every ordered pair of examples, drawn with replacement.
    pairs = [(i, j) for i in range(4) for j in range(4)]
    values = [irm(logits[list(p)], targets[list(p)], domain) for p in pairs]
    scale = torch.ones((), dtype=torch.float64, requires_grad=True)
    loss = functional.cross_entropy(logits * scale, targets)
    derivative = torch.autograd.grad(loss, scale)[0]
    torch.testing.assert_close(torch.stack(values).mean(), derivative.square())
    assert min(values) < 0


def test_any_loss_with_one_value_per_example() -> None:
    def squared(prediction: Tensor, targets: Tensor) -> Tensor:
        return (prediction.squeeze(1) - targets).square()

    logits, targets = torch.tensor([[1.0], [2.0]]), torch.tensor([0.5, 3.0])
    # d/ds (s·x − y)² at 1 is 2x(x − y)
    assert float(irm(logits, targets, torch.zeros(2, dtype=torch.int64), squared)) == pytest.approx(
        (2 * 1 * 0.5) * (2 * 2 * -1)
    )


def test_a_reduced_loss_is_refused() -> None:
    with pytest.raises(UserError, match="one value per example"):
        irm(
            torch.randn(4, 2),
            torch.zeros(4, dtype=torch.int64),
            torch.zeros(4, dtype=torch.int64),
            functional.cross_entropy,
        )


def test_without_gradients_it_is_just_a_value(device: str) -> None:
    logits = torch.randn(4, 2, device=device, requires_grad=True)
    zeros = torch.zeros(4, dtype=torch.int64, device=device)
    with torch.no_grad():
        assert not irm(logits, zeros, zeros).requires_grad
    assert irm(logits, zeros, zeros).requires_grad


def test_inference_mode_gives_the_value() -> None:
    logits, zeros = torch.randn(4, 2), torch.zeros(4, dtype=torch.int64)
    expected = irm(logits, zeros, zeros)
    with torch.inference_mode():
        torch.testing.assert_close(irm(logits.clone(), zeros, zeros), expected)


def test_a_loss_that_ignores_the_logits_is_refused() -> None:
    zeros = torch.zeros(4, dtype=torch.int64)
    with pytest.raises(UserError, match="must depend on the logits"):
        irm(torch.randn(4, 2), zeros, zeros, lambda _, targets: targets * 1.0)


def test_computed_in_float32_under_autocast() -> None:
    def linear(prediction: Tensor, targets: Tensor) -> Tensor:
        return (prediction @ torch.ones(2, 1)).squeeze(1) - targets  # autocast would narrow this

    logits, zeros = torch.randn(4, 2).bfloat16(), torch.zeros(4, dtype=torch.int64)
    expected = irm(logits.float(), zeros, zeros, linear)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = irm(logits, zeros, zeros, linear)
    assert value.dtype == torch.float32
    assert torch.equal(value, expected)
