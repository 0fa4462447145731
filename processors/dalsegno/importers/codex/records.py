"""One line of a rollout, and what its type is. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from dalsegno.importers.builder import Source
from dalsegno.importers.fields import Fields
from dalsegno.importers.json_lines import Line, warning_of
from dalsegno.importers.payload import parse_time, short_text
from dalsegno.model.payloads import MessageRole, TurnAbortReason

Outcome: TypeAlias = Literal["mapped", "note", "repeat", "waits"]
MAPPED: Outcome = "mapped"
NOTE: Outcome = "note"
REPEAT: Outcome = "repeat"
WAITS: Outcome = "waits"
"""What became of a record; one that waits is settled later."""

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,119}\Z")

OUTPUTS = frozenset({"function_call_output", "custom_tool_call_output", "tool_search_output"})
PROVIDER_CALLS = frozenset({"web_search_call", "image_generation_call"})
"""Calls that the provider ran itself, while it answered: the item is their result too."""
CALLS = frozenset({"function_call", "custom_tool_call", "local_shell_call", "tool_search_call", *PROVIDER_CALLS})

ANSWER = frozenset({"reasoning", *CALLS})
"""Items that only a model says; of messages, those of the assistant."""
BEHIND_ANSWERS = frozenset(
    {
        "session_meta", "turn_context", "compacted", "response_item.message", "response_item.agent_message",
        "event_msg.task_started", "event_msg.task_complete", "event_msg.turn_aborted",
    }
)  # fmt: skip
"""Kinds that come only when a model has said all of its answer; results can come before its tokens."""
BEFORE_ANSWERS = frozenset({"turn_context", "response_item.message", "event_msg.task_started"})
"""Kinds after which a model is asked."""

KNOWN_NOTES = frozenset(
    {
        "world_state", "inter_agent_communication_metadata", "response_item.ghost_snapshot",
        *(
            f"event_msg.{name}"
            for name in (
                "collab_agent_interaction_end", "collab_agent_spawn_end", "collab_close_end", "collab_waiting_end",
                "context_compacted", "dynamic_tool_call_request", "dynamic_tool_call_response", "entered_review_mode",
                "exec_command_end", "exited_review_mode", "guardian_assessment", "image_generation_end",
                "item_completed", "mcp_tool_call_end", "patch_apply_end", "sub_agent_activity", "thread_goal_updated",
                "thread_name_updated", "thread_settings_applied", "token_count", "undo_completed",
                "view_image_tool_call", "turn_diff", "warning", "web_search_end",
            )
        ),
    }
)  # fmt: skip
"""Types that are known and have no event of their own."""

ROLES: dict[str, MessageRole] = {"system": "SYSTEM", "developer": "DEVELOPER", "user": "USER"}
ABORTED: dict[str, TurnAbortReason] = {"replaced": "REPLACED", "budget_limited": "LIMIT", "interrupted": "INTERRUPTED"}
"""Their words for our roles and for the reasons why a turn was aborted."""


@dataclass
class Findings:
    """Lines of a file that people should know of, by number."""

    timeless: list[int] = field(default_factory=list)
    loose: list[int] = field(default_factory=list)
    """Results of calls that no answer of the session asked for."""

    def told(self) -> list[str]:
        found = [
            ("no time that can be read, so that their events have none", self.timeless),
            ("results of calls that nobody asked for in their session, kept as notes", self.loose),
        ]
        return [warning_of(said, lines) for said, lines in found if lines]


class Native:
    """A record. ``kind`` is its type with that of its payload, as reports count it."""

    __slots__ = ("fields", "kind", "line", "naive", "payload", "payload_type", "source", "type")

    def __init__(self, line: Line) -> None:
        self.line = line
        self.type: str = line.data["type"]
        self.payload: dict[str, Any] = line.data["payload"]
        inner = self.payload.get("type")
        self.payload_type = inner if isinstance(inner, str) else ""
        own = self.type in ("response_item", "event_msg") and self.payload_type
        self.kind = short_text(f"{self.type}.{self.payload_type}" if own else self.type, 200)
        time, self.naive = parse_time(line.data.get("timestamp"))
        self.source = Source(line.ref, time, line.digest)
        self.fields = Fields(self.payload, ("type",))

    @property
    def role(self) -> str:
        return str(self.payload.get("role"))

    def left(self) -> list[str]:
        """Names of what no event holds; the line's own fields first."""
        frame = ("timestamp", "type", "payload")
        return [name for name in self.line.data if name not in frame] + self.fields.left()


Settled: TypeAlias = tuple[Native, Outcome]
"""A record, and what became of it."""


def usable_id(value: Any) -> str | None:
    """An id that can be one: a placeholder, as sanitised files have them, is none."""
    return value if isinstance(value, str) and _ID.match(value) else None
