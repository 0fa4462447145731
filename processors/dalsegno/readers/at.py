"""What a session was at one of its events."""

from __future__ import annotations

from dalsegno.readers.local import LocalReader
from dalsegno.readers.sessions import Found
from dalsegno.state.at import SessionAt


def session_at(reader: LocalReader, found: Found, seq: int) -> SessionAt:
    """The session when the event at ``seq`` had been folded. Raises NotFound where its path has none."""
    return reader.reading(lambda: found.view.reads.at(found.session_id, seq))
