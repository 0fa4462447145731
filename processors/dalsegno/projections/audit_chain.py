"""``chain``: why a tool call ran, or why not, read from its row of the projection ``audit``. Pure.

From the result back: the start of that attempt, what authorised it, the approval or the decision behind that, the
request, the model's answer, and what the model had been shown. What should stand there and does not is named.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, Literal, NamedTuple

from dalsegno.projections.rows import AuditLink, AuditRow

Outcome = Literal[
    "EXECUTED", "SIMULATED", "REJECTED", "FAILED", "UNKNOWN_OUTCOME", "RUNNING", "AUTHORIZED", "REQUESTED", "NOTHING"
]


class Edge(NamedTuple):
    """Two seqs. ``by``: the events' domain ids say it, or ``causation_id`` does, or both."""

    effect: int
    cause: int
    by: Literal["ID", "CAUSATION", "BOTH"]


class Missing(NamedTuple):
    """``link``: what is not there. ``after``: the seq of the event that should have it for a cause; None: no event."""

    link: str
    after: int | None
    why: str


class Chain(NamedTuple):
    """``links`` from the effect to its causes; ``refused``: events of the call that broke a rule and had no effect;
    ``left_out``: links that the row does not keep, so that what is missing may be among them."""

    outcome: Outcome
    links: tuple[AuditLink, ...]
    edges: tuple[Edge, ...]
    missing: tuple[Missing, ...]
    refused: tuple[AuditLink, ...]
    left_out: int


_RESULTS: Final = ("ToolReceiptRecorded", "SubSessionEnded")
_REACHED: Final[dict[str, Outcome]] = {
    "ToolCallRequested": "REQUESTED",
    "ToolCallAuthorized": "AUTHORIZED",
    "ToolCallStarted": "RUNNING",
    "ToolCallFailed": "FAILED",
    "ToolRetryDecided": "AUTHORIZED",
}
_SAID: Final[dict[tuple[str, str], Outcome]] = {
    ("ToolCallFailed", "UNKNOWN_OUTCOME"): "UNKNOWN_OUTCOME",
    ("ToolRetryDecided", "GIVEN_UP"): "FAILED",
    ("SessionRecovered", "RETRY"): "AUTHORIZED",
    ("SessionRecovered", "FAILED"): "FAILED",
    ("SessionRecovered", "ABANDONED"): "FAILED",
}
_ONCE_A_USE: Final = frozenset({"ToolCallAuthorized", "ToolCallStarted"})
"""Types whose links belong to one use of an id; grants and answers may serve a later one."""
_WAITS: Final = frozenset({"AWAIT_RECEIPT", "UNKNOWN_OUTCOME"})


def chain(tool_call_id: str, row: AuditRow | None) -> Chain:
    """The causes of one call, from its row (None: there is none). Where its id was used again, of its newest use."""
    links = sorted(row.links if row is not None else (), key=lambda link: link.seq)
    refused = tuple(link for link in links if link.violations)
    good = [link for link in links if not link.violations]
    requests = [link.seq for link in good if link.type == "ToolCallRequested"]
    since = requests[-1] if requests else 0
    use = [link for link in good if link.seq >= since]
    outcome = _outcome(use)
    walk = _Walk(tool_call_id, [link for link in good if link.seq >= since or link.type not in _ONCE_A_USE])
    walk.begin(outcome, use)
    return Chain(outcome, tuple(walk.links), tuple(walk.edges), tuple(walk.missing), refused, row.more if row else 0)


def _outcome(use: list[AuditLink]) -> Outcome:
    outcome: Outcome = "NOTHING"
    simulated = False
    for link in use:
        says = link.says or ""
        if link.type in _RESULTS:
            return "SIMULATED" if simulated else "EXECUTED"
        if link.type == "ToolCallRejected":
            return "REJECTED"
        simulated = says == "SIMULATED" if link.type == "ToolCallAuthorized" else simulated
        if link.type == "SessionRecovered" and says in _WAITS:
            outcome = "UNKNOWN_OUTCOME" if outcome == "RUNNING" else outcome
        else:
            outcome = _SAID.get((link.type, says)) or _REACHED.get(link.type) or outcome
    return outcome


def _furthest(use: list[AuditLink]) -> AuditLink | None:
    for types in (("ToolCallFailed", "ToolCallStarted"), ("ToolCallAuthorized",), ("ToolCallRequested",)):
        found = [link for link in use if link.type in types]
        if found:
            return found[-1]
    return None


class _Walk:
    def __init__(self, tool_call_id: str, good: list[AuditLink]) -> None:
        self.tool_call_id, self.good = tool_call_id, good
        self.links: list[AuditLink] = []
        self.edges: list[Edge] = []
        self.missing: list[Missing] = []

    def begin(self, outcome: Outcome, use: list[AuditLink]) -> None:
        """Walk from what the call came to: its first result, its rejection, else the newest that was done for it."""
        head = next((link for link in use if link.type in (*_RESULTS, "ToolCallRejected")), None)
        if head is None:
            self.lacks("receipt", None, f"there is no result: {outcome}")
            head = _furthest(use)
        if head is None:
            self.lacks("request", None, "no event of the path asks for this call")
            return
        self.links.append(head)
        if head.type in _RESULTS or head.type == "ToolCallFailed":
            self.started(head)
        elif head.type == "ToolCallStarted":
            self.authorized(head)
        elif head.type == "ToolCallAuthorized":
            self.allowed(head)
        elif head.type == "ToolCallRejected":
            self.rejected(head)
        else:
            self.asked(head)

    # --- one step back each -------------------------------------------------------------------------------------------

    def started(self, result: AuditLink) -> None:
        def same_attempt(link: AuditLink) -> bool:
            return result.attempt is None or link.attempt == result.attempt

        if result.type == "ToolCallFailed" and not self.newest(result, ("ToolCallStarted",), same_attempt):
            self.authorized(result)  # It says itself that this attempt never began.
            return
        why = "nothing started the call" if result.attempt is None else f"nothing started attempt {result.attempt}"
        start = self.cause(result, "start", ("ToolCallStarted",), same_attempt, why)
        self.authorized(start or result)

    def authorized(self, start: AuditLink) -> None:
        found = self.cause(start, "authorization", ("ToolCallAuthorized",), _any, "nothing authorised the call")
        if found is not None:
            self.allowed(found)
        else:
            self.requested([start])

    def allowed(self, grant: AuditLink) -> None:
        """What the authorisation rests on, by its basis."""
        behind: list[AuditLink] = []
        if grant.says == "UNRECORDED_IMPORT":
            self.lacks("decision", grant.seq, "the recording does not say who let it run (UNRECORDED_IMPORT)")
        if grant.says in ("APPROVAL", "STANDING_GRANT"):
            behind += self.approved(grant, ("ApprovalGranted",))
        if grant.decision_id is not None or grant.says == "POLICY_ALLOW":
            behind += self.decided(grant)
        request = self.requested(behind or [grant])
        if request is not None:
            self.same_arguments(request, grant, behind)

    def rejected(self, rejection: AuditLink) -> None:
        behind: list[AuditLink] = []
        if rejection.says in ("APPROVAL_DENIED", "APPROVAL_EXPIRED"):
            behind += self.approved(rejection, ("ApprovalDenied", "ApprovalExpired"))
        elif rejection.says == "POLICY_DENY":
            behind += self.decided(rejection)
        self.requested(behind or [rejection])

    def approved(self, effect: AuditLink, answers: Collection[str]) -> list[AuditLink]:
        """The answer, the question, and the policy that wanted leave; what of them is there."""
        id = effect.approval_id
        why = "it names no approval" if id is None else f"approval {id} has no such answer on the path"
        answer = self.cause(effect, "approval", answers, lambda link: _same(link.approval_id, id), why)
        if answer is None or answer.of_call not in (None, self.tool_call_id):
            return []  # A grant that was given for another call: the question is in that call's row.
        name = answer.approval_id
        question = self.cause(
            answer,
            "approval request",
            ("ApprovalRequested",),
            lambda link: _same(link.approval_id, name),
            f"no question for approval {name} about this call is on the path",
        )
        return [answer] if question is None else [answer, *(self.decided(question) or [question])]

    def decided(self, effect: AuditLink) -> list[AuditLink]:
        id = effect.decision_id
        why = "it names no decision" if id is None else f"no decision {id} about this call is on the path"
        found = self.cause(effect, "decision", ("PolicyEvaluated",), lambda link: _same(link.decision_id, id), why)
        return [] if found is None else [found]

    def requested(self, effects: list[AuditLink]) -> AuditLink | None:
        request: AuditLink | None = None
        for effect in effects:
            if effect.type != "ApprovalGranted" or len(effects) == 1:
                request = self.cause(effect, "request", ("ToolCallRequested",), _any, "nothing asked for the call")
        if request is not None:
            self.asked(request)
        return request

    def asked(self, request: AuditLink) -> None:
        id = request.inference_id
        why = "the request names no inference" if id is None else f"no answer of inference {id} is on the path"
        answer = self.cause(
            request, "inference", ("InferenceCompleted",), lambda link: _same(link.inference_id, id), why
        )
        if answer is None:
            return
        if answer.asked_seq is None:
            self.lacks("inference request", answer.seq, f"nothing asked for inference {answer.inference_id}")
            return
        self.edges.append(Edge(answer.seq, answer.asked_seq, "ID"))
        if answer.pack_id is None:
            self.lacks("pack", answer.asked_seq, "the inference names no context pack")
        elif answer.pack_seq is None:
            self.lacks("pack", answer.asked_seq, f"context pack {answer.pack_id} is not on the path")
        else:
            self.edges.append(Edge(answer.asked_seq, answer.pack_seq, "ID"))

    def same_arguments(self, request: AuditLink, grant: AuditLink, behind: list[AuditLink]) -> None:
        """What was let run is what was asked for, or what a policy or an approver put in its place."""
        if request.digest is None or grant.digest is None:
            self.lacks("arguments", grant.seq, "a digest of the arguments is not recorded, so nothing can be compared")
            return
        answer = next((link for link in behind if link.type == "ApprovalGranted" and link.digest is not None), None)
        put = {link.digest for link in behind if link.type in ("PolicyEvaluated", "ApprovalGranted")}
        if grant.digest not in put and (answer is not None or grant.digest != request.digest):
            what = "leave was given for" if answer is not None else "was asked for"
            self.lacks("arguments", grant.seq, f"what was let run is not what {what}")

    # --- finding ------------------------------------------------------------------------------------------------------

    def newest(self, effect: AuditLink, types: Collection[str], fits: Callable[[AuditLink], bool]) -> AuditLink | None:
        found = [link for link in self.good if link.type in types and link.seq < effect.seq and fits(link)]
        return found[-1] if found else None

    def cause(
        self, effect: AuditLink, name: str, types: Collection[str], fits: Callable[[AuditLink], bool], why: str
    ) -> AuditLink | None:
        """The cause by what the events name, else the one that ``causation_id`` names; else it is missing."""

        def recorded(link: AuditLink) -> bool:
            return link.event_id is not None and link.event_id == effect.causation_id

        found = self.newest(effect, types, fits)
        by: Literal["ID", "CAUSATION", "BOTH"] = "ID"
        if found is None:
            found, by = self.newest(effect, types, recorded), "CAUSATION"
        elif recorded(found):
            by = "BOTH"
        if found is None:
            self.lacks(name, effect.seq, why)
            return None
        edge = Edge(effect.seq, found.seq, by)
        if edge not in self.edges:
            self.edges.append(edge)
        if found not in self.links:
            self.links.append(found)
        return found

    def lacks(self, link: str, after: int | None, why: str) -> None:
        missing = Missing(link, after, why)
        if missing not in self.missing:
            self.missing.append(missing)


def _same(one: str | None, other: str | None) -> bool:
    return one is not None and one == other


def _any(_: AuditLink) -> bool:
    return True
