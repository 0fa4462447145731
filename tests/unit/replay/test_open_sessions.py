"""Sessions whose log ends in the middle: what their rows say of what is open, and that a replay comes to the same."""

from __future__ import annotations

from typing import Any

from dalsegno.harness.past import StoredContents
from dalsegno.projections.base import values_of
from dalsegno.replay.session_replay import Asked, replay_session
from dalsegno.replay.strategy import Strategy
from dalsegno.state.reads import ShardReads
from dalsegno.testing.builder import SessionBuilder
from decider_lab import APPROVE, Scene, check_log
from replay_lab import records_of
from shard_lab import folded, reads

C0, C1 = "work.1/t1/c0", "work.1/t1/c1"
WRITE = ("write", {"n": 1})
MODES = ("inference-skipping", "full", "simulation")


def rows_of(scene: Scene) -> ShardReads:
    """Folded from its records; a fold that keeps a rung every two events gives the same."""
    records = records_of("s", scene.events).records
    found = reads(folded(records))
    for name in ("approvals", "tools", "sessions"):
        assert list(reads(folded(records, window_events=2)).rows(name, "s")) == list(found.rows(name, "s"))
    return found


def call(scene: Scene, id: str = C0) -> dict[str, Any]:
    return values_of(rows_of(scene).row("tools", "s", (id,)))


def replays_alike(scene: Scene) -> None:
    """In every mode, without ports: nothing runs, nobody is asked, and every decision is the recorded one."""
    check_log(scene)
    for mode in MODES:
        found = replay_session(Asked(scene.events, Strategy(mode=mode), contents=StoredContents(None)))
        assert (found.verdict, found.divergences) == ("EQUAL", [])
        assert (found.counts.rerun, found.counts.simulated, found.counts.inexact) == (0, 0, 0)


# case C37
def test_of_two_approvals_the_answered_one_alone_is_granted_in_the_replay_too() -> None:
    scene = Scene(policy=[APPROVE])
    scene.answer("", WRITE, ("write", {"n": 2}))
    scene.grant(f"{C1}/a1")
    replays_alike(scene)
    approvals = {id: row.status for id, row in rows_of(scene).rows("approvals", "s")}
    assert approvals == {(f"{C0}/a1",): "OPEN", (f"{C1}/a1",): "GRANTED"}
    assert (call(scene, C0)["status"], call(scene, C1)["status"]) == ("REQUESTED", "AUTHORIZED")


# case C38
def test_leave_is_not_used_up_by_a_start_that_failed() -> None:
    scene = Scene(policy=[APPROVE])
    scene.answer("", WRITE)
    scene.grant(f"{C0}/a1")
    assert (call(scene)["status"], call(scene)["attempts"]) == ("AUTHORIZED", 0), "approved, not started"
    scene.start(C0)
    assert scene.no_result(C0, "INFRA", not_started=True) == [f"ToolRetryDecided {C0}"], "nobody is asked again"
    replays_alike(scene)
    scene.run(C0)
    assert (call(scene)["status"], call(scene)["attempts"]) == ("OK", 2)
    assert [event.type for event in scene.events].count("ApprovalRequested") == 1
    replays_alike(scene)


# case C40
def test_a_call_without_a_receipt_is_in_doubt_until_its_late_receipt() -> None:
    scene = Scene()
    scene.answer("", WRITE)
    scene.start(C0)
    assert (call(scene)["status"], call(scene)["receipts"]) == ("STARTED", 0)
    replays_alike(scene)
    scene.no_result(C0, "UNKNOWN_OUTCOME")
    assert (call(scene)["status"], call(scene)["in_doubt"]) == ("UNKNOWN_OUTCOME", 1)
    replays_alike(scene)
    scene.result(C0, "it did run")
    assert (call(scene)["status"], call(scene)["in_doubt"], call(scene)["receipts"]) == ("OK", 0, 1)
    scene.answer("done")
    replays_alike(scene)


# case C40
def test_a_receipt_without_a_call_is_an_orphan_and_later_turns_go_on() -> None:
    builder = SessionBuilder("s", profile="OBSERVED").begin()
    builder.append("ToolReceiptRecorded", tool_call_id="nobody", attempt=1, status="OK", receipt_id="r")
    assert builder.verdicts[-1].violations
    for turn in ("t1", "t2"):
        builder.append("TurnStarted", turn_id=turn)
        builder.append("ToolCallRequested", tool_call_id=f"{turn}/c", name="n")
        builder.append("ToolCallAuthorized", tool_call_id=f"{turn}/c", basis="POLICY_ALLOW")
        builder.append("ToolCallStarted", tool_call_id=f"{turn}/c", attempt=1)
        builder.append("ToolReceiptRecorded", tool_call_id=f"{turn}/c", attempt=1, status="OK", receipt_id=turn)
        builder.append("TurnCompleted", turn_id=turn)
    assert sum(bool(verdict.violations) for verdict in builder.verdicts) == 1
    found = reads(folded(builder.records))
    assert {id: row.status for id, row in found.rows("tools", "s")} == {
        ("nobody",): "ORPHAN", ("t1/c",): "OK", ("t2/c",): "OK",
    }  # fmt: skip
    assert (found.row("sessions", "s").turns, found.row("sessions", "s").violations) == (2, 1)
