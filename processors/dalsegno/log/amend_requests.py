"""What operators asked to have amended, by the admin audit: an amendment counts only if it says what its request says.

That the audit knows a request's id is not enough: whoever can write to the log can read the id in another amendment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from dalsegno.log.audit import AdminAction, canonical, read_actions
from dalsegno.log.transport import Transport
from dalsegno.model.amending import Target
from dalsegno.model.amendments import Amendment, Stub
from dalsegno.model.records import CONTROL_SEQ

KIND = "session-amend"
"""What the audit calls such a request."""


class Request(NamedTuple):
    session_id: str
    details: Mapping[str, Any]


class Requests(NamedTuple):
    """By request id."""

    by_id: Mapping[str, Request] = {}

    def of(self, session_id: str) -> frozenset[str]:
        """Ids of the requests to amend this session."""
        return frozenset(id_ for id_, each in self.by_id.items() if each.session_id == session_id)

    def doubt(self, session_id: str, amendment: Amendment) -> str | None:
        """What speaks against an amendment of this session; None if it was asked for."""
        id_ = amendment.request_id
        request = self.by_id.get(id_)
        if request is None:
            return f"the admin audit holds no request {id_}"
        if request.session_id != session_id:
            return f"request {id_} of the admin audit is of session {request.session_id}"
        said = details_of(amendment.action, amendment.stubs, whole_session=amendment.whole_session)
        if amendment.refused or request.details != said:
            return f"request {id_} of the admin audit asks for something else"
        return None


def read_requests(transport: Transport, prefix: str) -> Requests:
    """All of the admin audit; none where that topic is missing, so that every amendment is named."""
    return requests_in(read_actions(transport, prefix))


def requests_in(actions: Iterable[AdminAction]) -> Requests:
    return Requests({each.request_id: Request(each.subject, each.details) for each in actions if each.kind == KIND})


def details_of(action: str, targets: Sequence[Target | Stub], *, whole_session: bool = False) -> dict[str, Any]:
    """What a request says of its amendment; its targets, in order, as a digest."""
    links = [(each.link, each.type) for each in targets]
    named = [
        [link.seq, link.hash.hex(), None if link.prev_hash is None else link.prev_hash.hex(), link.epoch, type_]
        for link, type_ in links
    ]
    digest = sha256(canonical({"targets": named})).hexdigest()
    seqs = [link.seq for link, _ in links] or [CONTROL_SEQ]
    whole = {"whole_session": True} if whole_session else {}
    return {"action": action, "first": seqs[0], "last": seqs[-1], "targets_sha256": digest, **whole}
