"""The edges of the lifecycle rules: at a limit and beyond it, and what an event leaves in the rows for later ones."""

from __future__ import annotations

import copy

import msgspec
import pytest
from hypothesis import given

from dalsegno.model.catalogue import CATALOGUE
from dalsegno.model.lifecycle import MemoryOps, OpState, SessionState, Verdict, config_set_digest, inherit, judge, state
from dalsegno.model.lifecycle.state import MAX_ID, MAX_LISTED, PLACE_OF, bounded
from dalsegno.testing.strategies import History, histories
from lifecycle_walk import AUTHORIZED, COMPLETED, DECISION, INFERENCE, RECEIPT, VALIDATION, A, B, Walk, a_child


class RowsOfTheirOwn(MemoryOps):
    """As a store that decodes a row at each look: what was changed and not put is lost."""

    def get(self, kind: str, id: str, /) -> OpState | None:
        return copy.deepcopy(self.rows.get((kind, id)))


@given(histories(max_sessions=1))
def test_every_row_that_is_changed_is_put(history: History) -> None:
    for builder in history.sessions:
        session, ops = SessionState(), RowsOfTheirOwn()
        if builder.parent is not None:
            inherit(builder.parent.session, session)
        for event in builder.events:
            judge(session, ops, event)
        assert ops.rows == builder.ops.rows


def test_a_recovery_leaves_its_resolution_in_the_row() -> None:
    walk = Walk().running().running_call()
    walk.ops.__class__ = RowsOfTheirOwn
    walk.epoch += 1
    last_good = {"seq": walk.seq, "hash": b"\x07" * 32, "event_id": None}
    walk.well("SessionRecovered", last_good=last_good, in_flight=[{"kind": "TOOL", "id": "c", "resolution": "FAILED"}])
    assert walk.ops.rows["TOOL", "c"].phase not in ("STARTED", "OPEN")
    assert walk.session.open == [0] * len(walk.session.open)


@pytest.mark.parametrize(
    ("named", "scope", "rules"),
    [("c/a", "SESSION", ()), ("c/a", "RULE", ()), ("c/a", "ONCE", ("U2",)), ("unknown", "SESSION", ("U2",))],
)
def test_a_standing_grant_is_one_that_was_given_for_longer(named: str, scope: str, rules: tuple[str, ...]) -> None:
    walk = Walk().running().call().granted(scope=scope)
    assert walk.session.grants == (scope != "ONCE")
    walk.call("d")
    verdict = walk.say(
        "ToolCallAuthorized",
        **AUTHORIZED | {"tool_call_id": "d", "basis": "STANDING_GRANT", "approval_id": named, "decision_id": None},
    )
    assert verdict.violations == rules


def test_an_approval_that_is_still_asked_for_is_no_standing_grant() -> None:
    walk = Walk().running().call()
    walk.well("ApprovalRequested", approval_id="c/a", subject_id="c", decision_id="d", arguments_digest=A)
    assert walk.ops.rows["APPROVAL", "c/a"].digest == A
    walk.ops.rows["APPROVAL", "c/a"].mark = "SESSION"
    basis = AUTHORIZED | {"basis": "STANDING_GRANT", "approval_id": "c/a", "decision_id": None}
    assert walk.say("ToolCallAuthorized", **basis).violations == ("U2",)


def test_a_simulated_call_needs_no_leave() -> None:
    Walk().running().call().well("ToolCallAuthorized", **AUTHORIZED | {"basis": "SIMULATED", "decision_id": None})


@pytest.mark.parametrize(("used", "rules"), [(B, ()), (b"\x0c" * 32, ("U2",))])
def test_approved_arguments_may_be_others_only_as_a_policy_modified_them(used: bytes, rules: tuple[str, ...]) -> None:
    walk = Walk().running().call().granted()
    walk.well("PolicyEvaluated", **DECISION | {"decision": "MODIFY", "modified": {"digest": B}})
    assert walk.ops.rows["DECISION", "c/d"].digest == B
    given_leave = {"basis": "APPROVAL", "approval_id": "c/a", "effective_arguments_digest": used}
    assert walk.say("ToolCallAuthorized", **AUTHORIZED | given_leave).violations == rules


def test_a_retry_is_decided_of_the_attempt_that_failed() -> None:
    def failed() -> Walk:
        walk = Walk().running().running_call(idempotency_key="k")
        walk.well("ToolCallFailed", tool_call_id="c", attempt=1, reason="INFRA", not_started=True)
        return walk

    assert failed().say("ToolRetryDecided", tool_call_id="c", attempt=2, retry=False).violations == ("P2",)
    failed().well("ToolRetryDecided", tool_call_id="c", attempt=1, retry=False)


@pytest.mark.parametrize(
    ("child", "call", "rules"), [("kid", "c", ()), ("other", "c", ("U4",)), ("kid", "d", ("U4",)), ("", "c", ("U4",))]
)
def test_a_child_session_ends_the_call_that_started_it(child: str, call: str, rules: tuple[str, ...]) -> None:
    walk = Walk().running().running_call(child_session="kid").running_call("d", child_session="kid2")
    ended = walk.say("SubSessionEnded", child_session=child, tool_call_id=call, child_final_hash=A)
    assert ended.violations == rules


@pytest.mark.parametrize(("target", "rules"), [(0, ("V1",)), (1, ()), (-1, ()), (None, ("V1",))])
def test_a_validation_looks_at_an_event_before_it(target: int | None, rules: tuple[str, ...]) -> None:
    walk = Walk().running().inference()
    here = walk.seq + 1
    seq = here if target is None else target if target >= 0 else here - 1
    asked = walk.say("ValidationRequested", **VALIDATION | {"target": {"seq": seq, "hash": A, "event_id": None}})
    assert asked.violations == rules


def test_a_verdict_is_remembered_whether_or_not_it_was_asked_for() -> None:
    walk = Walk("OBSERVED").running().inference()
    assert walk.say("VerdictReported", validation_id="alone", verdict="PASS").violations == ()
    assert (walk.ops.rows["VALIDATION", "alone"].seen, walk.ops.rows["VALIDATION", "alone"].phase) == (True, "KNOWN")
    walk.well("ValidationRequested", **VALIDATION)
    walk.well("VerdictReported", validation_id="v", verdict="PASS")
    assert (walk.ops.rows["VALIDATION", "v"].seen, walk.ops.rows["VALIDATION", "v"].phase) == (True, "OPEN")


def test_a_session_is_created_once_and_that_alone_is_said() -> None:
    again = Walk().created().say("SessionCreated", profile="STRICT", relation="NONE")
    assert again.violations == ("S1",)


@pytest.mark.parametrize(("name", "fits"), [("n" * MAX_ID, True), ("n" * (MAX_ID + 1), False), ("a\nb", False)])
def test_pins_that_could_be_mistaken_for_others_are_not_listed(name: str, fits: bool) -> None:
    walk = Walk().created()
    walk.well("ConfigPinned", kind="POLICY", name=name, effective="NOW", digest=A, version="1")
    assert walk.session.more_pins is not fits
    assert walk.session.pins == ([f"POLICY:{name}:{A.hex()}"] if fits else [])


def test_ids_are_kept_up_to_a_length() -> None:
    assert bounded("x" * MAX_ID) == "x" * MAX_ID
    assert bounded("x" * (MAX_ID + 1)).startswith("#")
    assert MAX_ID == 200


@pytest.mark.parametrize("stubs", [False, True])
@pytest.mark.parametrize("turn", ["", "t"])
def test_a_fork_goes_on_with_its_parents_frames_and_pins(turn: str, stubs: bool) -> None:
    parent = Walk().running().session
    parent.turn, parent.stubs, parent.pins, parent.pinned = turn, stubs, ["POLICY:n:-"], ["POLICY", "TOKENIZER"]
    child = Walk(session_id="s~f")
    inherit(parent, child.session)
    at = {"seq": 9, "hash": B, "event_id": None}
    child.well("SessionCreated", profile="STRICT", relation="FORK", parent_session="s", parent_at=at)
    child.session.pinned = ["REDACTION"]
    child.say("SessionForked", parent_session="s", parent_at=at, purpose="WHAT_IF")
    assert child.session.forked
    assert (child.session.turn, child.session.stubs, child.session.pins) == (turn, stubs, ["POLICY:n:-"])
    assert child.session.pinned == ["POLICY", "REDACTION", "TOKENIZER"]
    assert (("TURN", "t") in child.ops.rows) is bool(turn)
    assert config_set_digest(child.session.pins) != config_set_digest([])


@pytest.mark.parametrize(
    ("listed", "rules"),
    [(["c"], ()), (["c", "c"], ()), (["c", "other"], ("S4",)), ([7, ["c"], "c"], ()), ([], ("S4",))],
)
@pytest.mark.parametrize("ending", ["SessionCompleted", "SessionFailed", "SessionCancelled"])
def test_an_ending_lists_what_is_open_and_nothing_else(
    ending: str, listed: list[object], rules: tuple[str, ...]
) -> None:
    walk = Walk().running().running_call("c")
    assert walk.say(ending, open_ops=listed).violations == rules
    assert walk.session.status == ("RUNNING" if rules else ending.removeprefix("Session").upper())


def test_an_id_that_is_open_in_two_kinds_is_listed_once() -> None:
    walk = Walk().running().running_call("c")
    walk.well("InferenceRequested", **INFERENCE | {"inference_id": "c"})
    walk.well("SessionCompleted", open_ops=["c"])


@pytest.mark.parametrize("item", ["c", None, 7, ["TOOL", "c"]])
def test_an_operation_in_flight_that_is_no_record_resolves_nothing(item: object) -> None:
    walk = Walk().running().running_call()
    walk.epoch += 1
    last_good = {"seq": walk.seq, "hash": b"\x07" * 32, "event_id": None}
    assert walk.say("SessionRecovered", last_good=last_good, in_flight=[item]).violations == ("S5",)


@pytest.mark.parametrize(("named", "rules"), [(None, ()), ("s", ()), ("?", ("S6",))])
def test_a_fork_may_name_its_parent_in_its_second_event_alone(named: str | None, rules: tuple[str, ...]) -> None:
    parent = Walk().running()
    child = Walk()
    body = a_child(child, parent)
    child.session.parent = named or ""
    assert child.say("SessionForked", **body).violations == rules


def judged_by(walk: Walk, inference_id: str | None) -> Verdict:
    walk.well("ValidationRequested", **VALIDATION | {"validation_id": "v2"})
    decided = {"validation_id": "v2", "basis": "INFERENCE", "inference_id": inference_id, "verdict": "PASS"}
    return walk.say("ValidationDecided", **decided)


def test_a_verdict_of_a_model_names_an_inference_that_has_answered() -> None:
    assert judged_by(Walk().running().inference(), "i").violations == ()
    for unknown in ("other", "", None):
        assert judged_by(Walk().running().inference(), unknown).violations == ("V2",)
    asked = Walk().running()
    asked.well("InferenceRequested", **INFERENCE)
    assert judged_by(asked, "i").violations == ("V2",)


def test_in_a_fork_the_inference_may_lie_in_the_parent_but_must_be_named() -> None:
    def fork() -> Walk:
        walk = Walk()
        walk.well("SessionForked", **a_child(walk, Walk().running()))
        return walk

    assert judged_by(fork(), "the parent's").violations == ()
    assert judged_by(fork(), "").violations == ("V2",)
    asked = fork()
    asked.well("InferenceRequested", **INFERENCE)
    assert judged_by(asked, "i").violations == ("V2",)


@pytest.mark.parametrize("ending", ["InferenceCompleted", "InferenceFailed"])
@pytest.mark.parametrize(("attempt", "rules"), [(1, ()), (2, ("I2",)), (None, ("I2",))])
def test_an_inferences_end_is_of_the_attempt_that_was_asked_for(
    ending: str, attempt: int | None, rules: tuple[str, ...]
) -> None:
    asked = Walk("OBSERVED").running()
    asked.well("InferenceRequested", **INFERENCE)
    assert asked.say(ending, **COMPLETED | {"attempt": attempt}).violations == rules


@pytest.mark.parametrize(("count", "rules"), [(MAX_LISTED, ("U1",)), (MAX_LISTED + 1, ())])
def test_a_call_must_be_listed_where_the_list_is_whole(count: int, rules: tuple[str, ...]) -> None:
    walk = Walk().running().inference(calls=tuple(f"c{n}" for n in range(count)))
    asked = {"effect": "WRITE", "arguments_digest": A, "inference_id": "i"}
    walk.well("ToolCallRequested", tool_call_id=f"c{MAX_LISTED - 1}", **asked)
    assert walk.say("ToolCallRequested", tool_call_id="other", **asked).violations == rules


def test_an_attempt_that_has_not_answered_lists_no_call() -> None:
    walk = Walk().running()
    walk.well("InferenceRequested", **INFERENCE)
    call = {"tool_call_id": "c", "effect": "WRITE", "arguments_digest": A, "inference_id": "i"}
    assert walk.say("ToolCallRequested", **call).violations == ("U1",)


def test_what_is_no_call_in_a_list_of_calls_is_passed_over() -> None:
    walk = Walk().running()
    walk.well("InferenceRequested", **INFERENCE)
    walk.well("InferenceCompleted", **COMPLETED | {"tool_calls": [7, None, {"tool_call_id": "c"}]})
    assert walk.ops.rows["INFERENCE", "i"].listed == ("c",)


@pytest.mark.parametrize(("size", "kept"), [(MAX_ID, True), (MAX_ID + 1, False)])
def test_a_digest_has_a_size(size: int, kept: bool) -> None:
    walk = Walk().running()
    walk.well("InferenceRequested", **INFERENCE | {"request_digest": b"d" * size})
    assert (walk.ops.rows["INFERENCE", "i"].digest is not None) is kept


def test_behind_a_stub_a_recovery_resolves_what_is_open_and_nothing_else() -> None:
    walk = Walk().running()
    walk.running_call("done").well("ToolReceiptRecorded", **RECEIPT | {"tool_call_id": "done"})
    walk.running_call("c").say("ToolCallRequested", stub="ERASED")
    in_flight = [{"kind": "TOOL", "id": id, "resolution": "FAILED"} for id in ("done", "unknown", "c")]
    last_good = {"seq": walk.seq, "hash": b"\x07" * 32, "event_id": None}
    walk.epoch += 1
    verdict = walk.say("SessionRecovered", last_good=last_good, in_flight=in_flight)
    assert (verdict.findings, verdict.closed) == (("S5",), (("TOOL", "c"),))
    assert walk.session.operations_open() == 0


def test_an_answer_whose_question_is_gone_says_which_attempt_it_was() -> None:
    walk = Walk().running()
    walk.say("InferenceRequested", stub="ERASED")
    walk.say("InferenceCompleted", **COMPLETED | {"attempt": 3})
    assert walk.ops.rows["INFERENCE", "i"].attempt == 3


def test_a_call_keeps_the_digest_of_its_arguments_and_of_those_it_may_use() -> None:
    walk = Walk().running().call()
    assert walk.ops.rows["TOOL", "c"].digest == A
    walk.well("PolicyEvaluated", **DECISION | {"decision": "MODIFY", "modified": {"digest": B}})
    walk.well("ToolCallAuthorized", **AUTHORIZED | {"effective_arguments_digest": B})
    assert walk.ops.rows["TOOL", "c"].digest == B


@pytest.mark.parametrize(
    ("begun", "ending"),
    [
        (True, "StageCompleted"), (True, "StageFailed"), (True, "StageCancelled"),
        (False, "StageSkipped"), (False, "StageCancelled"),
    ],
)  # fmt: skip
def test_a_stage_that_has_ended_however_is_not_the_current_one_and_not_open(begun: bool, ending: str) -> None:
    walk = Walk().running()
    walk.well("StageScheduled", stage_id="plan.1", inputs_digest=A)
    if begun:
        walk.well("StageStarted", stage_id="plan.1")
        assert walk.session.stage == "plan.1"
    walk.session.stage = "plan.1"
    walk.well(ending, stage_id="plan.1", outputs_digest=A, reason="r", error_type="e")
    assert (walk.session.stage, walk.session.stages, walk.session.open_of("STAGE")) == ("", [], 0)


def test_a_failure_of_a_call_that_nobody_asked_for_breaks_one_rule() -> None:
    verdict = Walk().running().say("ToolCallFailed", tool_call_id="c", attempt=1, reason="INFRA", not_started=True)
    assert verdict.violations == ("U4",)


BEFORE_START = {
    "SessionStarted",
    "ConfigPinned",
    "SessionForked",
    "SessionRecovered",
    "NoteRecorded",
    "MessageReceived",
}
AFTER_END = {
    "ValidationRequested", "ValidationDecided", "ValidationAmended", "VerdictReported", "FeedbackRecorded",
    "NoteRecorded", "ArtifactRecorded", "SessionRecovered",
}  # fmt: skip


@pytest.mark.parametrize("type_", sorted(CATALOGUE))
def test_what_may_stand_before_the_start_and_after_the_end(type_: str) -> None:
    """Every type of the catalogue, against the lists of schemas/README.md; a result needs a call that was open."""
    created, ended = Walk().created(), Walk().running()
    ended.well("SessionCompleted", open_ops=[])
    assert ("S3" in created.say(type_).violations) is (type_ not in BEFORE_START | {"SessionCreated"})
    assert ("S4" in ended.say(type_).violations) is (type_ not in AFTER_END)


def test_a_row_begins_with_nothing() -> None:
    assert msgspec.structs.astuple(OpState()) == ("ABSENT", 0, None, "", "", False, False, (), False)
    assert not any(
        msgspec.to_builtins(SessionState())[place] is True for place in range(len(msgspec.structs.fields(SessionState)))
    )


@pytest.mark.parametrize(("type_", "field"), [("ArtifactRecorded", "artifact_id"), ("MessageReceived", "message_id")])
def test_what_is_recorded_under_an_id_is_known(type_: str, field: str) -> None:
    walk = Walk().running()
    walk.well(type_, **{field: "x"})
    assert [op.phase for (_, id), op in walk.ops.rows.items() if id == "x"] == ["KNOWN"]


@pytest.mark.parametrize(("open_at_the_end", "rules"), [(True, ()), (False, ("S4", "U4"))])
def test_a_sub_session_may_end_after_its_parent_if_its_call_was_open_then(
    open_at_the_end: bool, rules: tuple[str, ...]
) -> None:
    walk = Walk().running().running_call(child_session="kid")
    if not open_at_the_end:
        walk.well("SubSessionEnded", child_session="kid", child_final_hash=A)
    walk.well("SessionCompleted", open_ops=["c"] if open_at_the_end else [])
    assert walk.say("SubSessionEnded", child_session="kid", child_final_hash=A).violations == rules


REQUIRED = {
    "ApprovalRequested": ["decision_id", "arguments_digest"],
    "ApprovalGranted": ["arguments_digest"],
    "CompressionStarted": ["rule_id", "rule_digest", "input_digest"],
    "CompressionCompleted": ["rule_id", "rule_digest", "input_digest", "output_digest"],
    "ConfigPinned": ["version", "digest"],
    "ContextPackBuilt": ["template_digest", "request_digest"],
    "InferenceRequested": ["provider", "model", "request_digest"],
    "InferenceCompleted": ["model", "output_digest"],
    "PolicyEvaluated": ["subject_id", "policy_digest", "input_digest", "engine"],
    "SessionStarted": ["clock_start"],
    "StageScheduled": ["inputs_digest"],
    "StageCompleted": ["outputs_digest"],
    "SubSessionEnded": ["child_final_hash"],
    "ToolCallRequested": ["arguments_digest"],
    "ToolCallAuthorized": ["effective_arguments_digest"],
    "ToolReceiptRecorded": ["result_digest", "started_at", "ended_at"],
    "ValidationRequested": ["validator_version", "validator_digest", "criteria_digest", "target_id"],
}
"""F1 as schemas/README.md tells it."""


@pytest.mark.parametrize("type_", sorted(CATALOGUE))
def test_what_only_a_recording_may_leave_out(type_: str) -> None:
    fields = REQUIRED.get(type_, [])
    whole = dict.fromkeys(fields, A)
    assert "F1" not in Walk().running().say(type_, **whole).violations
    for field in fields:
        assert "F1" in Walk().running().say(type_, **whole | {field: None}).violations
        assert "F1" not in Walk("OBSERVED").running().say(type_, **whole | {field: None}).violations


def in_flight(kind: str, phase: str, resolution: str) -> str:
    """The phase of an operation after a recovery that resolves it so; "" where it breaks S5."""
    walk = Walk().running()
    walk.ops.put(kind, "x", OpState(phase))
    walk.session.open[PLACE_OF[kind]] += 1
    walk.epoch += 1
    last_good = {"seq": walk.seq, "hash": b"\x07" * 32, "event_id": None}
    item = {"kind": kind, "id": "x", "resolution": resolution}
    verdict = walk.say("SessionRecovered", last_good=last_good, in_flight=[item])
    assert verdict.violations in ((), ("S5",))
    return "" if verdict.violations else walk.ops.rows[kind, "x"].phase


@pytest.mark.parametrize(
    ("kind", "phase", "resolution", "after"),
    [
        ("INFERENCE", "OPEN", "RETRY", "ATTEMPT_FAILED"), ("INFERENCE", "OPEN", "UNKNOWN_OUTCOME", "ATTEMPT_FAILED"),
        ("INFERENCE", "OPEN", "ABANDONED", "ATTEMPT_FAILED"), ("TOOL", "STARTED", "RETRY", "AUTHORIZED"),
        ("TOOL", "UNRESOLVED", "RETRY", "AUTHORIZED"), ("TOOL", "STARTED", "AWAIT_RECEIPT", "UNRESOLVED"),
        ("TOOL", "STARTED", "UNKNOWN_OUTCOME", "UNRESOLVED"), ("TOOL", "REQUESTED", "FAILED", "GIVEN_UP"),
        ("TOOL", "AUTHORIZED", "KEEP_WAITING", "AUTHORIZED"), ("APPROVAL", "OPEN", "ABANDONED", "WITHDRAWN"),
        ("APPROVAL", "OPEN", "KEEP_WAITING", "OPEN"), ("VALIDATION", "OPEN", "FAILED", "GIVEN_UP"),
        ("TOOL", "STARTED", "SOMEHOW", ""),
    ],
)  # fmt: skip
def test_a_recovery_moves_what_was_in_flight(kind: str, phase: str, resolution: str, after: str) -> None:
    phases = {name: getattr(state, name) for name in ("OPEN", "STARTED", "UNRESOLVED", "REQUESTED", "AUTHORIZED")}
    assert in_flight(kind, phases[phase], resolution) == (after and getattr(state, after))


@pytest.mark.parametrize("kind", ["MODEL_PARAMS", "REDACTION"])
def test_these_kinds_of_configuration_may_be_pinned_and_need_not(kind: str) -> None:
    walk = Walk().created()
    walk.well("ConfigPinned", kind=kind, name="n", effective="NOW", digest=A, version="1")
    assert kind in walk.session.pinned
