"""The projection ``decider``: what the decisions of one session depend on, so that nobody folds its whole history to
go on with it. Pure.

Only a STRICT session has rows. A session of another profile was decided by the harness that recorded it: nobody reads
such rows, and each of its events would cost two rows' writing. A fork has none either, see ``fold.py``.
"""

from __future__ import annotations

from typing import Any, Final

from dalsegno.model.inbox import ASKABLE
from dalsegno.model.lifecycle.state import Verdict
from dalsegno.model.records import Event
from dalsegno.projections.base import Projection, Rows
from dalsegno.projections.decider.fold import FOLDS, fold_event
from dalsegno.projections.decider.rows import ROW

_CREATED: Final = "SessionCreated"
_NOTE: Final = "NoteRecorded"
"""What a command that was refused becomes: it is known by its id as those are that were taken."""


class Decider(Projection[Any]):
    name = "decider"
    version = 1
    handles = frozenset(FOLDS) | ASKABLE | {_CREATED, _NOTE}
    row = ROW
    public = False

    def fold(self, rows: Rows[Any], event: Event, _: Verdict) -> None:
        if event.type != _CREATED or event.body["profile"] == "STRICT":
            fold_event(rows, event)
