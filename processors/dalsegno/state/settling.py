"""Choosing a session's path again, and folding it again if it changed.

Everything here is a function of the session's records (and, for a fork, of its ancestors'), whatever the order in which
they came. A session is folded again only if its path, its stubs or what it inherits is another than before; where the
new path merely goes on from the old one, only the new part is folded.
"""

from __future__ import annotations

from dalsegno.model.history import FORK_SEQ, fork_origin, is_fork
from dalsegno.model.ids import EventKey, Seq
from dalsegno.model.lifecycle import inherit
from dalsegno.model.path import PARENT_MISSING, Path
from dalsegno.state.folding import Inheritance, Inheritances
from dalsegno.state.history import Records, events_of
from dalsegno.state.intake import take_away
from dalsegno.state.layout import ForkLink, SessionHead
from dalsegno.state.session import Session
from dalsegno.state.work import ShardWork


def settle_all(work: ShardWork) -> None:
    """Settle every session that needs it, and the forks that read through what changed."""
    inherited = Inheritances(work.journal, work.gather_id)
    for session in [session for session in work.touched if session.settle]:
        _settle(work, session, inherited)
    while work.position.counts.forks and (forks := _forks_to_check(work)):
        for session in forks:
            _settle(work, session, inherited)


def _forks_to_check(work: ShardWork) -> list[Session]:
    """Forks that begin at or above a seq at which their parent changed. Where a record came, only those that lack one:
    else one more rival in a long session would cost as much as all its forks."""
    found: dict[str, Session] = {}
    for parent in list(work.touched):
        changed, came = parent.lowest, parent.lowest_new
        parent.lowest = parent.lowest_new = None
        if changed is None and came is None:
            continue
        for child, link in parent.children.items():
            if changed is not None and link.seq >= changed:
                found[child] = work.load(child)
            elif came is not None and link.seq >= came:
                fork = work.load(child)
                if not fork.head.inherited:
                    found[child] = fork
    return list(found.values())


def _settle(work: ShardWork, session: Session, inherited: Inheritances) -> None:
    session.settle = False
    records = work.gather(session)
    for seq, hash_, entry in list(records.erased()):
        take_away(work, session, EventKey(session.id, Seq(seq), hash_), entry)
    work.touch(session)
    if records.empty:
        _remove(work, session)
        return
    path, parent, links, above = _choose(work, session, records, inherited)
    work.set_forks(session, links)
    name = b"" if above is None else above.name
    head = session.head
    if name != head.inherited:
        session.note(FORK_SEQ)  # forks of this fork inherit it too
    done = head.seq
    if session.forced or records.amended_print != head.amended or name != head.inherited or not _goes_on(head, path):
        session.drop_rows()
        done = 0
    session.forced = False
    session.lifecycle()  # before the head that holds it gives way to another
    session.head = _head_of(path, records, parent, name)
    for event in events_of(work.journal, session.id, records, path.hashes[done:], first_seq=done + 1):
        if above is not None and is_fork(event):
            inherit(inherited.state(above), session.lifecycle())
        work.folder.fold(session, event)


def _choose(
    work: ShardWork, session: Session, records: Records, inherited: Inheritances
) -> tuple[Path, str | None, dict[str, ForkLink], Inheritance | None]:
    """The path; for a fork also its parent, where it reads which ancestor, and what it inherits (None: a part of that
    is not there)."""
    path = records.choose()
    forking = records.forking(FORK_SEQ, path.hashes[FORK_SEQ - 1]) if len(path.hashes) >= FORK_SEQ else None
    if forking is None:
        return path, None, {}, None
    hash_ = path.hashes[FORK_SEQ - 1]
    parent, at = fork_origin(work.journal.event(session.id, FORK_SEQ, hash_, forking.offset))
    above, links = (None, {}) if at is None else inherited.of(session.id, parent, at)
    if above is None:
        path = records.choose({hash_: PARENT_MISSING})
    return path, None if at is None else parent, links, above


def _goes_on(head: SessionHead, path: Path) -> bool:
    """Whether the path begins with the one that was folded. A hash names all that stands below it."""
    return head.seq == 0 or (len(path.hashes) >= head.seq and path.hashes[head.seq - 1] == head.hash)


def _head_of(path: Path, records: Records, parent: str | None, inherited: bytes) -> SessionHead:
    held, tip, stubs = path.held, path.head, records.amended.stubs
    return SessionHead(
        seq=tip.seq,
        hash=tip.hash,
        epoch=tip.epoch,
        # What an erasure left behind depends on when it came; of an erased session nothing is said but that it is.
        highest=0 if tip.erased else tip.highest,
        erased=tip.erased,
        held_reason=None if held is None else held.reason,
        held_seq=None if held is None else held.seq,
        superseded=len(path.superseded),
        stubs=sum(hash_ in stubs for hash_ in path.hashes) if stubs else 0,
        amended=records.amended_print,
        parent=parent,
        inherited=inherited,
    )


def _remove(work: ShardWork, session: Session) -> None:
    """Nothing of the session is left in the log, so nothing is left of its state."""
    work.set_forks(session, {})
    session.drop_rows()
    session.head = SessionHead()
    session.gone = True
