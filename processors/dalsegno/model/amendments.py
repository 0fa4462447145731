"""Amendments: what takes an event out of a session's history without breaking its chain. Pure.

``HistoryAmended`` stands outside the chain (seq 0) and names its targets by seq, hash, predecessor, epoch and type. In
each target's place the fold sees a *stub* with that hash, whether the record itself is present, tombstoned, compacted
away or sent again. A stub always overrides what the record says about itself, or the path would depend on whether
compaction has run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from dalsegno.model.hashing import is_well_placed
from dalsegno.model.ids import HASH_BYTES
from dalsegno.model.records import ERASED, FIRST_SEQ, LOST, SKIPPED, Link

# The strongest action wins where several amendments name one target.
_STRENGTH = {ERASED: 0, LOST: 1, SKIPPED: 2}


class Stub(NamedTuple):
    """What stands in a target's place: its link, its type's short name, and the action that put it there."""

    link: Link
    type: str
    action: str


class Amendment(NamedTuple):
    """One ``HistoryAmended``. ``refused`` counts targets that name no possible place; they change nothing."""

    request_id: str
    action: str
    stubs: tuple[Stub, ...]
    whole_session: bool
    refused: int


class Amended(NamedTuple):
    """What all amendments of one session say together: a stub per hash, or that the whole session is gone."""

    stubs: Mapping[bytes, Stub]
    whole_session: bool


NOTHING_AMENDED = Amended({}, False)


def read_amendment(body: Mapping[str, Any]) -> Amendment:
    """The amendment in a decoded ``HistoryAmended``. Total: what makes no sense is counted in ``refused``."""
    action = body.get("action")
    if action not in _STRENGTH:
        return Amendment(_text(body.get("request_id")), "", (), False, 1)
    stubs: list[Stub] = []
    refused = 0
    targets = body.get("targets")
    for target in targets if isinstance(targets, list | tuple) else ():
        link = _target_link(target)
        if link is None:
            refused += 1
        else:
            stubs.append(Stub(link, _text(target.get("type")), action))
    return Amendment(_text(body.get("request_id")), action, tuple(stubs), body.get("whole_session") is True, refused)


def merge_amendments(amendments: Iterable[Amendment]) -> Amended:
    """All amendments of one session as one, whatever their order and however often each is given."""
    stubs: dict[bytes, Stub] = {}
    whole_session = False
    for amendment in amendments:
        whole_session = whole_session or amendment.whole_session
        for stub in amendment.stubs:
            known = stubs.get(stub.link.hash)
            if known is None or _order(stub) < _order(known):
                stubs[stub.link.hash] = stub
    return Amended(stubs, whole_session)


def amended_links(links: Iterable[Link], stubs: Mapping[bytes, Stub]) -> list[Link]:
    """The candidates for the path: the records' links, with each stub's link in place of (or beside) them."""
    if not stubs:
        return list(links)
    return [link for link in links if link.hash not in stubs] + [stub.link for stub in stubs.values()]


def _order(stub: Stub) -> tuple[int, int, bytes, int, str]:
    link = stub.link
    return (_STRENGTH[stub.action], link.seq, link.prev_hash or b"", link.epoch, stub.type)


def _target_link(target: Any) -> Link | None:
    if not isinstance(target, Mapping):
        return None
    seq, hash_, prev_hash, epoch = (target.get(name) for name in ("seq", "hash", "prev_hash", "epoch"))
    if type(seq) is not int or type(epoch) is not int or seq < FIRST_SEQ or epoch < 0:
        return None
    if not isinstance(hash_, bytes) or len(hash_) != HASH_BYTES:
        return None
    if not (prev_hash is None or isinstance(prev_hash, bytes)) or not is_well_placed(seq, prev_hash):
        return None
    return Link(seq, hash_, prev_hash, epoch)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
