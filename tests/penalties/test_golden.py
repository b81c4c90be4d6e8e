"""Penalties against METHOD's float64 vectors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from satisfice import penalties

# In float32 MMD is a difference of kernel means near 7, with rounding of 4e-7 each.
TOLERANCES = {torch.float64: 1e-10, torch.float32: 2e-6}


@pytest.fixture(params=TOLERANCES, ids=str)
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    assert isinstance(request.param, torch.dtype)
    return request.param


def stacked(rows: list[Any], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    parts = [torch.tensor(row, dtype=dtype) for row in rows]
    domain = torch.cat([torch.full((len(part),), e) for e, part in enumerate(parts)])
    return torch.cat(parts), domain


def close(value: Tensor, expected: float, dtype: torch.dtype) -> None:
    assert value.dtype == dtype
    assert float(value) == pytest.approx(expected, rel=TOLERANCES[dtype], abs=TOLERANCES[dtype])


def test_coral_and_vrex(golden: dict[str, Any], dtype: torch.dtype) -> None:
    case = golden["penalties"]
    close(penalties.coral(*stacked(case["features"], dtype)), case["coral"], dtype)
    close(penalties.vrex(torch.tensor(case["losses"], dtype=dtype)), case["vrex"], dtype)


def test_coral_mmd_and_irm_on_unequal_domains(golden: dict[str, Any], dtype: torch.dtype) -> None:
    case = golden["penalties_more"]
    features, domain = stacked(case["features"], dtype)
    close(penalties.coral(features, domain), case["coral"], dtype)
    close(penalties.mmd(features, domain), case["mmd"], dtype)
    logits = torch.tensor(case["logits"], dtype=dtype)
    targets, domain = torch.tensor(case["targets"]), torch.tensor(case["domain"])
    close(penalties.irm(logits, targets, domain), case["irm"], dtype)
