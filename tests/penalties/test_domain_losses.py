"""Each domain's own risk."""

from __future__ import annotations

import pytest
import torch

from satisfice.errors import UserError
from satisfice.penalties import domain_losses


def test_means_in_the_ascending_order_of_ids(device: str) -> None:
    losses = torch.tensor([1.0, 2.0, 6.0, 4.0], device=device)
    domain = torch.tensor([7, -2, 7, 7], device=device)
    torch.testing.assert_close(domain_losses(losses, domain).cpu(), torch.tensor([2.0, 11 / 3]))


def test_every_row_weighs_one_over_its_domains_size() -> None:
    losses = torch.randn(5, requires_grad=True)
    weights = torch.tensor([1.0, 10.0])
    (domain_losses(losses, torch.tensor([0, 1, 1, 1, 0])) * weights).sum().backward()
    assert losses.grad is not None
    assert losses.grad.tolist() == pytest.approx([0.5, 10 / 3, 10 / 3, 10 / 3, 0.5])


def test_maps_are_averaged_per_example_first() -> None:
    losses, domain = torch.randn(4, 3, 2), torch.tensor([0, 0, 1, 1])
    expected = domain_losses(losses.mean((1, 2)), domain)
    torch.testing.assert_close(domain_losses(losses, domain), expected)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.uint8, torch.int64])
def test_any_integer_names_a_domain(dtype: torch.dtype) -> None:
    domain = torch.tensor([1, 0, 1], dtype=dtype)
    assert domain_losses(torch.tensor([1.0, 5.0, 3.0]), domain).tolist() == [5.0, 2.0]


def test_computed_in_float32_or_wider() -> None:
    assert domain_losses(torch.ones(2).bfloat16(), torch.arange(2)).dtype == torch.float32


def test_a_scalar_loss_is_refused() -> None:
    with pytest.raises(UserError, match="reduction='none'"):
        domain_losses(torch.tensor(1.0), torch.tensor([0]))
