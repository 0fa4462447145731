"""What a session was at one of its events."""

from __future__ import annotations

from dalsegno.errors import StoreDamaged
from dalsegno.readers.local import LocalReader
from dalsegno.readers.sessions import Found
from dalsegno.state.at import SessionAt


def session_at(reader: LocalReader, found: Found, seq: int) -> SessionAt:
    """The session when the event at ``seq`` had been folded. Raises NotFound where its path has none.

    An event of a schema that this build does not have is read with the one in the log's schema topic; only then is a
    broker asked.
    """
    reads = found.view.reads
    try:
        return reads.at(found.session_id, seq)
    except StoreDamaged:
        if not reader.learn_schemas():
            raise
        return reads.at(found.session_id, seq)
