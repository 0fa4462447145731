"""A projection of your own: how many notes of each kind a session holds.

``pip install ./examples`` registers it by the entry point in ``pyproject.toml`` here: from then on ``dalsegno topic
apply`` makes its topic, ``<prefix>.projection.notes.v1``, and every worker that starts folds it, old events included.
"""

from msgspec import Struct

from dalsegno import Event, Projection, Rows, Verdict


class NoteCount(Struct, array_like=True, kw_only=True, forbid_unknown_fields=True):
    notes: int = 0
    last_at: int | None = None  # microseconds since 1970, UTC


class Notes(Projection[NoteCount]):
    name = "notes"
    version = 1  # one higher whenever the fold gives other rows for the same events
    handles = frozenset({"NoteRecorded"})
    row = NoteCount

    def fold(self, rows: Rows[NoteCount], event: Event, verdict: Verdict) -> None:
        kind = event.body["kind"][:100]  # a text from outside may be of any length
        row = rows.get((kind,)) or NoteCount()
        row.notes += 1
        row.last_at = event.meta["recorded_at"]
        rows.put((kind,), row)
