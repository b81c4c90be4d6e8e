"""VREx, and its gradient as a combination of the domains'."""

from __future__ import annotations

import pytest
import torch

from satisfice.errors import UserError
from satisfice.penalties import vrex, vrex_weights


@pytest.mark.parametrize("domains", [1, 2, 5])
def test_the_weights_are_its_gradient(domains: int) -> None:
    losses = torch.rand(domains, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(vrex(losses), losses)
    weights = vrex_weights(losses)
    torch.testing.assert_close(weights, slope, rtol=1e-12, atol=1e-15)
    assert not weights.requires_grad
    assert abs(float(weights.sum())) < 1e-12


def test_one_domain_gives_zero() -> None:
    assert vrex(torch.tensor([3.0])) == 0


def test_rows_are_not_taken_for_domains() -> None:
    with pytest.raises(UserError, match="domain_losses makes them"):
        vrex(torch.ones(3, 2))
