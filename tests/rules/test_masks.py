"""The masks at their corners."""

from __future__ import annotations

import pytest
import torch

from satisfice.errors import UserError
from satisfice.rules import AndMask, Gradients, SandMask, and_mask, sand_mask


def test_zero_has_no_sign() -> None:
    gradients = torch.tensor([[1.0, 1.0], [0.0, 1.0]])
    assert and_mask(gradients, tau=0.75)[0] == 0
    assert and_mask(gradients, tau=0.5)[0] == pytest.approx(0.5)


def test_the_mean_of_the_mask_is_taken_over_one_tensor() -> None:
    domain = torch.tensor([[1.0, 1.0, 1.0, 1.0], [1.0, -1.0, 1.0, 1.0]])
    batch = Gradients(torch.arange(2), torch.ones(2), torch.ones(2), domain=domain)
    update = AndMask(tau=1.0)(batch, segments=[0, 2, 4], progress=1.0, seed=0, step=1).update
    assert update.tolist() == pytest.approx([2.0, 0.0, 1.0, 1.0])


def test_without_variance_tanh_becomes_the_sign() -> None:
    same = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    assert sand_mask(same, tau=0.5, k=10.0).tolist() == pytest.approx([2.0, 0.0])
    assert sand_mask(same, tau=1.0, k=10.0).tolist() == [0.0, 0.0]


def test_domainbeds_default_masks_everything() -> None:
    gradients = torch.randn(3, 50)
    assert torch.equal(sand_mask(gradients, tau=1.0, k=10.0), torch.zeros(50))


def test_signs_all_agree_as_the_penalty_grows() -> None:
    domain, penalty = torch.randn(3, 6), torch.randn(6)
    batch = Gradients(torch.arange(3), torch.ones(3), torch.ones(3), domain=domain, penalty=penalty)
    masked = AndMask(strength=1e6)(batch, segments=[0, 6], progress=1.0, seed=0, step=1).update
    torch.testing.assert_close(masked, domain.mean(0) + 1e6 * penalty)


def test_sand_mask_needs_two_domains() -> None:
    with pytest.raises(UserError, match="at least two domains"):
        sand_mask(torch.ones(1, 3), tau=0.5, k=1.0)


@pytest.mark.parametrize("make", [AndMask, SandMask])
@pytest.mark.parametrize("tau", [-0.1, 1.1, float("nan")])
def test_tau_lies_between_0_and_1(make: type[AndMask | SandMask], tau: float) -> None:
    with pytest.raises(UserError, match="tau"):
        make(tau=tau)
