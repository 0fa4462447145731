"""One message of a trajectory.

An assistant's message is an answer of the model, with the provider's response in ``extra.response``. What it asks for
stands in its text (format 1: exactly one bash block) or in ``extra.actions`` (format 1.1); the message that follows
is what came back.
"""

from __future__ import annotations

import re
from typing import Any

from dalsegno.importers.builder import Source
from dalsegno.importers.fields import Fields
from dalsegno.importers.payload import (
    TEXT_TYPE,
    content_text,
    digest_json,
    exit_code,
    parse_time,
    short_text,
    text_bytes,
)
from dalsegno.importers.wanted import Wanted, wanted_call

_ACTION = re.compile(r"```bash[^\S\n]*\n(.*?)\n```", re.DOTALL)
_RETURN_CODE = re.compile(r"<returncode>(-?\d{1,9})</returncode>")
_TIMED_OUT = re.compile(r"The last command <command>.*</command> timed out", re.DOTALL)


class Message(Fields):
    """One message. ``extra`` are the fields of the object of that name."""

    __slots__ = ("content", "extra", "kind", "naive", "response", "source")

    def __init__(self, index: int, data: dict[str, Any]) -> None:
        super().__init__(data, ("role", "content", "extra"))
        extra = data.get("extra")
        self.extra = Fields(extra if isinstance(extra, dict) else {})
        self.content: Any = data.get("content")
        self.kind = short_text(data["role"])
        self.response = Fields(self.extra.take_object("response"))
        time, self.naive = parse_time(self.extra.take("timestamp") or self.response.data.get("created"))
        self.source = Source(f"/messages/{index}", time, digest_json(data))

    @property
    def text(self) -> str:
        """All its text, for what can only be read there."""
        return content_text(self.content)

    @property
    def return_code(self) -> int | None:
        """That of a command of which this is the result."""
        if "returncode" in self.extra.data:
            return exit_code(self.extra.take("returncode"))
        found = _RETURN_CODE.match(self.text)
        return exit_code(int(found.group(1))) if found else None

    @property
    def timed_out(self) -> bool:
        """Whether it says so of a command."""
        return _TIMED_OUT.match(self.text) is not None

    def wanted(self) -> list[Wanted]:
        """The commands of an answer. Of several blocks, or of none, the harness runs nothing and tells the model so."""
        actions = self.extra.data.get("actions")
        if isinstance(actions, list):
            return [
                wanted_call(action.get("tool_call_id"), "bash", {"command": action.get("command")})
                for action in actions
                if isinstance(action, dict)
            ]
        found = _ACTION.findall(self.text)
        return [Wanted(None, "bash", text_bytes(found[0].strip()), TEXT_TYPE)] if len(found) == 1 else []

    def left(self) -> list[str]:
        return super().left() + [f"extra.{name}" for name in self.extra.left()]
