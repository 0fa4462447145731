"""What a projection is: a fold from events to rows. Pure, and total: a fold never raises, whatever it is given.

A fold sees the events of one session's path in order, and its own rows of that session. It has no clock, no client
and no randomness, and it keeps nothing between two calls, so the rows follow from the events alone. Rows hold no maps
and no floats, and none of them grows with the number of events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar, get_args, get_type_hints

from msgspec import Struct, structs

from dalsegno.model.lifecycle.state import Verdict, bounded
from dalsegno.model.records import Event

RowId: TypeAlias = tuple[str | int, ...]
"""The id of a row within its projection and session; ``()`` where there is one row per session."""

ALL: Final = frozenset({"*"})
"""``handles = ALL``: every event type, also those that this build does not know and that say they may be ignored."""

TEXT_LIMIT: Final = 500
"""Characters of a text that a row keeps; texts of any length come from outside."""

R = TypeVar("R", bound=Struct)
T = TypeVar("T")


class HeadFacts(NamedTuple):
    """What a session's path says beside its events. ``seq`` and ``hash`` are the path's end; ``stubs`` stand on it."""

    seq: int
    hash: bytes | None
    epoch: int
    held_reason: str | None
    held_seq: int | None
    superseded: int
    stubs: int


class Table(Protocol[R]):
    """Rows of one kind of one session. A row that ``get`` gave may be changed, and must then be ``put`` again."""

    def get(self, row_id: RowId = ()) -> R | None: ...

    def put(self, row_id: RowId, row: R) -> None: ...

    def delete(self, row_id: RowId) -> None: ...


class Rows(Table[R], Protocol[R]):
    """A projection's rows of one session: those it shows, and those it keeps for itself."""

    @property
    def private(self) -> Table[Any]:
        """Rows of the projection's ``private_row``."""

    def add(self, key: RowId, amounts: R) -> None:
        """Rollups only: add whole numbers to the sums under ``key``; every field of ``amounts`` is an int.

        ``get(key)`` is then what the session itself has added there so far; None where that is nothing but zeros.
        """


class Projection(Generic[R]):
    """Subclass, name it, declare what it handles, and write ``fold``.

    ``version`` must rise whenever the fold would give other rows for the same events: rows of another version are
    dropped and folded again. ``public`` rows are emitted to the topic ``<prefix>.projection.<name>.v<version>``.
    """

    name: ClassVar[str]
    version: ClassVar[int]
    handles: ClassVar[frozenset[str]]
    row: ClassVar[type[Struct]]
    private_row: ClassVar[type[Struct] | None] = None
    public: ClassVar[bool] = True
    rollup: ClassVar[bool] = False

    def fold(self, rows: Rows[R], event: Event, verdict: Verdict) -> None:
        """Take one event into the rows. Never called for an event that broke a rule, nor for a stub."""
        raise NotImplementedError

    def fold_violation(self, rows: Rows[R], event: Event, verdict: Verdict) -> None:
        """An event of any type broke a rule that holds; it has no other effect than what is done here."""

    def fold_stub(self, rows: Rows[R], event: Event) -> None:
        """An amendment took this event; only its place and its type are left."""

    def fold_head(self, rows: Rows[R], head: HeadFacts) -> None:
        """The end of the path, or what is said of it, changed. Called after the events of a batch, not per event.

        What it writes must be a function of ``head`` alone, in fields that ``fold`` leaves alone: how often it is
        called depends on how the records happened to be batched. It puts each row that it concerns whenever it is
        called, changed or not: what is put decides what the ladder keeps. At every rung it is told of no end at all.
        """


class Rollup(Projection[R]):
    """Sums over sessions. Each session's own part is kept, so that it can be taken back: use ``rows.add`` alone."""

    rollup: ClassVar[bool] = True


def cut(text: str | None) -> str | None:
    """At most ``TEXT_LIMIT`` characters of a text from outside; None for None."""
    return None if text is None else text[:TEXT_LIMIT]


def kept_id(id: str | None) -> str | None:
    """An id from outside as rows keep it, equal to what it is as part of a row's id; None for None."""
    return None if id is None else bounded(id)


def digest_of(blob: Mapping[str, Any] | None) -> bytes | None:
    """The digest of a content of an event; None where it has none."""
    return None if blob is None else blob["digest"]


def first(members: Sequence[T], limit: int) -> tuple[list[T], int]:
    """The first members of a list from outside, and how many more there are."""
    return list(members[:limit]), max(0, len(members) - limit)


def put_members(rows: Table[R], prefix: RowId, before: int, members: Sequence[R]) -> None:
    """Members of a list of any length as rows of their own, numbered from 0, in place of the ``before`` ones there."""
    for place, member in enumerate(members):
        rows.put((*prefix, place), member)
    for place in range(len(members), before):
        rows.delete((*prefix, place))


def values_of(row: Struct) -> dict[str, Any]:
    """A row as a dict, with the rows inside it as dicts too."""
    values = structs.asdict(row)
    for name in _nested_fields(type(row)):
        values[name] = _plain(values[name])
    return values


@cache
def _nested_fields(row: type[Struct]) -> tuple[str, ...]:
    return tuple(name for name, hint in get_type_hints(row).items() if _holds_rows(hint))


def _holds_rows(hint: Any) -> bool:
    return (isinstance(hint, type) and issubclass(hint, Struct)) or any(map(_holds_rows, get_args(hint)))


def _plain(value: Any) -> Any:
    if isinstance(value, Struct):
        return values_of(value)
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def clock(meta: Mapping[str, Any]) -> int | None:
    """When an event happened, in microseconds UTC: by its producer's clock, else by its writer's."""
    occurred: int | None = meta.get("occurred_at")
    return meta.get("recorded_at") if occurred is None else occurred


def duration(value: int | None) -> int | None:
    """A duration as it was recorded or found; None, unknown, below zero: its ends are of clocks that do not agree."""
    return None if value is None or value < 0 else value


_LONG = 1 << 63


def plus(total: int, amount: int) -> int:
    """Their sum as a signed 64-bit number that wraps around: an absurd amount is taken back as exactly as it came."""
    result = total + amount
    return result if -_LONG <= result < _LONG else (result + _LONG) % (2 * _LONG) - _LONG
