"""What engines hand to rules is checked once, where it is made."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from satisfice.errors import UserError
from satisfice.rules import Gradients


def make(**given: Any) -> Gradients:
    parts = {"ids": torch.arange(2), "losses": torch.ones(2), "counts": torch.ones(2)}
    return Gradients(**(parts | given))


def test_just_one_of_risk_and_domain() -> None:
    with pytest.raises(UserError, match="just one of risk"):
        make()
    with pytest.raises(UserError, match="just one of risk"):
        make(risk=torch.ones(3), domain=torch.ones(2, 3))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"domain": torch.ones(3, 4)}, r"shape \[E, P\] with E = 2"),
        ({"domain": torch.ones(2)}, r"shape \[E, P\]"),
        ({"domain": torch.ones(2, 4), "penalty": torch.ones(5)}, r"shape \[4\], not \[5\]"),
        ({"risk": torch.ones(4), "losses": torch.ones(3)}, "one value per domain"),
        ({"risk": torch.ones(4, dtype=torch.int64)}, "floating-point"),
        ({"risk": torch.ones(4), "ids": torch.ones(2)}, "ids must be integers"),
    ],
)
def test_wrong_shapes_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        make(**given)


def test_mean_is_the_mean_over_domains_not_rows() -> None:
    domain = torch.tensor([[1.0, 2.0], [3.0, 6.0]])
    assert torch.equal(make(domain=domain, counts=torch.tensor([1, 9])).mean(), domain.mean(0))
