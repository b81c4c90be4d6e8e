"""The sum of risk and penalty."""

from __future__ import annotations

from typing import ClassVar

from satisfice.rules.rule import AdditiveRule, Needs

__all__ = ["Joint"]


class Joint(AdditiveRule):
    """What everyone else minimises: the update is g + q, the gradient of L + strength·Penalty."""

    needs: ClassVar[Needs] = "risk"
