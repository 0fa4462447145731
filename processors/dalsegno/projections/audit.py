"""The projection ``audit``: one row per tool call, with the events that bear on it. Pure.

The row answers why the call ran, or why not: ``audit_chain.chain`` reads it from the result back to what the model was
shown. Also events that broke a rule are in it, and say which: they had no effect, and prove nothing.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from dalsegno.model.lifecycle import Verdict
from dalsegno.model.lifecycle.state import APPROVAL, INFERENCE, PACK, SUBSESSION, TOOL, bounded, id_in
from dalsegno.model.records import Event
from dalsegno.projections.base import Projection, Rows, clock, digest_of, kept_id
from dalsegno.projections.rows import AuditLink, AuditRow

_TOOL_CALL: Final = "TOOL_CALL"
_LINKS: Final = 32
"""Links that a row keeps."""
_SAID: Final = 100
"""Characters of a name or a reason that a link keeps."""
_RULES: Final = 8
"""Rules of a policy that a link names."""
_STANDING: Final = frozenset({"SESSION", "RULE"})
_OF_CALL: Final = frozenset(
    {
        "ToolCallRequested", "ToolCallAuthorized", "ToolCallRejected", "ToolCallStarted", "ToolCallFailed",
        "ToolRetryDecided", "ToolReceiptRecorded",
    }
)  # fmt: skip
"""Types that name their call."""
_ANSWERS: Final = frozenset({"ApprovalGranted", "ApprovalDenied", "ApprovalExpired", "ApprovalWithdrawn"})
_REJECTED_BY: Final = {
    "POLICY_DENY": "decision_id",
    "APPROVAL_DENIED": "approval_id",
    "APPROVAL_EXPIRED": "approval_id",
}
"""What a rejection of this basis cites."""


class Audit(Projection[AuditRow]):
    name = "audit"
    version = 1
    handles = frozenset(
        {
            *_OF_CALL, *_ANSWERS, "ContextPackBuilt", "InferenceRequested", "InferenceCompleted", "PolicyEvaluated",
            "ApprovalRequested", "SubSessionEnded", "SessionRecovered",
        }
    )  # fmt: skip
    row = AuditRow
    # What later events refer to, by kind and id: where a pack was built, where a model was asked and what it answered,
    # which call an approval is about (and its answer, if others may cite it), which call a child session is.
    private_row = AuditLink

    def fold(self, rows: Rows[AuditRow], event: Event, verdict: Verdict) -> None:
        body = event.body
        if event.type == "ContextPackBuilt":
            rows.private.put((PACK, id_in(body, "pack_id")), AuditLink(seq=event.seq, type=event.type))
        elif event.type == "InferenceRequested":
            _asked(rows, event)
        elif event.type == "InferenceCompleted":
            _answered(rows, event, verdict)
        elif event.type == "SessionRecovered":
            for item in body["in_flight"]:
                kind, id = item["kind"], id_in(item, "id")
                call = id if kind == TOOL else _named(rows, SUBSESSION, id) if kind == SUBSESSION else None
                if call is not None:
                    link = _plain(event, verdict)
                    link.says = item["resolution"]
                    _add(rows, call, link)
        else:
            call = _call_of(rows, event)
            link = _link_of(event, verdict)
            _remember(rows, call, event, link)
            if call is not None:
                _add(rows, call, link)

    def fold_violation(self, rows: Rows[AuditRow], event: Event, verdict: Verdict) -> None:
        call = _call_of(rows, event)
        if call is not None:
            _add(rows, call, _link_of(event, verdict))


def _call_of(rows: Rows[AuditRow], event: Event) -> str | None:
    """The call that an event is about; None: about none, or about one that nothing here names."""
    body = event.body
    if event.type in _OF_CALL:
        return id_in(body, "tool_call_id")
    if event.type in ("PolicyEvaluated", "ApprovalRequested"):
        about = body["subject"] == _TOOL_CALL and body["subject_id"] is not None
        return id_in(body, "subject_id") if about else None
    if event.type in _ANSWERS:
        return _named(rows, APPROVAL, id_in(body, "approval_id"))
    if event.type == "SubSessionEnded":
        return id_in(body, "tool_call_id") or _named(rows, SUBSESSION, id_in(body, "child_session"))
    return None


def _named(rows: Rows[AuditRow], kind: str, id: str) -> str | None:
    note: AuditLink | None = rows.private.get((kind, id))
    return None if note is None else note.of_call


def _add(rows: Rows[AuditRow], call: str, link: AuditLink) -> None:
    row = rows.get((call,)) or AuditRow()
    row.links.append(link)
    if len(row.links) > _LINKS:
        # Where a call begins and where it has come to matter most.
        del row.links[_LINKS // 2]
        row.more += 1
    rows.put((call,), row)


def _link_of(event: Event, verdict: Verdict) -> AuditLink:
    link = _plain(event, verdict)
    take = _TAKES.get(event.type)
    if take is not None:
        take(link, event.body)
    return link


def _plain(event: Event, verdict: Verdict) -> AuditLink:
    meta = event.meta
    return AuditLink(
        seq=event.seq,
        type=event.type,
        at=clock(meta),
        actor_kind=meta.get("actor_kind") or "UNKNOWN",
        actor_id=kept_id(meta.get("actor_id")),
        violations=list(verdict.violations),
        findings=list(verdict.findings),
        event_id=kept_id(meta.get("event_id")),
        causation_id=kept_id(meta.get("causation_id")),
    )


# --- what later events refer to ---------------------------------------------------------------------------------------


def _asked(rows: Rows[AuditRow], event: Event) -> None:
    body = event.body
    pack_id = kept_id(body["pack_id"])
    pack: AuditLink | None = None if pack_id is None else rows.private.get((PACK, pack_id))
    pack_seq = None if pack is None else pack.seq
    note = AuditLink(seq=event.seq, attempt=body["attempt"], pack_id=pack_id, pack_seq=pack_seq)
    rows.private.put((INFERENCE, id_in(body, "inference_id")), note)


def _answered(rows: Rows[AuditRow], event: Event, verdict: Verdict) -> None:
    """Only an answer that asks for calls can be their cause."""
    body = event.body
    key = (INFERENCE, id_in(body, "inference_id"))
    if not body["tool_calls"]:
        rows.private.delete(key)
        return
    asked: AuditLink | None = rows.private.get(key)
    link = _plain(event, verdict)
    link.says, link.digest, link.attempt = _said(body["model"]), body["output_digest"], body["attempt"]
    link.inference_id = key[1]
    if asked is not None and asked.attempt == link.attempt:
        link.asked_seq, link.pack_id, link.pack_seq = asked.seq, asked.pack_id, asked.pack_seq
    rows.private.put(key, link)


def _remember(rows: Rows[AuditRow], call: str | None, event: Event, link: AuditLink) -> None:
    """Note what later events refer to, and show in this call's row what it refers to itself."""
    type_ = event.type
    if type_ == "ToolCallRequested":
        _show(rows, call, INFERENCE, link.inference_id)
    elif type_ in ("ToolCallAuthorized", "ToolCallRejected"):
        _show(rows, call, APPROVAL, link.approval_id)
    elif type_ == "ApprovalRequested" and call is not None and link.approval_id is not None:
        rows.private.put((APPROVAL, link.approval_id), AuditLink(of_call=call))
    elif type_ in _ANSWERS and link.approval_id is not None and (call is None or link.says in _STANDING):
        # What an answer is about that nothing asked for, only who cites it can tell.
        rows.private.put((APPROVAL, link.approval_id), replace(link, of_call=call))
    elif type_ == "ToolCallStarted":
        child = kept_id(event.body["child_session"])
        if child is not None:
            rows.private.put((SUBSESSION, child), AuditLink(of_call=call))


def _show(rows: Rows[AuditRow], call: str | None, kind: str, id: str | None) -> None:
    """In this call's row what it refers to, unless it is there already."""
    note: AuditLink | None = None if id is None else rows.private.get((kind, id))
    if call is not None and note is not None and note.type and note.of_call != call:
        _add(rows, call, note)


# --- what a link shows of its event -----------------------------------------------------------------------------------


def _requested(link: AuditLink, body: Any) -> None:
    link.says, link.digest = _said(body["name"]), body["arguments_digest"]
    link.inference_id = kept_id(body["inference_id"])


def _policy(link: AuditLink, body: Any) -> None:
    link.says, link.digest = body["decision"], digest_of(body["modified"])
    link.policy_digest, link.rule_ids = body["policy_digest"], [bounded(rule) for rule in body["rule_ids"][:_RULES]]
    link.decision_id = kept_id(body["decision_id"])


def _approval_requested(link: AuditLink, body: Any) -> None:
    link.digest = body["arguments_digest"]
    link.approval_id, link.decision_id = kept_id(body["approval_id"]), kept_id(body["decision_id"])


def _granted(link: AuditLink, body: Any) -> None:
    link.says, link.approval_id = body["scope"], kept_id(body["approval_id"])
    link.digest = digest_of(body["modified_arguments"]) or body["arguments_digest"]


def _denied(link: AuditLink, body: Any) -> None:
    link.says, link.approval_id = body["effect"], kept_id(body["approval_id"])


def _expired(link: AuditLink, body: Any) -> None:
    link.approval_id = kept_id(body["approval_id"])


def _withdrawn(link: AuditLink, body: Any) -> None:
    link.says, link.approval_id = _said(body["reason"]), kept_id(body["approval_id"])


def _authorized(link: AuditLink, body: Any) -> None:
    link.says, link.digest = body["basis"], body["effective_arguments_digest"]
    link.decision_id, link.approval_id = kept_id(body["decision_id"]), kept_id(body["approval_id"])


def _rejected(link: AuditLink, body: Any) -> None:
    link.says = body["basis"]
    cited = _REJECTED_BY.get(body["basis"])
    if cited is not None:
        setattr(link, cited, kept_id(body["cites"]))


def _started(link: AuditLink, body: Any) -> None:
    link.says, link.attempt = _said(body["executor"]), body["attempt"]


def _failed(link: AuditLink, body: Any) -> None:
    link.says, link.attempt = body["reason"], body["attempt"]


def _retry(link: AuditLink, body: Any) -> None:
    link.says, link.attempt = "RETRY" if body["retry"] else "GIVEN_UP", body["attempt"]


def _receipt(link: AuditLink, body: Any) -> None:
    link.says, link.digest, link.attempt = body["status"], body["result_digest"], body["attempt"]


def _sub_session(link: AuditLink, body: Any) -> None:
    link.says, link.digest = body["outcome"], digest_of(body["result"])


def _said(text: str | None) -> str | None:
    return None if text is None else text[:_SAID]


_TAKES: Final = {
    "ToolCallRequested": _requested,
    "PolicyEvaluated": _policy,
    "ApprovalRequested": _approval_requested,
    "ApprovalGranted": _granted,
    "ApprovalDenied": _denied,
    "ApprovalExpired": _expired,
    "ApprovalWithdrawn": _withdrawn,
    "ToolCallAuthorized": _authorized,
    "ToolCallRejected": _rejected,
    "ToolCallStarted": _started,
    "ToolCallFailed": _failed,
    "ToolRetryDecided": _retry,
    "ToolReceiptRecorded": _receipt,
    "SubSessionEnded": _sub_session,
}
