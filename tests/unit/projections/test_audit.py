"""The projection ``audit``, and the chain of causes that is read from its rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dalsegno.model.lifecycle.state import bounded
from dalsegno.projections.audit import Audit
from dalsegno.projections.audit_chain import Chain, Edge, Missing, chain
from dalsegno.projections.rows import AuditLink, AuditRow
from dalsegno.testing.builder import SessionBuilder, Written, blob, digest_of
from golden_session import golden_session
from projection_lab import rows_of

ARGS, OTHER = digest_of("args"), blob(b"other")["digest"]


def chain_of(builder: SessionBuilder, *more: Written, call: str = "c") -> Chain:
    return chain(call, rows_of(Audit(), builder, [*builder.records, *more]).get((call,)))


def types(found: Chain) -> list[str]:
    return [link.type for link in found.links]


def missing(found: Chain) -> list[str]:
    return [each.link for each in found.missing]


def session(profile: str = "OBSERVED") -> SessionBuilder:
    """With an answer that asks for the calls c and c2, made from a pack."""
    builder = SessionBuilder("s", profile=profile).begin()
    builder.append("ContextPackBuilt", pack_id="p")
    builder.append("InferenceRequested", inference_id="i", attempt=1, purpose="AGENT", pack_id="p")
    calls = [{"tool_call_id": id, "name": "n", "arguments_digest": None} for id in ("c", "c2")]
    builder.append("InferenceCompleted", inference_id="i", attempt=1, complete=True, usage={}, tool_calls=calls)
    return builder


@pytest.fixture
def builder() -> SessionBuilder:
    return session()


def request(builder: SessionBuilder, **fields: Any) -> int:
    named = {"tool_call_id": "c", "name": "shell", "inference_id": "i", "arguments_digest": ARGS, **fields}
    builder.append("ToolCallRequested", **named)
    return builder.events[-1].seq


def decide(builder: SessionBuilder, decision: str = "ALLOW", **fields: Any) -> int:
    named = {"decision_id": "d", "subject": "TOOL_CALL", "subject_id": "c", "decision": decision, **fields}
    builder.append("PolicyEvaluated", **named)
    return builder.events[-1].seq


def ask(builder: SessionBuilder, **fields: Any) -> int:
    named = {"approval_id": "a", "subject": "TOOL_CALL", "subject_id": "c", "decision_id": "d", **fields}
    builder.append("ApprovalRequested", **named)
    return builder.events[-1].seq


def grant(builder: SessionBuilder, scope: str = "ONCE", **fields: Any) -> int:
    builder.append("ApprovalGranted", **{"approval_id": "a", "scope": scope, "arguments_digest": ARGS, **fields})
    return builder.events[-1].seq


def authorize(builder: SessionBuilder, basis: str, **fields: Any) -> int:
    named = {"tool_call_id": "c", "basis": basis, "effective_arguments_digest": ARGS, **fields}
    builder.append("ToolCallAuthorized", **named)
    return builder.events[-1].seq


def run(builder: SessionBuilder, call: str = "c") -> tuple[int, int]:
    builder.append("ToolCallStarted", tool_call_id=call, attempt=1)
    builder.append("ToolReceiptRecorded", tool_call_id=call, attempt=1, status="OK", receipt_id="r")
    return builder.events[-2].seq, builder.events[-1].seq


# --- whole chains -----------------------------------------------------------------------------------------------------


def test_a_call_that_a_policy_allowed_leads_back_to_what_the_model_was_shown() -> None:
    found = chain_of(golden_session(), call="write.1/t1/c0")
    assert (found.outcome, found.missing, found.refused) == ("EXECUTED", (), ())
    assert types(found) == [
        "ToolReceiptRecorded", "ToolCallStarted", "ToolCallAuthorized", "PolicyEvaluated", "ToolCallRequested",
        "InferenceCompleted",
    ]  # fmt: skip
    steps = [(27, 26), (26, 23), (23, 22), (22, 20), (20, 19), (19, 18), (18, 15)]
    assert found.edges == tuple(Edge(effect, cause, "ID") for effect, cause in steps)


def test_a_call_that_a_person_approved_leads_back_by_question_and_policy() -> None:
    found = chain_of(golden_session(), call="write.1/t1/c1")
    assert (found.outcome, found.missing) == ("EXECUTED", ())
    assert types(found) == [
        "ToolReceiptRecorded", "ToolCallStarted", "ToolCallAuthorized", "ApprovalGranted", "ApprovalRequested",
        "PolicyEvaluated", "ToolCallRequested", "InferenceCompleted",
    ]  # fmt: skip
    steps = [(35, 34), (34, 30), (30, 29), (29, 25), (25, 24), (30, 24), (24, 21), (21, 19), (19, 18), (18, 15)]
    assert found.edges == tuple(Edge(effect, cause, "ID") for effect, cause in steps)
    assert [(link.seq, link.type, link.violations) for link in found.refused] == [(28, "ToolCallStarted", ["U3"])]


@pytest.mark.parametrize(
    ("call", "seq", "wanted"),
    [
        ("c0", 15, Missing("pack", 18, "context pack write.1/t1/p is not on the path")),
        ("c0", 18, Missing("inference request", 19, "nothing asked for inference write.1/t1/i")),
        ("c0", 19, Missing("inference", 20, "no answer of inference write.1/t1/i is on the path")),
        ("c0", 20, Missing("request", 22, "nothing asked for the call")),
        ("c0", 22, Missing("decision", 23, "no decision write.1/t1/c0/d about this call is on the path")),
        ("c0", 23, Missing("authorization", 26, "nothing authorised the call")),
        ("c0", 26, Missing("start", 27, "nothing started attempt 1")),
        ("c0", 27, Missing("receipt", None, "there is no result: RUNNING")),
        ("c1", 24, Missing("decision", 25, "no decision write.1/t1/c1/d about this call is on the path")),
        (
            "c1",
            25,
            Missing("approval request", 29, "no question for approval write.1/t1/c1/a1 about this call is on the path"),
        ),
        (
            "c1",
            29,
            Missing("approval", 30, "approval write.1/t1/c1/a1 has no such answer on the path"),
        ),
        ("c1", 30, Missing("authorization", 34, "nothing authorised the call")),
        ("c1", 34, Missing("start", 35, "nothing started attempt 2")),
    ],
)
def test_a_link_that_is_gone_is_named(call: str, seq: int, wanted: Missing) -> None:
    builder = golden_session()
    found = chain_of(builder, builder.amend([builder.records[seq - 1]]), call=f"write.1/t1/{call}")
    assert wanted in found.missing
    assert found.outcome == ("RUNNING" if wanted.link == "receipt" else "EXECUTED")
    assert seq not in {edge.cause for edge in found.edges} | {edge.effect for edge in found.edges}
    assert {each.link for each in found.missing} <= {wanted.link, "decision"}


# --- the bases of an authorization ------------------------------------------------------------------------------------


def test_a_recording_that_does_not_say_who_let_it_run() -> None:
    builder = session("IMPORTED")
    request(builder)
    at = authorize(builder, "UNRECORDED_IMPORT", effective_arguments_digest=None)
    run(builder)
    found = chain_of(builder)
    assert not any(verdict.violations for verdict in builder.verdicts)
    assert found.outcome == "EXECUTED"
    assert found.missing == (
        Missing("decision", at, "the recording does not say who let it run (UNRECORDED_IMPORT)"),
        Missing("arguments", at, "a digest of the arguments is not recorded, so nothing can be compared"),
    )


def test_a_recording_of_calls_alone() -> None:
    builder = SessionBuilder("s", profile="IMPORTED").begin()
    asked = request(builder, inference_id=None)
    authorize(builder, "UNRECORDED_IMPORT")
    run(builder)
    found = chain_of(builder)
    assert found.missing[1] == Missing("inference", asked, "the request names no inference")
    assert missing(found) == ["decision", "inference"]


def test_an_inference_without_a_pack() -> None:
    builder = SessionBuilder("s", profile="IMPORTED").begin()
    builder.append("InferenceRequested", inference_id="i", attempt=1, purpose="OTHER")
    asked = builder.events[-1].seq
    calls = [{"tool_call_id": "c", "name": "n", "arguments_digest": None}]
    builder.append("InferenceCompleted", inference_id="i", attempt=1, complete=True, usage={}, tool_calls=calls)
    request(builder)
    authorize(builder, "UNRECORDED_IMPORT")
    run(builder)
    assert chain_of(builder).missing[1] == Missing("pack", asked, "the inference names no context pack")


@pytest.mark.parametrize(("basis", "link"), [("POLICY_ALLOW", "decision"), ("APPROVAL", "approval")])
def test_an_authorization_that_cites_nothing(builder: SessionBuilder, basis: str, link: str) -> None:
    request(builder)
    at = authorize(builder, basis)
    run(builder)
    assert chain_of(builder).missing == (Missing(link, at, f"it names no {link}"),)


@pytest.mark.parametrize("scope", ["SESSION", "RULE"])
def test_a_standing_grant_that_was_given_for_another_call(builder: SessionBuilder, scope: str) -> None:
    request(builder)
    request(builder, tool_call_id="c2")
    decide(builder, "REQUIRE_APPROVAL")
    ask(builder)
    granted = grant(builder, scope)
    at = authorize(builder, "STANDING_GRANT", tool_call_id="c2", approval_id="a")
    run(builder, "c2")
    found = chain_of(builder, call="c2")
    assert not any(verdict.violations or verdict.findings for verdict in builder.verdicts)
    assert (found.outcome, found.missing) == ("EXECUTED", ())
    assert Edge(at, granted, "ID") in found.edges
    (link,) = (link for link in found.links if link.type == "ApprovalGranted")
    assert (link.of_call, link.says, link.approval_id) == ("c", scope, "a")
    authorize(builder, "STANDING_GRANT", approval_id="a")
    found = chain_of(builder)
    assert [link.seq for link in found.links if link.type == "ApprovalGranted"] == [granted]
    assert missing(found) == ["receipt"]


def test_a_standing_grant_that_is_not_named(builder: SessionBuilder) -> None:
    request(builder)
    at = authorize(builder, "STANDING_GRANT")
    assert chain_of(builder).missing[-1] == Missing("approval", at, "it names no approval")


def test_a_grant_that_nothing_asked_for_is_found_by_who_cites_it() -> None:
    builder = session("IMPORTED")
    request(builder)
    granted = grant(builder)
    at = authorize(builder, "APPROVAL", approval_id="a")
    run(builder)
    found = chain_of(builder)
    assert Edge(at, granted, "ID") in found.edges
    assert missing(found) == ["approval request"]


def test_a_simulated_call(builder: SessionBuilder) -> None:
    request(builder)
    authorize(builder, "SIMULATED")
    run(builder)
    found = chain_of(builder)
    assert (found.outcome, found.missing) == ("SIMULATED", ())


# --- the arguments ----------------------------------------------------------------------------------------------------


def test_arguments_that_a_policy_put_in_place(builder: SessionBuilder) -> None:
    request(builder)
    decide(builder, "MODIFY", modified=blob(b"other"))
    authorize(builder, "POLICY_ALLOW", decision_id="d", effective_arguments_digest=OTHER)
    run(builder)
    assert chain_of(builder).missing == ()


def test_arguments_that_an_approver_put_in_place(builder: SessionBuilder) -> None:
    request(builder)
    decide(builder, "REQUIRE_APPROVAL")
    ask(builder, arguments_digest=ARGS)
    grant(builder, modified_arguments=blob(b"other"))
    authorize(builder, "APPROVAL", approval_id="a", effective_arguments_digest=OTHER)
    run(builder)
    assert chain_of(builder).missing == ()


def test_arguments_that_nobody_put_in_place(builder: SessionBuilder) -> None:
    request(builder)
    decide(builder)
    at = authorize(builder, "POLICY_ALLOW", decision_id="d", effective_arguments_digest=OTHER)
    run(builder)
    assert chain_of(builder).missing == (Missing("arguments", at, "what was let run is not what was asked for"),)


def test_arguments_that_leave_was_not_given_for(builder: SessionBuilder) -> None:
    request(builder)
    decide(builder, "REQUIRE_APPROVAL")
    ask(builder)
    grant(builder, arguments_digest=OTHER)
    at = authorize(builder, "APPROVAL", approval_id="a")
    run(builder)
    assert builder.verdicts[-3].findings == ("U2",)
    assert chain_of(builder).missing == (Missing("arguments", at, "what was let run is not what leave was given for"),)


def test_leave_that_does_not_say_for_which_arguments() -> None:
    builder = session("IMPORTED")
    request(builder)
    ask(builder, decision_id=None)
    grant(builder, arguments_digest=None)
    authorize(builder, "APPROVAL", approval_id="a")
    run(builder)
    assert missing(chain_of(builder)) == ["decision"]


def test_a_question_about_other_arguments_puts_none_in_place() -> None:
    builder = session("IMPORTED")
    request(builder)
    ask(builder, decision_id=None, arguments_digest=OTHER)
    grant(builder, arguments_digest=None)
    authorize(builder, "APPROVAL", approval_id="a", effective_arguments_digest=OTHER)
    run(builder)
    assert missing(chain_of(builder)) == ["decision", "arguments"]


# --- calls that did not run, or of which it is not known --------------------------------------------------------------


@pytest.mark.parametrize(
    ("basis", "cites", "answers", "wanted"),
    [
        ("POLICY_DENY", "d", [], []),
        ("POLICY_DENY", None, [], ["decision"]),
        ("APPROVAL_DENIED", "a", ["ApprovalDenied"], []),
        ("APPROVAL_EXPIRED", "a", ["ApprovalExpired"], []),
        ("APPROVAL_EXPIRED", "a", ["ApprovalWithdrawn"], ["approval"]),
        ("LIMIT", None, [], []),
    ],
)
def test_a_rejected_call_leads_back_to_who_rejected_it(
    builder: SessionBuilder, basis: str, cites: str | None, answers: list[str], wanted: list[str]
) -> None:
    asked = request(builder)
    decide(builder, "REQUIRE_APPROVAL")
    ask(builder)
    for type_ in answers:
        builder.append(type_, approval_id="a")
    builder.append("ToolCallRejected", tool_call_id="c", basis=basis, cites=cites)
    found = chain_of(builder)
    assert (found.outcome, missing(found)) == ("REJECTED", wanted)
    assert asked in {edge.cause for edge in found.edges}
    for link in found.links:
        assert link.type in ("ToolCallRejected", "PolicyEvaluated", "ApprovalRequested", "ToolCallRequested",
                             "InferenceCompleted", *answers)  # fmt: skip


def test_a_rejection_finds_the_answer_whose_question_was_taken(builder: SessionBuilder) -> None:
    request(builder)
    ask(builder)
    question = builder.records[-1]
    builder.append("ApprovalDenied", approval_id="a", effect="CONTINUE", rejection_source="USER")
    denied = builder.events[-1].seq
    builder.append("ToolCallRejected", tool_call_id="c", basis="APPROVAL_DENIED", cites="a")
    found = chain_of(builder, builder.amend([question]))
    assert Edge(denied + 1, denied, "ID") in found.edges
    assert missing(found) == ["approval request"]


def _started(builder: SessionBuilder) -> None:
    request(builder)
    authorize(builder, "SIMULATED")
    builder.append("ToolCallStarted", tool_call_id="c", attempt=1, idempotency_key="k")


def _failed(builder: SessionBuilder, reason: str = "TIMEOUT") -> None:
    _started(builder)
    builder.append("ToolCallFailed", tool_call_id="c", attempt=1, reason=reason, not_started=False)


@pytest.mark.parametrize(
    ("act", "outcome", "head"),
    [
        (request, "REQUESTED", "ToolCallRequested"),
        (lambda b: (request(b), authorize(b, "SIMULATED")), "AUTHORIZED", "ToolCallAuthorized"),
        (_started, "RUNNING", "ToolCallStarted"),
        (_failed, "FAILED", "ToolCallFailed"),
        (lambda b: _failed(b, "UNKNOWN_OUTCOME"), "UNKNOWN_OUTCOME", "ToolCallFailed"),
        (lambda b: (_failed(b), _retry(b, True)), "AUTHORIZED", "ToolCallFailed"),
        (lambda b: (_failed(b), _retry(b, False)), "FAILED", "ToolCallFailed"),
        (lambda b: (_started(b), b.recover("RETRY")), "AUTHORIZED", "ToolCallStarted"),
        (lambda b: (_started(b), b.recover("ABANDONED")), "FAILED", "ToolCallStarted"),
        (lambda b: (_started(b), b.recover("FAILED")), "FAILED", "ToolCallStarted"),
        (lambda b: (_started(b), b.recover("AWAIT_RECEIPT")), "UNKNOWN_OUTCOME", "ToolCallStarted"),
        (lambda b: (_started(b), b.recover("UNKNOWN_OUTCOME")), "UNKNOWN_OUTCOME", "ToolCallStarted"),
        (lambda b: (request(b), b.recover("UNKNOWN_OUTCOME")), "REQUESTED", "ToolCallRequested"),
        (lambda b: (_started(b), b.recover("KEEP_WAITING")), "RUNNING", "ToolCallStarted"),
    ],
)
def test_a_call_without_a_result_says_how_far_it_came(
    builder: SessionBuilder, act: Callable[[SessionBuilder], Any], outcome: str, head: str
) -> None:
    act(builder)
    assert not any(verdict.violations for verdict in builder.verdicts)
    found = chain_of(builder)
    assert (found.outcome, found.links[0].type) == (outcome, head)
    assert found.missing[0] == Missing("receipt", None, f"there is no result: {outcome}")
    assert missing(found) == ["receipt"]
    assert types(found)[-2:] == ["ToolCallRequested", "InferenceCompleted"]


def _retry(builder: SessionBuilder, yes: bool) -> None:
    builder.append("ToolRetryDecided", tool_call_id="c", attempt=1, retry=yes)


def test_an_attempt_that_never_began_lacks_no_start(builder: SessionBuilder) -> None:
    request(builder)
    authorize(builder, "SIMULATED")
    builder.append("ToolCallFailed", tool_call_id="c", attempt=1, reason="INFRA", not_started=True)
    assert not any(verdict.violations for verdict in builder.verdicts)
    found = chain_of(builder)
    assert missing(found) == ["receipt"]
    assert types(found)[:2] == ["ToolCallFailed", "ToolCallAuthorized"]


def test_a_call_that_nothing_asked_for_is_seen_by_what_was_refused(builder: SessionBuilder) -> None:
    run(builder)
    found = chain_of(builder)
    assert (found.outcome, found.links, found.edges) == ("NOTHING", (), ())
    assert missing(found) == ["receipt", "request"]
    assert [(link.type, link.violations) for link in found.refused] == [
        ("ToolCallStarted", ["U3"]), ("ToolReceiptRecorded", ["U4"]),
    ]  # fmt: skip
    assert chain_of(builder, call="no such call").refused == ()


# --- other ways to a cause --------------------------------------------------------------------------------------------


def test_the_receipt_of_an_earlier_attempt_leads_to_that_attempts_start(builder: SessionBuilder) -> None:
    _failed(builder)
    first = builder.events[-2].seq
    builder.append("ToolCallStarted", tool_call_id="c", attempt=2, idempotency_key="k")
    builder.append("ToolReceiptRecorded", tool_call_id="c", attempt=1, status="OK", receipt_id="r")
    assert Edge(builder.events[-1].seq, first, "ID") in chain_of(builder).edges


@pytest.mark.parametrize("named", ["c", None])
def test_a_delegated_call_leads_from_the_childs_end(builder: SessionBuilder, named: str | None) -> None:
    request(builder)
    authorize(builder, "SIMULATED")
    builder.append("ToolCallStarted", tool_call_id="c", attempt=1, child_session="s2")
    builder.append("SubSessionEnded", child_session="s2", tool_call_id=named, outcome="SUCCESS", result=blob(b"x"))
    found = chain_of(builder)
    assert types(found)[:2] == ["SubSessionEnded", "ToolCallStarted"]
    assert (found.links[0].says, found.links[0].digest) == ("SUCCESS", blob(b"x")["digest"])


def test_a_recovery_names_a_delegated_call_by_its_child(builder: SessionBuilder) -> None:
    request(builder)
    authorize(builder, "SIMULATED")
    builder.append("ToolCallStarted", tool_call_id="c", attempt=1, child_session="s2")
    tip = builder.events[-1]
    builder.epoch += 1
    builder.append(
        "SessionRecovered",
        last_good={"seq": tip.seq, "hash": tip.hash, "event_id": None},
        in_flight=[{"kind": "SUBSESSION", "id": "s2", "resolution": "AWAIT_RECEIPT"}],
    )
    assert chain_of(builder).outcome == "UNKNOWN_OUTCOME"


def test_what_causation_ids_say_is_told_apart_from_what_ids_say(builder: SessionBuilder) -> None:
    def id_of(seq: int) -> dict[str, Any]:
        return {"causation_id": builder.events[seq - 1].meta["event_id"]}

    asked = request(builder)
    decided = decide(builder, meta=id_of(asked))
    at = authorize(builder, "POLICY_ALLOW", meta=id_of(decided))  # It does not name the decision that it rests on.
    run(builder)
    found = chain_of(builder)
    assert Edge(at, decided, "CAUSATION") in found.edges
    assert Edge(decided, asked, "BOTH") in found.edges
    assert Edge(asked, asked - 1, "ID") in found.edges
    assert found.missing == ()


def test_where_an_id_was_used_again_its_newest_use_is_told(builder: SessionBuilder) -> None:
    answered = builder.events[-1].seq
    request(builder)
    authorize(builder, "SIMULATED")
    run(builder)
    again = request(builder)
    assert builder.verdicts[-1].findings == ("P1",)
    found = chain_of(builder)
    assert (found.outcome, found.links[0].seq, found.links[0].findings) == ("REQUESTED", again, ["P1"])
    assert Edge(again, answered, "ID") in found.edges


def test_an_earlier_use_of_an_id_proves_nothing_for_a_later_one() -> None:
    used = ["ToolCallRequested", "ToolCallAuthorized", "ToolCallStarted", "ToolReceiptRecorded"]
    again = ["ToolCallRequested", "ToolCallStarted", "ToolReceiptRecorded"]
    links = [AuditLink(seq=seq, type=type_, says="SIMULATED") for seq, type_ in enumerate([*used, *again], 1)]
    found = chain("c", AuditRow(links=links))
    assert found.missing[0] == Missing("authorization", 6, "nothing authorised the call")
    assert {edge.cause for edge in found.edges} == {6, 5}


# --- rows -------------------------------------------------------------------------------------------------------------


def test_a_link_says_who_did_it_and_by_which_rules(builder: SessionBuilder) -> None:
    request(builder)
    meta = {"actor_kind": "POLICY", "actor_id": "x" * 600, "causation_id": "cause"}
    rules = ["r" * 300, *map(str, range(20))]
    decide(builder, "DENY", policy_digest=digest_of("policy"), rule_ids=rules, meta=meta)
    event = builder.events[-1]
    assert rows_of(Audit(), builder)["c",].links[-1] == AuditLink(
        seq=event.seq, type="PolicyEvaluated", at=event.meta["recorded_at"], actor_kind="POLICY",
        actor_id=bounded("x" * 600),
        says="DENY", policy_digest=digest_of("policy"), rule_ids=[bounded("r" * 300), *map(str, range(7))],
        decision_id="d", event_id=event.meta["event_id"], causation_id="cause",
    )  # fmt: skip


def test_only_what_bears_on_a_call_has_rows(builder: SessionBuilder) -> None:
    decide(builder, subject="INFERENCE", subject_id="i", decision_id="d1")
    decide(builder, subject_id=None, decision_id="d2")
    ask(builder, subject="INPUT", approval_id="a1")
    grant(builder, approval_id="a1")
    builder.append("InferenceRequested", inference_id="i2", attempt=1, purpose="OTHER")
    builder.append("InferenceCompleted", inference_id="i2", attempt=1, complete=True, usage={})
    builder.append("MessageReceived", message_id="m", role="USER")
    assert rows_of(Audit(), builder) == {}


@pytest.mark.parametrize(
    ("type_", "fields", "says"),
    [
        ("ApprovalDenied", {"effect": "ABORT_TURN", "rejection_source": "USER"}, "ABORT_TURN"),
        ("ApprovalExpired", {}, None),
        ("ApprovalWithdrawn", {"reason": "late"}, "late"),
    ],
)
def test_every_answer_says_to_which_question(
    builder: SessionBuilder, type_: str, fields: dict[str, Any], says: str | None
) -> None:
    request(builder)
    ask(builder)
    builder.append(type_, approval_id="a", **fields)
    link = rows_of(Audit(), builder)["c",].links[-1]
    assert (link.type, link.says, link.approval_id) == (type_, says, "a")


def test_a_second_answer_to_a_question_is_there_too(builder: SessionBuilder) -> None:
    request(builder)
    decide(builder, "REQUIRE_APPROVAL")
    ask(builder)
    builder.append("ApprovalDenied", approval_id="a", effect="CONTINUE", rejection_source="USER")
    granted = grant(builder)
    links = rows_of(Audit(), builder)["c",].links
    assert [(link.seq, link.says) for link in links[-2:]] == [(granted - 1, "CONTINUE"), (granted, "ONCE")]
    assert links[-1].findings == ["P2"]


def test_of_many_links_the_first_and_the_newest_are_kept(builder: SessionBuilder) -> None:
    request(builder)
    authorize(builder, "SIMULATED")
    for attempt in range(1, 21):
        builder.append("ToolCallStarted", tool_call_id="c", attempt=attempt, idempotency_key="k")
        builder.append("ToolCallFailed", tool_call_id="c", attempt=attempt, reason="INFRA", not_started=False)
    row = rows_of(Audit(), builder)["c",]
    assert (len(row.links), row.more) == (32, 43 - 32)
    attempts = [link.attempt for link in row.links if link.type == "ToolCallStarted"]
    assert attempts == [1, 2, 3, 4, 5, 6, 7, *range(13, 21)]
    found = chain_of(builder)
    assert (found.outcome, missing(found), found.left_out) == ("FAILED", ["receipt"], 11)
