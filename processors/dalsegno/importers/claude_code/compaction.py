"""Where the harness made the conversation shorter, and what it kept. Pure."""

from __future__ import annotations

from typing import Any

from dalsegno.importers.claude_code.content import texts_in
from dalsegno.importers.claude_code.records import Native
from dalsegno.importers.payload import count
from dalsegno.importers.transcript import Transcript
from dalsegno.model.events import CompressionCompleted, CompressionStarted
from dalsegno.model.payloads import CompressionTrigger

_TRIGGERS: dict[str, CompressionTrigger] = {"auto": "THRESHOLD", "manual": "MANUAL"}


class Compaction:
    """The compressions of one session. ``boundary`` is one that waits for its summary.

    ``before``: those of the session that this is a fork of. What a fork's context holds of its parent is not followed.
    """

    def __init__(self, transcript: Transcript, before: Compaction | None = None) -> None:
        self._transcript = transcript
        self._last: str | None = None if before is None else before._last
        self._whole = before is None
        self.boundary: Native | None = None
        self._items: list[tuple[str | None, str]] = []

    def saw(self, uuid: str | None, item_id: str) -> None:
        """The model is shown this item from now on, which came with the line of this uuid."""
        self._items.append((uuid, item_id))

    def end(self, boundary: Native, summary: Native | None) -> None:
        """The boundary's summary came, or surely will not.

        It can be applied again only where the file says what was kept; where it does not, what the model was shown
        afterwards is not known.
        """
        previous, compression_id = self._last, self._transcript.builder.number("session/k")
        self._last = compression_id
        metadata = boundary.fields.take_object("compactMetadata")
        before = count(metadata.get("preTokens"))
        cause = None
        if summary is not None:
            started = CompressionStarted(
                compression_id=compression_id,
                trigger=_TRIGGERS.get(str(metadata.get("trigger")), "UNKNOWN"),
                tokens_before=before,
            )
            cause = self._transcript.add(started, boundary.source)
            summary.fields.take("isCompactSummary")
            summary.fields.take_inside("message", ("role", "content"))
        preserved = metadata.get("preservedMessages") if self._whole else None
        forgotten = [] if preserved is None else self._forget(preserved)
        text = None if summary is None else summary.text()
        event = CompressionCompleted(
            compression_id=compression_id,
            method="SUMMARY",
            effect="MARKER_ONLY" if preserved is None else "REAPPLIABLE",
            prev_compression_id=previous,
            tokens_before=before,
            forgotten=forgotten,
            summary=self._transcript.blobs.of_text(text) if text else None,
        )
        self._transcript.add(event, boundary.source if summary is None else summary.source, cause=cause)
        for name in metadata:
            if name not in ("preTokens", "trigger", "preservedMessages") or (name == "trigger" and summary is None):
                boundary.fields.drop(f"compactMetadata.{name}")

    def _forget(self, preserved: Any) -> list[str]:
        kept = set(texts_in(preserved))
        forgotten = list(dict.fromkeys(item for uuid, item in self._items if uuid not in kept))
        self._items = [each for each in self._items if each[0] in kept]
        return forgotten
