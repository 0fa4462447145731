"""Times as people want to read them: ISO 8601 in UTC, how long ago, or the number as it is stored."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import click

from dalsegno.cli.context import Context
from dalsegno.errors import Usage

ISO, RELATIVE, RAW = "iso", "relative", "raw"
TIME_FIELDS = frozenset({"recorded_at", "occurred_at", "started_at", "ended_at", "clock_start"})
"""Fields of events that hold microseconds since 1970."""
_COLUMN = 23
_EPOCH = datetime.fromtimestamp(0, UTC)
_STEPS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"), (1.0, "s"))


class Moment(str):
    """A time as RFC 3339, which is what programs are given, and the number that it was made from."""

    micros: int

    @classmethod
    def of(cls, micros: int, text: str) -> Moment:
        made = cls(text)
        made.micros = micros
        return made


def moment(micros: int | None) -> Moment | None:
    """Microseconds since 1970 as RFC 3339 in UTC; None stays None."""
    if micros is None:
        return None
    seconds, rest = divmod(micros, 1_000_000)
    try:
        whole = datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return Moment.of(micros, f"{micros} µs")
    return Moment.of(micros, whole.strftime("%Y-%m-%dT%H:%M:%S") + f".{rest:06d}Z")


def micros_of(text: str) -> int:
    """Microseconds since 1970 of an ISO time with a zone. Raises Usage."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.utcoffset() is None:
        raise Usage(
            f"{text!r} is no time with a zone", wanted="ISO 8601 such as 2026-11-29T19:30:00Z", todo="correct it"
        )
    return (found - _EPOCH) // timedelta(microseconds=1)


def iso(micros: int) -> Moment:
    """As ``moment``, to the second."""
    text = str(moment(micros))
    return Moment.of(micros, f"{text.partition('.')[0]}Z" if text.endswith("Z") else text)


def shown(when: Moment) -> str:
    """As ``--time-format`` asks for it in a text for people."""
    context = click.get_current_context(silent=True)
    asked = None if context is None else context.find_object(Context)
    form = ISO if asked is None else asked.time_format
    if form == RAW:
        return str(when.micros)
    return relative(when.micros, time.time()) if form == RELATIVE else str(when)


def in_column(micros: int | None) -> str:
    """As ``shown``, to the millisecond, as wide as the widest of them."""
    when = moment(micros)
    return f"{'-' if when is None else shown(when)[:_COLUMN]:<{_COLUMN}}"


def relative(micros: int, now: float) -> str:
    """How long ago, or how far ahead, in its largest unit. ``now``: seconds since 1970."""
    ago = now - micros / 1_000_000
    size, unit = next((step for step in _STEPS if abs(ago) >= step[0]), _STEPS[-1])
    number = f"{abs(ago) / size:.0f} {unit}"
    return f"{number} ago" if ago >= 0 else f"in {number}"
