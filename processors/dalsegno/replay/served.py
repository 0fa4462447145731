"""Recorded facts as events to append to a run: at what is open there, with the attempt that it has there. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from dalsegno.model import events as event_classes
from dalsegno.model.events import NewEvent
from dalsegno.model.lifecycle.state import bounded
from dalsegno.model.records import Event
from dalsegno.orchestration.recovery import resolutions
from dalsegno.projections.decider.rows import CALL, INFERENCE
from dalsegno.projections.decider.table import MemoryRows
from dalsegno.replay.serving import ANSWERS, RESULTS, Served


def fact(served: Served, rows: MemoryRows) -> NewEvent:
    """The recorded payload, for the call or the inference that it is served to."""
    event, body = served.event, _said(served.event)
    if event.type in RESULTS:
        body["tool_call_id"] = served.target
        waiting = rows.get((CALL, served.target))
    elif event.type in ANSWERS:
        body["inference_id"] = served.target
        waiting = rows.get((INFERENCE, served.target))
    else:
        return new_event(event.type, body)
    if "attempt" in body:
        body["attempt"] = waiting.attempt
    return new_event(event.type, body)


def recovered(event: Event, rows: MemoryRows, last: Event) -> NewEvent:
    """A crash of then: what was open is settled anew, by what is open now. A crash comes in the midst of deciding: what
    was asked for only behind it was not lost with it. ``last``: the run's last event."""
    lost = {(entry["kind"], bounded(entry["id"])) for entry in event.body["in_flight"]}
    settled = {each: how if each in lost else "KEEP_WAITING" for each, how in resolutions(rows).items()}
    body = _said(event)
    body["last_good"] = {"seq": last.seq, "hash": last.hash, "event_id": None}
    body["in_flight"] = [{"kind": kind, "id": id, "resolution": how} for (kind, id), how in sorted(settled.items())]
    return new_event("SessionRecovered", body)


def new_event(type_: str, body: Mapping[str, Any]) -> NewEvent:
    """A recorded payload as an event to append."""
    class_ = getattr(event_classes, type_)
    names = set(class_.__struct_fields__)
    made: NewEvent = msgspec.convert(
        {name: value for name, value in body.items() if name in names}, class_, builtin_types=(bytes,), strict=False
    )
    return made


def _said(event: Event) -> dict[str, Any]:
    return {name: value for name, value in event.body.items() if name != "meta"}
