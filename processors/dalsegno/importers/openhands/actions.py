"""Actions of v1: each is one call of a model's answer, and those of one answer stand together."""

from __future__ import annotations

from typing import Any

from dalsegno.importers.fields import Fields
from dalsegno.importers.openhands.completions import parts_of
from dalsegno.importers.openhands.records import Answer, Record
from dalsegno.importers.payload import BlobMaker
from dalsegno.importers.wanted import Wanted, wanted_call
from dalsegno.model.events import Part

ACTION = "ActionEvent"


def answer_of(group: list[Record], blobs: BlobMaker) -> Answer:
    """What the actions of one answer tell of it."""
    parts: list[Part] = []
    for record in group:
        said = {**record.data, "content": record.data.get("thought")}
        parts += parts_of(said, blobs)
        for block in Fields(record.data).take_objects("thinking_blocks"):
            parts.append(Part(kind="REASONING", name="thinking_block", blob=blobs.of_json(block)))
    output = [[record.data.get("thought"), record.data.get("tool_call")] for record in group]
    return Answer(parts=parts, calls=[wanted_of(record) for record in group], output=output)


def group_at(records: list[Record], at: int) -> list[Record]:
    """The record here, with the actions behind it that came of the same answer."""
    first = records[at].data
    end = at + 1
    if first["kind"] == ACTION:
        answer = first.get("llm_response_id")
        while end < len(records) and _is_of(records[end].data, answer):
            end += 1
    return records[at:end]


def _is_of(data: dict[str, Any], answer: Any) -> bool:
    return bool(answer) and data["kind"] == ACTION and data.get("llm_response_id") == answer


def wanted_of(record: Record) -> Wanted:
    """The call as the model asked for it, or as the harness read it."""
    call = Fields(record.data).take_object("tool_call")
    name = record.data.get("tool_name") or call.get("name")
    return wanted_call(record.data.get("tool_call_id"), name, call.get("arguments", record.data.get("action")))


def says_all(arguments: dict[str, Any], action: dict[str, Any]) -> bool:
    """Whether the harness made the action of the model's arguments alone, and of values that it sets by itself."""
    return all(
        name in arguments and arguments[name] == value
        for name, value in action.items()
        if name != "kind" and value not in (None, False, "", [], {})
    )
