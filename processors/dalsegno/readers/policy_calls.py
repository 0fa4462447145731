"""The tool calls of chosen sessions, as policies are tried on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dalsegno.errors import BlobDamaged, BlobMissing, NotFound
from dalsegno.orchestration.policy_history import RecordedCall, calls_of
from dalsegno.readers.datasets.choosing import Wanted, chosen
from dalsegno.readers.lineage import counting_events
from dalsegno.readers.local import LocalReader
from dalsegno.storage.blobs import Blobs


class RecordedCalls:
    """Read once, session after session; none is kept. ``sessions``, ``held``: how many were read so far, and how many
    of them only up to where they are held."""

    def __init__(self, reader: LocalReader, blobs: Blobs, wanted: Wanted, tell: Callable[[int], None]) -> None:
        self._reader, self._blobs, self._wanted, self._tell = reader, blobs, wanted, tell
        self.sessions = self.held = 0

    def __iter__(self) -> Iterator[RecordedCall]:
        """Raises NotFound where no session is chosen: that nothing differs would say nothing."""
        for found in chosen(self._reader, self._wanted):
            yield from calls_of(found.session_id, counting_events(self._reader, found.session_id), self._content)
            self.sessions += 1
            self.held += found.row.held_reason is not None
            self._tell(self.sessions)
        if not self.sessions:
            raise NotFound(
                "no session is chosen", wanted="sessions that all conditions hold for", todo="choose by less"
            )

    def _content(self, blob: Mapping[str, Any]) -> bytes | None:
        try:
            return self._blobs.get(blob)
        except (BlobMissing, BlobDamaged):
            return None
