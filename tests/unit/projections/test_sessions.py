"""What the row of ``sessions`` says of where a session comes from, what is open, and how it ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
    assert (row.relation, row.forked_at_seq) == ("FORK", strict.events[-1].seq)


def test_a_turn_of_no_stage_leaves_the_newest(strict: SessionBuilder) -> None:
    strict.append("StageScheduled", stage_id="a.1", stage_name="a")
    strict.append("StageStarted", stage_id="a.1")
    strict.append("StageCompleted", stage_id="a.1")
    strict.append("TurnStarted", turn_id="t1")
    assert row_of(strict).stage_id == "a.1"
