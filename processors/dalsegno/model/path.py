"""The path: which of a session's records are its history. Pure, and a function of the set of records alone.

Start at seq 1 and step forward. Candidates for seq n are the records that name the chosen record n-1 as their
predecessor and whose epoch is not below its. Of several: the higher epoch, then the longer linked continuation, then
the lower hash. Without a candidate the path ends; if something is known that should come after, the session is *held*
there, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from dalsegno.model.records import FIRST_SEQ, UNDECODABLE, UNKNOWN_SCHEMA, UNKNOWN_SYMBOL, Link

NO_START = "NO_START"
"""Records exist, but none at seq 1."""
GAP = "GAP"
"""Nothing stands at this seq, but something does above it."""
BROKEN_CHAIN = "BROKEN_CHAIN"
"""What stands at this seq names a predecessor that is not known."""
EPOCH_BELOW = "EPOCH_BELOW"
"""What stands at this seq was written by a writer that had already been replaced."""
UNKNOWN_TYPE = "UNKNOWN_TYPE"
"""An event type that this build lacks, in an event that may not be ignored."""
PARENT_MISSING = "PARENT_MISSING"
"""A fork whose parent's records are not all there. Given by whoever looks at both sessions, never by this module."""
ERASED = "ERASED"
"""The whole session was erased."""

# Where several unreadable records stand at one seq, the reason that is likeliest to pass is given.
_UNREADABLE_ORDER = {UNKNOWN_SCHEMA: 0, UNKNOWN_SYMBOL: 1, UNDECODABLE: 2}


class Held(NamedTuple):
    """Why a session cannot go on, and the first seq that cannot be folded."""

    reason: str
    seq: int


class Head(NamedTuple):
    """The end of a path: what the next record must name. ``highest`` is the greatest seq known of the session."""

    seq: int
    hash: bytes | None
    epoch: int
    highest: int
    erased: bool = False


EMPTY_HEAD = Head(0, None, 0, 0)


class Path(NamedTuple):
    """``hashes[i]`` stands at seq ``i + 1``; ``superseded``: records that another displaced, and their followers."""

    hashes: tuple[bytes, ...]
    superseded: frozenset[bytes]
    held: Held | None
    head: Head


def extends(head: Head, link: Link) -> bool:
    """Whether a new record can be appended to the path without choosing again.

    True only if it names the tip, its epoch is not below the tip's, and nothing is known above the tip. Then the path
    of all records is the old one and this record, and nothing is held or newly superseded.
    """
    return (
        link.seq == head.seq + 1
        and head.highest == head.seq
        and link.prev_hash == head.hash
        and link.epoch >= head.epoch
        and not head.erased
    )


def head_at(link: Link) -> Head:
    """The head after a record that extended the one before."""
    return Head(link.seq, link.hash, link.epoch, link.seq)


def choose_path(
    links: Iterable[Link],
    *,
    unreadable: Iterable[tuple[int, str]] = (),
    unfoldable: Mapping[bytes, str] | None = None,
    erased: bool = False,
) -> Path:
    """The path through all records of one session, in time linear in their number.

    ``links``: the readable records with seq >= 1 in any order and any number of times, amended ones replaced by their
    stubs (``amendments.amended_links``). ``unreadable``: seq and reason of records whose bytes cannot be read; they are
    no candidates and only name the reason where nothing else stands. ``unfoldable``: hash -> reason for readable
    records that this build may not fold (UNKNOWN_TYPE): they take part in the choice, and the path stops before the
    first of them that was chosen. ``erased``: an amendment took the whole session.
    """
    records = set(links)
    dark = dict[int, str]()
    for seq, reason in unreadable:
        if seq not in dark or _UNREADABLE_ORDER[reason] < _UNREADABLE_ORDER[dark[seq]]:
            dark[seq] = reason
    highest = max((*(link.seq for link in records), *dark), default=0)
    if erased:
        return Path((), frozenset(), Held(ERASED, FIRST_SEQ), Head(0, None, 0, highest, erased=True))
    chain = _choose_chain(records)
    superseded = _superseded(records, chain)
    held = _why_held(records, chain, superseded, dark)
    for link in chain if unfoldable else ():
        if link.hash in unfoldable:  # type: ignore[operator]
            held = Held(unfoldable[link.hash], link.seq)  # type: ignore[index]
            chain = chain[: link.seq - 1]
            break
    head = (
        Head(chain[-1].seq, chain[-1].hash, chain[-1].epoch, highest) if chain else EMPTY_HEAD._replace(highest=highest)
    )
    return Path(tuple(link.hash for link in chain), superseded, held, head)


def chain_ending_in(links: Mapping[bytes, Link], hash_: bytes) -> tuple[Link, ...] | None:
    """The chain of records from seq 1 that ends in ``hash_``, on the path or not; None if a part of it is missing.

    ``links``: hash -> link of the session's records, stubs in the places of amended ones. A fork reads its parent so.
    """
    chain: list[Link] = []
    link = links.get(hash_)
    while link is not None and link.seq > FIRST_SEQ:
        chain.append(link)
        before = links.get(link.prev_hash) if link.prev_hash is not None else None
        link = before if before is not None and before.seq == link.seq - 1 and before.epoch <= link.epoch else None
    if link is None or link.seq != FIRST_SEQ:
        return None
    chain.append(link)
    return tuple(reversed(chain))


def _choose_chain(records: set[Link]) -> list[Link]:
    children: dict[tuple[int, bytes | None], list[Link]] = {}
    for link in records:
        children.setdefault((link.seq - 1, link.prev_hash), []).append(link)
    # Greatest seq first, so that a record's successors are measured before it; no recursion, sessions are long.
    length: dict[Link, int] = {}
    for link in sorted(records, key=lambda link: link.seq, reverse=True):
        after = children.get((link.seq, link.hash))
        if after is None:
            length[link] = 1
        elif len(after) == 1:
            length[link] = 1 + (length[after[0]] if after[0].epoch >= link.epoch else 0)
        else:
            length[link] = 1 + max((length[s] for s in after if s.epoch >= link.epoch), default=0)
    chain: list[Link] = []
    place: tuple[int, bytes | None] = (FIRST_SEQ - 1, None)
    epoch: int | None = None
    while True:
        candidates = [link for link in children.get(place, ()) if epoch is None or link.epoch >= epoch]
        if not candidates:
            return chain
        if len(candidates) == 1:
            best = candidates[0]
        else:
            best = min(candidates, key=lambda link: (-link.epoch, -length[link], link.hash))
        chain.append(best)
        place, epoch = (best.seq, best.hash), best.epoch


def _superseded(records: set[Link], chain: list[Link]) -> frozenset[bytes]:
    """What another record displaced (off the chain, at a seq that the chain holds), and all that follows from it.

    A record above the chain that follows from nothing known is not superseded: its history may still arrive.
    """
    if len(records) == len(chain):
        return frozenset()
    chosen = {link.hash for link in chain}
    superseded: dict[bytes | None, int] = {}
    for link in sorted(records, key=lambda link: link.seq):
        displaced = link.seq <= len(chain) or superseded.get(link.prev_hash) == link.seq - 1
        if displaced and link.hash not in chosen:
            superseded[link.hash] = link.seq
    return frozenset(hash_ for hash_ in superseded if hash_ is not None)


def _why_held(
    records: set[Link], chain: list[Link], superseded: frozenset[bytes], dark: Mapping[int, str]
) -> Held | None:
    """The reason why the chain ends where it does; None if nothing is known that should follow."""
    tip = len(chain)
    after = tip + 1
    next_ones: list[Link] = []
    more = any(seq > tip for seq in dark)
    if len(records) > len(chain):
        loose = [link for link in records if link.seq > tip and link.hash not in superseded]
        next_ones = [link for link in loose if link.seq == after]
        more = more or bool(loose)
    if not more:
        return None
    if next_ones:
        tip_hash = chain[-1].hash if chain else None
        return Held(EPOCH_BELOW if any(link.prev_hash == tip_hash for link in next_ones) else BROKEN_CHAIN, after)
    if after in dark:
        return Held(dark[after], after)
    return Held(GAP if chain else NO_START, after)
