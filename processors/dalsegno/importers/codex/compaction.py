"""Where Codex made the history of a session shorter. Pure."""

from __future__ import annotations

from dalsegno.importers.codex.records import MAPPED, NOTE, REPEAT, Native, Outcome
from dalsegno.importers.payload import count
from dalsegno.importers.transcript import Transcript
from dalsegno.model.events import CompressionCompleted


class Compactions:
    """The compressions of one session."""

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self._last: str | None = None
        self._untold = 0
        """How many of them watchers have not been told of."""

    def compacted(self, native: Native) -> Outcome:
        """The history that a model is shown from now on, whole; older versions only say what it was summed up as."""
        fields, blobs = native.fields, self._transcript.blobs
        previous, self._last = self._last, self._transcript.builder.number("session/k")
        history, summary = fields.take("replacement_history"), fields.take_text("message")
        whole = isinstance(history, list)
        replacement = blobs.of_json(history) if whole else None
        event = CompressionCompleted(
            compression_id=self._last,
            method="REPLACE_HISTORY" if whole else "SUMMARY",
            effect="REAPPLIABLE" if whole else "MARKER_ONLY",
            prev_compression_id=previous,
            window_number=count(fields.take("window_number")),
            output_digest=None if replacement is None else replacement.digest,
            summary=blobs.of_text(summary) if summary else None,
            replacement=replacement,
        )
        self._transcript.add(event, native.source)
        self._untold += 1
        return MAPPED

    def told(self, _: Native) -> Outcome:
        """Tells watchers of the ``compacted`` before it."""
        if not self._untold:
            return NOTE
        self._untold -= 1
        return REPEAT
