"""The two fillings of ``Writer``: a session of the log, and a recorder that keeps events in memory."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any

import msgspec

from dalsegno.errors import InvalidEvent
from dalsegno.log.codec import place
from dalsegno.log.contents import move_out
from dalsegno.log.receipts import Pending
from dalsegno.log.session import Session
from dalsegno.model.events import NewEvent, to_record
from dalsegno.model.lifecycle import MemoryOps, SessionState, judge
from dalsegno.model.records import Actor, Event


class LogWriter:
    """Appends to a session of the log; an append waits for nothing: a receipt that does not come breaks the session."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.session_id = session.session_id
        self._last: Pending | None = None

    def append(self, event: NewEvent, **how: Any) -> Event:
        self._last = self.session.append(event, **how)
        return self.event_of(self._last)

    def stored(self) -> None:
        if self._last is not None:
            self._last.result()  # the log takes the events of a session in their order
        self.session.read_back()

    def event_of(self, pending: Pending) -> Event:
        """An event of the session as every reader finds it."""
        publisher = self.session.publisher
        assert pending.value is not None
        found = place(publisher.schemas, pending.key.encode(), pending.value, pending.partition, publisher.partitions)
        assert isinstance(found, Event)  # it was encoded a moment ago
        return found


class Recorder:
    """Keeps events in memory, judged by the lifecycle's rules, numbered as a session's are; for replays, which may not
    write. A content that is too large for an event is named by its digest, as in a log. Hashes are of its own: nothing
    compares them with a log's."""

    def __init__(self, session_id: str, clock: Callable[[], int], *, after: list[Event] | None = None) -> None:
        self.session_id = session_id
        self.events: list[Event] = list(after or [])
        self._clock = clock
        self.state, self.ops = SessionState(), MemoryOps()
        for event in self.events:
            judge(self.state, self.ops, event)

    def stored(self) -> None:
        """It is, as soon as it is appended."""

    @property
    def last(self) -> Event:
        """The event that the next one follows."""
        return self.events[-1]

    def append(self, event: NewEvent, **how: Any) -> Event:
        before = self.events[-1] if self.events else None
        epoch = how.get("epoch", 0 if before is None else before.epoch)
        seq = 1 if before is None else before.seq + 1
        actor: Actor | tuple[str, str] = how.get("actor") or ("HARNESS", "replay")
        meta = {
            "session_id": self.session_id,
            "seq": seq,
            "epoch": epoch,
            "prev_hash": None if before is None else before.hash,
            "ignorable": False,
            "recorded_at": max(self._clock(), 0 if before is None else before.meta.get("recorded_at") or 0),
            "occurred_at": how.get("occurred_at"),
            "event_id": f"{self.session_id}:{seq}",
            "actor_kind": actor[0],
            "actor_id": actor[1],
            "writer": "replay",
            "causation_id": None,
            "turn_id": how.get("turn_id"),
            "stage_id": how.get("stage_id"),
            "origin": None if how.get("origin") is None else msgspec.structs.asdict(how["origin"]),
            "redactions": [],
        }
        body = {"meta": meta, **move_out(to_record(event), [])}
        hash_ = sha256(msgspec.msgpack.encode(body)).digest()
        made = Event(
            self.session_id,
            seq,
            hash_,
            meta["prev_hash"],
            epoch,
            event.TYPE,
            True,
            False,
            meta,
            body,
        )
        verdict = judge(self.state, self.ops, made)
        if verdict.violations:
            rules = ", ".join(verdict.violations)
            raise InvalidEvent(f"{event.TYPE} breaks {rules}", wanted="an event that the lifecycle allows here")
        self.events.append(made)
        return made
