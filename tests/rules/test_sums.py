"""Sums in float64, chunk by chunk."""

from __future__ import annotations

import pytest
import torch

from satisfice.rules import sums


@pytest.mark.parametrize("size", [0, 1, sums._CHUNK, sums._CHUNK + 1])
def test_chunks_add_up(size: int) -> None:
    left, right = torch.randn(size), torch.randn(size)
    expected = (left.double() * right.double()).sum()
    torch.testing.assert_close(sums.dot(left, right), expected, rtol=1e-10, atol=1e-12)
    expected = (left.double() - right.double()).square().sum()
    torch.testing.assert_close(sums.squared_distance(left, right), expected)


def test_a_norm_does_not_overflow_where_its_gradient_does_not() -> None:
    assert torch.isfinite(sums.squared_norm(torch.full((10,), 3e38)))
