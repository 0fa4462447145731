"""The history of a recorded session of which a golden reference can be made, or why none can."""

from __future__ import annotations

from typing import NoReturn

from dalsegno.errors import Conflict
from dalsegno.model.lifecycle.tables import STRICT
from dalsegno.model.records import Event
from dalsegno.readers.lineage import counting_events
from dalsegno.readers.local import LocalReader
from dalsegno.readers.sessions import Found
from dalsegno.replay.serving import INEXACT, served_as


def golden_history(reader: LocalReader, found: Found, *, allow_tainted: bool = False) -> list[Event]:
    """All events that count, with what a fork takes over. Raises Conflict for a session that no decider decided, that
    is not known to its end here, that does not hold all that was decided on, or that is tainted."""
    name, row = found.session_id, found.row
    if row.held_reason is not None:
        _refuse(
            name, f"is held at seq {row.held_seq}: {row.held_reason}", "repair what holds it ('dalsegno session list')"
        )
    history = list(counting_events(reader, name))
    for event in history:
        where = f"seq {event.seq}" if event.session_id == name else f"seq {event.seq} of {event.session_id}"
        if event.stub is not None:
            _refuse(name, f"was amended: the {event.type} at {where} is {event.stub.lower()}", "choose another session")
        if event.type == "CompressionCompleted" and event.body["effect"] == "MARKER_ONLY":
            found_here = f"says of the compression at {where} only that it happened"
            _refuse(name, found_here, "choose a session that recorded what was forgotten")
        if not allow_tainted and served_as(event) == INEXACT:
            _refuse(
                name,
                f"is tainted: the result at {where} was served inexactly",
                "choose a recorded session, or add --allow-tainted",
            )
    kinds = {event.body["kind"] for event in history if event.type == "ConfigPinned"}
    started = any(event.type == "SessionStarted" for event in history)
    if row.profile != STRICT or "HARNESS_BUILD" not in kinds or not started:
        _refuse(
            name, "was not decided by dalsegno", "choose a session of 'dalsegno run', or of a harness with its decider"
        )
    return history


def _refuse(session_id: str, found: str, todo: str) -> NoReturn:
    raise Conflict(
        f"session {session_id} {found}",
        wanted="a session whose record holds all that its decisions follow from",
        todo=todo,
        session=session_id,
    )
