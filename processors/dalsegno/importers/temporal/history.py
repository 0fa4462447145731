"""The events of a history: their types, attributes, times, and the payloads inside, which are base64 of bytes."""

from __future__ import annotations

import base64
import binascii
import re
from pathlib import Path
from typing import Any, NamedTuple

from dalsegno.importers.base import ImportReport
from dalsegno.importers.fields import Fields
from dalsegno.importers.json_file import bad_file, foreign, json_value, object_at, objects_at, read_object
from dalsegno.importers.payload import JSON_TYPE, digest_json, json_bytes, parse_time, short_text

WANTED = "a history of a Temporal workflow"
STARTED = "WORKFLOW_EXECUTION_STARTED"
_PREFIX = "EVENT_TYPE_"
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_MEDIA_TYPES = {"json/plain": JSON_TYPE, "json/protobuf": JSON_TYPE}


class Payload(NamedTuple):
    """One value that a workflow was given or gave: the bytes as they were, and what they are."""

    data: bytes
    encoding: str

    @property
    def media_type(self) -> str:
        return _MEDIA_TYPES.get(self.encoding, "application/octet-stream")

    def value(self) -> Any:
        """The JSON value; None for what is none."""
        if self.media_type != JSON_TYPE:
            return None
        try:
            return json_value(self.data)
        except ValueError:  # also what is no UTF-8
            return None

    def plain(self) -> Any:
        """The JSON value; what is none with its bytes as they stood in the file."""
        value = self.value()
        if value is not None or self.data == b"null":
            return value
        return {"encoding": self.encoding, "data": base64.b64encode(self.data).decode()}


class NativeEvent(NamedTuple):
    """One event. ``attributes`` notes which of them were carried over."""

    id: str
    type: str
    ref: str
    time: int | None
    digest: bytes
    data: dict[str, Any]
    attributes: Fields
    carried: tuple[str, ...]
    """The fields of ``data`` that every event of ours carries."""
    naive: bool


def read_history(path: Path, report: ImportReport) -> list[NativeEvent]:
    """The events in their order, each once, from the start of the run. Raises BadInputFile."""
    document = read_object(path, WANTED)
    pointer = "/events"
    if "events" not in document:
        document, pointer = object_at(path, "/history", document.get("history"), WANTED, ("events",)), "/history/events"
    events: list[NativeEvent] = []
    by_id: dict[str, bytes] = {}
    for index, item in enumerate(objects_at(path, pointer, document["events"], WANTED)):
        event = _event(path, f"{pointer}/{index}", item)
        if event.id not in by_id:
            if events and int(event.id) != int(events[-1].id) + 1:
                raise bad_file(path, event.ref, f"event {event.id} follows event {events[-1].id}", f"{WANTED}, whole")
            by_id[event.id] = event.digest
            events.append(event)
            report.zoneless(event.naive)
        elif by_id[event.id] == event.digest:
            report.records[event.type] += 1
            report.repeats[event.type] += 1
        else:
            raise bad_file(path, event.ref, f"event {event.id} stands twice, and differs", WANTED)
    if not events or events[0].type != STARTED:
        raise foreign(path, pointer, f"does not begin with {STARTED}", WANTED)
    for event in events:
        _check_payloads(path, event.ref, event.data)
    return events


def payloads_of(value: Any) -> list[Payload]:
    """The payloads of a field: one, or ``{"payloads": [...]}``."""
    if not isinstance(value, dict):
        return []
    items = value["payloads"] if isinstance(value.get("payloads"), list) else [value] if "metadata" in value else []
    return [_payload(item) for item in items if isinstance(item, dict)]


def joined(payloads: list[Payload]) -> Payload | None:
    """One payload as it is; several as a JSON list; None for none."""
    if len(payloads) < 2:
        return payloads[0] if payloads else None
    return Payload(json_bytes([payload.plain() for payload in payloads]), "json/plain")


def plain(value: Any) -> Any:
    """The value with every JSON payload in it decoded, for people and for notes."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    if _is_payload(value):
        return _payload(value).plain()
    return {name: plain(item) for name, item in value.items()}


def _event(path: Path, ref: str, data: dict[str, Any]) -> NativeEvent:
    native_id, type_ = data.get("eventId"), data.get("eventType")
    id_ = str(native_id) if isinstance(native_id, int | str) else ""
    if not id_.isdecimal() or not id_.isascii() or not isinstance(type_, str):
        raise foreign(path, ref, "no event with a number /eventId and a text /eventType", WANTED)
    if len(id_) > 18:
        raise bad_file(path, ref, "/eventId is too large", WANTED)
    name = type_.removeprefix(_PREFIX) if type_.startswith(_PREFIX) else _WORD.sub("_", type_).upper()
    inner = [key for key, value in data.items() if key.endswith("EventAttributes") and isinstance(value, dict)]
    attributes = Fields(data[inner[0]] if inner else {})
    carried = ("eventId", "eventType", "eventTime", *inner[:1])
    time, naive = parse_time(data.get("eventTime"))
    return NativeEvent(id_, short_text(name, 128), ref, time, digest_json(data), data, attributes, carried, naive)


def _is_payload(value: dict[str, Any]) -> bool:
    metadata = value.get("metadata")
    return isinstance(metadata, dict) and "encoding" in metadata and isinstance(value.get("data", ""), str)


def _payload(item: dict[str, Any]) -> Payload:
    encoding = _decoded(Fields(item).take_object("metadata").get("encoding", ""))
    return Payload(_decoded(item.get("data", "")), short_text(encoding.decode("utf-8", "replace"), 128))


def _decoded(text: Any) -> bytes:
    return base64.b64decode(text, validate=True) if isinstance(text, str) else b""


def _check_payloads(path: Path, place: str, value: Any) -> None:
    """A payload that is damaged is an error, wherever it stands: what it says would be lost."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            _check_payloads(path, f"{place}/{index}", item)
    elif isinstance(value, dict):
        if _is_payload(value):
            try:
                _payload(value)
            except (binascii.Error, ValueError) as error:
                raise bad_file(path, place, f"no base64 ({error})", f"{WANTED} with its payloads") from error
        for name, item in value.items():
            _check_payloads(path, f"{place}/{name}", item)
