"""Refusals name what was wrong and what would be right."""

from __future__ import annotations

from typing import Any

import pytest

from satisfice.errors import UserError, in_range, nearest, one_of


def test_a_near_miss_is_answered_with_what_was_meant() -> None:
    assert nearest("corall", ["coral", "vrex"]) == "did you mean 'coral'?"


def test_a_far_miss_is_answered_with_all_there_is() -> None:
    assert nearest("zzz", ["coral", "vrex"]) == "there are 'coral', 'vrex'."


def test_one_of_names_the_parameter_and_the_value() -> None:
    one_of("draw", "sample", ["sample", "expectation"])
    with pytest.raises(UserError, match=r"draw='smaple' is not known: did you mean 'sample'\?"):
        one_of("draw", "smaple", ["sample", "expectation"])


@pytest.mark.parametrize(
    ("value", "kind", "words"),
    [
        (-1.0, {"low": 0}, r"x=-1\.0 must be >= 0 and finite\."),
        (0.0, {"low": 0, "above": True}, r"x=0\.0 must be > 0 and finite\."),
        (2.0, {"low": 0, "high": 1}, r"x=2\.0 must be >= 0 and <= 1\."),
        (float("inf"), {"low": 0}, r"x=inf must be >= 0 and finite\."),
        (float("nan"), {"low": 0, "infinite": True}, r"x=nan must be >= 0\."),
    ],
)
def test_numbers_out_of_range(value: float, kind: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        in_range("x", value, **kind)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (0.0, {"low": 0}),
        (1.0, {"low": 0, "high": 1, "above": True}),
        (float("inf"), {"low": 0, "infinite": True}),
    ],
)
def test_numbers_in_range(value: float, kind: dict[str, Any]) -> None:
    in_range("x", value, **kind)


@pytest.mark.parametrize("value", ["10", None, True, [1]])
def test_what_is_no_number_is_refused(value: Any) -> None:
    with pytest.raises(UserError, match="must be a number"):
        in_range("x", value)


def test_it_is_a_value_error() -> None:
    assert issubclass(UserError, ValueError)
