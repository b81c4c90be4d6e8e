"""ERM."""

from __future__ import annotations

from typing import ClassVar

from satisfice.rules.rule import AdditiveRule, Needs

__all__ = ["Mean"]


class Mean(AdditiveRule):
    """ERM: the update is g, the gradient of the mean over domains of their risks.

    It takes no penalty, and so no strength.
    """

    needs: ClassVar[Needs] = "weights"
    takes_penalty: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()
