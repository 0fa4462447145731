"""What a step has to show: as lines for people, and as a record for programs. Text of sessions cannot act here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from dalsegno.cli.answers import row_values
from dalsegno.cli.event_text import text_lines
from dalsegno.cli.output import cell, visible
from dalsegno.cli.session_lines import json_step, mark, step_line
from dalsegno.projections.rows import ContextPackRow
from dalsegno.readers.breakpoints import Breakpoint
from dalsegno.readers.packs import Pack, PackItem
from dalsegno.readers.sessions import Step as Judged
from dalsegno.readers.stepping import Step
from dalsegno.state.walk import Change

EVENT_CHARACTERS: Final = 64 * 1024
ITEMS_SHOWN: Final = 400
CHANGES_SHOWN: Final = 40
_CONTENT_CHARACTERS: Final = 120
_VALUE_CHARACTERS: Final = 40


class View(NamedTuple):
    data: dict[str, Any]
    lines: Sequence[str]


def moved_view(step: Step, *, moved: bool, told: Sequence[str] = ()) -> View:
    """The event, what is open, and what the event changed. ``told``: what a breakpoint could not tell."""
    data = {
        **_place(step),
        "moved": moved,
        "event": json_step(Judged(step.event, step.verdict)),
        "open": [{"kind": kind, "id": id} for kind, id in step.open],
        "changes": [_json_change(each) for each in step.changes],
        "untold": list(told),
    }
    lines = [step_line(Judged(step.event, step.verdict))]
    lines += [f"  open     {kind:<12}  {cell(id)}" for kind, id in step.open[:CHANGES_SHOWN]]
    lines += _more(len(step.open), CHANGES_SHOWN)
    lines += [_change_line(step, each) for each in step.changes[:CHANGES_SHOWN]]
    lines += _more(len(step.changes), CHANGES_SHOWN)
    lines += [mark(visible(f"  not told  {each}")) for each in told]
    return View(data, lines)


def event_view(step: Step) -> View:
    judged = json_step(Judged(step.event, step.verdict))
    fields = {"seq": step.seq, "type": step.event.type, "hash": step.event.hash, **step.event.body}
    return View({**_place(step), "event": judged}, list(_gated(text_lines(fields), EVENT_CHARACTERS)))


def state_view(step: Step) -> View:
    row = {} if step.state is None else row_values(step.state)
    held = [{"kind": kind, "id": id} for kind, id in step.open]
    shown = {name: value for name, value in row.items() if value not in (None, 0, "", [])}
    width = max(map(len, shown), default=0)
    lines = [f"{name:<{width}}  {cell(value, 400)}" for name, value in shown.items()]
    lines += [f"  open     {kind:<12}  {cell(id)}" for kind, id in step.open]
    return View({**_place(step), "state": row, "open": held}, lines)


def validations_view(step: Step) -> View:
    found = step.validations
    newest = [{"validation": id, **row_values(row)} for id, row in found.newest]
    total = sum(found.outcomes.values())
    lines = ["  ".join(f"{visible(name)} {count}" for name, count in found.outcomes.items()) or "no validation so far"]
    for id, row in found.newest:
        verdict = row.verdict or f"({row.status})"
        amended = f"  was {row.decided_verdict}" if row.amendments and row.decided_verdict != row.verdict else ""
        score = "" if row.score is None else f"  score {row.score}"
        lines.append(f"  {cell(id):<24}  {cell(row.validator):<20}  {visible(verdict + score + amended)}")
    lines += _more(total, len(found.newest))
    return View({**_place(step), "outcomes": dict(found.outcomes), "validations": newest, "in_all": total}, lines)


def breakpoints_view(step: Step, known: Sequence[Breakpoint]) -> View:
    texts = [each.text for each in known]
    lines = [f"{number:>3}  {visible(text)}" for number, text in enumerate(texts, 1)] or ["no breakpoint"]
    return View({**_place(step), "breakpoints": texts}, lines)


# --- the context pack -------------------------------------------------------------------------------------------------


def pack_view(step: Step, pack: Pack | None) -> View:
    if pack is None:
        return View({**_place(step), "pack": None}, ["no context pack was built so far"])
    data = {
        "pack_id": pack.pack_id,
        **row_values(pack.row),
        "missing": pack.missing,
        "items": [_json_item(pack, each) for each in pack.items],
        "dropped_items": [
            {"item_id": each.item_id, "rule_id": each.rule_id, "reason": each.reason} for each in pack.dropped
        ],
        "removed_items": [each.item_id for each in pack.removed],
    }
    return View({**_place(step), "pack": data}, list(_pack_lines(pack)))


def _json_item(pack: Pack, item: PackItem) -> dict[str, Any]:
    row = item.row
    return {
        "item_id": row.item_id,
        "kind": row.item_kind,
        "mode": row.mode,
        "tokens": row.tokens,
        "digest": row.digest,
        "compression_id": row.compression_id,
        "rule_id": pack.rules.get(row.compression_id or ""),
        "source_type": row.source_type,
        "source_seq": row.source_seq,
        "content": item.content,
        "content_characters": item.characters,
    }


def _pack_lines(pack: Pack) -> Iterator[str]:
    row = pack.row
    fits = "" if row.fits else "  DOES NOT FIT"
    built = f"built at {row.seq} by {cell(row.builder_version)}"
    base = "" if row.base_pack_id is None else f", on {cell(row.base_pack_id)}"
    yield f"pack {cell(pack.pack_id)}  {built}{base}  tokens {row.token_total} of {cell(row.token_budget)}{fits}"
    if pack.missing is not None:
        yield mark(f"  its items are not known: pack {cell(pack.missing)} is not in this session as it was meant")
    for place, item in enumerate(pack.items[:ITEMS_SHOWN]):
        yield _item_line(pack, place, item)
    yield from _more(len(pack.items), ITEMS_SHOWN)
    for each in pack.dropped[:ITEMS_SHOWN]:
        yield f"  dropped  {cell(each.item_id)}  rule {cell(each.rule_id)}  {cell(each.reason, _CONTENT_CHARACTERS)}"
    yield from _more(len(pack.dropped), ITEMS_SHOWN)
    for each in pack.removed[:ITEMS_SHOWN]:
        yield f"  removed  {cell(each.item_id)}  since the base pack"
    yield from _more(len(pack.removed), ITEMS_SHOWN)


def _item_line(pack: Pack, place: int, item: PackItem) -> str:
    row: ContextPackRow = item.row
    parts = [
        f"{place:>4}",
        f"{cell(row.mode):<10}",
        f"{cell(row.item_kind):<14}",
        f"{cell(row.tokens):>6}",
        cell(row.digest),
        cell(row.item_id),
    ]
    if row.compression_id is not None:
        parts.append(f"by {cell(row.compression_id)}, rule {cell(pack.rules.get(row.compression_id))}")
    if row.source_seq is not None:
        parts.append(f"from {row.source_seq} {cell(row.source_type)}")
    if item.content is not None:
        more = f" ({item.characters} characters)" if item.characters > _CONTENT_CHARACTERS else ""
        parts.append(f"{cell(item.content, _CONTENT_CHARACTERS)}{more}")
    return "  ".join(parts)


# --- parts ------------------------------------------------------------------------------------------------------------


def _place(step: Step) -> dict[str, Any]:
    return {"session": step.session_id, "seq": step.seq, "end": step.end}


def _json_change(change: Change) -> dict[str, Any]:
    before, after = (None if row is None else row_values(row) for row in (change.before, change.after))
    return {"projection": change.projection, "id": list(change.id), "before": before, "after": after}


def _change_line(step: Step, change: Change) -> str:
    before = {} if change.before is None else row_values(change.before)
    after = {} if change.after is None else row_values(change.after)
    name = cell(" ".join(map(str, change.id)) or step.session_id)
    what = " (new)" if change.before is None else " (gone)" if change.after is None else ""
    fields = (
        [] if change.after is None else [_field(each, before, after) for each in after if _differs(each, before, after)]
    )
    return f"  changed  {change.projection}  {name}{what}  {', '.join(fields)}".rstrip()


def _differs(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """A new row shows what is set in it."""
    return before[name] != after[name] if before else after[name] not in (None, 0, "", [], False)


def _field(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    now = cell(after[name], _VALUE_CHARACTERS)
    return f"{name} {cell(before[name], _VALUE_CHARACTERS)} -> {now}" if before else f"{name} {now}"


def _gated(lines: Iterator[str], characters: int) -> Iterator[str]:
    """The lines up to so many characters, and that there are more."""
    left = characters
    for line in lines:
        if len(line) > left:
            yield line[:left]
            yield f"(cut at {characters} characters; see 'dalsegno event show')"
            return
        left -= len(line)
        yield line


def _more(count: int, shown: int) -> list[str]:
    return [f"  and {count - shown} more"] if count > shown else []


VIEWS: Final[Mapping[str, Callable[[Step], View]]] = {
    "event": event_view,
    "state": state_view,
    "validations": validations_view,
}
