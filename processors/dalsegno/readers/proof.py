"""Is this the whole, untouched history of a session? Judged from its records alone, and from what others know of it.

Pure: ``prove`` is given the bytes as the log, or an export, has them, and reads nothing else. The chain shows every
change in the middle: a record's key follows from its bytes, and each record names its predecessor's hash. It cannot
show that its end is missing: that shows only beside somebody who knows the end (a shard, a snapshot, the export's last
lines).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from dalsegno.log.amend_requests import Requests
from dalsegno.log.schema_set import SchemaSet
from dalsegno.model.amendments import read_amendment
from dalsegno.model.history import FORK_SEQ, ForkPoint, Known, fork_origin, gather, is_fork
from dalsegno.model.ids import SEQ_MAX
from dalsegno.model.path import BROKEN_CHAIN, EPOCH_BELOW, GAP, NO_START, Held, Path, chain_ending_in
from dalsegno.model.records import AMENDMENT_TYPE, CONTROL_SEQ, UNREADABLE_REASONS
from dalsegno.readers.proof_records import (
    CUT_MIDDLE,
    CUT_TAIL,
    FORGED,
    MISSING_AMENDMENT,
    SWAPPED,
    UNAUDITED,
    Doubt,
    Found,
    Raw,
    short,
)

_CHAIN_REASONS = frozenset({GAP, NO_START, BROKEN_CHAIN, EPOCH_BELOW})
_RECOVERY = "SessionRecovered"


class Anchor(NamedTuple):
    """A record that somebody knows to be part of the session: ``source`` says who."""

    source: str
    seq: int
    hash: bytes


class Proof(NamedTuple):
    """What the records of a session show. ``doubts``: what no untouched history shows. ``unproven``: what could not be
    looked into here. ``goes_on_from``: of a fork, the parent that it names and where it left it (None: it does not say
    it)."""

    session_id: str
    records: int
    path: Path
    amendments: int
    doubts: tuple[Doubt, ...]
    unproven: tuple[str, ...]
    goes_on_from: tuple[str, ForkPoint | None] | None = None


class AdminAudit(NamedTuple):
    """What the admin audit knows. ``all_here``: each amendment that it asks for must be among the records."""

    requests: Requests = Requests()
    all_here: bool = True


def prove(
    session_id: str,
    records: Iterable[Raw],
    *,
    partitions: int,
    schemas: SchemaSet,
    audit: AdminAudit,
    anchors: Iterable[Anchor] = (),
    up_to: Anchor | None = None,
) -> Proof:
    """Judge all records of a session, in the order of the log. Records of other sessions are left out; per key the
    last one counts, as it does for every reader. ``up_to``: judge only what leads to this record, on the path or off
    it, as a fork reads its parent."""
    found = Found(session_id, partitions, schemas)
    for record in records:
        found.take(record)
    found.sort()
    known = gather([*found.events.values(), *found.dark.values()]).known
    path = known.choose()
    hashes = path.hashes if up_to is None else _chain_to(known, up_to)
    doubts = list(found.doubts)
    if not known.amended.whole_session:
        doubts += _of_chain(found, known)
        doubts += _of_epochs(found, known, hashes)
        doubts += _of_anchors(found, known, anchors if up_to is None else (*anchors, up_to))
        doubts += _of_held(path.held, {doubt.seq for doubt in doubts} | found.aside.keys())
    doubts += _of_amendments(found, audit)
    if up_to is not None:
        doubts = [doubt for doubt in doubts if doubt.seq is None or doubt.seq <= up_to.seq]
    return Proof(
        session_id,
        found.count,
        path,
        sum(event.type == AMENDMENT_TYPE for event in found.events.values()),
        tuple(sorted(set(doubts), key=lambda doubt: (-1 if doubt.seq is None else doubt.seq, doubt))),
        tuple(_unproven(found, known, path.held, SEQ_MAX if up_to is None else up_to.seq)),
        _goes_on_from(found, known, hashes),
    )


def _chain_to(known: Known, end: Anchor) -> tuple[bytes, ...]:
    return tuple(link.hash for link in chain_ending_in(known.links, end.hash) or ())


def _goes_on_from(found: Found, known: Known, hashes: Sequence[bytes]) -> tuple[str, ForkPoint | None] | None:
    if len(hashes) < FORK_SEQ or hashes[FORK_SEQ - 1] in known.amended.stubs:
        return None
    event = found.events.get(hashes[FORK_SEQ - 1])
    return fork_origin(event) if event is not None and is_fork(event) else None


def _of_chain(found: Found, known: Known) -> Iterator[Doubt]:
    """Every record against the one that it names, on the path or off it."""
    links = known.links
    dark = {(key.seq, key.hash) for key in (each.key for each in found.dark.values()) if key.seq != CONTROL_SEQ}
    standing = {link.seq for link in links.values()} | {seq for seq, _ in dark} | found.aside.keys()
    yield from _absent(found, sorted(standing))
    for link in links.values():
        before, seq = link.prev_hash, link.seq - 1
        if before is None or (seq, before) in dark or seq in found.aside:
            continue
        pred = links.get(before)
        if pred is None:
            if seq in standing:
                text = f"seq {link.seq} names {short(before)} as its predecessor, another record stands there"
                yield Doubt(FORGED, seq, text)
        elif pred.seq != seq:
            yield Doubt(SWAPPED, link.seq, f"it names seq {pred.seq} as its predecessor")
        elif pred.epoch > link.epoch:
            yield Doubt(FORGED, link.seq, f"its epoch {link.epoch} is below that of its predecessor, {pred.epoch}")


def _absent(found: Found, standing: list[int]) -> Iterator[Doubt]:
    """Stretches of seqs at which nothing stands, below one at which something does."""
    for before, after in pairwise([0, *(seq for seq in standing if seq > 0)]):
        if after - before < 2:
            continue
        what = f"seq {before + 1}" if after - before == 2 else f"seq {before + 1} to {after - 1}"
        gone = any(before < seq < after for seq in found.gone)
        why = "; a tombstone stands there, and no amendment names what it took" if gone else ""
        yield Doubt(CUT_MIDDLE, before + 1, f"{what} missing, seq {after} is there{why}")


def _of_epochs(found: Found, known: Known, hashes: Sequence[bytes]) -> Iterator[Doubt]:
    """The epoch is 0 and rises only by a writer that takes over, which says so: else anybody could outrank what is
    there."""
    first = known.links[hashes[0]] if hashes else None
    if first is not None and first.epoch > 0 and first.hash in found.events:
        yield Doubt(FORGED, first.seq, f"the session begins with epoch {first.epoch}, which only a recovery raises")
    for before, after in pairwise(known.links[hash_] for hash_ in hashes):
        event = found.events.get(after.hash)
        if after.epoch > before.epoch and event is not None and event.type != _RECOVERY:
            text = f"a {event.type} raises the epoch from {before.epoch} to {after.epoch}, which only a recovery does"
            yield Doubt(FORGED, after.seq, text)


def _of_anchors(found: Found, known: Known, anchors: Iterable[Anchor]) -> Iterator[Doubt]:
    there = {link.seq for link in known.links.values()} | {each.key.seq for each in found.dark.values()}
    end = max(there, default=0)
    beyond: dict[str, Anchor] = {}
    for anchor in anchors:
        link = known.links.get(anchor.hash)
        if link is not None and link.seq != anchor.seq:
            yield Doubt(FORGED, anchor.seq, f"{anchor.source} knows {short(anchor.hash)} there, which is at {link.seq}")
        if link is not None or anchor.hash in found.dark or anchor.seq in found.aside:
            continue
        if anchor.seq in there:
            yield Doubt(FORGED, anchor.seq, f"{anchor.source} knows {short(anchor.hash)} there, which is gone")
        elif anchor.seq > max(end, beyond[anchor.source].seq if anchor.source in beyond else 0):
            beyond[anchor.source] = anchor
    for anchor in beyond.values():
        text = f"{anchor.source} knows seq {anchor.seq}, {short(anchor.hash)}; the records end at seq {end}"
        yield Doubt(CUT_TAIL, anchor.seq, text)


def _of_held(held: Held | None, named: set[int | None]) -> Iterator[Doubt]:
    """Where the path ends for a reason of the chain that nothing above has named."""
    if held is not None and held.reason in _CHAIN_REASONS and not {held.seq - 1, held.seq} & named:
        yield Doubt(CUT_MIDDLE, held.seq, f"the path ends before it: {held.reason}")


def _of_amendments(found: Found, audit: AdminAudit) -> Iterator[Doubt]:
    present = set[str]()
    for event in found.events.values():
        if event.seq != CONTROL_SEQ:
            continue
        amendment = read_amendment(event.body)
        present.add(amendment.request_id)
        if (why := audit.requests.doubt(found.session_id, amendment)) is not None:
            yield Doubt(UNAUDITED, CONTROL_SEQ, f"amendment {short(event.hash)}: {why}")
    if CONTROL_SEQ in found.gone:
        text = f"a tombstone stands in the place of amendment {short(found.gone[CONTROL_SEQ].hash)}"
        yield Doubt(MISSING_AMENDMENT, CONTROL_SEQ, text)
    for request_id in sorted(audit.requests.of(found.session_id) - present if audit.all_here else ()):
        text = f"request {request_id} is in the admin audit, its amendment is not here: interrupted, or taken away"
        yield Doubt(MISSING_AMENDMENT, CONTROL_SEQ, text)


def _unproven(found: Found, known: Known, held: Held | None, end: int) -> Iterator[str]:
    for hash_, each in found.dark.items():
        if hash_ in known.amended.stubs or each.key.seq > end:
            continue  # of what was stepped over only the hash counts, and its successor names that
        yield f"seq {each.key.seq}, {short(each.key.hash)}: {each.reason}, its predecessor cannot be read here"
    if held is not None and held.seq <= end and held.reason not in _CHAIN_REASONS | UNREADABLE_REASONS:
        yield f"the path ends before seq {held.seq}: {held.reason}"
