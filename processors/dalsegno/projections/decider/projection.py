"""The projection ``decider``: what the decisions of one session depend on, so that nobody folds its whole history to
go on with it. Pure.

Only a STRICT session has rows. A session of another profile was decided by the harness that recorded it: nobody reads
such rows, and each of its events would cost two rows' writing. A fork has none either, see ``fold.py``.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from dalsegno.model.inbox import ASKABLE
from dalsegno.model.lifecycle.state import Verdict
from dalsegno.model.records import Event
from dalsegno.projections.base import Projection, Rows
from dalsegno.projections.decider.fold import FOLDS, fold_event
from dalsegno.projections.decider.rows import ROW
from dalsegno.projections.decider.table import Keep, forget

_CREATED: Final = "SessionCreated"
_NOTE: Final = "NoteRecorded"
"""What a command that was refused becomes: it is known by its id as those are that were taken."""


class ContentPlace(Struct, array_like=True):
    """Where a content can be had: by folding the event at ``seq`` once more, whose fold tells of it."""

    seq: int


class Decider(Projection[Any]):
    """``keep`` is told of contents, as ``fold_event`` tells of them. The private rows are their places, by digest in
    hex: rows name contents by digests alone, and whoever goes on with a session needs those that they name."""

    name = "decider"
    version = 2
    handles = frozenset(FOLDS) | ASKABLE | {_CREATED, _NOTE}
    row = ROW
    private_row = ContentPlace
    public = False

    def __init__(self, keep: Keep = forget) -> None:
        self._keep = keep

    def fold(self, rows: Rows[Any], event: Event, _: Verdict) -> None:
        if event.type != _CREATED or event.body["profile"] == "STRICT":

            def keep(digest: bytes, content: bytes) -> None:
                rows.private.put((digest.hex(),), ContentPlace(event.seq))
                self._keep(digest, content)

            fold_event(rows, event, keep)
