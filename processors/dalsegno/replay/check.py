"""The check of a session's decisions: each is computed from the events before it, as recorded, and compared. Pure.

State comes from the record alone, so a difference never spreads: all of them are counted. Every recorded decision must
be the one that was due, with the payload that it has; before every other event nothing may be due. Nobody outside is
asked anything, and nothing is written.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

from dalsegno.errors import DalsegnoError, NotReconstructable
from dalsegno.harness.conductor import Store
from dalsegno.log.contents import move_out
from dalsegno.model.catalogue import CATALOGUE
from dalsegno.model.events import NewEvent, to_record
from dalsegno.model.history import is_fork
from dalsegno.model.records import Event
from dalsegno.orchestration.canonical import canonical
from dalsegno.orchestration.cel import ENGINE
from dalsegno.orchestration.decider import (
    DECIDER_VERSION,
    Due,
    MemoryContents,
    World,
    configuration_in_force,
    due,
    payload,
)
from dalsegno.orchestration.documents import Configuration, HarnessBuild
from dalsegno.projections.decider.fold import fold_event
from dalsegno.projections.decider.rendering import BUILDER_VERSION
from dalsegno.projections.decider.table import MemoryRows
from dalsegno.replay.compressions import Compressions
from dalsegno.replay.divergence import ABSENT, Ancestor, Divergence, DivergenceKind, FieldDifference, compare_payloads
from dalsegno.replay.subjects import FIELD, subject

MAY_HAVE_DUE: Final = frozenset({"SessionRecovered", "SessionForked", "SessionCreated"})
"""Before these anything may be due: a writer crashed there, or a fork begins there."""
VERSIONS: Final = {"decider": DECIDER_VERSION, "builder": BUILDER_VERSION, "cel": ENGINE}
"""Of what decides in this build."""
ANCESTORS: Final = 5
LOOK_BACK: Final = 2_000
"""Events before one among which its causes are looked for."""
Override = Callable[[Configuration], Configuration]
"""Puts other documents in the place of those that were pinned: a what-if."""


@dataclass
class Checked:
    """What a check came to. ``divergences``: the first ones, ``diverged``: how many there are in all.

    ``not_comparable``: decisions by the reason for which they were not compared. ``unreconstructable``: from which seq
    on, and why, no decision could be computed. ``what_if``: why differences are no errors of the recording.
    """

    session_id: str = ""
    events: int = 0
    compared: int = 0
    equal: int = 0
    diverged: int = 0
    divergences: list[Divergence] = field(default_factory=list)
    not_comparable: Counter[str] = field(default_factory=Counter)
    unreconstructable: tuple[int, str] | None = None
    what_if: list[str] = field(default_factory=list)
    head_seq: int = 0
    head_hash: bytes | None = None
    configuration: bytes | None = None
    """Digest over the documents that were in force at the end."""

    @property
    def first(self) -> Divergence | None:
        return self.divergences[0] if self.divergences else None

    def identity(self, strategy: str) -> str:
        """Hex of the SHA-256 over what a result follows from: equal identity, equal result."""
        parts = {
            "head": None if self.head_hash is None else self.head_hash.hex(),
            "configuration": None if self.configuration is None else self.configuration.hex(),
            "strategy": strategy,
            "versions": VERSIONS,
        }
        return sha256(canonical(parts)).hexdigest()


class Checker:
    """Takes the events of one session in order. ``first_seq``: decisions below it are folded, not compared.

    ``override``: another configuration than the pinned one. ``reuse``: the text of a compression is taken as recorded
    where its rule and its items are the same. ``keep``: how many divergences are kept whole.
    """

    def __init__(
        self,
        contents: Store | None = None,
        *,
        rows: MemoryRows | None = None,
        first_seq: int = 1,
        override: Override | None = None,
        ignore: frozenset[str] = frozenset(),
        reuse: bool = False,
        keep: int = 20,
    ) -> None:
        self.rows = MemoryRows() if rows is None else rows
        self.contents = MemoryContents() if contents is None else contents
        self.result = Checked()
        self.compare = True
        """Whether decisions are compared; else events are only folded."""
        self._first_seq = first_seq
        self._override = override
        self._ignore = ignore
        self._reuse = reuse
        self._keep = keep
        self._forks_pins = False  # whether all since a fork began are the documents that it pins before its first turn
        self._before: deque[tuple[int, str, str, str | None, str | None]] = deque(maxlen=LOOK_BACK)

    def take(self, event: Event) -> None:
        """One event: compared, then folded as recorded."""
        result = self.result
        result.session_id, result.head_seq, result.head_hash = event.session_id, event.seq, event.hash
        result.events += 1
        if event.stub is not None:
            self._cannot(event.seq, f"the {event.type} at seq {event.seq} was {event.stub.lower()}")
            return
        if event.type == "CompressionCompleted" and event.body["effect"] == "MARKER_ONLY":
            self._cannot(event.seq, f"the compression at seq {event.seq} says only that it happened")
        if self.compare and event.seq >= self._first_seq:
            self._compare(event)
        try:
            fold_event(self.rows, event, self.contents.keep)
        except (KeyError, TypeError, AttributeError) as error:
            self._cannot(event.seq, f"the {event.type} at seq {event.seq} cannot be folded: {error!r}")
        self._forks_pins = is_fork(event) or (self._forks_pins and event.type == "ConfigPinned")
        self._before.append(
            (event.seq, event.type, subject(event), event.meta.get("event_id"), event.meta.get("causation_id"))
        )

    # --- one event ----------------------------------------------------------------------------------------------------

    def _compare(self, event: Event) -> None:
        entry = CATALOGUE.get(event.type)
        decision = entry is not None and event.type in FIELD
        if self.result.unreconstructable is not None:
            if decision:
                self.result.not_comparable[self.result.unreconstructable[1]] += 1
            return
        try:
            world = self._world()
            if world is None:
                if decision:
                    self.result.not_comparable["the session is not decided by a decider"] += 1
                return
            if decision:
                self._decision(event, world)
            elif event.type not in MAY_HAVE_DUE and not (self._forks_pins and event.type == "ConfigPinned"):
                self._nothing_due(event, world)
        except NotReconstructable as error:
            self._cannot(event.seq, error.found)
            if decision:
                self.result.not_comparable[error.found] += 1
        except DalsegnoError as error:
            self._cannot(event.seq, error.found)

    def _world(self) -> World | None:
        head = self.rows.head_row
        if head is None or head.status == "CREATED":
            return None
        if head.profile != "STRICT":
            return None
        pinned = configuration_in_force(self.rows, self.contents)
        self.result.what_if += [said for said in other_versions(pinned.build) if said not in self.result.what_if]
        self.result.configuration = configuration_digest(pinned.digests)
        return World(self.rows, pinned if self._override is None else self._override(pinned), self.contents)

    def _decision(self, event: Event, world: World) -> None:
        about = subject(event)
        wanted = due(world)
        decided = None if wanted is None else _body(self._made(event, world, wanted))
        self.result.compared += 1  # what could not be computed is not among them
        if wanted is None:
            self._diverged(event, self._kind("ORDER"), (FieldDifference("", event.body, ABSENT),), "nothing was due")
            return
        if wanted != Due(event.type, about):
            told = f"{wanted.type} of {wanted.subject or 'the session'} was due"
            self._diverged(event, self._kind("CODE"), (FieldDifference("", event.body, decided),), told)
            return
        fields = self._fields(event.body, decided)
        if fields:
            self._diverged(event, self._kind(kind_of(event.type, fields)), fields, None)
        else:
            self.result.equal += 1

    def _made(self, event: Event, world: World, wanted: Due) -> NewEvent:
        made = payload(world, wanted)
        recorded = Compressions()
        if self._reuse:
            recorded.record(event)
        return recorded.reused(made, self.contents) or made

    def _fields(self, expected: Any, actual: Any) -> tuple[FieldDifference, ...]:
        return tuple(each for each in compare_payloads(expected, actual) if each.pointer not in self._ignore)

    def _nothing_due(self, event: Event, world: World) -> None:
        wanted = due(world)
        if wanted is None:
            return
        told = f"{wanted.type} of {wanted.subject or 'the session'} was due before it"
        shown = _body(payload(world, wanted))
        self._diverged(event, self._kind("MISSING_RECORD"), (FieldDifference("", ABSENT, shown),), told)

    def _kind(self, kind: DivergenceKind) -> DivergenceKind:
        return "CONFIG" if self._override is not None else kind

    def _diverged(
        self, event: Event, kind: DivergenceKind, fields: tuple[FieldDifference, ...], because: str | None
    ) -> None:
        self.result.diverged += 1
        if len(self.result.divergences) >= self._keep:
            return
        class_: Any = CATALOGUE[event.type].cls
        self.result.divergences.append(
            Divergence(event.seq, event.type, class_, kind, subject(event), fields, because, self._causes(event))
        )

    def _causes(self, event: Event) -> tuple[Ancestor, ...]:
        """By ``causation_id`` where there are any; else the facts and decisions right before it."""
        known = {row[3]: row for row in self._before if row[3] is not None}
        found: list[Ancestor] = []
        wanted = event.meta.get("causation_id")
        while wanted in known and len(found) < ANCESTORS:
            seq, type_, about, _, wanted = known[wanted]
            found.append(Ancestor(seq, type_, about))
        return tuple(found)

    def _cannot(self, seq: int, why: str) -> None:
        if self.result.unreconstructable is None:
            self.result.unreconstructable = (seq, why)


def kind_of(type_: str, fields: Iterable[FieldDifference]) -> DivergenceKind:
    """PROMPT_DRIFT where what a model is asked differs; else the code decides otherwise."""
    asks = type_ in ("ContextPackBuilt", "InferenceRequested")
    drifted = asks and any(each.pointer.split("/")[1] in ("request_digest", "added", "removed") for each in fields)
    return "PROMPT_DRIFT" if drifted else "CODE"


def _body(event: NewEvent) -> dict[str, Any]:
    """As it stands in a log: what is too large for an event is named by its digest."""
    body: dict[str, Any] = move_out(to_record(event), [])
    return body


def other_versions(build: HarnessBuild) -> list[str]:
    """What a session was decided by, where this build has another one."""
    return [
        f"decided by {name} {was}; this build has {now}"
        for name, was, now in (
            ("decider", build.decider, DECIDER_VERSION),
            ("builder", build.builder, BUILDER_VERSION),
            ("engine of conditions", build.cel_engine, ENGINE),
        )
        if was != now
    ]


def configuration_digest(digests: Mapping[str, bytes]) -> bytes:
    """Over the digests of the documents in force, in the order of their kinds."""
    return sha256(b"".join(digests[kind] for kind in sorted(digests))).digest()


def check(events: Iterable[Event], checker: Checker | None = None, *, until: int | None = None) -> Checked:
    """All of a session's events, its ancestors' first; ``until``: the last seq that is looked at."""
    checker = Checker() if checker is None else checker
    for event in events:
        if until is not None and event.seq > until:
            break
        checker.take(event)
    return checker.result
