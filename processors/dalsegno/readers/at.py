"""What a session was at one of its events, and which of them it had come to at a time."""

from __future__ import annotations

from dalsegno.errors import NotFound
from dalsegno.model.records import FIRST_SEQ
from dalsegno.readers.local import LocalReader
from dalsegno.readers.sessions import Found
from dalsegno.state.at import SessionAt


def session_at(reader: LocalReader, found: Found, seq: int) -> SessionAt:
    """The session when the event at ``seq`` had been folded. Raises NotFound where its path has none."""
    return reader.reading(lambda: found.view.reads.at(found.session_id, seq))


def seq_at(reader: LocalReader, found: Found, micros: int) -> int:
    """The seq that the session had come to at a time (microseconds since 1970): the last event before the first that
    its writer recorded after it.

    By ``recorded_at`` alone, which no writer lets fall, never by what producers say of when something happened. So the
    answer is a prefix, and stays the same once there is an event of after the time. An erased event has no time any
    more, and goes with the one before it. Raises NotFound where the session began after the time.
    """
    seq = reader.reading(lambda: _seq_before(found, micros))
    if seq < FIRST_SEQ:
        raise NotFound(
            f"session {found.session_id} had no event then",
            wanted="a time at which it had begun",
            todo=f"see 'dalsegno session show {found.session_id}'",
            session=found.session_id,
        )
    return seq


def _seq_before(found: Found, micros: int) -> int:
    seq = FIRST_SEQ - 1
    for event in found.view.reads.path(found.session_id):
        if (event.meta.get("recorded_at") or 0) > micros:
            break
        seq = event.seq
    return seq
