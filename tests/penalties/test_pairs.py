"""CORAL and MMD against a plain double loop over pairs, in value and gradient."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from satisfice.errors import UserError
from satisfice.penalties import coral, mmd

Penalty = Callable[[Tensor, Tensor], Tensor]


def plain_coral(features: Tensor, domain: Tensor) -> Tensor:
    def difference(a: Tensor, b: Tensor) -> Tensor:
        value = (a.mean(0) - b.mean(0)).square().mean()
        if len(a) > 1 and len(b) > 1:
            value = value + (torch.cov(a.mT) - torch.cov(b.mT)).square().mean()
        return value

    return over_pairs(difference, features, domain)


def plain_mmd(features: Tensor, domain: Tensor) -> Tensor:
    def kernel(a: Tensor, b: Tensor) -> Tensor:
        squares = (a[:, None] - b[None]).square().sum(-1)
        return sum((torch.exp(-(10.0**k) * squares) for k in range(-3, 4)), squares * 0).mean()

    return over_pairs(lambda a, b: kernel(a, a) + kernel(b, b) - 2 * kernel(a, b), features, domain)


def over_pairs(
    difference: Callable[[Tensor, Tensor], Tensor], features: Tensor, domain: Tensor
) -> Tensor:
    rows = [features[domain == e] for e in domain.unique()]
    values = [
        difference(rows[i], rows[j]) for i in range(len(rows)) for j in range(i + 1, len(rows))
    ]
    return torch.stack(values).mean() if values else features.sum() * 0


PAIRS: dict[str, tuple[Penalty, Penalty]] = {
    "coral": (coral, plain_coral),
    "mmd": (mmd, plain_mmd),
}


def gradient(penalty: Penalty, features: Tensor, domain: Tensor) -> tuple[Tensor, Tensor]:
    features = features.clone().requires_grad_()
    value = penalty(features, domain)
    (slope,) = torch.autograd.grad(value, features)
    return value.detach(), slope


@pytest.mark.parametrize("name", PAIRS)
@given(
    counts=st.lists(st.integers(1, 7), min_size=1, max_size=6),
    size=st.integers(1, 6),
    seed=st.integers(0, 2**31),
)
def test_value_and_gradient_equal_a_plain_double_loop(
    name: str, counts: list[int], size: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    domain = torch.cat([torch.full((n,), 10 - 3 * e) for e, n in enumerate(counts)])
    domain = domain[torch.randperm(len(domain), generator=generator)]
    features = torch.randn(len(domain), size, generator=generator, dtype=torch.float64)
    fast, plain = PAIRS[name]
    for got, expected in zip(
        gradient(fast, features, domain), gradient(plain, features, domain), strict=True
    ):
        torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", PAIRS)
def test_float32_keeps_its_digits_where_domains_nearly_agree(name: str, device: str) -> None:
    fast, plain = PAIRS[name]
    base = torch.randn(40, 8, dtype=torch.float64)
    features = torch.cat([base + 1e-4 * torch.randn_like(base) for _ in range(4)])
    features = features.float().double()  # the same numbers for both
    domain = torch.arange(4).repeat_interleave(40)
    expected, slope = gradient(plain, features, domain)
    value, got = gradient(fast, features.float().to(device), domain.to(device))
    assert expected < 1e-5
    if name == "coral":
        # Covariances near 1 are known to some 1e-7, and differ by 1e-4.
        torch.testing.assert_close(value.double().cpu(), expected, rtol=1e-3, atol=0)
        assert (got.double().cpu() - slope).norm() < 5e-3 * slope.norm()
    else:  # a kernel's mean is near 7, and a difference of such keeps some 1e-7
        assert abs(float(value) - float(expected)) < 2e-7
        assert (got.double().cpu() - slope).norm() < 1e-4 * slope.norm()


def test_the_uncentred_identity_would_lose_everything() -> None:
    """A control for the test above: why CORAL centres before it squares."""
    base = torch.randn(40, 8)
    rows = [base + 1e-4 * torch.randn(40, 8) for _ in range(4)]
    covariances = torch.stack([torch.cov(row.mT) for row in rows])
    centred = 4 * (covariances - covariances.mean(0)).square().sum()
    uncentred = 4 * covariances.square().sum() - covariances.sum(0).square().sum()
    assert abs(float(uncentred - centred)) > 0.5 * float(centred)


@pytest.mark.parametrize("name", PAIRS)
def test_more_dimensions_are_rows_of_the_last(name: str) -> None:
    fast, _ = PAIRS[name]
    features, domain = torch.randn(6, 5, 3), torch.tensor([0, 1, 0, 1, 1, 0])
    flat = fast(features.reshape(30, 3), domain.repeat_interleave(5))
    torch.testing.assert_close(fast(features, domain), flat)


@pytest.mark.parametrize("name", PAIRS)
def test_one_domain_gives_zero_and_a_zero_gradient(name: str) -> None:
    value, slope = gradient(PAIRS[name][0], torch.randn(5, 3), torch.zeros(5, dtype=torch.int64))
    assert value == 0
    torch.testing.assert_close(slope, torch.zeros(5, 3))


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_computed_in_float32_or_wider_under_autocast_too(
    name: str, dtype: torch.dtype, device: str
) -> None:
    fast, _ = PAIRS[name]
    features = torch.randn(12, 4, device=device).to(dtype)
    domain = torch.arange(12, device=device) % 3
    plain = fast(features.double(), domain)
    with torch.autocast(device, dtype=torch.bfloat16):
        value = fast(features, domain)
    assert value.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    torch.testing.assert_close(value.double(), plain, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize(
    ("features", "domain", "words"),
    [
        (torch.ones(3), torch.zeros(3, dtype=torch.int64), r"features must have shape"),
        (torch.ones(3, 2), torch.zeros(3), "integer ids, not torch.float32"),
        (torch.ones(3, 2), torch.zeros(3, dtype=torch.bool), "integer ids, not torch.bool"),
        (torch.ones(3, 2), torch.zeros(2, dtype=torch.int64), "one id for each of the 3"),
        (torch.ones(3, 2), torch.zeros(3, 1, dtype=torch.int64), "one id for each of the 3"),
        (torch.ones(0, 2), torch.zeros(0, dtype=torch.int64), "at least one example"),
    ],
)
def test_wrong_input_is_refused(name: str, features: Tensor, domain: Tensor, words: str) -> None:
    with pytest.raises(UserError, match=words):
        PAIRS[name][0](features, domain)


def test_coral_costs_order_e_in_memory() -> None:
    """What autograd keeps grows with the number of domains, not with the number of pairs."""

    def kept(domains: int) -> int:
        total = 0

        def count(x: Tensor) -> Tensor:
            nonlocal total
            total += x.numel()
            return x

        features = torch.randn(4 * domains, 16, requires_grad=True)
        with torch.autograd.graph.saved_tensors_hooks(count, lambda x: x):
            coral(features, torch.arange(domains).repeat_interleave(4))
        return total

    assert kept(32) < 5 * kept(8)  # 4 times the domains, 17 times the pairs
