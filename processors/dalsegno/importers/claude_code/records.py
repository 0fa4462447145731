"""One line of a Claude Code session, and what its type is. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dalsegno.importers.builder import Source
from dalsegno.importers.fields import Fields
from dalsegno.importers.json_lines import Line, warning_of
from dalsegno.importers.payload import clean_text, digest_json, parse_time, short_text

SPOKEN = frozenset({"user", "assistant"})
WITHOUT_SESSION = {"file-history-snapshot": "snapshot", "summary": "summary"}
"""Types whose lines name no session, and a field that they have."""
KNOWN_NOTES = frozenset(
    {
        "summary", "queue-operation", "progress", "attachment", "custom-title", "ai-title", "agent-name", "last-prompt",
        "permission-mode", "pr-link", "tag", "system.turn_duration", "system.stop_hook_summary", "system.api_error",
        "system.informational", "system.local_command", "system.away_summary", "system.bridge_status",
    }
)  # fmt: skip
"""Types that are known and have no event of their own."""
BEHIND_ANSWERS = frozenset(
    {"system.compact_boundary", "system.turn_duration", "system.stop_hook_summary", "system.local_command"}
)
"""Kinds that come only when a model has said all of its message; so do other messages."""

CONTEXT = ("cwd", "gitBranch", "version", "userType", "entrypoint", "slug", "permissionMode", "agentId")
"""What every line says of the session; noted when it is no longer what it was."""
_FRAME = frozenset({"type", "subtype", "uuid", "parentUuid", "sessionId", "isSidechain", "timestamp", *CONTEXT})

INTERRUPTED = "[Request interrupted by user"
SYNTHETIC = "<synthetic>"
"""The model of messages that the harness made itself."""


@dataclass
class Findings:
    """Lines of a file that people should know of, by number."""

    timeless: list[int] = field(default_factory=list)
    backwards: list[int] = field(default_factory=list)
    loose: list[int] = field(default_factory=list)
    late: list[int] = field(default_factory=list)
    orphans: list[int] = field(default_factory=list)
    busy: list[int] = field(default_factory=list)

    def told(self) -> list[str]:
        found = [
            ("no time of their own, so that their events stand at that of the line before", self.timeless),
            ("a time before that of the line above, which their events do not go back to", self.backwards),
            ("results of calls that nobody asked for in their session, kept as notes", self.loose),
            ("a message went on after something that only follows a whole one: a model call of its own", self.late),
            ("their parent is not in the file: they stand behind the line above", self.orphans),
            ("a branch from where calls were open: a session of its own instead of a fork", self.busy),
        ]
        return [warning_of(said, lines) for said, lines in found if lines]


class Native:
    """A line. ``kind`` is its type, with the subtype of system lines, as reports count it."""

    __slots__ = ("blocks", "fields", "kind", "line", "message", "naive", "parent", "session", "source", "type", "uuid")

    def __init__(self, line: Line) -> None:
        data = line.data
        self.line = line
        self.type: str = data["type"]
        subtype = data.get("subtype")
        self.kind = short_text(f"{self.type}.{subtype}" if isinstance(subtype, str) else self.type, 200)
        self.uuid = _text(data.get("uuid"))
        self.parent = _text(data.get("parentUuid")) or _text(data.get("logicalParentUuid"))
        self.session = _text(data.get("sessionId"))
        time, self.naive = parse_time(data.get("timestamp"))
        self.source = Source(line.ref, time, line.digest)
        self.fields = Fields(data, _FRAME)
        message = data.get("message")
        self.message: dict[str, Any] = message if isinstance(message, dict) else {}
        self.blocks = _blocks(self.message.get("content"))

    @property
    def sidechain(self) -> bool:
        return self.line.data.get("isSidechain") is True

    @property
    def meta(self) -> bool:
        """Put there by the harness, in the name of the user."""
        return self.line.data.get("isMeta") is True

    @property
    def results(self) -> list[dict[str, Any]]:
        return [block for block in self.blocks if block.get("type") == "tool_result"]

    @property
    def says(self) -> bool:
        """Whether this is something said to the model, and no result."""
        return self.type == "user" and not self.results and not self.sums_up

    @property
    def sums_up(self) -> bool:
        """What a compression left of the conversation."""
        return self.line.data.get("isCompactSummary") is True

    @property
    def interrupts(self) -> bool:
        return self.says and self.text().startswith(INTERRUPTED)

    @property
    def message_id(self) -> str:
        """Of a model's message; its lines share it."""
        return _text(self.message.get("id")) or self.uuid or self.line.ref

    def text(self) -> str:
        return "\n".join(text for block in self.blocks if isinstance(text := block.get("text"), str))

    def spoken(self) -> bytes:
        """What makes two lines of one uuid the same: what they say, whenever it was written down."""
        return digest_json([self.type, self.message]) if self.message else self.line.digest


def _text(value: Any) -> str | None:
    return clean_text(value) if isinstance(value, str) and value else None


def _blocks(content: Any) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    items = content if isinstance(content, list) else []
    return [item if isinstance(item, dict) else {"type": "text", "text": str(item)} for item in items]
