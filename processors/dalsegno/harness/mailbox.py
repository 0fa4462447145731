"""What others ask of a session, taken up one command at a time where nothing is due: see ``dalsegno.log.inbox``."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from hashlib import sha256

from dalsegno.errors import DalsegnoError, InvalidEvent
from dalsegno.harness.conductor import Conductor
from dalsegno.harness.live import Receipt
from dalsegno.harness.past import history
from dalsegno.harness.sessions import session_of
from dalsegno.log.inbox import Inbox
from dalsegno.log.json_values import strict_json
from dalsegno.model.events import Blob
from dalsegno.model.inbox import Asked, Command, InboxState, refuse, settle
from dalsegno.model.lifecycle.state import APPROVAL, INPUT
from dalsegno.model.records import Actor
from dalsegno.orchestration.decider import Contents
from dalsegno.orchestration.validation import against_schema
from dalsegno.projections.decider import rows


class Mailbox:
    """Fills ``Mail`` for one session. It looks at every call, so that nothing expires that was answered in time."""

    def __init__(self, inbox: Inbox, session_id: str) -> None:
        self._inbox = inbox
        self._commands = inbox.commands_of([session_id])
        self._waiting: deque[Command] = deque()

    def take_up(self, conductor: Conductor) -> bool:
        """Take up one command, if there is one: append what it becomes, wait until that is stored, take it out. A crash
        in between leaves a command whose id the session knows. Raises what appending, sending and reading do."""
        self._waiting.extend(self._commands.new())
        if not self._waiting:
            return False
        command = self._waiting[0]
        fits = _Fits(conductor.contents)
        settled = settle(command, _state(conductor), fits)
        if settled.event is not None:
            try:
                conductor.append(settled.event, **settled.how)
            except InvalidEvent as error:  # such as a field that the profile wants; nothing was written
                settled = refuse(command, error.found)
                assert settled.event is not None, "a refusal is a note"
                conductor.append(settled.event, **settled.how)
            conductor.writer.stored()
        self._inbox.take_out(command)
        self._waiting.popleft()
        return True

    def hand_in(self, conductor: Conductor, receipts: Sequence[Receipt]) -> dict[str, DalsegnoError | None]:
        """The call and its attempt name the command: handed in twice, it is applied once. One that no
        command can hold keeps no other one back. Raises what reading does."""
        if not receipts:
            return {}
        session = session_of(conductor)
        known = {event.hash for event in history(session.publisher, session.session_id)}
        lost = [each.event for each in receipts if each.hash not in known]
        asked: dict[str, DalsegnoError | None] = {}
        unreachable: DalsegnoError | None = None
        for event in lost:
            name = f"{event.tool_call_id} {event.attempt}".encode("utf-8", "surrogatepass")
            id_ = f"receipt-{sha256(name).hexdigest()[:32]}"
            actor = Actor("HARNESS", session.publisher.writer)
            why = unreachable
            try:
                if why is None:
                    self._inbox.send(session.session_id, event, actor=actor, command_id=id_)
            except InvalidEvent as error:
                why = error
            except DalsegnoError as error:  # nor would the others get there
                why = unreachable = error
            asked[event.tool_call_id] = why
        return asked


def _state(conductor: Conductor) -> InboxState:
    session, head = session_of(conductor), conductor.rows.head_row

    def asked(kind: str, id: str) -> Asked | None:
        if kind == APPROVAL:
            approval = conductor.rows.get((rows.APPROVAL, id))
            if approval is None:
                return None
            return Asked(approval.requested_at, approval.ttl_ms, tuple(approval.addressed_to))
        request = conductor.rows.get((rows.REQUEST, id)) if kind == INPUT else None
        return None if request is None else Asked(request.requested_at, request.ttl_ms, schema=_schema(conductor, id))

    def was_applied(command_id: str) -> bool:
        return head is not None and command_id in head.commands

    return InboxState(session.status, session.operation, asked, was_applied)


def _schema(conductor: Conductor, request_id: str) -> Blob | None:
    """The JSON Schema of a question of the stage in progress."""
    world = conductor.world
    for question in world.stage.ask:
        if request_id == f"{world.head.stage}/q.{question.id}" and question.schema is not None:
            return world.blob(json.dumps(question.schema).encode(), "application/schema+json")
    return None


class _Fits:
    """Whether an answer fits the schema of its question."""

    def __init__(self, contents: Contents) -> None:
        self._contents = contents

    def __call__(self, schema: Blob, content: Blob) -> str | None:
        assert schema.inline is not None, "it was made here"
        data = self._contents.get(content.digest) if content.inline is None else bytes(content.inline)
        try:
            value = strict_json(data)
        except ValueError as error:
            return f"it is no JSON: {error}"
        findings = against_schema(json.loads(schema.inline), value)
        if findings is None:
            return "the question's schema cannot be used"
        return "; ".join(f"{each.location or 'it'}: {each.message}" for each in findings) or None
