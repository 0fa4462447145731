"""The projection ``context_packs``: what a model was shown. Pure.

A pack is kept as its event gives it: as a difference to its base, one row per item that was added, removed or dropped.
``assembled`` puts a pack together again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from dalsegno.model.lifecycle import Verdict
from dalsegno.model.lifecycle.state import bounded, id_in
from dalsegno.model.records import Event
from dalsegno.projections.base import Projection, RowId, Rows, clock, cut, first, kept_id, put_members
from dalsegno.projections.rows import ContextPackRow, ItemSource

ITEM: Final = "item"
REMOVED: Final = "removed"
DROPPED: Final = "dropped"
COMPRESSIONS_LISTED: Final = 8

_SOURCES: Final = {
    "MessageReceived": "message_id",
    "InferenceCompleted": "inference_id",
    "ToolReceiptRecorded": "tool_call_id",
    "ToolCallFailed": "tool_call_id",
    "ToolCallRejected": "tool_call_id",
    "SubSessionEnded": "tool_call_id",
    "InputProvided": "request_id",
    "ContextItemRetrieved": "item_id",
    "CompressionCompleted": "compression_id",
}
"""Events that give an item, and the field that is its id."""


class ContextPacks(Projection[ContextPackRow]):
    name = "context_packs"
    version = 1
    handles = frozenset({"ContextPackBuilt", *_SOURCES})
    row = ContextPackRow
    private_row = ItemSource

    def fold(self, rows: Rows[ContextPackRow], event: Event, verdict: Verdict) -> None:
        if event.type == "ContextPackBuilt":
            _built(rows, event)
            return
        item_id = id_in(event.body, _SOURCES[event.type])
        if event.type == "SubSessionEnded":
            # It need not name the call that it closes; the rules know it by the child.
            item_id = next((id for _, id in verdict.closed), item_id)
        if item_id:
            source = ItemSource(type=event.type, seq=event.seq, uri=cut(event.body.get("source_uri")))
            rows.private.put((item_id,), source)


def _built(rows: Rows[ContextPackRow], event: Event) -> None:
    body, meta = event.body, event.meta
    pack_id = id_in(body, "pack_id")
    before = rows.get((pack_id,)) or ContextPackRow()
    items = [_item(rows, item) for item in body["added"]]
    removed = [ContextPackRow(kind="REMOVED", item_id=bounded(item_id)) for item_id in body["removed"]]
    dropped = [
        ContextPackRow(
            kind="DROPPED",
            item_id=bounded(drop["item_id"]),
            rule_id=kept_id(drop["rule_id"]),
            reason=cut(drop["reason"]),
        )
        for drop in body["dropped"]
    ]
    base_pack_id = id_in(body, "base_pack_id") or None
    base = ContextPackRow(items=0) if base_pack_id is None else rows.get((base_pack_id,)) or ContextPackRow()
    compressed = [item.compression_id for item in items if item.compression_id is not None]
    compressions, more = first(list(dict.fromkeys(compressed)), COMPRESSIONS_LISTED)
    row = ContextPackRow(
        seq=event.seq,
        built_at=clock(meta),
        stage_id=kept_id(meta.get("stage_id")),
        turn_id=kept_id(meta.get("turn_id")),
        base_pack_id=base_pack_id,
        items=None if base.items is None else base.items - len(removed) + len(items),
        added=len(items),
        removed=len(removed),
        dropped=len(dropped),
        compressed=len(compressed),
        compressions=compressions,
        more_compressions=more,
        token_total=body["token_total"],
        token_budget=body["token_budget"],
        fits=body["fits"],
        builder_version=cut(body["builder_version"]),
        tokenizer=cut(body["tokenizer"]),
        template_digest=body["template_digest"],
        tools_digest=body["tools_digest"],
        request_digest=body["request_digest"],
    )
    put_members(rows, (pack_id, ITEM), before.added, items)
    put_members(rows, (pack_id, REMOVED), before.removed, removed)
    put_members(rows, (pack_id, DROPPED), before.dropped, dropped)
    rows.put((pack_id,), row)


def _item(rows: Rows[ContextPackRow], item: Any) -> ContextPackRow:
    item_id = id_in(item, "item_id")
    source: ItemSource | None = rows.private.get((item_id,))
    return ContextPackRow(
        kind="ITEM",
        item_id=item_id,
        item_kind=item["kind"],
        mode=item["mode"],
        position=item["position"],
        tokens=item["tokens"],
        digest=item["digest"],
        compression_id=id_in(item, "compression_id") or None,
        source_type=None if source is None else source.type,
        source_seq=None if source is None else source.seq,
        source_uri=None if source is None else source.uri,
    )


# --- a whole pack -----------------------------------------------------------------------------------------------------


class Assembled(NamedTuple):
    """The items of a pack, in their order; or why they are not known, and then there are none."""

    items: list[ContextPackRow]
    missing: str | None = None
    """The id of the pack whose row is not here, or is not the one that was meant."""


def assembled(pack_id: str, row_of: Callable[[RowId], ContextPackRow | None]) -> Assembled:
    """A pack as the model was shown it: its base's items without those removed, each added one put in at its position.

    An added one that the base holds is that one changed, and moves: it stands once, as in
    ``orchestration.context.resulting``.

    ``row_of``: the session's rows of this projection. A fork that goes on from a pack of its parent has no row of it:
    then it is missing, and nothing is guessed.
    """
    steps: list[tuple[str, ContextPackRow]] = []
    wanted: str | None = bounded(pack_id)
    below: int | None = None
    while wanted is not None:
        pack = row_of((wanted,))
        # A pack is built on an earlier one; one that was built again since is not the one that was meant.
        if pack is None or pack.seq is None or (below is not None and pack.seq >= below):
            return Assembled([], wanted)
        steps.append((wanted, pack))
        wanted, below = pack.base_pack_id, pack.seq
    items: list[ContextPackRow] = []
    for id, pack in reversed(steps):
        put_in = sorted(_members(row_of, (id, ITEM), pack.added), key=_place)
        gone = {row.item_id for row in (*_members(row_of, (id, REMOVED), pack.removed), *put_in)}
        items = [item for item in items if item.item_id not in gone]
        for added in put_in:
            items.insert(_place(added), added)
    return Assembled(items)


def _place(item: ContextPackRow) -> int:
    return 0 if item.position is None else max(0, item.position)


def _members(row_of: Callable[[RowId], ContextPackRow | None], prefix: RowId, count: int) -> list[ContextPackRow]:
    return [row for row in (row_of((*prefix, n)) for n in range(count)) if row is not None]
