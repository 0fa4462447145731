"""Where a stepper stops: a type of events, a tool, a seq, or a condition in CEL over the event or the state. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from dalsegno.errors import InvalidDocument, Usage
from dalsegno.model.records import Event
from dalsegno.orchestration.cel import Inputs, compile

INPUTS: Final[Inputs] = {"event": "value", "state": "value", "state.open": "list"}
KINDS: Final = ("type", "tool", "seq", "when")
_NO_STATE: Final[Mapping[str, Any]] = {"open": []}

Holds = Callable[[Event, Mapping[str, Any]], bool]


class Breakpoint:
    """``text``: as it was asked for; ``needs_state``: it asks for more than the event. ``errors``: how often its
    condition could not be told, by why; there it does not hold."""

    def __init__(self, text: str, needs_state: bool, holds: Holds) -> None:
        self.text, self.needs_state, self._holds = text, needs_state, holds
        self.errors: dict[str, int] = {}

    def holds(self, event: Event, state: Mapping[str, Any]) -> bool:
        return self.tells(event, state) is True

    def tells(self, event: Event, state: Mapping[str, Any]) -> bool | None:
        """Whether it holds; None where its condition cannot be told."""
        try:
            return self._holds(event, state)
        except _Untold as untold:
            self.errors[str(untold)] = self.errors.get(str(untold), 0) + 1
            return None


class _Untold(Exception):
    """A condition that gives neither true nor false."""


def parse_breakpoint(text: str) -> Breakpoint:
    """``type T``, ``tool NAME``, ``seq N`` or ``when CEL``. Raises Usage."""
    kind, _, rest = text.strip().partition(" ")
    rest = rest.strip()
    if kind not in KINDS or not rest:
        raise Usage(
            f"breakpoint {text!r}",
            wanted="'type TYPE', 'tool NAME', 'seq N' or 'when CEL'",
            todo="""such as: break when event.type == "ToolCallRequested" && state.tool_calls > 3""",
        )
    if kind == "seq":
        if not re.fullmatch(r"[0-9]{1,18}", rest):
            raise Usage(f"breakpoint {text!r}", wanted="a whole number as its seq", todo="correct it")
        number = int(rest)
        return Breakpoint(text, False, lambda event, _: event.seq == number)
    if kind == "type":
        return Breakpoint(text, False, lambda event, _: event.type == rest)
    if kind == "tool":
        return Breakpoint(text, False, lambda event, _: _is_of_tool(event, rest))
    return _condition(text, rest)


def _is_of_tool(event: Event, name: str) -> bool:
    """Whether it asks for a call of this tool."""
    return event.stub is None and event.type == "ToolCallRequested" and event.body["name"] == name


def _condition(text: str, source: str) -> Breakpoint:
    try:
        expression = compile(source, INPUTS, where="breakpoint")
    except InvalidDocument as error:
        # It stands in no document: whoever typed it corrects it.
        raise Usage(error.found, wanted=error.wanted, todo=error.todo) from error

    def holds(event: Event, state: Mapping[str, Any]) -> bool:
        outcome = expression.holds({"event": event_values(event), "state": _plain(state or _NO_STATE)})
        if outcome.error is not None:
            raise _Untold(f"{outcome.error}: {outcome.detail}" if outcome.detail else outcome.error)
        return bool(outcome.value)

    return Breakpoint(text, re.search(r"\bstate\b", source) is not None, holds)


def event_values(event: Event) -> dict[str, Any]:
    """An event as a condition sees it: its fields, its envelope as ``meta``, and its place. Bytes are hex."""
    values: dict[str, Any] = _plain(event.body)
    return {**values, "type": event.type, "seq": event.seq, "session_id": event.session_id, "stub": event.stub}


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value
