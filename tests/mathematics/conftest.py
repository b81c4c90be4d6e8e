"""The scripts of docs/evidence as modules, so that page and test speak of one computation."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

EVIDENCE = Path(__file__).parents[2] / "docs" / "evidence"


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """As in the scripts: these problems are too small to share out."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def evidence(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    monkeypatch.syspath_prepend(str(EVIDENCE))
    return importlib.import_module
