"""What all tests share: the seed, the devices, the golden vectors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import settings

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


# The same examples every time, and no test that depends on how long it takes.
settings.register_profile("satisfice", derandomize=True, deadline=None, max_examples=50)
settings.load_profile("satisfice")


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Seed torch's global state, so that a test that uses it is the same every time."""
    torch.manual_seed(20221128)


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def golden() -> dict[str, Any]:
    """METHOD's conformance vectors, float64."""
    path = Path(__file__).parent / "golden" / "method.json"
    return dict(json.loads(path.read_text()))
