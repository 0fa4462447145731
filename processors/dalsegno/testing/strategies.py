"""Hypothesis strategies for sets of records, as real (key, value) pairs.

``sessions()`` draws one valid session. ``histories()`` draws what a partition may hold: several sessions with rival
writers, forks and forks of forks, amendments, tombstones with and without one, and records that nobody can read. The
answer to most questions may depend on the *set* of records only, so ``History.arrivals(rnd)`` gives the same set in
another order, with repeats; per key the last record stays the last, as in the log.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256
from random import Random

from hypothesis import strategies as st

from dalsegno.log.codec import FRAME_BYTES, MARKER
from dalsegno.log.schema_set import WriterSchema, closed, shared_types
from dalsegno.model.ids import EventKey, Seq, parse_key
from dalsegno.testing.builder import SessionBuilder, Written, shipped_schemas, tombstone, write
from dalsegno.testing.moves import play

__all__ = ["FUTURE", "History", "SessionBuilder", "Written", "broken_body", "future_event", "histories", "play",
           "sessions", "strange_frame"]  # fmt: skip

SESSION_IDS = ("a", "a:1", "a:1:2", ":", "a:", "sitzung-ü")
PROFILES = ("STRICT", "OBSERVED", "IMPORTED")

MOVES = st.lists(st.integers(0, 2**20), max_size=30)

FUTURE = WriterSchema(
    closed(
        {
            "type": "record",
            "name": "dalsegno.event.v1.SomethingNew",
            "fields": [
                {"name": "meta", "type": "dalsegno.event.v1.Meta"},
                {"name": "what", "type": "string"},
            ],
        },
        shared_types(),
    )
)
"""Writer schema of an event type that this build lacks. A schema set knows it only after ``add(FUTURE.json)``."""


@dataclass
class History:
    """A set of records of one partition.

    ``records``: one per key, without tombstones. ``tombstones``: of some of them. ``sessions``: the builders that
    wrote them, by name, for what a test wants to know of them (not all their records need be in ``records``).
    """

    records: list[Written] = field(default_factory=list)
    tombstones: list[Written] = field(default_factory=list)
    sessions: list[SessionBuilder] = field(default_factory=list)

    def arrivals(self, rnd: Random, *, repeats: int = 4) -> list[Written]:
        """The set in a random order, with repeats; a key's tombstone comes after all its other records."""
        arrived = list(self.records)
        if self.records:
            arrived += [rnd.choice(self.records) for _ in range(rnd.randint(0, repeats))]
        rnd.shuffle(arrived)
        for stone in self.tombstones:
            last = max((place for place, record in enumerate(arrived) if record.key == stone.key), default=-1)
            arrived.insert(rnd.randint(last + 1, len(arrived)), stone)
        return arrived

    def compacted(self) -> list[Written]:
        """What is left when compaction has removed repeats and tombstones have expired: the same set."""
        gone = {stone.key for stone in self.tombstones}
        return [record for record in self.records if record.key not in gone]


@st.composite
def sessions(draw: st.DrawFn, session_id: str = "s-1", profile: str | None = None) -> SessionBuilder:
    """A valid session: begun, then up to 30 moves."""
    builder = SessionBuilder(session_id, profile=profile or draw(st.sampled_from(PROFILES)))
    return play(builder.begin(), draw(MOVES))


@st.composite
def histories(draw: st.DrawFn, *, max_sessions: int = 3, unreadable: bool = True) -> History:
    """A set of records of one partition; see the module's text. ``unreadable``: also records that cannot be read."""
    history = History()
    written: dict[bytes, Written] = {}
    for session_id in draw(st.lists(st.sampled_from(SESSION_IDS), unique=True, min_size=1, max_size=max_sessions)):
        family = [draw(sessions(session_id))]
        for n in range(draw(st.integers(0, 2))):
            family.append(_rival(draw, draw(st.sampled_from(family)), n))
        for n in range(draw(st.integers(0, 2))):
            child = _child(draw, draw(st.sampled_from(family)), n)
            family += [child] if child is not None else []
        for builder in family:
            written.update((record.key, record) for record in builder.records)
        history.sessions += family
        if unreadable and draw(st.booleans()):
            for record in _unreadable(draw, draw(st.sampled_from(family))):
                written[record.key] = record
    amendments = _amend(draw, history)
    history.records = [*written.values(), *amendments]
    if draw(st.integers(0, 3)) == 0:
        # A record that was lost without a word leaves a gap.
        history.records.pop(draw(st.integers(0, len(history.records) - 1)))
    return history


def _rival(draw: st.DrawFn, builder: SessionBuilder, n: int) -> SessionBuilder:
    rival = builder.branch(draw(st.integers(1, len(builder.records))), writer=f"builder/1/rival-{n}")
    if draw(st.booleans()):
        rival.recover()
    return play(rival, draw(MOVES))


def _child(draw: st.DrawFn, builder: SessionBuilder, n: int) -> SessionBuilder | None:
    """A fork at a point where nothing is open (mostly), going on with moves."""
    seq = draw(st.integers(1, len(builder.records)))
    child = builder.fork(seq, f"f{n}.{len(builder.session_id)}", profile=draw(st.sampled_from(PROFILES)))
    return play(child, draw(MOVES))


def _amend(draw: st.DrawFn, history: History) -> list[Written]:
    """Amendments of some events, each with or without the tombstone that frees its bytes."""
    amendments: list[Written] = []
    for n in range(draw(st.integers(0, 2))):
        builder = draw(st.sampled_from(history.sessions))
        targets = draw(st.lists(st.sampled_from(builder.records), max_size=3, unique_by=lambda record: record.key))
        action = draw(st.sampled_from(["ERASED", "SKIPPED", "LOST"]))
        whole = draw(st.integers(0, 9)) == 0
        amendments.append(builder.amend(targets, action=action, whole_session=whole, request_id=f"request-{n}"))
        freed = {stone.key for stone in history.tombstones}
        history.tombstones += [
            tombstone(target) for target in targets if target.key not in freed and draw(st.booleans())
        ]
    return list({amendment.key: amendment for amendment in amendments}.values())


def _unreadable(draw: st.DrawFn, builder: SessionBuilder) -> list[Written]:
    seq = draw(st.integers(1, len(builder.records) + 2))
    kind = draw(st.sampled_from(["frame", "body", "future", "ignorable"]))
    if kind == "frame":
        return [strange_frame(builder.session_id, seq)]
    if kind == "body":
        return [broken_body(builder.records[min(seq, len(builder.records)) - 1])]
    return [future_event(builder, ignorable=kind == "ignorable")]


def strange_frame(session_id: str, seq: int, content: bytes = b"?") -> Written:
    """A record in the frame of a schema that nobody knows."""
    value = MARKER + sha256(content).digest()[: FRAME_BYTES - 2] + content
    return Written(EventKey(session_id, Seq(seq), sha256(value).digest()).encode(), value, None)


def broken_body(record: Written) -> Written:
    """A record whose key follows from its bytes, but whose body is cut short."""
    assert record.value is not None
    value = record.value[:-1]
    writer = shipped_schemas().by_frame(value[2:FRAME_BYTES])
    key = parse_key(record.key)
    assert writer is not None
    assert key is not None
    hash_ = sha256(writer.schema_hash + value[FRAME_BYTES:]).digest()
    return Written(key._replace(hash=hash_).encode(), value, None)


def future_event(builder: SessionBuilder, *, ignorable: bool) -> Written:
    """An event behind the builder's last, of a type and schema that this build lacks."""
    tip = builder.tip
    assert tip is not None
    envelope = builder.envelope(tip.seq + 1, tip.hash, "SomethingNew") | {"ignorable": ignorable}
    return write(FUTURE, envelope, {"what": "new"})
