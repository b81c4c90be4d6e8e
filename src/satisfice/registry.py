"""Names such as ``coral+sdg``: a penalty and a rule. Users' own join here.

A method is written ``PENALTY`` (the sum), ``PENALTY+RULE``, or ``RULE``. ``fish`` alone is Fish's
own algorithm, θ ← θ + ε(θ̃ − θ), which is no rule: only a whole step can run it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor

from satisfice import penalties, rules
from satisfice.errors import UserError, nearest

__all__ = [
    "Built",
    "MethodEntry",
    "PenaltyEntry",
    "RuleEntry",
    "build",
    "methods",
    "parse",
    "register_penalty",
    "register_rule",
]

_SEPARATOR = "+"


@dataclass(frozen=True)
class PenaltyEntry:
    """A named penalty."""

    name: str
    line: str
    takes: tuple[str, ...]
    """What it needs of a batch: ``features``, ``logits``, ``targets``, ``losses`` (per domain),
    ``domain``; the names of its function's arguments. ``direction``: it is a direction, not a value
    to differentiate."""
    function: Callable[..., Tensor]
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class RuleEntry:
    """A named rule."""

    name: str
    line: str
    make: Callable[..., rules.Rule]
    takes_penalty: bool = True
    alone: bool = False
    """It is a method by itself; without a penalty it then takes no strength."""

    @property
    def options(self) -> tuple[str, ...]:
        """The constructor's keywords, but for the strength."""
        return tuple(name for name in _keywords(self.make) if name != "strength")


@dataclass(frozen=True)
class MethodEntry:
    """What a name means. ``rule`` is None for ``fish`` alone, which is no rule."""

    name: str
    line: str
    penalty: PenaltyEntry | None
    rule: RuleEntry | None

    @property
    def takes_strength(self) -> bool:
        """Whether there is a penalty, named or the user's own, for a strength to multiply."""
        if self.rule is None or not self.rule.takes_penalty:
            return False
        return self.penalty is not None or not self.rule.alone


class Built(NamedTuple):
    """A method with its rule made, and the options that are its penalty's."""

    method: MethodEntry
    rule: rules.Rule
    options: dict[str, Any]


_PENALTIES = {
    entry.name: entry
    for entry in (
        PenaltyEntry(
            "coral",
            "CORAL: the features' means and covariances agree",
            ("features", "domain"),
            penalties.coral,
        ),
        PenaltyEntry(
            "mmd",
            "MMD: the features' distributions agree by a kernel",
            ("features", "domain"),
            penalties.mmd,
        ),
        PenaltyEntry(
            "irm",
            "IRM: one classifier is optimal everywhere",
            ("logits", "targets", "domain"),
            penalties.irm,
            options=("loss",),
        ),
        PenaltyEntry("vrex", "VREx: the domains' risks are equal", ("losses",), penalties.vrex),
        PenaltyEntry(
            "fish",
            "Fish: the domains' gradients agree",
            ("direction",),
            penalties.fish_direction,
            options=("rate", "inner", "order"),
        ),
    )
}

_RULES = {
    entry.name: entry
    for entry in (
        RuleEntry("erm", "the risk alone", rules.Mean, takes_penalty=False, alone=True),
        RuleEntry("joint", "the sum of risk and penalty", rules.Joint),
        RuleEntry("sdg", "a penalty lowered by updates that minimise the risk", rules.SDG),
        RuleEntry("groupdro", "domains with a high loss weigh more", rules.GroupDRO, alone=True),
        RuleEntry(
            "and-mask", "only coordinates on whose sign domains agree", rules.AndMask, alone=True
        ),
        RuleEntry(
            "sand-mask", "a soft AND-mask that weighs the variance", rules.SandMask, alone=True
        ),
        RuleEntry("bloop", "the penalty's gradient across the mean risk's", rules.Bloop),
        RuleEntry("pcd", "a fixed rate of progress along the penalty", rules.PCD),
    )
}

_BUILTIN = frozenset(_PENALTIES) | frozenset(_RULES)


def register_penalty(
    name: str,
    function: Callable[..., Tensor],
    *,
    takes: tuple[str, ...],
    line: str,
    options: tuple[str, ...] = (),
) -> None:
    """Give a penalty a name, so that ``NAME``, ``NAME+sdg``, … are methods.

    ``function`` is called with what it ``takes``, by keyword, and returns a scalar. A name of one's
    own may be registered again; satisfice's may not.
    """
    _check_name(name, _PENALTIES)
    known = {"features", "logits", "targets", "losses", "domain", "direction"}
    for item in takes:
        if item not in known:
            raise UserError(f"takes={item!r} is not known: {nearest(item, sorted(known))}")
    _PENALTIES[name] = PenaltyEntry(name, line, takes, function, options)


def register_rule(
    name: str,
    make: Callable[..., rules.Rule],
    *,
    line: str,
    takes_penalty: bool = True,
    alone: bool = False,
) -> None:
    """Give a rule a name, so that ``NAME`` and ``PENALTY+NAME`` are methods.

    ``make`` is called with ``strength`` (where it takes a penalty) and the method's options, by
    keyword, and returns a rule. With ``alone`` it is a method without any penalty, too.
    """
    _check_name(name, _RULES)
    if takes_penalty and "strength" not in _keywords(make):
        raise UserError(
            f"the rule {name!r} must take the keyword 'strength', or be registered with "
            "takes_penalty=False."
        )
    _RULES[name] = RuleEntry(name, line, make, takes_penalty, alone)


def _check_name(name: str, kind: Mapping[str, object]) -> None:
    if not name or _SEPARATOR in name or name != name.strip().lower():
        raise UserError(f"name={name!r} must be lower case, without spaces at its ends or '+'.")
    if name in _BUILTIN or ((name in _PENALTIES or name in _RULES) and name not in kind):
        raise UserError(f"name={name!r} is taken; choose another.")


def _keywords(make: Callable[..., object]) -> list[str]:
    variable = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    parameters = inspect.signature(make).parameters.values()
    return [parameter.name for parameter in parameters if parameter.kind not in variable]


def parse(name: str) -> MethodEntry:
    """Read a method's name.

    Raises
    ------
    UserError
        With the nearest right names, where there is no such method.
    """
    if name == "fish":
        line = "Fish's own algorithm: θ ← θ + ε(θ̃ − θ)"
        return MethodEntry(name, line, _PENALTIES["fish"], None)
    if name in _PENALTIES:
        penalty, rule = _PENALTIES[name], _RULES["joint"]
        return MethodEntry(name, f"the sum of risk and {penalty.line}", penalty, rule)
    if name in _RULES:
        return MethodEntry(name, _RULES[name].line, None, _RULES[name])
    head, separator, tail = name.partition(_SEPARATOR)
    if not (separator and head in _PENALTIES and tail in _RULES):
        raise UserError(f"method={name!r} is not known: {nearest(name.lower(), methods())}")
    penalty, rule = _PENALTIES[head], _RULES[tail]
    if not rule.takes_penalty:
        raise UserError(
            f"method={name!r}: {tail} takes no penalty; {head!r} is the sum of risk and penalty."
        )
    if tail == "joint" and head != "fish":
        return parse(head)
    return MethodEntry(name, f"{rule.line}, with {penalty.line}", penalty, rule)


def methods() -> dict[str, str]:
    """Return every method's name with a line that explains it."""
    names = list(_RULES)
    for penalty in _PENALTIES:
        names.append(penalty)
        names += [
            f"{penalty}{_SEPARATOR}{rule.name}"
            for rule in _RULES.values()
            if rule.takes_penalty and (rule.name != "joint" or penalty == "fish")
        ]
    return {name: parse(name).line for name in names}


def build(name: str, *, strength: float | None = None, **options: Any) -> Built:
    """Make a method's rule.

    Parameters
    ----------
    name
        As in ``methods()``.
    strength
        Multiplies the penalty's gradient; None is the rule's own default. Refused where there is no
        penalty.
    options
        The rule's and the penalty's.

    Returns
    -------
    The method, its rule, and the options that are its penalty's.
    """
    method = parse(name)
    if strength is not None and not method.takes_strength:
        raise UserError(
            f"strength={strength!r}: {name!r} has no penalty to multiply; leave it out."
        )
    of_penalty = method.penalty.options if method.penalty else ()
    if method.rule is None:
        raise UserError(
            f"method={name!r} is an algorithm of its own, which only a whole step can run; "
            f"{name + _SEPARATOR + 'joint'!r} is the sum with its direction."
        )
    of_rule = method.rule.options
    for option in options:
        if option not in (*of_penalty, *of_rule):
            known = (*of_rule, *of_penalty)
            hint = nearest(option, known) if known else "it has no options."
            raise UserError(f"{option!r} is not an option of {name!r}: {hint}")
    for_penalty = {key: value for key, value in options.items() if key not in of_rule}
    for_rule = {key: value for key, value in options.items() if key in of_rule}
    if method.rule.takes_penalty:
        for_rule["strength"] = strength
    return Built(method, method.rule.make(**for_rule), for_penalty)
