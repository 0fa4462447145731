"""What an amendment of some seqs would name, and what would follow from it. Pure.

A target's link says where it is to stand: behind the record that is chosen below it. For a record of the path that is
its own link; for one that holds its session (it cannot be read, or is missing, or names another) it is what lets the
path go on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, NamedTuple, NoReturn

from dalsegno.errors import Conflict, NotFound, Usage
from dalsegno.model.history import Known, gather
from dalsegno.model.ids import HASH_BYTES, SEQ_MAX
from dalsegno.model.path import Path
from dalsegno.model.records import AMENDMENT_TYPE, CONTROL_SEQ, FIRST_SEQ, LOST, SKIPPED, Event, Link, Unreadable

TARGETS_MAX = 5_000
"""So that an amendment is one record, which is there or is not: a target takes about 100 bytes of its 1 MB."""
UNKNOWN = "UNKNOWN"
"""The type of a target that nobody can read."""


class Target(NamedTuple):
    link: Link
    type: str

    def as_record(self) -> dict[str, Any]:
        return {**self.link._asdict(), "type": self.type}


class Intended(NamedTuple):
    """What would be amended, and the session's path before and after it."""

    targets: tuple[Target, ...]
    before: Path
    after: Path


def intend(session_id: str, records: Iterable[Event | Unreadable], first: int, last: int, action: str) -> Intended:
    """Choose the targets of an amendment of the seqs ``first`` to ``last``. ``records``: all that is known of it.

    Raises NotFound for seqs beyond the last one known, Conflict where a seq is amended already, where the action does
    not fit what is there, or where nobody knows which record is meant.
    """
    if not FIRST_SEQ <= first <= last <= SEQ_MAX or last - first >= TARGETS_MAX:
        raise Usage(
            f"seq {first} to {last}",
            wanted=f"1 or more seqs in order, at most {TARGETS_MAX} at a time",
            todo="amend a longer stretch in parts",
        )
    known = list(records)
    chooser = _Chooser(session_id, known, action)
    targets = chooser.targets(first, last)
    after = gather([*known, _amendment(session_id, targets, action)]).known.choose()
    return Intended(targets, chooser.path, after)


class _Chooser:
    def __init__(self, session_id: str, records: Collection[Event | Unreadable], action: str) -> None:
        assert action in (SKIPPED, LOST)
        self._id, self._action = session_id, action
        self._known: Known = gather(records).known
        self.path = self._known.choose()
        self._types = {each.hash: each.type for each in records if isinstance(each, Event)}
        self._dark = {each.key.hash: each.key.seq for each in records if isinstance(each, Unreadable)}

    def targets(self, first: int, last: int) -> tuple[Target, ...]:
        if self._known.amended.whole_session:
            self._refuse(first, "was erased as a whole", "a session that still has a history")
        highest = self.path.head.highest
        if last > highest:
            raise NotFound(
                f"session {self._id} has no seq {max(first, highest + 1)}: the last one known is {highest}",
                wanted=f"seqs up to {highest}",
                todo="see 'dalsegno session show'",
                session_id=self._id,
                highest=highest,
            )
        before: Link | None = None
        if first > FIRST_SEQ:
            if first - 1 > len(self.path.hashes):
                held = len(self.path.hashes) + 1
                self._refuse(first, f"is held at seq {held}, below it", f"an amendment of seq {held} first")
            before = self._known.links[self.path.hashes[first - 2]]
        found: list[Target] = []
        for seq in range(first, last + 1):
            target = self._target(seq, before)
            found.append(target)
            before = target.link
        return tuple(found)

    def _target(self, seq: int, before: Link | None) -> Target:
        hash_ = self._chosen(seq)
        stub = self._known.amended.stubs.get(hash_)
        if stub is not None:
            self._refuse(seq, f"is amended there already: {stub.action}", "seqs that no amendment names")
        there = hash_ in self._types or hash_ in self._dark
        if there and self._action == LOST:
            self._refuse(seq, "has a record there", "'--action skipped' to step over it")
        if not there and self._action == SKIPPED:
            self._refuse(seq, "has no record there", "'--action lost' to accept that")
        own = self._known.links.get(hash_)
        epoch = max(0 if own is None else own.epoch, 0 if before is None else before.epoch)
        link = Link(seq, hash_, None if before is None else before.hash, epoch)
        return Target(link, self._types.get(hash_, UNKNOWN))

    def _chosen(self, seq: int) -> bytes:
        """The record that is meant: of the path, else what stands there, else what the next one names."""
        if seq <= len(self.path.hashes):
            return self.path.hashes[seq - 1]
        links = [link for link in self._known.links.values() if link.hash not in self.path.superseded]
        standing = {link.hash for link in links if link.seq == seq}
        standing |= {hash_ for hash_, at in self._dark.items() if at == seq}
        named = {link.prev_hash for link in links if link.seq == seq + 1 and link.prev_hash is not None}
        wanted = named - standing if self._action == LOST and named - standing else named & standing or standing
        if not wanted:
            self._refuse(
                seq,
                "has no record there, and none behind it that names its hash",
                "a record at the next seq: only it knows which one is lost",
            )
        if len(wanted) > 1:
            hashes = ", ".join(sorted(hash_.hex()[:12] for hash_ in wanted))
            self._refuse(seq, f"has several records there: {hashes}", "one that the records behind it agree on")
        (hash_,) = wanted
        return hash_

    def _refuse(self, seq: int, found: str, wanted: str) -> NoReturn:
        raise Conflict(
            f"seq {seq}: session {self._id} {found}",
            wanted=wanted,
            todo="see 'dalsegno session show' and 'dalsegno session verify'; nothing was written",
            session_id=self._id,
            seq=seq,
        )


def _amendment(session_id: str, targets: Iterable[Target], action: str) -> Event:
    """The amendment as a reader would have it: enough of it to choose a path with."""
    body = {"request_id": "", "action": action, "targets": [target.as_record() for target in targets]}
    nothing = bytes(HASH_BYTES)
    return Event(session_id, CONTROL_SEQ, nothing, None, 0, AMENDMENT_TYPE, True, False, {}, body)
