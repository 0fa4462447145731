"""What nobody asked for comes in a run where it came in the recording: behind what it followed, whoever answers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from dalsegno import events as kinds
from dalsegno.harness import facts
from dalsegno.model.records import Event
from dalsegno.orchestration.ports import Answer
from dalsegno.replay.compared import compare_run
from dalsegno.replay.strategy import Strategy
from decider_lab import Scene, stage
from rerun_lab import STOP, Counted, Same, again, deny

RERUN = Strategy(inference="rerun", on_miss="stop")


def noted() -> list[Event]:
    """A note while the second call runs, a message behind the first turn's results, a note at the end."""
    found = Scene([stage(validators=["said"])])
    found.answer("", ("look", {"what": "a"}), ("write", {"n": 1}))
    found.run("work.1/t1/c0")
    found.start("work.1/t1/c1")
    found.tell(kinds.NoteRecorded(kind="hint", data=facts.content(b"it takes long")))
    found.message("be quick", id="quick")
    found.result("work.1/t1/c1")
    found.answer("", ("write", {"n": 2}))
    found.start("work.1/t2/c0")
    found.tell(kinds.NoteRecorded(kind="hint", data=facts.content(b"nearly done")))
    found.result("work.1/t2/c0")
    found.answer("done")
    assert found.events[-1].type == "SessionCompleted"
    return found.events


def behind(events: Sequence[Event], type_: str) -> list[tuple[str, str]]:
    """What each event of the type came behind: type, and the call or inference that it is about."""
    found = []
    for before, event in pairwise(events):
        if event.type == type_ and before.type not in ("NoteRecorded", "MessageReceived"):
            found.append((before.type, before.body.get("tool_call_id") or before.body.get("inference_id") or ""))
    return found


def test_a_note_comes_behind_what_it_followed_though_a_model_is_asked_again() -> None:
    recorded = noted()
    found = again(recorded, RERUN, ports=Same(recorded).ports)
    assert found.ended
    for type_ in ("NoteRecorded", "MessageReceived"):
        assert behind(found.events, type_) == behind(recorded, type_)
    assert [e.type for e in found.events if e.type == "MessageReceived"] == ["MessageReceived"]
    # A message that came early would be in another prompt.
    assert compare_run(recorded, found.events).divergences == []


def test_a_note_comes_once_the_run_is_past_its_place() -> None:
    recorded = noted()
    found = again(recorded, STOP, override=deny("write"))
    types = [event.type for event in found.events]
    assert types.count("NoteRecorded") == 2
    assert types.count("MessageReceived") == 1
    turns = [place for place, event in enumerate(found.events) if event.type == "TurnStarted"]
    first, second = [place for place, event in enumerate(found.events) if event.type == "NoteRecorded"]
    assert turns[0] < first < turns[2]
    assert turns[1] < second


def test_a_run_that_ends_before_a_notes_place_does_without_it() -> None:
    recorded = noted()
    found = again(recorded, RERUN, ports=Counted("done").ports)
    assert found.events[-1].type == "SessionCompleted"
    assert "NoteRecorded" not in [event.type for event in found.events]


def test_what_wakes_a_session_comes_where_nothing_else_is_left_to_do() -> None:
    """It was resumed behind a call that this run does not make."""
    found = Scene([stage(validators=["said"])])
    found.answer("", ("look", {"what": "a"}), ("look", {"what": "b"}))
    found.run("work.1/t1/c0")
    found.tell(kinds.SessionPaused(reason="lunch"))
    found.run("work.1/t1/c1")
    found.tell(kinds.SessionResumed())
    found.answer("done")
    recorded = found.events
    one = Answer(text="", calls=Same(recorded).answers["work.1/t1/i"].calls[:1])
    run = again(recorded, RERUN, ports=Same(recorded, {"work.1/t1/i": one}).ports)
    types = [event.type for event in run.events]
    assert types[-1] == "SessionCompleted", run.stopped
    assert types.index("SessionPaused") < types.index("SessionResumed")
