"""How an imported session is named and how it begins. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from dalsegno.importers.builder import Added, SessionBuilder, Source
from dalsegno.importers.payload import clean_text
from dalsegno.model.events import Blob, ConfigPinned, Label, SessionCreated, SessionStarted
from dalsegno.model.ids import SESSION_ID_MAX_BYTES, check_session_id
from dalsegno.model.lifecycle import config_set_digest
from dalsegno.model.payloads import ConfigKind
from dalsegno.model.records import Actor

_UNSAFE = re.compile(r"[\x00-\x1f\x7f~%:]")


class Pin(NamedTuple):
    """A configuration document of the recording: any JSON value, or a text."""

    kind: ConfigKind
    name: str
    version: Any
    content: Any


def session_id_of(importer: str, *native: Any) -> str:
    """``<format>/<mapping version>:<native id>:...``. A native id that is too long stands as its digest.

    What our ids may not hold is percent-encoded, so that no two native ids become one.
    """
    tail = "".join(":" + _safe(str(part)) for part in native)
    session_id = importer + tail
    if len(session_id.encode()) > SESSION_ID_MAX_BYTES:
        session_id = f"{importer}:sha256-{sha256(tail.encode()).hexdigest()}"
    return check_session_id(session_id)


def labels_of(prefix: str, values: Sequence[tuple[str, Any]]) -> list[Label]:
    """Labels of what is there: ``<prefix>.<name>``, sorted."""
    return [
        Label(key=f"{prefix}.{name}", value=clean_text(str(value)))
        for name, value in sorted(values, key=lambda pair: pair[0])
        if value not in (None, "", [], {})
    ]


def begin_session(
    builder: SessionBuilder, created: SessionCreated, pins: Sequence[Pin], source: Source, actor: Actor
) -> Added:
    """The first events of a session: what it is, how it was configured, that it began. Gives the last of them."""
    first = builder.add(created, source, actor)
    contents: list[Blob] = []
    for pin in pins:
        content = builder.blobs.of_value(pin.content)
        contents.append(content)
        version = None if pin.version is None else clean_text(str(pin.version))
        event = ConfigPinned(kind=pin.kind, name=pin.name, version=version, digest=content.digest, content=content)
        builder.add(event, source, actor)
    lines = sorted(f"{pin.kind}:{pin.name}:{content.digest.hex()}" for pin, content in zip(pins, contents, strict=True))
    started = SessionStarted(config_set_digest=config_set_digest(lines), clock_start=source.time)
    return builder.add(started, source, actor, cause=first)


def _safe(text: str) -> str:
    return _UNSAFE.sub(lambda found: f"%{ord(found.group()):02X}", clean_text(text))
