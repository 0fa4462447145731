"""Numbers on the command line."""

from __future__ import annotations

import math
from typing import Any

import click

from dalsegno.model.ids import SEQ_MAX
from dalsegno.model.records import FIRST_SEQ

LONGEST_SECONDS = 10 * 365 * 24 * 3600.0
"""Longer than anybody waits, and short enough for every clock that it is added to."""


def seq_in(text: str) -> int | None:
    """A seq, in decimal digits alone; None for what is none."""
    if not (text.isascii() and text.isdigit()) or len(text) > len(str(SEQ_MAX)):
        return None
    return int(text) if FIRST_SEQ <= int(text) <= SEQ_MAX else None


class Amount(click.FloatRange):
    """A time in seconds, hours or the like: finite, which click's own range does not ask for."""

    def __init__(self, min: float = 0.0) -> None:
        super().__init__(min=min, max=None)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if math.isnan(number) or number > LONGEST_SECONDS:
            self.fail(f"{value} is no number up to {LONGEST_SECONDS:.0f}.", param, ctx)
        return number
