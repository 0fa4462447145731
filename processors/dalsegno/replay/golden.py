"""Golden references: what a session's decisions were, in a file that is read in a review and checked in CI. Pure.

A file is lines of JSON. The first says what was decided with: versions and digests of the documents. Then a line for
each decision, with what it says in small fields and the digest of all of it, and after every ``STATE_EVERY`` decisions
one with the digest of the rows that decisions depend on. Ids, times and hashes of the log are in none of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Any, Final, NamedTuple

import msgspec

from dalsegno.errors import BadInputFile
from dalsegno.model.records import Event
from dalsegno.orchestration.canonical import canonical
from dalsegno.projections.decider.fold import fold_event
from dalsegno.projections.decider.rows import PIN
from dalsegno.projections.decider.table import MemoryRows
from dalsegno.replay.divergence import plain
from dalsegno.replay.subjects import FIELD, subject

FORMAT: Final = 1
STATE_EVERY: Final = 25
_SHORT: Final = 120
"""Characters of a field that stands in a line; what is longer is in the digest alone."""

Line = dict[str, Any]


class GoldenDifference(NamedTuple):
    """The first line that is not as in the reference. ``line``: from 1; None on the side that has no such line."""

    line: int
    what: str
    expected: Line | None
    actual: Line | None
    more: int
    """Further lines that differ, place by place."""


def lines_of(events: Iterable[Event]) -> list[Line]:
    """The reference of a session: of its whole history, from its first event on."""
    rows = MemoryRows()
    lines: list[Line] = []
    decisions = 0
    for event in events:
        if event.stub is not None:
            continue
        fold_event(rows, event)
        if event.type not in FIELD:
            continue
        decisions += 1
        body = {name: value for name, value in event.body.items() if name != "meta"}
        lines.append({"decision": decisions, "type": event.type, "subject": subject(event), **_said(body)})
        if decisions % STATE_EVERY == 0:
            lines.append({"state": decisions, "digest": state_digest(rows)})
    return [_header(rows), *lines, {"end": decisions, "digest": state_digest(rows)}]


def _header(rows: MemoryRows) -> Line:
    head = rows.head_row
    pins = {kind: None if pin.digest is None else pin.digest.hex() for kind, pin in sorted(rows.family(PIN).items())}
    return {"golden": FORMAT, "workflow": "" if head is None else head.workflow, "configuration": pins}


def _said(body: Mapping[str, Any]) -> Line:
    """The small fields of a payload, and the digest of the whole: contents by their own digest."""
    whole = _without_bytes(body)
    small = {
        name: value for name, value in whole.items() if value not in (None, [], "") and len(json.dumps(value)) <= _SHORT
    }
    return {"says": small, "digest": sha256(canonical(whole)).hexdigest()[:16]}


def _without_bytes(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()[:16]
    if isinstance(value, Mapping):
        if "digest" in value and "inline" in value:
            return f"{value['media_type']} {value['size']} bytes {value['digest'].hex()[:16]}"
        return {name: _without_bytes(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_without_bytes(each) for each in value]
    return plain(value)


def state_digest(rows: MemoryRows) -> str:
    """Of all rows, without what says when or where in the log something stood."""
    state = sha256()
    for row_id, row in rows.all():
        state.update(msgspec.msgpack.encode([list(row_id), _timeless(row)]))
    return state.hexdigest()[:16]


_TIMES: Final = frozenset({"requested_at", "started_at", "clock_start", "seq"})


def _timeless(row: Any) -> list[Any]:
    return [type(row).__name__, *(value for name, value in _fields(row) if name not in _TIMES)]


def _fields(row: Any) -> Iterator[tuple[str, Any]]:
    for name in row.__struct_fields__:
        yield name, getattr(row, name)


# --- files ------------------------------------------------------------------------------------------------------------


def written(lines: Iterable[Line]) -> bytes:
    """The file's bytes: equal lines, equal bytes."""
    return b"".join(json.dumps(line, ensure_ascii=False, sort_keys=False).encode() + b"\n" for line in lines)


def read(content: bytes, where: str) -> list[Line]:
    """Raises BadInputFile naming the line."""
    lines: list[Line] = []
    for number, text in enumerate(content.splitlines(), 1):
        try:
            line = json.loads(text)
        except ValueError as error:
            raise _bad(where, number, f"no JSON: {error}") from error
        if not isinstance(line, dict):
            raise _bad(where, number, "no JSON object")
        lines.append(line)
    if not lines or lines[0].get("golden") != FORMAT:
        raise _bad(where, 1, f'no line with "golden": {FORMAT}')
    if "end" not in lines[-1]:
        raise _bad(where, len(lines), 'no line with "end": the file was cut off')
    return lines


def _bad(where: str, line: int, found: str) -> BadInputFile:
    return BadInputFile(
        f"{where}, line {line}: {found}",
        wanted="a file that 'dalsegno golden record' wrote",
        todo="take the file from version control again, or record it anew",
        file=where,
        line=line,
    )


# --- comparing --------------------------------------------------------------------------------------------------------


def compare(expected: list[Line], actual: list[Line]) -> GoldenDifference | None:
    """The first difference, cause before effect: documents first, then decisions in their order; None if there is
    none."""
    differing = [
        place for place in range(max(len(expected), len(actual))) if _at(expected, place) != _at(actual, place)
    ]
    if not differing:
        return None
    decisions = [place for place in differing if "decision" in (_at(expected, place) or _at(actual, place) or {})]
    # A state can differ before a decision does; the decision says more.
    place = differing[0] if differing[0] == 0 or not decisions else decisions[0]
    before, after = _at(expected, place), _at(actual, place)
    return GoldenDifference(place + 1, _what(before, after), before, after, len(differing) - 1)


def _at(lines: list[Line], place: int) -> Line | None:
    return lines[place] if place < len(lines) else None


def _what(before: Line | None, after: Line | None) -> str:
    if before is None or after is None:
        line = before or after or {}
        side = "is in the reference alone" if after is None else "is not in the reference"
        return f"{line.get('type', 'a line')} of {line.get('subject') or 'the session'} {side}"
    if "golden" in before:
        pins, now = before.get("configuration", {}), after.get("configuration", {})
        kinds = sorted(kind for kind in {*pins, *now} if pins.get(kind) != now.get(kind))
        return f"another configuration: {', '.join(kinds) or 'workflow'}"
    if (before.get("type"), before.get("subject")) != (after.get("type"), after.get("subject")):
        return (
            f"{after.get('type', 'a state')} of {after.get('subject') or 'the session'} "
            f"in the place of {before.get('type', 'a state')} of {before.get('subject') or 'the session'}"
        )
    says, now = before.get("says", {}), after.get("says", {})
    fields = sorted(name for name in {*says, *now} if says.get(name) != now.get(name))
    what = (
        ", ".join(f"{name} {says.get(name)!r} -> {now.get(name)!r}" for name in fields) or "a field that is not shown"
    )
    return f"{before.get('type', 'state')} of {before.get('subject') or 'the session'}: {what}"
