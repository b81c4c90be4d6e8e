from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from solver.reference import DTYPES, Step, golden_step, steps

from satisfice.solver import CANDIDATES, candidates, widened


@pytest.mark.parametrize("dtype", DTYPES)
def test_golden_candidates(dtype: torch.dtype, golden: dict[str, Any], device: str) -> None:
    for vector in golden["two_candidates"]:
        gradients = golden_step(vector, dtype)["gradients"].to(device)
        # A mean over domains rounds E times, relative to the largest of them.
        relative = 1e-10 if dtype == torch.float64 else (len(gradients) + 1) * 1.2e-7
        scale = gradients.abs().amax(0).cpu()
        for name, got in zip(
            ("plus", "minus"), candidates(gradients, vector["candidates"]), strict=True
        ):
            expected = torch.tensor(vector[name], dtype=torch.float64)
            assert ((got.cpu() - expected).abs() <= relative * scale).all()


@given(steps())
def test_split_candidates_are_the_signed_parts_and_add_up_to_the_risk_gradient(step: Step) -> None:
    plus, minus = candidates(step.gradients)
    assert (plus >= 0).all()
    assert (minus <= 0).all()
    torch.testing.assert_close(plus + minus, step.gradients.mean(0))


@given(steps())
def test_flip_candidates_are_the_risk_gradient_and_its_negative(step: Step) -> None:
    plus, minus = candidates(step.gradients, "flip")
    torch.testing.assert_close(plus, step.gradients.mean(0))
    torch.testing.assert_close(minus, -plus, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("kind", CANDIDATES)
def test_candidates_are_at_least_float32(kind: str, dtype: torch.dtype) -> None:
    gradients = torch.randn(3, 2, 4).to(dtype)
    for candidate, wide in zip(
        candidates(gradients, kind), candidates(gradients.float(), kind), strict=True
    ):
        assert candidate.dtype == torch.float32
        torch.testing.assert_close(candidate, wide, rtol=0, atol=0)


def test_float64_stays_float64() -> None:
    values = torch.zeros(2, dtype=torch.float64)
    assert widened(values) is values


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match=r"candidates='splt' is not known: did you mean 'split'\?"):
        candidates(torch.zeros(2, 3), "splt")


def test_integers_are_refused() -> None:
    with pytest.raises(ValueError, match=r"floating-point values, not torch\.int64"):
        candidates(torch.zeros(2, 3, dtype=torch.int64))


def test_no_domain_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one domain"):
        candidates(torch.zeros(0, 3))
