"""Decided sessions as records of a log, for replays over the shards of a machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from dalsegno.errors import NotReconstructable
from dalsegno.model.records import Event
from dalsegno.orchestration.documents import StageLimits
from dalsegno.replay.replayed import Replayed
from dalsegno.testing.builder import SessionBuilder
from decider_lab import APPROVE, Scene, stage


def decided(turns: int = 2, *, approve: bool = False) -> list[Event]:
    """A session that looks and writes in each turn but the last, in which it is done. ``approve``: somebody is asked
    before each write."""
    found = Scene(
        [stage(validators=["said"], limits=StageLimits(turns=turns + 1))], policy=[APPROVE] if approve else []
    )
    for number in range(1, turns):
        found.answer("", ("look", {"what": f"a{number}"}), ("write", {"n": number}))
        found.run(f"work.1/t{number}/c0")
        if approve:
            found.grant(f"work.1/t{number}/c1/a1")
        found.run(f"work.1/t{number}/c1")
    found.answer("done")
    assert found.events[-1].type == "SessionCompleted"
    return found.events


def altered(events: list[Event]) -> list[Event]:
    """Another decision than the decider's stands in the recording."""
    for event in events:
        if event.type == "PolicyEvaluated":
            event.body["explanation"] = "because"
    return events


def records_of(session_id: str, events: Sequence[Event]) -> SessionBuilder:
    """These events as records of a session of this name."""
    builder = SessionBuilder(session_id, profile="STRICT")
    for event in events:
        body = {field: value for field, value in event.body.items() if field != "meta"}
        builder.append(event.type, meta={"origin": event.meta["origin"]}, **body)
    assert [verdict for verdict in builder.verdicts if verdict.violations] == []
    return builder


# --- what processes are told to do: functions of a module that they find ----------------------------------------------


def failing(told: str) -> Callable[[str], Replayed]:
    """Refuses this session."""

    def one(session_id: str) -> Replayed:
        if session_id == told:
            raise NotReconstructable("gone", wanted="it", todo="look", seq=3)
        return Replayed(session_id, "full", "")

    return one


def dying(_told: str) -> Callable[[str], Replayed]:
    return lambda _session_id: os._exit(1)
