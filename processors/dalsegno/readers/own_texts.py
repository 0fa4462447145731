"""What dalsegno put into a pack of its own that no event holds as it was shown: system message, tools, and goal.

They follow from the pinned documents and the decider's rows at the pack. They are told only if the request that they
make has the digest that was recorded.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from dalsegno.errors import InvalidDocument, NotReconstructable
from dalsegno.model.records import Event
from dalsegno.orchestration import context
from dalsegno.orchestration.canonical import canonical
from dalsegno.orchestration.decider import MemoryContents, World, configuration_in_force
from dalsegno.orchestration.decider.packs import request
from dalsegno.projections.decider import rendering
from dalsegno.projections.decider.rows import ITEM, PACKED, PIN, Packed
from dalsegno.projections.decider.table import MemoryRows, learn
from dalsegno.readers.decided import decider_rows
from dalsegno.readers.packs import content_of
from dalsegno.state.reads import ShardReads

_GOAL: Final = "goal"
_AT_THE_PACK: Final = "pack/of-the-stage"
"""Stands for the inference that the pack is for: what is asked of an agent does not depend on its id."""


def own_texts(reads: ShardReads, session_id: str, seq: int, wanted: Collection[str]) -> Mapping[str, str]:
    """By the id of the item, for those that are wanted of the pack that was built at ``seq``. Nothing where no decider
    of dalsegno built it, or where what they follow from is not in the log any more."""
    rows = decider_rows(reads, session_id, seq)
    if rows.head_row is None or not rows.family(PIN):
        return {}
    try:
        found = _texts(rows, _contents(rows, reads.history(session_id)))
    except (NotReconstructable, InvalidDocument):
        return {}
    if found and not rows.head_row.forks:  # a fork's seqs are its parent's, too: whose an item's is, no row says
        for id, item in rows.family(ITEM).items():
            if id in wanted and id not in found:  # of an earlier stage: what it came to
                text, _ = content_of(next(reads.path(session_id, after=item.seq - 1, limit=1)))
                found[id] = text or ""
    return {id: text for id, text in found.items() if id in wanted}


def _texts(rows: MemoryRows, contents: MemoryContents) -> dict[str, str]:
    packed: dict[str, Packed] = rows.family(PACKED)
    items = [item for item in rows.family(ITEM).values() if item.id in packed]
    items.sort(key=lambda item: (item.place, item.id))
    rows.families[PACKED] = {}  # a request without its items, whose texts events hold
    world = World(rows, configuration_in_force(rows, contents), contents)
    asked = request(world, _AT_THE_PACK)
    system, tools = canonical(asked.messages[0]), [canonical(each) for each in asked.tools]
    said = [packed[item.id].digest for item in items]
    made = context.request_digest("AGENT", system, tools, said, asked.agent.model, asked.agent.params)
    if made != world.head.request_digest:
        return {}
    found = {context.SYSTEM: str(asked.messages[0]["content"])}
    if asked.tools:
        found[context.TOOLS] = json.dumps(asked.tools, ensure_ascii=False)
    if _GOAL in packed and world.head.goal is not None:
        found[_GOAL] = rendering.text_of(contents.get(world.head.goal))
    return found


def _contents(rows: MemoryRows, history: Iterable[Event]) -> MemoryContents:
    """The documents in force and the goal; they stand near the beginning, and nothing behind them is read."""
    contents = MemoryContents()
    head = rows.head_row
    wanted = {pin.digest for pin in rows.family(PIN).values()} | {None if head is None else head.goal}
    for event in history:
        if event.stub is None and event.type in ("SessionCreated", "ConfigPinned"):
            learn(event.body["goal" if event.type == "SessionCreated" else "content"], contents.keep)
            if wanted - {None} <= contents.found.keys():
                break
    return contents
