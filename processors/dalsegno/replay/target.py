"""How people say from where to replay, and which loss they accept. Pure."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple

import msgspec

from dalsegno.errors import Usage


class TargetKind(StrEnum):
    EARLIEST = "earliest"
    LATEST_SNAPSHOT = "latest-snapshot"
    SNAPSHOT = "snapshot"
    OFFSET = "offset"
    SESSION = "session"


class Target(NamedTuple):
    """From where to rebuild: ``name`` is a snapshot or session id, ``offsets`` belongs to OFFSET, ``seq`` to
    SESSION."""

    kind: TargetKind
    name: str = ""
    offsets: tuple[tuple[int, int], ...] = ()
    seq: int = 0

    def __str__(self) -> str:
        match self.kind:
            case TargetKind.SNAPSHOT:
                return f"snapshot:{self.name}"
            case TargetKind.OFFSET:
                return "offset:" + ",".join(f"{partition}={offset}" for partition, offset in self.offsets)
            case TargetKind.SESSION:
                return f"session:{self.name}@{self.seq}"
        return self.kind.value


class Hole(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Offsets of one partition whose loss an operator accepts: from ``first`` up to, not including, ``end``."""

    partition: int
    first: int
    end: int


def parse_target(text: str) -> Target:
    """``earliest | latest-snapshot | snapshot:ID | offset:P=N[,P=N] | session:ID@SEQ``. Raises Usage."""
    kind, _, rest = text.partition(":")
    if text in (TargetKind.EARLIEST, TargetKind.LATEST_SNAPSHOT):
        return Target(TargetKind(text))
    if kind == TargetKind.SNAPSHOT and rest:
        return Target(TargetKind.SNAPSHOT, name=rest)
    if kind == TargetKind.OFFSET and rest:
        return Target(TargetKind.OFFSET, offsets=parse_offsets(rest))
    if kind == TargetKind.SESSION:
        # Read from the right: a session id may hold '@' and ':'.
        name, mark, seq = rest.rpartition("@")
        if mark and name and re.fullmatch(r"[1-9][0-9]{0,18}", seq):
            return Target(TargetKind.SESSION, name=name, seq=int(seq))
    raise Usage(
        f"{text!r} is not a place to replay from",
        wanted="earliest, latest-snapshot, snapshot:ID, offset:P=N[,P=N] or session:ID@SEQ",
        todo=f"write snapshot:{text} if it is a snapshot"
        if re.fullmatch(r"[0-9a-f-]{8,}", text)
        else "give one of these",
    )


def parse_offsets(text: str) -> tuple[tuple[int, int], ...]:
    """``P=N[,P=N]`` in order of partition. Raises Usage."""
    found: dict[int, int] = {}
    for part in text.split(","):
        match = re.fullmatch(r"\s*([0-9]{1,6})=([0-9]{1,19})\s*", part)
        if match is None or int(match[1]) in found:
            raise Usage(
                f"{text!r} is not a list of offsets", wanted="P=N[,P=N], each partition once", todo="correct it"
            )
        found[int(match[1])] = int(match[2])
    return tuple(sorted(found.items()))


def parse_hole(text: str) -> Hole:
    """``P=FROM..TO``: the offsets from FROM up to, not including, TO (the start of the log). Raises Usage."""
    match = re.fullmatch(r"([0-9]{1,6})=([0-9]{1,19})\.\.([0-9]{1,19})", text)
    if match is None or int(match[2]) >= int(match[3]):
        raise Usage(f"{text!r} is not a hole", wanted="P=FROM..TO with FROM below TO", todo="correct it")
    return Hole(int(match[1]), int(match[2]), int(match[3]))
