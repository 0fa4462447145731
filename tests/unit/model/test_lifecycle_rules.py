"""Every lifecycle rule by name: broken, it is a violation where it holds and a finding where the profile relaxes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from dalsegno.model.lifecycle import OpState, SessionState, Verdict, config_set_digest, inherit, judge
from dalsegno.model.lifecycle.tables import PINNED_AT_START
from lifecycle_walk import (
    AUTHORIZED,
    COMPLETED,
    DECISION,
    INFERENCE,
    RECEIPT,
    TIP,
    VALIDATION,
    A,
    B,
    Walk,
    a_child,
    recovery,
)

Story = Callable[[Walk], Verdict]
BROKEN: list[tuple[str, str, bool, Story]] = []
"""(rule, what is wrong, whether OBSERVED and IMPORTED hold it too, the story whose last event breaks it)."""


def breaks(rule: str, *, everywhere: bool = False) -> Callable[[Story], Story]:
    def add(story: Story) -> Story:
        BROKEN.append((rule, story.__name__, everywhere, story))
        return story

    return add


# --- E ------------------------------------------------------------------------------------------------------------


@breaks("E1", everywhere=True)
def a_control_event_in_the_chain(w: Walk) -> Verdict:
    return w.running().say("HistoryAmended", request_id="r", action="ERASED", targets=[], whole_session=False)


@breaks("E5", everywhere=True)
def an_unknown_type_that_may_not_be_ignored(w: Walk) -> Verdict:
    return w.running().say("FutureThing")


# --- S ------------------------------------------------------------------------------------------------------------


@breaks("S1", everywhere=True)
def a_session_created_twice(w: Walk) -> Verdict:
    return w.running().say("SessionCreated", profile=w.profile, relation="NONE")


@breaks("S2")
def started_without_a_pinned_policy(w: Walk) -> Verdict:
    w.created()
    pins = [f"{kind}:n:{A.hex()}" for kind in sorted(PINNED_AT_START - {"POLICY"})]
    for kind in sorted(PINNED_AT_START - {"POLICY"}):
        w.well("ConfigPinned", kind=kind, name="n", effective="NOW", digest=A, version="1")
    return w.say("SessionStarted", config_set_digest=config_set_digest(pins), clock_start=1)


@breaks("S2")
def started_with_another_set_than_the_pinned_one(w: Walk) -> Verdict:
    w.created()
    for kind in sorted(PINNED_AT_START):
        w.well("ConfigPinned", kind=kind, name="n", effective="NOW", digest=A, version="1")
    return w.say("SessionStarted", config_set_digest=B, clock_start=1)


@breaks("S2")
def started_twice(w: Walk) -> Verdict:
    return w.running().say("SessionStarted", config_set_digest=config_set_digest([]), clock_start=1)


@breaks("S2")
def pinned_with_effect_now_after_the_start(w: Walk) -> Verdict:
    return w.running().say("ConfigPinned", kind="POLICY", name="n", effective="NOW", digest=B, version="2")


@breaks("S3", everywhere=True)
def work_before_the_start(w: Walk) -> Verdict:
    return w.created().say("TurnStarted", turn_id="t")


@breaks("S4", everywhere=True)
def a_second_ending(w: Walk) -> Verdict:
    w.running().well("SessionCompleted", open_ops=[])
    return w.say("SessionFailed", open_ops=[])


@breaks("S4", everywhere=True)
def work_after_the_end(w: Walk) -> Verdict:
    w.running().well("SessionCompleted", open_ops=[])
    return w.say("TurnStarted", turn_id="t")


@breaks("S4", everywhere=True)
def an_ending_that_leaves_out_an_open_call(w: Walk) -> Verdict:
    return w.running().running_call().say("SessionCompleted", open_ops=[])


@breaks("S4", everywhere=True)
def an_ending_that_lists_what_is_not_open(w: Walk) -> Verdict:
    return w.running().running_call().say("SessionCompleted", open_ops=["other"])


@breaks("S4", everywhere=True)
def a_receipt_after_the_end_for_a_call_that_was_not_open(w: Walk) -> Verdict:
    w.running().running_call().well("ToolReceiptRecorded", **RECEIPT)
    w.well("SessionCompleted", open_ops=[])
    verdict = w.say("ToolReceiptRecorded", **RECEIPT)
    assert verdict.violations == ("S4", "U4")
    return verdict


@breaks("S5", everywhere=True)
def a_recovery_that_does_not_raise_the_epoch(w: Walk) -> Verdict:
    return w.running().say("SessionRecovered", **recovery(w))


@breaks("S5", everywhere=True)
def a_recovery_that_names_another_tip(w: Walk) -> Verdict:
    w.running().epoch = 1
    return w.say("SessionRecovered", **recovery(w, last_good={"seq": w.seq, "hash": A, "event_id": None}))


@breaks("S5", everywhere=True)
def a_recovery_that_names_another_seq(w: Walk) -> Verdict:
    w.running().epoch = 1
    return w.say("SessionRecovered", **recovery(w, last_good={"seq": w.seq - 1, "hash": TIP, "event_id": None}))


@breaks("S5", everywhere=True)
def a_recovery_that_leaves_out_an_open_call(w: Walk) -> Verdict:
    w.running().running_call().epoch = 1
    return w.say("SessionRecovered", **recovery(w))


@breaks("S5", everywhere=True)
def a_recovery_that_resolves_one_call_twice_and_another_never(w: Walk) -> Verdict:
    w.running().running_call("c").running_call("d").epoch = 1
    return w.say("SessionRecovered", **recovery(w, ("TOOL", "c", "RETRY"), ("TOOL", "c", "RETRY")))


@breaks("S5", everywhere=True)
def a_recovery_with_a_resolution_that_there_is_not(w: Walk) -> Verdict:
    w.running().running_call().epoch = 1
    return w.say("SessionRecovered", **recovery(w, ("TOOL", "c", "UNKNOWN")))


@breaks("S5", everywhere=True)
def a_recovery_that_resolves_what_is_closed(w: Walk) -> Verdict:
    w.running().running_call("c").running_call("d").well("ToolReceiptRecorded", **RECEIPT)
    w.epoch = 1
    return w.say("SessionRecovered", **recovery(w, ("TOOL", "c", "RETRY")))


@breaks("S6", everywhere=True)
def a_fork_where_something_is_open(w: Walk) -> Verdict:
    return w.say("SessionForked", **a_child(w, Walk().running().running_call()))


@breaks("S6", everywhere=True)
def a_fork_of_a_session_that_has_ended(w: Walk) -> Verdict:
    parent = Walk().running()
    parent.well("SessionCompleted", open_ops=[])
    return w.say("SessionForked", **a_child(w, parent))


@breaks("S6", everywhere=True)
def a_fork_of_another_parent_than_the_one_it_was_created_from(w: Walk) -> Verdict:
    return w.say("SessionForked", **a_child(w, Walk().running(), named="other"))


@breaks("S6", everywhere=True)
def a_fork_under_another_root(w: Walk) -> Verdict:
    return w.say("SessionForked", **a_child(w, Walk().running(), at="other~f"))


@breaks("S6", everywhere=True)
def a_fork_that_does_not_say_so_at_seq_2(w: Walk) -> Verdict:
    a_child(w, Walk().running())
    return w.say("NoteRecorded")


@breaks("S6", everywhere=True)
def a_fork_of_a_session_that_is_none(w: Walk) -> Verdict:
    return w.created().say("SessionForked", parent_session="s", parent_at={"seq": 1, "hash": TIP})


@breaks("S7")
def a_stable_checkpoint_while_a_call_runs(w: Walk) -> Verdict:
    return w.running().running_call().say("CheckpointMarked", kind="STABLE")


@breaks("S7")
def a_stable_checkpoint_while_a_model_is_asked(w: Walk) -> Verdict:
    w.running().well("InferenceRequested", **INFERENCE)
    return w.say("CheckpointMarked", kind="STABLE")


@breaks("S7")
def a_stable_checkpoint_while_a_compression_is_open(w: Walk) -> Verdict:
    w.running().well("CompressionStarted", compression_id="k", rule_id="r", rule_digest=A, input_digest=A)
    return w.say("CheckpointMarked", kind="STABLE")


@breaks("P1")
def paused_twice(w: Walk) -> Verdict:
    w.running().well("SessionPaused")
    return w.say("SessionPaused")


@breaks("P2")
def resumed_without_a_pause(w: Walk) -> Verdict:
    return w.running().say("SessionResumed")


# --- I ------------------------------------------------------------------------------------------------------------


@breaks("I1")
def an_agents_inference_without_its_pack(w: Walk) -> Verdict:
    return w.running().say("InferenceRequested", **INFERENCE | {"purpose": "AGENT", "pack_id": "nobody"})


@breaks("I1")
def an_inference_for_a_compression_that_was_not_started(w: Walk) -> Verdict:
    return w.running().say("InferenceRequested", **INFERENCE | {"purpose": "COMPRESSION", "subject_id": "k"})


@breaks("I1")
def an_inference_for_a_validation_that_was_not_requested(w: Walk) -> Verdict:
    return w.running().say("InferenceRequested", **INFERENCE | {"purpose": "VALIDATION", "subject_id": "v"})


@breaks("I1")
def a_second_attempt_while_the_first_is_open(w: Walk) -> Verdict:
    w.running().well("InferenceRequested", **INFERENCE)
    return w.say("InferenceRequested", **INFERENCE | {"attempt": 2})


@breaks("I1")
def an_attempt_number_used_again(w: Walk) -> Verdict:
    w.running().well("InferenceRequested", **INFERENCE)
    w.well("InferenceFailed", inference_id="i", attempt=1)
    return w.say("InferenceRequested", **INFERENCE)


@breaks("I2", everywhere=True)
def an_answer_that_nobody_asked_for(w: Walk) -> Verdict:
    return w.running().say("InferenceCompleted", **COMPLETED)


@breaks("I2", everywhere=True)
def an_attempt_that_ends_twice(w: Walk) -> Verdict:
    return w.running().inference().say("InferenceFailed", inference_id="i", attempt=1)


@breaks("I2", everywhere=True)
def an_answer_to_another_attempt(w: Walk) -> Verdict:
    w.running().well("InferenceRequested", **INFERENCE)
    return w.say("InferenceCompleted", **COMPLETED | {"attempt": 2})


@breaks("I2", everywhere=True)
def a_retry_with_another_request(w: Walk) -> Verdict:
    w.running().well("InferenceRequested", **INFERENCE)
    w.well("InferenceFailed", inference_id="i", attempt=1)
    return w.say("InferenceRequested", **INFERENCE | {"attempt": 2, "request_digest": B})


# --- U ------------------------------------------------------------------------------------------------------------


@breaks("U1", everywhere=True)
def a_call_that_the_model_did_not_make(w: Walk) -> Verdict:
    w.running().inference(calls=("c",))
    return w.say("ToolCallRequested", tool_call_id="other", inference_id="i", arguments_digest=A)


@breaks("U1", everywhere=True)
def a_call_of_an_inference_that_there_is_not(w: Walk) -> Verdict:
    return w.running().say("ToolCallRequested", tool_call_id="c", inference_id="i", arguments_digest=A)


@breaks("U2")
def allowed_by_a_policy_that_said_no(w: Walk) -> Verdict:
    w.running().call().well("PolicyEvaluated", **DECISION | {"decision": "DENY"})
    return w.say("ToolCallAuthorized", **AUTHORIZED)


@breaks("U2")
def allowed_by_a_decision_on_another_call(w: Walk) -> Verdict:
    w.running().call().well("PolicyEvaluated", **DECISION | {"subject_id": "other"})
    return w.say("ToolCallAuthorized", **AUTHORIZED)


@breaks("U2")
def allowed_by_an_approval_that_was_denied(w: Walk) -> Verdict:
    w.running().call()
    w.well("ApprovalRequested", approval_id="c/a", subject_id="c", decision_id="d", arguments_digest=A)
    w.well("ApprovalDenied", approval_id="c/a")
    return w.say("ToolCallAuthorized", **AUTHORIZED | {"basis": "APPROVAL", "approval_id": "c/a"})


@breaks("U2")
def allowed_by_an_approval_that_has_expired(w: Walk) -> Verdict:
    w.running().call()
    w.well("ApprovalRequested", approval_id="c/a", subject_id="c", decision_id="d", arguments_digest=A)
    w.well("ApprovalExpired", approval_id="c/a")
    return w.say("ToolCallAuthorized", **AUTHORIZED | {"basis": "APPROVAL", "approval_id": "c/a"})


@breaks("U2")
def allowed_by_an_approval_of_other_arguments(w: Walk) -> Verdict:
    w.running().call().granted()
    return w.say(
        "ToolCallAuthorized",
        **AUTHORIZED | {"basis": "APPROVAL", "approval_id": "c/a", "effective_arguments_digest": B},
    )


@breaks("U2")
def allowed_by_an_approval_of_another_call(w: Walk) -> Verdict:
    w.running().call().call("other").granted("other")
    return w.say("ToolCallAuthorized", **AUTHORIZED | {"basis": "APPROVAL", "approval_id": "other/a"})


@breaks("U2")
def allowed_by_a_standing_grant_that_was_never_given(w: Walk) -> Verdict:
    w.running().call("other").granted("other")
    w.call()
    return w.say("ToolCallAuthorized", **AUTHORIZED | {"basis": "STANDING_GRANT"})


@breaks("U2")
def a_call_authorized_and_rejected(w: Walk) -> Verdict:
    return w.running().allowed().say("ToolCallRejected", tool_call_id="c", basis="LIMIT")


@breaks("U2")
def a_call_authorized_twice(w: Walk) -> Verdict:
    return w.running().allowed().say("ToolCallAuthorized", **AUTHORIZED)


@breaks("U2")
def an_unknown_basis(w: Walk) -> Verdict:
    return w.running().call().say("ToolCallAuthorized", **AUTHORIZED | {"basis": "UNKNOWN"})


@breaks("U3", everywhere=True)
def a_start_without_leave(w: Walk) -> Verdict:
    return w.running().call().say("ToolCallStarted", tool_call_id="c", attempt=1)


@breaks("U3", everywhere=True)
def a_start_that_skips_an_attempt(w: Walk) -> Verdict:
    return w.running().allowed().say("ToolCallStarted", tool_call_id="c", attempt=2)


@breaks("U4", everywhere=True)
def a_second_receipt(w: Walk) -> Verdict:
    w.running().running_call().well("ToolReceiptRecorded", **RECEIPT)
    return w.say("ToolReceiptRecorded", **RECEIPT)


@breaks("U4", everywhere=True)
def a_receipt_of_an_attempt_that_never_was(w: Walk) -> Verdict:
    return w.running().running_call().say("ToolReceiptRecorded", **RECEIPT | {"attempt": 2})


@breaks("U4", everywhere=True)
def a_receipt_before_the_start(w: Walk) -> Verdict:
    return w.running().allowed().say("ToolReceiptRecorded", **RECEIPT)


@breaks("U4", everywhere=True)
def a_failure_of_an_attempt_that_has_ended(w: Walk) -> Verdict:
    failed = {"tool_call_id": "c", "attempt": 1, "reason": "TIMEOUT", "not_started": False}
    w.running().running_call().well("ToolCallFailed", **failed)
    return w.say("ToolCallFailed", **failed)


@breaks("U4", everywhere=True)
def a_failure_of_another_attempt(w: Walk) -> Verdict:
    return w.running().running_call().say("ToolCallFailed", tool_call_id="c", attempt=2, reason="TIMEOUT")


@breaks("U4", everywhere=True)
def a_retry_of_what_may_have_run(w: Walk) -> Verdict:
    w.running().running_call().well("ToolCallFailed", tool_call_id="c", attempt=1, reason="TIMEOUT", not_started=False)
    return w.say("ToolRetryDecided", tool_call_id="c", attempt=1, retry=True)


@breaks("U4", everywhere=True)
def the_end_of_a_sub_session_that_no_call_started(w: Walk) -> Verdict:
    return w.running().running_call().say("SubSessionEnded", child_session="kid", child_final_hash=A)


@breaks("U4", everywhere=True)
def a_receipt_beside_the_end_of_the_sub_session(w: Walk) -> Verdict:
    w.running().running_call(child_session="kid").well("SubSessionEnded", child_session="kid", child_final_hash=A)
    return w.say("ToolReceiptRecorded", **RECEIPT)


# --- V, pairing, fields ---------------------------------------------------------------------------------------------


@breaks("V1")
def a_validation_of_nothing(w: Walk) -> Verdict:
    return w.running().say("ValidationRequested", **VALIDATION)


@breaks("V1")
def a_validation_of_what_is_yet_to_come(w: Walk) -> Verdict:
    w.running().inference()
    return w.say("ValidationRequested", **VALIDATION | {"target": {"seq": w.seq + 1, "hash": None}})


@breaks("V2", everywhere=True)
def a_second_decision(w: Walk) -> Verdict:
    w.running().inference().well("ValidationRequested", **VALIDATION)
    w.well("ValidationDecided", validation_id="v", basis="PURE", verdict="PASS")
    return w.say("ValidationDecided", validation_id="v", basis="PURE", verdict="REJECT")


@breaks("V2", everywhere=True)
def a_decision_on_a_report_that_nobody_made(w: Walk) -> Verdict:
    w.running().inference().well("ValidationRequested", **VALIDATION)
    return w.say("ValidationDecided", validation_id="v", basis="REPORTED", verdict="PASS")


@breaks("V2", everywhere=True)
def a_decision_on_an_inference_that_is_not_cited(w: Walk) -> Verdict:
    w.running().inference().well("ValidationRequested", **VALIDATION)
    return w.say("ValidationDecided", validation_id="v", basis="INFERENCE", verdict="PASS")


@breaks("K2", everywhere=True)
def a_compression_that_ends_twice(w: Walk) -> Verdict:
    digests = {"rule_id": "r", "rule_digest": A, "input_digest": A, "output_digest": A}
    w.running().well("CompressionCompleted", compression_id="k", **digests)
    return w.say("CompressionCompleted", compression_id="k", **digests)


@breaks("K2", everywhere=True)
def a_compression_that_fails_unstarted(w: Walk) -> Verdict:
    return w.running().say("CompressionFailed", compression_id="k")


OPENING: list[tuple[str, dict[str, Any]]] = [
    ("ToolCallRequested", {"tool_call_id": "x", "arguments_digest": A}),
    ("ApprovalRequested", {"approval_id": "x", "decision_id": "d", "arguments_digest": A}),
    ("InputRequested", {"request_id": "x"}),
    ("RetrievalRequested", {"item_id": "x"}),
    ("CompressionStarted", {"compression_id": "x", "rule_id": "r", "rule_digest": A, "input_digest": A}),
    ("ValidationRequested", VALIDATION | {"validation_id": "x"}),
    ("TurnStarted", {"turn_id": "x"}),
    ("StageScheduled", {"stage_id": "x", "inputs_digest": A}),
    ("PolicyEvaluated", DECISION | {"decision_id": "x"}),
    ("ContextPackBuilt", {"pack_id": "x", "template_digest": A, "request_digest": A}),
]

CLOSING: list[tuple[str, dict[str, Any]]] = [
    ("ApprovalGranted", {"approval_id": "x", "arguments_digest": A}),
    ("ApprovalDenied", {"approval_id": "x"}),
    ("ApprovalExpired", {"approval_id": "x"}),
    ("ApprovalWithdrawn", {"approval_id": "x"}),
    ("InputProvided", {"request_id": "x"}),
    ("ContextItemRetrieved", {"item_id": "x"}),
    ("VerdictReported", {"validation_id": "x"}),
    ("ValidationAmended", {"validation_id": "x"}),
    ("ToolRetryDecided", {"tool_call_id": "x", "attempt": 1, "retry": False}),
    ("TurnCompleted", {"turn_id": "x"}),
    ("TurnAborted", {"turn_id": "x"}),
    ("StageStarted", {"stage_id": "x"}),
    ("StageCompleted", {"stage_id": "x", "outputs_digest": A}),
    ("StageFailed", {"stage_id": "x"}),
    ("StageSkipped", {"stage_id": "x"}),
    ("StageCancelled", {"stage_id": "x"}),
]

F1_CASES: list[tuple[str, dict[str, Any]]] = [
    ("InferenceRequested", INFERENCE | {"request_digest": None}),
    ("StageScheduled", {"stage_id": "x", "inputs_digest": None}),
    ("PolicyEvaluated", DECISION | {"engine": None}),
    ("ConfigPinned", {"kind": "POLICY", "name": "n", "version": "1", "digest": None, "effective": "NEXT_TURN"}),
]


@pytest.mark.parametrize(
    ("rule", "story"), [(r, s) for r, _, _, s in BROKEN], ids=[f"{r}-{n}" for r, n, _, _ in BROKEN]
)
def test_a_broken_rule_is_a_violation_in_strict(rule: str, story: Story) -> None:
    walk = Walk("STRICT")
    verdict = story(walk)
    assert rule in verdict.violations
    assert (verdict.opened, verdict.closed) == ((), ())


@pytest.mark.parametrize("profile", ["OBSERVED", "IMPORTED"])
@pytest.mark.parametrize(
    ("rule", "everywhere", "story"), [(r, e, s) for r, _, e, s in BROKEN], ids=[f"{r}-{n}" for r, n, _, _ in BROKEN]
)
def test_other_profiles_hold_or_relax_it(rule: str, everywhere: bool, story: Story, profile: str) -> None:
    verdict = story(Walk(profile))
    if everywhere:
        assert rule in verdict.violations
    else:
        assert rule in verdict.findings
        assert verdict.violations == ()


@pytest.mark.parametrize("story", [s for _, _, _, s in BROKEN], ids=[n for _, n, _, _ in BROKEN])
def test_a_violation_changes_nothing(story: Story) -> None:
    walk = Walk("STRICT")
    before: list[bytes] = []

    def watched(type_: str, **body: Any) -> Verdict:
        before.append(picture(walk))
        verdict = judge(walk.session, walk.ops, walk.event(type_, **body))
        walk.seq += 1
        return verdict

    walk.say = watched  # type: ignore[method-assign]
    assert story(walk).violations
    assert picture(walk) == before[-1]


def picture(walk: Walk) -> bytes:
    return msgspec.msgpack.encode((walk.session, sorted(walk.ops.rows.items(), key=lambda row: row[0])))


def test_every_rule_has_a_story() -> None:
    assert {rule for rule, _, _, _ in BROKEN} | {"F1"} == {
        "E1", "E5", "S1", "S2", "S3", "S4", "S5", "S6", "S7", "I1", "I2", "U1", "U2", "U3", "U4", "V1", "V2", "K2",
        "P1", "P2", "F1",
    }  # fmt: skip


@pytest.mark.parametrize(("type_", "body"), OPENING, ids=[t for t, _ in OPENING])
def test_p1_an_operation_is_opened_once(type_: str, body: dict[str, Any]) -> None:
    strict = Walk().running().inference()
    strict.well(type_, **body)
    assert strict.say(type_, **body).violations == ("P1",)
    observed = Walk("OBSERVED").running().inference()
    observed.well(type_, **body)
    assert observed.say(type_, **body) == Verdict(findings=("P1",))


@pytest.mark.parametrize(("type_", "body"), CLOSING, ids=[t for t, _ in CLOSING])
def test_p2_what_ends_an_operation_finds_it_open(type_: str, body: dict[str, Any]) -> None:
    assert Walk().running().say(type_, **body).violations == ("P2",)
    assert Walk("OBSERVED").running().say(type_, **body).findings == ("P2",)


@pytest.mark.parametrize("type_", ["ContextItemRetrieved", "VerdictReported"])
def test_some_facts_stand_alone_in_imports(type_: str) -> None:
    body = {"item_id": "x", "validation_id": "x"}
    walk = Walk("IMPORTED").running()
    walk.well(type_, **body)
    assert walk.session.operations_open() == 0


@pytest.mark.parametrize(("type_", "body"), F1_CASES, ids=[t for t, _ in F1_CASES])
def test_f1_strict_sessions_leave_nothing_out(type_: str, body: dict[str, Any]) -> None:
    assert Walk().running().say(type_, **body).violations == ("F1",)
    Walk("OBSERVED").running().well(type_, **body)


def test_s1_the_first_event_is_session_created() -> None:
    walk = Walk()
    assert walk.say("NoteRecorded").violations == ("S1",)
    assert walk.say("SessionCreated", profile="OBSERVED", relation="NONE").violations == ("S1",)
    assert walk.session == SessionState()


def test_a_relaxed_rule_folds_the_event_in_full() -> None:
    walk = Walk("OBSERVED").running().call()
    assert walk.say("ToolCallAuthorized", **AUTHORIZED).findings == ("U2",)
    walk.well("ToolCallStarted", tool_call_id="c", attempt=1)
    assert walk.well("ToolReceiptRecorded", **RECEIPT).closed == (("TOOL", "c"),)


def test_unrecorded_imports_are_for_imports() -> None:
    unrecorded = AUTHORIZED | {"basis": "UNRECORDED_IMPORT", "decision_id": None}
    Walk("IMPORTED").running().call().well("ToolCallAuthorized", **unrecorded)
    assert Walk("OBSERVED").running().call().say("ToolCallAuthorized", **unrecorded).findings == ("U2",)
    assert Walk("STRICT").running().call().say("ToolCallAuthorized", **unrecorded).violations == ("U2",)


def test_an_unknown_type_that_says_so_is_ignored_anywhere() -> None:
    walk = Walk().created()
    walk.well("FutureThing", ignorable=True)
    walk = Walk().running()
    walk.well("SessionCompleted", open_ops=[])
    walk.well("FutureThing", ignorable=True)


# --- calls ----------------------------------------------------------------------------------------------------------


def test_a_modifying_policy_authorizes() -> None:
    walk = Walk().running().call()
    walk.well("PolicyEvaluated", **DECISION | {"decision": "MODIFY", "modified": {"digest": B}})
    walk.well("ToolCallAuthorized", **AUTHORIZED | {"effective_arguments_digest": B})


def test_an_approver_may_modify_the_arguments() -> None:
    walk = Walk().running().call().granted(modified_arguments={"digest": B})
    approved = AUTHORIZED | {"basis": "APPROVAL", "approval_id": "c/a", "decision_id": None}
    assert walk.say("ToolCallAuthorized", **approved).violations == ("U2",)
    walk.well("ToolCallAuthorized", **approved | {"effective_arguments_digest": B})


def test_a_policy_may_modify_what_was_approved() -> None:
    walk = Walk().running().call().granted()
    walk.well("PolicyEvaluated", **DECISION | {"decision": "MODIFY", "modified": {"digest": B}})
    changed = AUTHORIZED | {"basis": "APPROVAL", "approval_id": "c/a", "effective_arguments_digest": B}
    walk.well("ToolCallAuthorized", **changed)


@pytest.mark.parametrize("scope", ["SESSION", "RULE"])
def test_a_standing_grant_authorizes_later_calls(scope: str) -> None:
    walk = Walk().running().call("first").granted("first", scope)
    walk.call("c").well("ToolCallAuthorized", **AUTHORIZED | {"basis": "STANDING_GRANT", "approval_id": "first/a"})
    walk.call("d").well("ToolCallAuthorized", **AUTHORIZED | {"tool_call_id": "d", "basis": "STANDING_GRANT"})


def test_an_attempt_may_fail_and_be_retried() -> None:
    walk = Walk().running().running_call(effect="READ")
    failed = walk.well("ToolCallFailed", tool_call_id="c", attempt=1, reason="TIMEOUT", not_started=False)
    assert failed.closed == (("TOOL", "c"),)
    assert walk.well("ToolRetryDecided", tool_call_id="c", attempt=1, retry=True).opened == (("TOOL", "c"),)
    walk.well("ToolCallStarted", tool_call_id="c", attempt=2)
    late = walk.well("ToolReceiptRecorded", **RECEIPT)
    assert late.closed == (("TOOL", "c"),), "the first receipt of any attempt closes the call"
    assert walk.session.running == 0


def test_what_surely_did_not_run_may_be_retried() -> None:
    walk = Walk().running().running_call()
    walk.well("ToolCallFailed", tool_call_id="c", attempt=1, reason="INFRA", not_started=True)
    walk.well("ToolRetryDecided", tool_call_id="c", attempt=1, retry=True)


def test_what_an_executor_can_tell_apart_may_be_retried() -> None:
    walk = Walk().running().running_call(idempotency_key="k")
    walk.well("ToolCallFailed", tool_call_id="c", attempt=1, reason="EXECUTOR_CRASH", not_started=False)
    walk.well("ToolRetryDecided", tool_call_id="c", attempt=1, retry=True)


def test_a_dispatch_that_never_started() -> None:
    walk = Walk().running().allowed()
    walk.well("ToolCallFailed", tool_call_id="c", attempt=1, reason="TIMEOUT", not_started=True)
    walk.well("ToolCallStarted", tool_call_id="c", attempt=2)


def test_an_unknown_outcome_leaves_the_call_open() -> None:
    walk = Walk().running().running_call()
    verdict = walk.well("ToolCallFailed", tool_call_id="c", attempt=1, reason="UNKNOWN_OUTCOME", not_started=False)
    assert verdict.closed == ()
    assert walk.say("SessionCompleted", open_ops=[]).violations == ("S4",)
    walk.well("SessionCompleted", open_ops=["c"])
    assert walk.well("ToolReceiptRecorded", **RECEIPT).closed == (("TOOL", "c"),)


def test_a_receipt_may_come_between_the_decision_to_retry_and_the_next_start() -> None:
    walk = Walk().running().running_call(effect="READ")
    walk.well("ToolCallFailed", tool_call_id="c", attempt=1, reason="UNKNOWN_OUTCOME", not_started=False)
    walk.well("ToolRetryDecided", tool_call_id="c", attempt=1, retry=True)
    assert walk.well("ToolReceiptRecorded", **RECEIPT).closed == (("TOOL", "c"),)


def test_the_current_turn_is_the_one_begun_last_while_it_is_open() -> None:
    walk = Walk().running()
    walk.well("TurnStarted", turn_id="a", agent="x")
    walk.well("TurnStarted", turn_id="b", agent="y")
    walk.well("TurnCompleted", turn_id="a")
    assert walk.session.turn == "b"
    walk.well("TurnAborted", turn_id="b")
    assert walk.session.turn == ""


def test_giving_up_closes_a_call_for_good() -> None:
    walk = Walk().running().running_call()
    walk.well("ToolCallFailed", tool_call_id="c", attempt=1, reason="UNKNOWN_OUTCOME", not_started=False)
    assert walk.well("ToolRetryDecided", tool_call_id="c", attempt=1, retry=False).closed == (("TOOL", "c"),)
    assert walk.say("ToolReceiptRecorded", **RECEIPT).violations == ("U4",)


def test_the_end_of_a_sub_session_closes_its_call() -> None:
    walk = Walk().running().running_call(child_session="kid")
    assert walk.well("SubSessionEnded", child_session="kid", child_final_hash=A).closed == (("TOOL", "c"),)
    walk.running_call("d", child_session="kid2")
    walk.well("SubSessionEnded", child_session="kid2", tool_call_id="d", child_final_hash=A)
    assert walk.session.operations_open() == 0


def test_u1_is_not_judged_beyond_what_is_remembered() -> None:
    calls = tuple(f"c{n}" for n in range(70))
    walk = Walk().running().inference(calls=calls)
    walk.well("ToolCallRequested", tool_call_id="c69", inference_id="i", arguments_digest=A)
    op = walk.ops.get("INFERENCE", "i")
    assert op is not None
    assert len(op.listed) == 64


# --- recovery -------------------------------------------------------------------------------------------------------


def open_one_of_each(walk: Walk) -> Walk:
    walk.running_call("run").allowed("ready").call("asked")
    walk.well("InferenceRequested", **INFERENCE)
    walk.well("ApprovalRequested", approval_id="a", subject_id="asked", decision_id="d", arguments_digest=A)
    walk.well("InputRequested", request_id="q")
    walk.well("CompressionStarted", compression_id="k", rule_id="r", rule_digest=A, input_digest=A)
    walk.well("ValidationRequested", **VALIDATION)
    walk.well("RetrievalRequested", item_id="x")
    return walk


ALL_OPEN = [
    ("TOOL", "run"), ("TOOL", "ready"), ("TOOL", "asked"), ("INFERENCE", "i"), ("APPROVAL", "a"), ("INPUT", "q"),
    ("COMPRESSION", "k"), ("VALIDATION", "v"), ("RETRIEVAL", "x"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("resolution", "left_open", "running"),
    [
        ("FAILED", set(), 0),
        ("ABANDONED", set(), 0),
        ("RETRY", {(k, i) for k, i in ALL_OPEN if k != "INFERENCE"}, 0),
        ("UNKNOWN_OUTCOME", {(k, i) for k, i in ALL_OPEN if k != "INFERENCE"}, 1),
        ("AWAIT_RECEIPT", set(ALL_OPEN), 1),
        ("KEEP_WAITING", set(ALL_OPEN), 1),
    ],
)
def test_a_recovery_resolves_all_that_is_open(resolution: str, left_open: set[tuple[str, str]], running: int) -> None:
    walk = open_one_of_each(Walk().running())
    assert walk.session.operations_open() == len(ALL_OPEN)
    walk.epoch = 1
    verdict = walk.well("SessionRecovered", **recovery(walk, *((k, i, resolution) for k, i in ALL_OPEN)))
    assert set(verdict.closed) == set(ALL_OPEN) - left_open
    assert walk.session.operations_open() == len(left_open)
    assert walk.session.running == running
    assert walk.session.epoch == 1


def test_a_retried_call_starts_again() -> None:
    walk = Walk().running().running_call()
    walk.epoch = 1
    walk.well("SessionRecovered", **recovery(walk, ("TOOL", "c", "RETRY")))
    walk.well("ToolCallStarted", tool_call_id="c", attempt=2)


def test_an_awaited_receipt_may_still_come() -> None:
    walk = Walk().running().running_call()
    walk.epoch = 1
    walk.well("SessionRecovered", **recovery(walk, ("TOOL", "c", "AWAIT_RECEIPT")))
    walk.well("ToolReceiptRecorded", **RECEIPT)


def test_a_call_may_be_named_by_its_child_session() -> None:
    walk = Walk().running().running_call(child_session="kid")
    walk.epoch = 1
    verdict = walk.well("SessionRecovered", **recovery(walk, ("SUBSESSION", "kid", "ABANDONED")))
    assert verdict.closed == (("TOOL", "c"),)


def test_a_recovery_after_the_end() -> None:
    walk = Walk().running().running_call()
    walk.well("SessionFailed", open_ops=["c"])
    walk.epoch = 1
    walk.well("SessionRecovered", **recovery(walk, ("TOOL", "c", "ABANDONED")))
    assert walk.session.status == "FAILED"


# --- forks ----------------------------------------------------------------------------------------------------------


def test_a_fork_goes_on_where_its_parent_stood() -> None:
    parent = Walk().running().call("first").granted("first", "SESSION")
    parent.well("ToolCallAuthorized", **AUTHORIZED | {"tool_call_id": "first", "basis": "STANDING_GRANT"})
    parent.well("ToolCallStarted", tool_call_id="first", attempt=1)
    parent.well("ToolReceiptRecorded", **RECEIPT | {"tool_call_id": "first"})
    parent.well("StageScheduled", stage_id="plan.1", inputs_digest=A)
    parent.well("StageStarted", stage_id="plan.1")
    child = Walk()
    child.well("SessionForked", **a_child(child, parent))
    assert (child.session.status, child.session.stage, child.session.grants) == ("RUNNING", "plan.1", 0)
    assert child.session.config_set_digest == parent.session.config_set_digest
    assert child.session.inherited is None
    child.well("StageCompleted", stage_id="plan.1", outputs_digest=A)
    child.call()
    assert child.say("ToolCallAuthorized", **AUTHORIZED | {"basis": "STANDING_GRANT"}).violations == ("U2",)
    # What lies in the parent cannot be looked up here, and is taken to be there.
    child.well("ValidationRequested", **VALIDATION)
    child.well("InferenceRequested", **INFERENCE | {"purpose": "AGENT", "pack_id": "the parent's"})
    grandchild = Walk()
    child.well("InferenceCompleted", **COMPLETED)
    child.well("ToolCallRejected", tool_call_id="c", basis="LIMIT")
    child.well("ValidationDecided", validation_id="v", basis="PURE", verdict="PASS")
    grandchild.well("SessionForked", **a_child(grandchild, child, at="s~f2"))
    assert grandchild.session.status == "RUNNING"


def test_a_fork_before_the_start_starts_itself() -> None:
    parent = Walk().created()
    child = Walk()
    child.well("SessionForked", **a_child(child, parent))
    assert child.session.status == "CREATED"
    assert child.say("TurnStarted", turn_id="t").violations == ("S3",)


def test_a_fork_in_many_stages_is_not_judged_by_those_it_cannot_know() -> None:
    parent = Walk().running()
    for n in range(70):
        parent.well("StageScheduled", stage_id=f"s{n}", inputs_digest=A)
    child = Walk()
    child.well("SessionForked", **a_child(child, parent))
    child.well("StageStarted", stage_id="s69")
    child.well("StageStarted", stage_id="s1")
    assert len(parent.session.stages) == 64


# --- amendments -----------------------------------------------------------------------------------------------------


def test_after_a_stub_a_broken_rule_is_a_finding_and_the_event_is_folded() -> None:
    walk = Walk().running()
    walk.say("ToolCallRequested", stub="ERASED")
    verdict = walk.say("ToolCallStarted", tool_call_id="c", attempt=1)
    assert verdict == Verdict(findings=("U3",), opened=(("TOOL", "c"),))
    walk.well("ToolReceiptRecorded", **RECEIPT)


def test_a_stub_keeps_the_sessions_own_state() -> None:
    walk = Walk()
    for type_, status in [
        ("SessionCreated", "CREATED"), ("SessionStarted", "RUNNING"), ("SessionPaused", "PAUSED"),
        ("SessionResumed", "RUNNING"), ("NoteRecorded", "RUNNING"), ("SessionCompleted", "COMPLETED"),
    ]:  # fmt: skip
        assert walk.say(type_, stub="SKIPPED") == Verdict()
        assert walk.session.status == status


def test_the_epoch_of_a_stub_counts() -> None:
    walk = Walk().running()
    walk.epoch = 3
    walk.say("SessionRecovered", stub="ERASED")
    assert walk.session.epoch == 3
    assert walk.say("SessionRecovered", **recovery(walk)).findings == ("S5",)


def test_a_fork_whose_fork_event_was_erased_still_goes_on() -> None:
    parent = Walk().running()
    parent.well("StageScheduled", stage_id="plan.1", inputs_digest=A)
    child = Walk()
    a_child(child, parent)
    child.say("SessionForked", stub="ERASED")
    assert (child.session.status, child.session.forked) == ("RUNNING", True)
    child.well("StageStarted", stage_id="plan.1")
    child.session.inherited = None
    inherit(parent.session, child.session)
    child.say("SessionForked", stub="ERASED")
    assert child.session.open_of("STAGE") == 1, "a stage that is known already is not opened again"


# --- configuration --------------------------------------------------------------------------------------------------


def test_a_later_pin_replaces_an_earlier_one_before_the_start() -> None:
    walk = Walk().created()
    for kind in sorted(PINNED_AT_START):
        for digest in (A, B):
            walk.well("ConfigPinned", kind=kind, name="n", effective="NOW", digest=digest, version="1")
    pins = [f"{kind}:n:{B.hex()}" for kind in PINNED_AT_START]
    walk.well("SessionStarted", config_set_digest=config_set_digest(pins), clock_start=1)
    assert walk.session.pins == []
    assert walk.session.config_set_digest == config_set_digest(sorted(pins))


def test_too_many_pins_are_not_compared_and_do_not_grow_the_row() -> None:
    walk = Walk().created()
    for kind in sorted(PINNED_AT_START):
        for n in range(40):
            walk.well("ConfigPinned", kind=kind, name=f"n{n}", effective="NOW", digest=A, version="1")
    assert len(walk.session.pins) == 64
    walk.well("SessionStarted", config_set_digest=B, clock_start=1)
    assert walk.session.config_set_digest == B


def test_rows_stay_small_whatever_ids_say() -> None:
    walk = Walk().running()
    long = "x" * 100_000
    assert walk.well("TurnStarted", turn_id=long).opened == walk.well("TurnCompleted", turn_id=long).closed
    walk.well("ToolCallRequested", tool_call_id=long, arguments_digest=A, effect="READ")
    walk.well("PolicyEvaluated", **DECISION | {"subject_id": long})
    walk.well("ToolCallAuthorized", **AUTHORIZED | {"tool_call_id": long})
    walk.well("ToolCallStarted", tool_call_id=long, attempt=1, child_session=long + "kid")
    walk.well("SessionFailed", open_ops=[long])
    assert max(len(msgspec.msgpack.encode(op)) for op in walk.ops.rows.values()) < 400
    assert max(len(id) for _, id in walk.ops.rows) <= 200
    assert len(msgspec.msgpack.encode(walk.session)) < 1000


def test_rows_survive_their_bytes() -> None:
    walk = open_one_of_each(Walk().running())
    session = msgspec.msgpack.decode(msgspec.msgpack.encode(walk.session), type=SessionState)
    assert session == walk.session
    for op in walk.ops.rows.values():
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(op), type=OpState) == op
