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


def test_value_and_gradient_equal_a_plain_loop() -> None:
    losses = torch.rand(4, dtype=torch.float64)
    mean = sum(losses.tolist()) / 4
    expected = sum((x - mean) ** 2 for x in losses.tolist()) / 4
    assert float(vrex(losses)) == pytest.approx(expected, rel=1e-12)
    step = 1e-6
    for e in range(4):
        up, down = losses.clone(), losses.clone()
        up[e] += step
        down[e] -= step
        slope = float(vrex(up) - vrex(down)) / (2 * step)
        assert float(vrex_weights(losses)[e]) == pytest.approx(slope, abs=1e-8)


def test_computed_in_float32_or_wider() -> None:
    losses = torch.rand(4).bfloat16()
    for function in (vrex, vrex_weights):
        assert function(losses).dtype == torch.float32
        torch.testing.assert_close(function(losses), function(losses.float()))
