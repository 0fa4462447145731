"""A tool call as the answer of a model asks for it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from dalsegno.importers.payload import JSON_TYPE, BlobMaker, digest_of, json_bytes, short_text, text_bytes
from dalsegno.model.events import Part, RequestedCall


class Wanted(NamedTuple):
    """``arguments`` are the bytes received, None where there are none; ``given`` is the same as it stood in the
    recording, for who must look into it."""

    native_id: str | None
    name: str
    arguments: bytes | None
    media_type: str = JSON_TYPE
    given: Any = None


def wanted_call(native_id: Any, name: Any, arguments: Any) -> Wanted:
    """A call as providers write it: arguments as JSON, or as a text that should be JSON."""
    return Wanted(short_text(native_id) or None, short_text(name), argument_bytes(arguments), JSON_TYPE, arguments)


def argument_bytes(arguments: Any) -> bytes | None:
    """The arguments as they were received: a text byte for byte, anything else as JSON; None for none."""
    if arguments is None:
        return None
    return text_bytes(arguments) if isinstance(arguments, str) else json_bytes(arguments)


def requested_calls(inference_id: str, calls: Sequence[Wanted]) -> list[RequestedCall]:
    """The calls of an answer, with our ids."""
    return [
        RequestedCall(
            tool_call_id=f"{inference_id}/c{index}",
            name=call.name,
            arguments_digest=None if call.arguments is None else digest_of(call.arguments),
        )
        for index, call in enumerate(calls)
    ]


def call_part(call: Wanted, blobs: BlobMaker) -> Part:
    """The call as a part of the answer."""
    blob = None if call.arguments is None else blobs.of_bytes(call.arguments, call.media_type)
    return Part(kind="TOOL_CALL", call_id=call.native_id, name=call.name, blob=blob)
