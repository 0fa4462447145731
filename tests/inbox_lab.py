"""A session over a log in memory that asks people for things, and its inbox."""

from __future__ import annotations

from typing import Any

from dalsegno import events, inline_blob
from dalsegno.log.inbox import Commands, Inbox, take_up
from dalsegno.log.session import Session
from dalsegno.model.events import Blob, NewEvent
from dalsegno.model.inbox import Command, InboxState, Remembered, Settled
from dalsegno.model.records import Event
from dalsegno.testing.in_memory import MemoryPublisher
from dalsegno.testing.memory_log import MemoryLog

ARGUMENTS = b"\x01" * 32
MARIA = ("USER", "maria")


class Desk:
    """One writer of the session ``s:1`` and its inbox; ``crash`` begins another in its place, from the log alone."""

    def __init__(self, profile: str = "OBSERVED", log: MemoryLog | None = None) -> None:
        self.log = log or MemoryLog(partitions=4)
        self._start()
        if log is None:
            self.session: Session = self.publisher.session("s:1")
            self.session.append(events.SessionCreated(workflow_name="w", profile=profile))  # type: ignore[arg-type]

    def _start(self) -> None:
        self.publisher = MemoryPublisher(self.log, prefix="t", writer="test/1/a")
        self.inbox = Inbox(self.publisher.transport, prefix="t")
        self.commands: Commands = self.inbox.commands_of(["s:1"])

    def begin(self) -> Desk:
        self.session.append(events.SessionStarted())
        return self

    def crash(self) -> None:
        self._start()
        self.session = self.publisher.resume("s:1")

    def ask(self, approval_id: str, **fields: Any) -> None:
        asked = {"subject": "TOOL_CALL", "subject_id": "c", "arguments_digest": ARGUMENTS, **fields}
        self.session.append(events.ApprovalRequested(approval_id=approval_id, **asked))

    def ask_input(self, request_id: str, **fields: Any) -> None:
        self.session.append(events.InputRequested(request_id=request_id, prompt=inline_blob("which?"), **fields))

    def call(self, call_id: str, *, resolved: str | None = "UNKNOWN_OUTCOME") -> None:
        """A tool call that was started, and lost in a crash."""
        self.session.append(
            events.ToolCallRequested(tool_call_id=call_id, name="t", effect="WRITE", arguments=inline_blob("{}"))
        )
        self.session.append(events.ToolCallAuthorized(tool_call_id=call_id, basis="SIMULATED"))
        self.session.append(events.ToolCallStarted(tool_call_id=call_id, attempt=1))
        if resolved is not None:
            self.session.append(
                events.ToolCallFailed(
                    tool_call_id=call_id,
                    attempt=1,
                    reason="UNKNOWN_OUTCOME",
                    error=events.ErrorInfo(error_class="Lost", message="no report"),
                )
            )

    def send(self, event: NewEvent, actor: tuple[str, str] = MARIA, command_id: str | None = None) -> str:
        return self.inbox.send("s:1", event, actor=actor, command_id=command_id).command_id

    def grant(self, approval_id: str, **more: Any) -> str:
        """Sends the command; nobody has taken it up yet."""
        fields = {"arguments_digest": ARGUMENTS, **more}
        actor = fields.pop("actor", MARIA)
        command_id = fields.pop("command_id", None)
        return self.send(events.ApprovalGranted(approval_id=approval_id, **fields), actor, command_id)

    def state(self) -> InboxState:
        remembered = Remembered()
        for event in self.events():
            remembered.see(event)
        return InboxState(self.session.status, self.session.operation, remembered.asked, remembered.was_applied)

    def drain(self) -> list[Settled]:
        """What the writer makes of all that waits."""
        return [self.take(command) for command in self.commands.new()]

    def take(self, command: Command) -> Settled:
        return take_up(self.session, self.inbox, command, self.state(), fits)

    def events(self) -> list[Event]:
        return self.publisher.events("s:1")

    def types(self) -> list[str]:
        return [event.type for event in self.events()]

    def waiting(self) -> list[str]:
        """Ids of the commands that a reader from the start finds."""
        return [each.command_id for each in self.inbox.commands_of(["s:1"]).new()]


def fits(schema: Blob, content: Blob) -> str | None:
    """Stands in for a JSON Schema: the content must hold what the schema says."""
    assert schema.inline is not None
    assert content.inline is not None
    return None if schema.inline in content.inline else "it does not fit the schema"
