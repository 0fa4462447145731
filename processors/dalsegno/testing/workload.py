"""Made-up sessions at the speed of a benchmark, valid by the lifecycle rules, the same for the same seed.

    work = Workload(sessions=1_000, seed=1, active=50)
    for record in work.records():
        ...                               # key and value bytes, in the order in which they would be published
    work.tally.as_data()                  # what all of it holds, counted where it was made

Lengths are log-normal: many short sessions, a few that are hundreds of times as long. ``active`` sessions run at a time
and take turns at random, in bursts as real ones do; ``evenly`` runs all of them at once, one event each in turn.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from random import Random
from typing import Any

from dalsegno.log.record import LogRecord
from dalsegno.log.schema_set import SchemaSet
from dalsegno.model.events import NewEvent
from dalsegno.model.ids import Offset, partition_of
from dalsegno.testing.agent_script import AgentScript, Plan
from dalsegno.testing.script import Child, Script, Steps
from dalsegno.testing.script_writer import ScriptWriter, WorkloadRecord
from dalsegno.testing.tally import Tally

START_MICROS = 1_767_225_600_000_000
"""2026-01-01 UTC, when the first session begins."""
_SESSION_EVERY_MICROS = 7_000_000
_SPREAD = 1.25
"""Standard deviation of the logarithm of a session's length."""
_OVERSHOOT = 1.2
"""Sessions have about this many times the events that were planned, because what has begun is brought to its end."""
_LONGEST = 20_000
_SHORT = 24
"""A session shorter than this is OBSERVED: the pins of a STRICT one would be most of it."""
_STRICT_SHARE = 0.7
_BURST = 0.6
"""How probable it is that the session which went last goes next, too."""


class _Running:
    """A slot: a session, and the children that it waits for above it."""

    __slots__ = ("stack",)

    def __init__(self, script: Script) -> None:
        self.stack: list[tuple[Script, Steps]] = [(script, script.steps())]


class Workload:
    """``sessions`` sessions, children among them. ``tally`` and ``by_session`` are complete once all is drawn."""

    def __init__(
        self,
        sessions: int,
        seed: int = 1,
        active: int = 50,
        *,
        evenly: bool = False,
        mean_events: int = 100,
        schemas: SchemaSet | None = None,
    ) -> None:
        if sessions < 1 or active < 1 or mean_events < 8:
            raise ValueError("wanted: sessions >= 1, active >= 1, mean_events >= 8")
        self._sessions = sessions
        self._seed = seed
        self._active = sessions if evenly else min(active, sessions)
        self._evenly = evenly
        self._median = mean_events / _OVERSHOOT / math.exp(_SPREAD**2 / 2)
        self._rng = Random(f"workload {seed}")
        self._given = 0
        self._writer = ScriptWriter(schemas or SchemaSet.load())
        self.tally = Tally()
        self.by_session: dict[str, Tally] = {}

    def records(self) -> Iterator[WorkloadRecord]:
        """Every record, in the order of publishing. To be drawn once."""
        slots = [_Running(script) for _ in range(self._active) if (script := self._next_script()) is not None]
        place, chance = 0, self._rng.random
        while slots:
            if self._evenly:
                place = place + 1 if place + 1 < len(slots) else 0
            elif place >= len(slots) or chance() >= _BURST:
                place = int(chance() * len(slots))
            running = slots[place]
            record = self._advance(running)
            if record is not None:
                yield record
            if not running.stack:
                script = self._next_script()
                if script is not None:
                    slots[place] = _Running(script)
                elif self._evenly:
                    del slots[place]
                    place -= 1
                else:
                    slots[place] = slots[-1]
                    slots.pop()

    def _advance(self, running: _Running) -> WorkloadRecord | None:
        """One step of the slot's innermost session; None where that was no event."""
        script, steps = running.stack[-1]
        step = next(steps, None)
        if step is None:
            running.stack.pop()
            self._ended(script)
            return None
        if isinstance(step, Child):
            running.stack.append((step.script, step.script.steps()))
            return None
        return self._writer.write(script, step)

    def _ended(self, script: Script) -> None:
        for kind, _ in script.open:
            script.tally.open_operations[kind] += 1
        self.tally.add(script.tally)
        self.by_session[script.session_id] = script.tally

    def _next_script(self, parent: Script | None = None) -> AgentScript | None:
        """The next session, or None when all were given. A session depends on its number and the seed alone."""
        if self._given >= self._sessions:
            return None
        number = self._given
        self._given += 1
        rng = Random(f"workload {self._seed} session {number}")
        length = int(min(_LONGEST, max(4.0, self._median * math.exp(rng.gauss(0.0, _SPREAD)))))
        if parent is not None:
            length = min(length, 60)
        strict = length >= _SHORT and rng.random() < _STRICT_SHARE
        plan = Plan(length, "STRICT" if strict else "OBSERVED", parent)
        start = START_MICROS + number * _SESSION_EVERY_MICROS if parent is None else parent.now
        script = AgentScript(f"w{self._seed}-{number:06d}", rng, plan, start=start, spawn=self._next_script)
        script.number = number
        return script


def generate(
    sessions: int, seed: int = 1, active: int = 50, *, evenly: bool = False, mean_events: int = 100
) -> Iterator[tuple[str, NewEvent, dict[str, Any]]]:
    """(session id, event, its meta) in the order of publishing."""
    for record in Workload(sessions, seed, active, evenly=evenly, mean_events=mean_events).records():
        yield record.session_id, record.event, record.meta


def log_records(workload: Workload, partitions: int) -> Iterator[tuple[int, LogRecord]]:
    """(partition, record) as a reader of the topic would get them, without a broker: offsets without gaps from 0."""
    next_offset = [0] * partitions
    for record in workload.records():
        partition = partition_of(record.session_id, partitions)
        offset = next_offset[partition]
        next_offset[partition] += 1
        timestamp_ms = record.meta["recorded_at"] // 1000
        yield partition, LogRecord(Offset(offset), record.key, record.value, timestamp_ms, 0)
