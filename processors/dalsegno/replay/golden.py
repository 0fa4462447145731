"""Golden references: what a session's decisions were, in a file that is read in a review and checked in CI. Pure.

A file is lines of JSON. The first says what was decided with: versions and digests of the documents. Then a line for
each decision, with what it says in small fields and the digest of all of it, and after every ``STATE_EVERY`` decisions
one with the digest of the rows that decisions depend on. Ids, times and hashes of the log are in none of them, so that
a session of another name, or of another day, that decides the same has the same reference. ``session``, where the first
line has it, says where the reference was recorded; it is not compared.
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
from dalsegno.orchestration.documents import HarnessBuild
from dalsegno.projections.decider.fold import fold_event
from dalsegno.projections.decider.rows import PIN
from dalsegno.projections.decider.table import MemoryRows
from dalsegno.replay.divergence import plain
from dalsegno.replay.subjects import FIELD, subject

FORMAT: Final = 1
STATE_EVERY: Final = 25
_BUILD: Final = "HARNESS_BUILD"
_SHORT: Final = 120
"""Characters of a field that stands in a line; what is longer is in the digest alone."""

Line = dict[str, Any]


class GoldenDifference(NamedTuple):
    """The first line that is not as in the reference. ``line``: from 1; ``expected``, ``actual``: None on the side that
    has no such line."""

    line: int
    what: str
    expected: Line | None
    actual: Line | None
    more: int
    """Further lines that differ, place by place."""
    led_to: GoldenDifference | None = None
    """Where other documents are the first difference: the first decision that differs, if one does."""

    def __str__(self) -> str:
        return f"line {self.line}: {self.what}" + ("" if self.led_to is None else f"; {self.led_to}")


def lines_of(events: Iterable[Event]) -> list[Line]:
    """The reference of a session: of its whole history, from its first event on to its end. What comes in behind that
    decides nothing."""
    rows = MemoryRows()
    lines: list[Line] = []
    decisions = 0
    build: HarnessBuild | None = None
    for event in events:
        if event.stub is not None:
            continue
        if rows.head_row is not None and rows.head_row.status == "ENDED":
            break
        fold_event(rows, event)
        build = _build(event) or build
        if event.type not in FIELD:
            continue
        decisions += 1
        body = {name: value for name, value in event.body.items() if name not in _NOT_SAID}
        lines.append({"decision": decisions, "type": event.type, "subject": subject(event), **_said(body)})
        if decisions % STATE_EVERY == 0:
            lines.append({"state": decisions, "digest": state_digest(rows)})
    return [_header(rows, build), *lines, {"end": decisions, "digest": state_digest(rows)}]


_NOT_SAID: Final = frozenset({"meta", "policy_digest", "validator_digest", "engine"})
"""The digests of documents and the version of what evaluates conditions: the first line has them."""


def _header(rows: MemoryRows, build: HarnessBuild | None) -> Line:
    """``decided_by``: versions alone, so that another name or release of the harness is no difference."""
    head = rows.head_row
    pins = {
        kind: None if pin.digest is None else pin.digest.hex()
        for kind, pin in sorted(rows.family(PIN).items())
        if kind != _BUILD
    }
    by = None if build is None else {"decider": build.decider, "builder": build.builder, "cel": build.cel_engine}
    workflow = "" if head is None else head.workflow
    return {"golden": FORMAT, "workflow": workflow, "decided_by": by, "configuration": pins}


def _build(event: Event) -> HarnessBuild | None:
    if event.type != "ConfigPinned" or event.body["kind"] != _BUILD or event.body["content"] is None:
        return None
    try:
        return msgspec.json.decode(event.body["content"]["inline"] or b"", type=HarnessBuild)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


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
    """Of all rows but the documents', without what says when, where in the log, or in which session and fork."""
    state = sha256()
    for row_id, row in rows.all():
        if row_id[:1] == (PIN,):
            continue
        state.update(msgspec.msgpack.encode([list(row_id), _timeless(row)]))
    return state.hexdigest()[:16]


_NOT_STATE: Final = frozenset({"requested_at", "started_at", "clock_start", "seq", "session", "commands", "forks"})


def _timeless(row: Any) -> list[Any]:
    return [type(row).__name__, *(value for name, value in _fields(row) if name not in _NOT_STATE)]


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
        except (ValueError, RecursionError) as error:
            raise _bad(where, number, f"no JSON: {error}") from error
        if not isinstance(line, dict) or any(not isinstance(line.get(name, {}), dict) for name in _OBJECTS):
            raise _bad(where, number, "no line of a golden reference")
        lines.append(line)
    if not lines or lines[0].get("golden") != FORMAT or not isinstance(lines[0].get("session", ""), str):
        raise _bad(where, 1, f'no line with "golden": {FORMAT}')
    if "end" not in lines[-1]:
        raise _bad(where, len(lines), 'no line with "end": the file was cut off')
    return lines


_OBJECTS: Final = ("configuration", "says")
"""Where a line has them, they are JSON objects."""


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

    def at(place: int, led_to: GoldenDifference | None = None) -> GoldenDifference:
        before, after = _at(expected, place), _at(actual, place)
        return GoldenDifference(place + 1, _what(before, after), before, after, len(differing) - 1, led_to)

    # A state can differ before a decision does; the decision says more.
    decisions = [place for place in differing if "decision" in (_at(expected, place) or _at(actual, place) or {})]
    if differing[0] == 0:
        return at(0, at(decisions[0]) if decisions else None)
    return at(decisions[0] if decisions else differing[0])


def _at(lines: list[Line], place: int) -> Line | None:
    if place >= len(lines):
        return None
    return {name: value for name, value in lines[place].items() if name != "session"} if place == 0 else lines[place]


def _what(before: Line | None, after: Line | None) -> str:
    if before is None or after is None:
        line = before or after or {}
        side = "is in the reference alone" if after is None else "is not in the reference"
        return f"{line.get('type', 'a line')} of {line.get('subject') or 'the session'} {side}"
    if "golden" in before:
        pins, now = before.get("configuration", {}), after.get("configuration", {})
        kinds = sorted(kind for kind in {*pins, *now} if pins.get(kind) != now.get(kind))
        if kinds:
            return f"another configuration: {', '.join(kinds)}"
        names = [name for name in ("workflow", "decided_by") if before.get(name) != after.get(name)]
        return (
            ", ".join(f"{name} {before.get(name)!r} -> {after.get(name)!r}" for name in names) or "another first line"
        )
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
