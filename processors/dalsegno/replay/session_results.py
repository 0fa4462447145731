"""What a replay of a session came to, as bytes that can be kept and read again whole. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, fields
from hashlib import sha256
from typing import Any, Final

import msgspec

from dalsegno import __version__
from dalsegno.errors import RecordDamaged
from dalsegno.orchestration.canonical import canonical
from dalsegno.replay.check import VERSIONS
from dalsegno.replay.divergence import ABSENT, Ancestor, Divergence, FieldDifference
from dalsegno.replay.replayed import Replayed
from dalsegno.replay.serving import Counts

MEDIA_TYPE: Final = "application/msgpack"


def encode_result(result: Replayed) -> bytes:
    """MessagePack, by the names of the fields; a side of a difference that is absent has no key."""
    data = {each.name: getattr(result, each.name) for each in fields(result)}
    data["counts"], data["not_comparable"] = asdict(result.counts), dict(result.not_comparable)
    data["divergences"] = [_to_data(each) for each in result.divergences]
    return msgspec.msgpack.encode(data)


def decode_result(content: bytes) -> Replayed:
    """Raises RecordDamaged for what no build with these fields wrote."""
    try:
        data: dict[str, Any] = msgspec.msgpack.decode(content)
        return _result(data)
    except (msgspec.MsgspecError, TypeError, KeyError) as error:
        raise RecordDamaged(f"a result of a replay cannot be read: {error}", todo="replay the session again") from error


def _result(data: dict[str, Any]) -> Replayed:
    data["counts"], data["not_comparable"] = Counts(**data["counts"]), Counter(data["not_comparable"])
    data["divergences"] = [_from_data(each) for each in data["divergences"]]
    data["inexact"] = [tuple(each) for each in data["inexact"]]
    if data["unreconstructable"] is not None:
        data["unreconstructable"] = tuple(data["unreconstructable"])
    return Replayed(**data)


def _to_data(found: Divergence) -> dict[str, Any]:
    differ = [
        {name: side for name, side in each._asdict().items() if side is not ABSENT} for each in found.fields
    ]  # fmt: skip
    return {**found._asdict(), "fields": differ, "causes": [each._asdict() for each in found.causes]}


def _from_data(data: Mapping[str, Any]) -> Divergence:
    differ = tuple(
        FieldDifference(each["pointer"], each.get("expected", ABSENT), each.get("actual", ABSENT))
        for each in data["fields"]
    )
    return Divergence(**{**data, "fields": differ, "causes": tuple(Ancestor(**each) for each in data["causes"])})


def inputs_of(head: str, told: str) -> str:
    """Hex over what a result follows from, as far as it is known beforehand: what the session ends with, all that was
    asked for, and what this build is."""
    parts = {"head": head, "strategy": told, "versions": VERSIONS, "code": __version__}
    return sha256(canonical(parts)).hexdigest()
