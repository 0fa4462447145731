"""Replays of sessions as records of ``<prefix>.replays``: begun, each difference or inexact result, the end. Pure.

Keys: ``<replay id>:started:0``, ``<replay id>:diverged:<n>``, ``<replay id>:completed:0``; a replay is of one session.
The last one has the whole result: only with it is a replay over, whatever an interruption left.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Any, Final, NamedTuple

import msgspec

from dalsegno import __version__
from dalsegno.errors import RecordDamaged
from dalsegno.log.codec import decode_record, encode_record
from dalsegno.model.events import Blob
from dalsegno.orchestration.canonical import canonical
from dalsegno.replay.divergence import ABSENT, Divergence, plain
from dalsegno.replay.modes import actions
from dalsegno.replay.replayed import Replayed
from dalsegno.replay.strategy import Strategy

MODES: Final = {"full": "FULL", "inference-skipping": "INFERENCE_SKIPPING", "simulation": "SIMULATION"}


class Told(NamedTuple):
    """``started_at``, ``ended_at``: microseconds since 1970; ``start``, ``until``: as asked for; ``fork``: it was
    to be written as one; ``inputs``: hex, of ``session_results.inputs_of``."""

    id: str
    strategy: Strategy
    by: str
    started_at: int
    ended_at: int
    start: int | None = None
    until: int | None = None
    fork: bool = False
    inputs: str | None = None


def records_of(
    told: Told, result: Replayed, blob: Blob | None = None, before: Kept | None = None
) -> Iterator[tuple[str, bytes | None]]:
    """Keys and values, in the order in which they are written. ``blob``: the whole result; ``before``: what the topic
    holds of an earlier replay with this id, which is taken out: its end first, so that a crash leaves no mixture that
    passes for a whole one."""
    differences = list(_differences(result))
    if before is not None and before.completed is not None:
        yield f"{told.id}:completed:0", None
    for old in () if before is None else before.differences:
        if old["number"] > len(differences):
            yield f"{told.id}:diverged:{old['number']}", None
    strategy = told.strategy
    started = {
        "replay_id": told.id,
        "mode": MODES[result.mode],
        "session_id": result.session_id,
        "from_seq": told.start,
        "to_seq": told.until,
        "snapshot_id": None,
        "config_set_digest": None,
        "code_version": __version__,
        "inference": _symbol(strategy.inference),
        "tools": _symbol(strategy.tools),
        "on_miss": _symbol(strategy.on_miss),
        "compression": "RECORDED" if strategy.compression == "recorded" else "RECOMPUTE",
        "started_at": told.started_at,
        "started_by": told.by,
        "actions": [{"what": what, "action": action} for what, action in actions(strategy, fork=told.fork).items()],
    }
    yield f"{told.id}:started:0", encode_record("ReplayStarted", started)
    for number, each in enumerate(differences, 1):
        record = {"replay_id": told.id, "number": number, "session_id": result.session_id, "detail": None, **each}
        yield f"{told.id}:diverged:{number}", encode_record("ReplayDiverged", record)
    error = result.stopped if result.unreconstructable is None else result.unreconstructable[1]
    completed = {
        "replay_id": told.id,
        "verdict": result.verdict,
        "state_digest": None,
        "events": result.events,
        "compared": result.compared,
        "diverged": result.diverged,
        "completed_at": told.ended_at,
        "error": error,
        "result": None if blob is None else msgspec.structs.asdict(blob),
        "inputs": None if told.inputs is None else bytes.fromhex(told.inputs),
    }
    yield f"{told.id}:completed:0", encode_record("ReplayCompleted", completed)


def _differences(result: Replayed) -> Iterator[dict[str, Any]]:
    for each in result.divergences:
        yield {
            "seq": each.seq,
            "domain_id": each.subject or None,
            "kind": each.kind,
            "aspect": ", ".join(field.pointer or "/" for field in each.fields),
            "expected": _digest(each, "expected"),
            "actual": _digest(each, "actual"),
        }
    for seq, why in result.inexact:
        kind = "PROMPT_DRIFT" if why.startswith("the model") else "ORDER"
        yield {
            "seq": seq, "domain_id": None, "kind": kind, "aspect": f"served inexactly: {why}",
            "expected": None, "actual": None,
        }  # fmt: skip


def _digest(divergence: Divergence, side: str) -> bytes | None:
    """Over the differing values of one side, canonical; None where that side has none."""
    values = {field.pointer: getattr(field, side) for field in divergence.fields}
    shown = {pointer: plain(value) for pointer, value in values.items() if value is not ABSENT}
    return sha256(canonical(shown)).digest() if shown else None


def _symbol(name: str) -> str:
    return name.upper().replace("-", "_")


# --- read again -------------------------------------------------------------------------------------------------------


class Kept(NamedTuple):
    """What the topic holds of one replay: its records as they were decoded, differences by their number."""

    started: Mapping[str, Any]
    differences: Sequence[Mapping[str, Any]]
    completed: Mapping[str, Any] | None

    @property
    def inputs(self) -> str | None:
        """Hex; None where it is not over, or was not kept whole."""
        digest = None if self.completed is None or self.completed["result"] is None else self.completed["inputs"]
        return None if digest is None else bytes(digest).hex()

    @property
    def state(self) -> str:
        return "STARTED" if self.completed is None else str(self.completed["verdict"])


def parse_kept(table: Mapping[bytes, bytes]) -> dict[str, Kept]:
    """The replays of sessions in a table of raw records, by id. What this build cannot read is left out."""
    found: dict[str, dict[str, list[Mapping[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for value in table.values():
        with suppress(RecordDamaged):
            kind, record = decode_record(value)
            if kind in ("ReplayStarted", "ReplayDiverged", "ReplayCompleted"):
                found[record["replay_id"]][kind].append(record)
    return {
        id: Kept(
            kinds["ReplayStarted"][0],
            sorted(kinds["ReplayDiverged"], key=lambda each: int(each["number"])),
            next(iter(kinds["ReplayCompleted"]), None),
        )
        for id, kinds in found.items()
        if kinds["ReplayStarted"]
    }
