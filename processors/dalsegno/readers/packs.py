"""A context pack as the model was shown it, with the texts behind its items as far as events hold them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from dalsegno.model.records import Event
from dalsegno.projections.base import RowId
from dalsegno.projections.context_packs import DROPPED, REMOVED, assembled
from dalsegno.projections.rows import ContextPackRow
from dalsegno.state.walk import Walk

PACKS: Final = "context_packs"
COMPRESSIONS: Final = "compressions"
CONTENT_CHARACTERS: Final = 64 * 1024
"""Of a text that an item stands for."""


@dataclass(frozen=True)
class PackItem:
    """``content``: the beginning of the text of the event that gave the item, None where no event here holds it;
    ``characters``: of the whole text."""

    row: ContextPackRow
    content: str | None
    characters: int


@dataclass(frozen=True)
class Pack:
    """What a model is shown from here on. ``missing``: the pack without which the items are not known. ``dropped``,
    ``removed``: of this pack's own difference to its base. ``rules``: of the compressions that made items, as far as
    they are known."""

    pack_id: str
    row: ContextPackRow
    items: tuple[PackItem, ...]
    dropped: tuple[ContextPackRow, ...]
    removed: tuple[ContextPackRow, ...]
    missing: str | None
    rules: Mapping[str, str]


def pack_of(walk: Walk, pack_id: str) -> Pack:
    """A pack that has a row where the walk stands, without the rules of its compressions."""

    def row_of(row_id: RowId) -> ContextPackRow | None:
        found: ContextPackRow | None = walk.row(PACKS, row_id)
        return found

    row = row_of((pack_id,))
    assert row is not None, "the pack was found by its row"
    found = assembled(pack_id, row_of)
    # By seq: items of one window stand together, and each window is read once.
    contents: dict[int, tuple[str | None, int]] = {}
    for seq in sorted({item.source_seq for item in found.items if item.source_seq is not None}):
        contents[seq] = content_of(walk.event(seq))
    items = (
        PackItem(item, *((None, 0) if item.source_seq is None else contents[item.source_seq])) for item in found.items
    )
    return Pack(
        pack_id,
        row,
        tuple(items),
        _members(row_of, (pack_id, DROPPED), row.dropped),
        _members(row_of, (pack_id, REMOVED), row.removed),
        found.missing,
        {},
    )


def with_rules(walk: Walk, pack: Pack) -> Pack:
    """A compression may say its rule only after the pack was built: what is known of it where the walk stands."""
    ids = {item.row.compression_id for item in pack.items}
    found = {id: walk.row(COMPRESSIONS, (id,)) for id in ids if id is not None}
    return replace(
        pack, rules={id: row.rule_id for id, row in sorted(found.items()) if row is not None and row.rule_id}
    )


def with_texts(pack: Pack, texts: Mapping[str, str]) -> Pack:
    """``texts``: by item, of those for which no event holds one."""
    items = (
        replace(item, content=text[:CONTENT_CHARACTERS], characters=len(text))
        if item.content is None and (text := texts.get(item.row.item_id or "")) is not None
        else item
        for item in pack.items
    )
    return replace(pack, items=tuple(items))


def _members(row_of: Callable[[RowId], ContextPackRow | None], prefix: RowId, count: int) -> tuple[ContextPackRow, ...]:
    return tuple(row for row in (row_of((*prefix, place)) for place in range(count)) if row is not None)


def content_of(event: Event) -> tuple[str | None, int]:
    """The texts in an event, one under the other, cut at CONTENT_CHARACTERS, and how long they are in all. None where
    it has none: it was erased, it lies in the store, or it is no text."""
    texts = [] if event.stub is not None else list(_texts({k: v for k, v in event.body.items() if k != "meta"}))
    if not texts:
        return None, 0
    text = "\n".join(texts)
    return text[:CONTENT_CHARACTERS], len(text)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, Mapping):
        if isinstance(value.get("text"), str):
            yield value["text"]
        if isinstance(value.get("inline"), bytes):
            try:
                yield value["inline"].decode()
            except UnicodeDecodeError:
                return
        for each in value.values():
            yield from _texts(each)
