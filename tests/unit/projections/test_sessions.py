"""What the row of ``sessions`` says of where a session comes from, what is open, and how it ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dalsegno.model.lifecycle import Verdict
from dalsegno.model.lifecycle.state import bounded
from dalsegno.projections.rows import SessionRow
from dalsegno.projections.sessions import Sessions
from dalsegno.testing.builder import SessionBuilder, Written, blob
from dalsegno.testing.strategies import PROFILES, play
from examples import examples
from projection_lab import rows_of


@pytest.fixture
def strict() -> SessionBuilder:
    return SessionBuilder("s-1").begin()


def row_of(builder: SessionBuilder, records: list[Written] | None = None) -> SessionRow:
    row: SessionRow = rows_of(Sessions(), builder, records)[()]
    return row


@pytest.mark.parametrize("relation", ["NONE", "FORK", "CHILD", "CONTINUATION", "RETRY"])
def test_where_a_session_comes_from(relation: str) -> None:
    builder = SessionBuilder("s-1")
    builder.append("SessionCreated", profile="STRICT", workflow_name="w", relation=relation, parent_session="p" * 300)
    row = row_of(builder)
    assert (row.relation, row.parent_session, row.forked_from) == (relation, bounded("p" * 300), None)


def test_a_session_of_its_own(strict: SessionBuilder) -> None:
    row = row_of(strict)
    assert (row.relation, row.parent_session, row.outcome) == ("NONE", None, None)


@pytest.mark.parametrize("outcome", ["SUCCESS", "PARTIAL", "GIVEN_UP"])
def test_how_it_ended(strict: SessionBuilder, outcome: str) -> None:
    strict.append("SessionCompleted", outcome=outcome)
    assert (row_of(strict).status, row_of(strict).outcome) == ("COMPLETED", outcome)


@pytest.mark.parametrize(("type_", "status"), [("SessionFailed", "FAILED"), ("SessionCancelled", "CANCELLED")])
def test_another_end_has_no_outcome(strict: SessionBuilder, type_: str, status: str) -> None:
    strict.append(type_)
    assert (row_of(strict).status, row_of(strict).outcome) == (status, None)


def _input(builder: SessionBuilder) -> None:
    builder.append("InputRequested", request_id="x", prompt=blob(b"?"))


def _call(builder: SessionBuilder) -> None:
    builder.append("ToolCallRequested", tool_call_id="x", name="t", effect="READ")


def _approval(builder: SessionBuilder) -> None:
    _call(builder)
    builder.append("PolicyEvaluated", decision_id="d", subject="TOOL_CALL", subject_id="x", decision="REQUIRE_APPROVAL")
    builder.append("ApprovalRequested", approval_id="x", subject="TOOL_CALL", subject_id="x", decision_id="d")


def _frames(builder: SessionBuilder) -> None:
    builder.append("StageScheduled", stage_id="x", stage_name="x")
    builder.append("TurnStarted", turn_id="x")


@pytest.mark.parametrize(
    ("opens", "wanted"),
    [(_input, (1, 0, 1)), (_call, (1, 0, 0)), (_approval, (2, 1, 0)), (_frames, (0, 0, 0))],
)
def test_what_is_open(strict: SessionBuilder, opens: Callable[[SessionBuilder], None], wanted: Any) -> None:
    opens(strict)
    row = row_of(strict)
    assert (row.operations_open, row.approvals_open, row.inputs_open) == wanted
    strict.recover("ABANDONED")
    row = row_of(strict)
    assert (row.operations_open, row.approvals_open, row.inputs_open) == (0, 0, 0)


@settings(deadline=None, max_examples=examples(100))
@given(st.sampled_from(PROFILES), st.lists(st.integers(0, 2**20), max_size=40))
def test_as_much_is_open_as_the_rules_say(profile: str, numbers: list[int]) -> None:
    builder = play(SessionBuilder("s-1", profile=profile).begin(), numbers)
    row = row_of(builder)
    session = builder.session
    assert row.operations_open == session.operations_open()
    assert (row.approvals_open, row.inputs_open) == (session.open_of("APPROVAL"), session.open_of("INPUT"))
    assert (row.status, row.profile) == (session.status, session.profile)


def test_a_turn_in_a_fork_says_which_stage_it_is_of(strict: SessionBuilder) -> None:
    strict.append("StageScheduled", stage_id="a.1", stage_name="a")
    strict.append("StageStarted", stage_id="a.1")
    child = strict.fork(strict.events[-1].seq, "child")
    child.append("TurnStarted", turn_id="a.1/t1", agent="w")
    row = row_of(child, [*strict.records, *child.records])
    assert (row.stage_id, row.agent, row.forked_from, row.parent_session) == ("a.1", "w", "s-1", "s-1")
    assert (row.status, row.relation, row.forked_at_seq) == ("RUNNING", "FORK", strict.events[-1].seq)


def test_a_turn_of_no_stage_leaves_the_newest(strict: SessionBuilder) -> None:
    strict.append("StageScheduled", stage_id="a.1", stage_name="a")
    strict.append("StageStarted", stage_id="a.1")
    strict.append("StageCompleted", stage_id="a.1")
    strict.append("TurnStarted", turn_id="t1")
    assert row_of(strict).stage_id == "a.1"


# --- states, totals, verdicts, what was broken ------------------------------------------------------------------------

ERROR = {"error_class": "c" * 600, "message": "m" * 600, "retryable": False}
STATES: list[tuple[str, dict[str, Any], str]] = [
    ("SessionPaused", {"by_limit": True}, "PAUSED"),
    ("SessionResumed", {"by_limit": True}, "RUNNING"),
    ("SessionFailed", {"error": ERROR}, "FAILED"),
]


def test_states_one_after_the_other() -> None:
    builder = SessionBuilder("s-1")
    assert builder.append("SessionCreated", profile="STRICT", workflow_name="w").event is not None
    assert row_of(builder).status == "CREATED"
    builder.start()
    assert row_of(builder).status == "RUNNING"
    for type_, fields, status in STATES:
        builder.append(type_, **fields)
        assert row_of(builder).status == status
    assert (row_of(builder).error_class, row_of(builder).error_message) == ("c" * 500, "m" * 500)


@pytest.mark.parametrize(("taken", "status"), [("SessionPaused", "PAUSED"), ("NoteRecorded", "RUNNING")])
def test_of_an_erased_event_only_the_state_is_left(strict: SessionBuilder, taken: str, status: str) -> None:
    strict.append(taken)
    row = row_of(strict, [*strict.records, strict.amend([strict.records[-1]])])
    assert (row.status, row.stubs, row.events) == (status, 1, strict.events[-1].seq)


def test_a_session_of_stubs(strict: SessionBuilder) -> None:
    """The row is there although no fold has made it."""
    row = row_of(strict, [*strict.records, strict.amend(strict.records)])
    assert (row.status, row.stubs, row.workflow_name) == ("RUNNING", len(strict.records), "")


def test_totals(strict: SessionBuilder) -> None:
    usage = {"input": 1, "output": 2, "cache_read": 3, "cache_creation": 4, "reasoning": 5}
    nothing = dict.fromkeys(usage)
    for number, (used, cost) in enumerate(((usage, 6), (nothing, None), (usage, 6))):
        asked = {"inference_id": f"i{number}", "attempt": 1}
        strict.append("InferenceRequested", **asked, purpose="OTHER", model="asked")
        strict.append("InferenceCompleted", **asked, usage=used, cost_usd_micros=cost, model="answered", complete=True)
    row = row_of(strict)
    assert (row.inferences, row.input_tokens, row.output_tokens, row.cache_read_tokens) == (3, 2, 4, 6)
    assert (row.cache_creation_tokens, row.reasoning_tokens, row.cost_usd_micros) == (8, 10, 12)
    assert row.model == "answered"


def test_the_model_is_the_newest_that_is_known() -> None:
    builder = SessionBuilder("s-1", profile="OBSERVED").begin()
    for number, (asked, answered, known) in enumerate(
        [(None, None, None), ("a", None, "a"), (None, None, "a"), (None, "b", "b"), ("c", "d", "d")]
    ):
        inference = {"inference_id": f"i{number}", "attempt": 1}
        builder.append("InferenceRequested", **inference, purpose="OTHER", model=asked)
        builder.append("InferenceCompleted", **inference, model=answered, complete=True)
        assert row_of(builder).model == known


def test_verdicts_and_their_amendment(strict: SessionBuilder) -> None:
    asked = {"validation_id": "v", "validator": "tests"}
    strict.append("MessageReceived", message_id="m", role="USER")
    strict.append("ValidationRequested", **asked, target_id="m")
    strict.append("ValidationDecided", validation_id="v", basis="PURE", verdict="REJECT", score="0", intermediate=False)
    assert (row_of(strict).verdict, row_of(strict).score) == ("REJECT", "0")
    strict.append("ValidationRequested", **{**asked, "validation_id": "w"}, target_id="m")
    strict.append("ValidationDecided", validation_id="w", basis="PURE", verdict="PASS", score="1", intermediate=True)
    assert row_of(strict).verdict == "REJECT", "an intermediate verdict is none of the session's"
    strict.append("ValidationAmended", validation_id="v", verdict="INCONCLUSIVE", score=None)
    assert (row_of(strict).verdict, row_of(strict).score) == ("INCONCLUSIVE", None)


def test_broken_rules_are_counted_where_they_hold_and_where_they_do_not() -> None:
    """An approval without its decision (P2) is a finding where the profile relaxes it, else a violation."""
    found = {}
    for profile in ("STRICT", "OBSERVED"):
        builder = SessionBuilder("s-1", profile=profile).begin()
        builder.append("ApprovalExpired", approval_id="never asked")
        builder.append("ToolCallStarted", tool_call_id="never asked", attempt=2, executor="e")
        row = row_of(builder)
        verdicts = builder.verdicts
        assert row.violations == sum(bool(verdict.violations) for verdict in verdicts)
        assert row.findings == sum(len(verdict.findings) for verdict in verdicts)
        found[profile] = (row.violations, row.findings)
    assert found == {"STRICT": (2, 0), "OBSERVED": (1, 1)}


def test_an_event_may_break_rules_of_both_kinds() -> None:
    builder = SessionBuilder("s-1", profile="OBSERVED").begin()
    builder.append("ToolCallRequested", tool_call_id="c", name="t", effect="WRITE")
    builder.append("ToolCallAuthorized", tool_call_id="c", basis="SIMULATED")
    builder.append("ToolCallStarted", tool_call_id="c", attempt=1, executor="e")
    builder.append("ToolCallFailed", tool_call_id="c", attempt=1, reason="TIMEOUT")
    builder.append("ToolRetryDecided", tool_call_id="c", attempt=2, retry=True)
    assert builder.verdicts[-1] == Verdict(("U4",), ("P2",))
    assert (row_of(builder).violations, row_of(builder).findings) == (1, 1)
