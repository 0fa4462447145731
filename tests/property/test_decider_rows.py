"""The decider's rows: its fold is total over any events, what it changes it puts, and no row grows without bound."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings

from dalsegno.model.inbox import ASKABLE
from dalsegno.model.lifecycle import Verdict
from dalsegno.projections.decider.fold import FOLDS, fold_event
from dalsegno.projections.decider.projection import Decider
from dalsegno.projections.decider.rows import HEAD, ITEM, LISTED, ROW, Head
from dalsegno.projections.decider.table import MemoryRows
from dalsegno.testing.builder import SessionBuilder
from examples import examples
from fold_lab import BODIES, check_kept, event_of, events_for
from plain_rows import PlainRows

DECIDER = Decider()


def folded(builder: SessionBuilder) -> MemoryRows:
    rows = MemoryRows()
    for event in builder.events:
        fold_event(rows, event)
    return rows


@settings(deadline=None, max_examples=examples(80), suppress_health_check=list(HealthCheck))
@given(created=BODIES["SessionCreated"], events=events_for(DECIDER))
def test_any_events_make_rows_that_can_be_kept(
    created: dict[str, Any], events: list[tuple[str, dict[str, Any], bool]]
) -> None:
    """``PlainRows`` gives copies: what a fold changes and does not put is lost there, and in memory it is not."""
    created = {**created, "profile": "STRICT", "relation": "NONE"}
    plain, memory = PlainRows(), MemoryRows()
    for seq, (type_, body, _) in enumerate([("SessionCreated", created, False), *events], 1):
        DECIDER.fold(plain, event_of(seq, type_, body, False), Verdict())
        fold_event(memory, event_of(seq, type_, body, False))
    assert isinstance(plain.get(HEAD), Head)
    assert dict(memory.all()) == plain.kept
    for row in plain.kept.values():
        check_kept(row, ROW)


def test_it_takes_what_it_folds_and_what_comes_from_the_inbox() -> None:
    assert set(FOLDS) | ASKABLE | {"SessionCreated", "NoteRecorded"} == DECIDER.handles


def test_only_a_session_that_is_decided_here_has_rows() -> None:
    for profile, any_rows in (("STRICT", True), ("OBSERVED", False), ("IMPORTED", False)):
        rows = PlainRows()
        for event in SessionBuilder("s", profile=profile).begin().events:
            DECIDER.fold(rows, event, Verdict())
        assert bool(rows.kept) is bool(rows.private.kept) is any_rows


def test_lists_of_a_row_end_at_their_limit_and_begin_again_with_the_next_stage() -> None:
    builder = SessionBuilder("s").begin()
    builder.append("StageScheduled", stage_id="plan.1", stage_name="plan", attempt=1)
    for number in range(2 * LISTED):
        builder.append("InputRequested", request_id=f"plan.1/q.{number}")
    builder.append("TurnStarted", turn_id="plan.1/t1")
    for number in range(2 * LISTED):
        builder.append("ValidationRequested", validation_id=f"v{number}", validator="v")
    rows = folded(builder)
    assert rows.head_row is not None
    assert (len(rows.head_row.requests), len(rows.head_row.validations)) == (LISTED, LISTED)
    assert (len(rows.family("request")), len(rows.family("validation"))) == (LISTED, LISTED)
    builder.append("StageFailed", stage_id="plan.1", error={"error_class": "x", "message": "", "retryable": False})
    builder.append("StageScheduled", stage_id="plan.2", stage_name="plan", attempt=2)
    rows = folded(builder)
    assert rows.head_row is not None
    assert (rows.head_row.requests, rows.head_row.validations, rows.family("validation")) == ([], [], {})


def test_a_decision_without_a_subject_is_about_the_call_without_an_id() -> None:
    builder = SessionBuilder("s", profile="OBSERVED").begin()
    builder.append("ToolCallRequested", tool_call_id="", name="look")
    builder.append("PolicyEvaluated", decision_id="d", subject="TOOL_CALL", subject_id=None, decision="DENY")
    assert folded(builder).family("call")[""].decision == "DENY"


def test_sums_of_absurd_amounts_can_be_kept() -> None:
    most = 2**63 - 1
    builder = SessionBuilder("s").begin()
    for number in range(3):
        builder.append(
            "InferenceCompleted", inference_id=str(number), usage={"input": most, "output": most}, cost_usd_micros=most
        )
    head = folded(builder).head_row
    assert head is not None
    assert -(2**63) <= head.tokens < 2**63
    assert head.cost_usd_micros == most - 2  # three times the most, as 64 bits have it


def test_the_scope_of_a_compression_is_a_mark_on_each_of_its_items() -> None:
    builder = SessionBuilder("s").begin()
    for number in range(300):
        builder.append("MessageReceived", message_id=str(number), role="USER", parts=[])
    scope = [f"m:{number}" for number in range(1, 300)]
    builder.append("CompressionStarted", compression_id="k1", rule_id="r", trigger="THRESHOLD", scope=scope)
    rows = folded(builder)
    marked = [id for id, item in rows.family(ITEM).items() if item.compressing == "k1"]
    assert marked == scope
    builder.append("CompressionFailed", compression_id="k1")
    rows = folded(builder)
    assert rows.head_row is not None
    assert (rows.head_row.compressing, rows.head_row.failed_rules) == ("", ["r"])
