"""What a user did wrong, in one sentence: what, where, what to do."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable

__all__ = ["UserError", "in_range", "nearest", "one_of"]


class UserError(ValueError):
    """A value that satisfice refuses; its message names the parameter, the rule and the value."""


def nearest(word: str, known: Iterable[str]) -> str:
    """Say which known names are closest to ``word``, best first, as the end of a sentence."""
    names = list(dict.fromkeys(known))
    close = difflib.get_close_matches(word, names, n=3, cutoff=0.5)
    if close:
        return "did you mean " + " or ".join(repr(name) for name in close) + "?"
    return "there are " + ", ".join(repr(name) for name in names) + "."


def one_of(name: str, value: object, choices: Iterable[str]) -> None:
    """Refuse a ``value`` that is none of ``choices``."""
    known = list(choices)
    if value not in known:
        raise UserError(f"{name}={value!r} is not known: {nearest(str(value), known)}")


def in_range(
    name: str,
    value: float,
    low: float = -math.inf,
    high: float = math.inf,
    *,
    above: bool = False,
    infinite: bool = False,
) -> None:
    """Refuse a number outside [low, high], or (low, high] with ``above``, and every NaN.

    Infinities are refused too, unless ``infinite`` says that they mean something.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UserError(f"{name}={value!r} must be a number.")
    inside = low < value <= high if above else low <= value <= high
    if not inside or (math.isinf(value) and not infinite):
        left = f"> {low:g}" if above else f">= {low:g}"
        bounds = [left] if low > -math.inf else []
        bounds += [f"<= {high:g}"] if high < math.inf else [] if infinite else ["finite"]
        raise UserError(f"{name}={value!r} must be {' and '.join(bounds)}.")
