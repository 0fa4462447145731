"""How folds reach the decider's rows: by family and id, in a shard's rows or in memory alike. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Any, Final, Protocol

from dalsegno.model.lifecycle.state import bounded
from dalsegno.projections.base import RowId
from dalsegno.projections.decider.rows import HEAD, ITEM, Head, Item, Row

# Phases in a turn's place, so that no order of arrival decides what a model is shown first.
ANSWER: Final = 1
RESULTS: Final = 2
"""Behind the answer that asked for them, in the order of its calls."""
MEANWHILE: Final = 3
"""Messages that came during the turn."""
FINDINGS: Final = 4
"""Of the turn's answer, in the order of the validators."""
OUTPUT: Final = 5
ASKED: Final = 6
"""Retrievals and questions before the next stage attempt's turns, in the order of its document."""
BETWEEN: Final = 9
"""Messages that came while there was no turn."""

Keep = Callable[[bytes, bytes], None]
"""Is told of contents by their digest: what a fold renders, for whoever needs the bytes again."""


def forget(_digest: bytes, _content: bytes) -> None:
    """A ``Keep`` that keeps nothing: the fold of a shard needs digests alone."""


class DeciderRows(Protocol):
    """What a fold reads and writes of one session."""

    def get(self, row_id: RowId = ()) -> Any: ...

    def put(self, row_id: RowId, row: Any) -> None: ...

    def delete(self, row_id: RowId) -> None: ...


class MemoryRows:
    """The rows of one session in memory, by family: a decision looks at all calls of a turn, or all items."""

    def __init__(self) -> None:
        self.head_row: Head | None = None
        self.families: dict[str, dict[str, Any]] = {}

    def get(self, row_id: RowId = HEAD) -> Any:
        if not row_id:
            return self.head_row
        return self.families.get(str(row_id[0]), {}).get(str(row_id[1]))

    def put(self, row_id: RowId, row: Any) -> None:
        if not row_id:
            self.head_row = row
        else:
            self.families.setdefault(str(row_id[0]), {})[str(row_id[1])] = row

    def delete(self, row_id: RowId) -> None:
        self.families.get(str(row_id[0]), {}).pop(str(row_id[1]), None)

    def family(self, kind: str) -> dict[str, Any]:
        """Rows of one kind by id, in the order in which they came."""
        return self.families.get(kind, {})

    def all(self) -> Iterator[tuple[RowId, Row]]:
        """Every row, sorted by id."""
        if self.head_row is not None:
            yield HEAD, self.head_row
        for kind in sorted(self.families):
            for id in sorted(self.families[kind]):
                yield (kind, id), self.families[kind][id]


def put_item(
    rows: DeciderRows,
    head: Head,
    keep: Keep,
    *,
    id: str,
    seq: int,
    kind: str,
    content: bytes,
    turn: int,
    phase: int,
    index: int | None = None,
    name: str = "",
    compression_id: str = "",
    stage: str | None = None,
) -> None:
    """One item of the context. ``index`` None: behind what came before in that phase."""
    head.items += 1
    digest = sha256(content).digest()
    keep(digest, content)
    rows.put(
        (ITEM, bounded(id)),
        Item(
            id=bounded(id),
            seq=seq,
            place=(turn, phase, head.items if index is None else index),
            stage_id=head.stage if stage is None else stage,
            kind=kind,
            name=name,
            digest=digest,
            size=len(content),
            mode="SUMMARY" if kind == "SUMMARY" else "FULL",
            compression_id=compression_id,
        ),
    )


def learn(blob: Any, keep: Keep) -> bytes | None:
    """The digest of a content of an event, whose bytes are told of if they stand in it."""
    if blob is None:
        return None
    if blob["inline"] is not None:
        keep(blob["digest"], blob["inline"])
    digest: bytes = blob["digest"]
    return digest


def content_of(blob: Any) -> bytes:
    """The bytes of a content; where they are not in the event, a line that says so stands for them: the fold has no
    store, and what a model is shown must follow from the log alone."""
    if blob is None:
        return b""
    if blob["inline"] is not None:
        found: bytes = blob["inline"]
        return found
    text = f"[content of {blob['size']} bytes, {blob['media_type']}, sha256 {blob['digest'].hex()}, not shown]"
    return text.encode("utf-8", "replace")
