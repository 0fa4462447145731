"""One session told in a few lines: its goal, what it did, who allowed it, how it ended. From its events alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dalsegno.cli.output import visible
from dalsegno.model.records import Event

MAX_LINES = 15
_WIDTH = 96
_ENDS = {"SessionCompleted": "completed", "SessionFailed": "failed", "SessionCancelled": "cancelled"}


def tell(events: Iterable[Event], max_lines: int = MAX_LINES) -> list[str]:
    """The session's story; what does not fit is counted in its middle, so that the verdict and the end are there."""
    teller = _Teller()
    lines = [line for event in events if (line := teller.line(event)) is not None]
    if len(lines) > max_lines:
        end = 4
        left = len(lines) - (max_lines - 1)
        lines = [*lines[: max_lines - 1 - end], f"... {left} more steps ...", *lines[-end:]]
    return lines


class _Teller:
    def __init__(self) -> None:
        self._asked: dict[str, Event] = {}
        self._names: dict[str, str] = {}

    def line(self, event: Event) -> str | None:
        """One line about the event, or None for what a reader of the story can do without."""
        body = event.body
        call = self._names.get(str(body.get("tool_call_id") or body.get("subject_id")), "the call")
        match event.type:
            case "SessionCreated":
                return _cut(f"goal      {_text(body.get('goal')) or body['workflow_name']}")
            case "StageStarted":
                return _cut(f"stage     {body['stage_id']}")
            case "InferenceCompleted":
                said = next((part["text"] for part in body["output"] if part["text"]), None)
                return _cut(f"  model   {said}") if said else None
            case "ToolCallRequested":
                self._names[body["tool_call_id"]] = body["name"]
                return _cut(f"  wants   {body['name']} {_text(body.get('arguments'))}")
            case "PolicyEvaluated" if body["decision"] in ("REQUIRE_APPROVAL", "DENY"):
                rule = ", ".join(body["rule_ids"]) or body.get("engine") or "a policy"
                says = "needs approval" if body["decision"] == "REQUIRE_APPROVAL" else "is denied"
                return _cut(f"  policy  {call} {says} (rule {rule})")
            case "ApprovalRequested":
                self._asked[body["approval_id"]] = event
                return None
            case "ApprovalGranted" | "ApprovalDenied":
                verb = event.type[8:].lower()
                why = f': "{body["explanation"]}"' if body.get("explanation") else ""
                return _cut(f"  person  {event.meta['actor_id']} {verb} it{self._after(event)}{why}")
            case "ToolReceiptRecorded":
                return _cut(f"  result  {_text(body.get('result')) or body['status']}")
            case "ToolCallFailed":
                return _cut(f"  failed  {call}: {body['reason']}")
            case "ValidationDecided":
                label = f" ({body['label']})" if body.get("label") else ""
                return _cut(f"verdict   {body['verdict']}{label} by {event.meta['actor_id']}")
            case "SessionCompleted" | "SessionFailed" | "SessionCancelled":
                return _cut(f"end       {_ENDS[event.type]}: {_text(body.get('result')) or body.get('outcome') or ''}")
        return None

    def _after(self, answer: Event) -> str:
        asked = self._asked.get(answer.body["approval_id"])
        seconds = 0 if asked is None else (answer.meta["recorded_at"] - asked.meta["recorded_at"]) // 1_000_000
        return f" after {round(seconds / 60)} min" if seconds >= 60 else ""


def _text(blob: Mapping[str, Any] | None) -> str:
    """The beginning of a content that stands in the event."""
    inline = None if blob is None else blob.get("inline")
    return "" if inline is None else inline[: 4 * _WIDTH].decode("utf-8", "replace")


def _cut(text: str) -> str:
    line = visible(" ".join(text.split(" ")).replace("\n", " "))
    return line if len(line) <= _WIDTH else line[: _WIDTH - 1] + "…"
