"""Recorded facts, found again for a run of the same session: each served once, exact or not. Pure.

Inferences are found by domain id and checked by request digest. A tool's result is exact if the call is of the same
turn, tool and effective arguments, and the calls authorised before that may have had an effect are the same ones; else
a result of the same tool and arguments is inexact. Answers of people are found by approval or request id and checked by
the digest of what was shown. What nobody asked for comes where it came: behind what it followed (``places``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final, NamedTuple

from dalsegno.model.history import is_fork
from dalsegno.model.lifecycle.state import ENDED, bounded
from dalsegno.model.lifecycle.tables import STATUS_AFTER
from dalsegno.model.records import Event
from dalsegno.projections.decider.rows import APPROVAL, CALL, INFERENCE, REQUEST, VALIDATION, CallState
from dalsegno.projections.decider.table import MemoryRows
from dalsegno.replay.compressions import Compressions
from dalsegno.replay.places import Places
from dalsegno.replay.subjects import BEGINNINGS, FACT, fact_subject

EXACT: Final = "replay/exact"
INEXACT: Final = "replay/inexact"
"""``meta.origin.importer`` of a recorded fact that was served into a run."""

UNSOLICITED: Final = frozenset(
    {
        "MessageReceived", "ConfigPinned", "CancelRequested", "TimerFired", "SessionPaused", "SessionResumed",
        "SessionRecovered", "NoteRecorded", "ErrorRecorded", "FeedbackRecorded", "ArtifactRecorded", "CheckpointMarked",
    }
)  # fmt: skip
"""What comes by itself."""
RESULTS: Final = frozenset({"ToolReceiptRecorded", "ToolCallFailed", "SubSessionEnded"})
ANSWERS: Final = frozenset({"InferenceCompleted", "InferenceFailed"})
LEAVE: Final = frozenset({"ApprovalGranted", "ApprovalDenied", "ApprovalExpired"})


def served_as(event: Event) -> str | None:
    """EXACT or INEXACT for a recorded fact that was served again in a fork; None for any other event."""
    origin = event.meta.get("origin")
    importer = None if origin is None else origin["importer"]
    return importer if importer in (EXACT, INEXACT) else None


class CallKey(NamedTuple):
    """What a call was: its turn, tool and effective arguments, and the effects that were allowed before it."""

    turn: str
    name: str
    arguments: bytes
    effects: bytes


class Served(NamedTuple):
    """A recorded event that fits what is open now. ``target``: the id of it in this run."""

    event: Event
    target: str
    exact: bool
    why: str = ""


@dataclass
class Counts:
    """Where facts of a run came from. ``rerun``: a model was asked, or a tool executed; ``reused``: compressions."""

    exact: int = 0
    inexact: int = 0
    rerun: int = 0
    simulated: int = 0
    missed: int = 0
    reused: int = 0

    @property
    def tainted(self) -> bool:
        return bool(self.inexact)


class Effects:
    """The multiset of authorised calls that are no reading, as a digest that does not depend on their order."""

    def __init__(self) -> None:
        self._sum = 0

    def add(self, name: str, arguments: bytes) -> None:
        one = sha256(name.encode("utf-8", "surrogatepass") + b"\0" + arguments).digest()
        self._sum = (self._sum + int.from_bytes(one, "big")) % (1 << 256)

    def add_all(self, other: Effects) -> None:
        self._sum = (self._sum + other._sum) % (1 << 256)

    @property
    def digest(self) -> bytes:
        return self._sum.to_bytes(32, "big")


@dataclass
class Recording:
    """What was recorded behind the start of a run, ready to be served."""

    queue: list[Event] = field(default_factory=list)
    held: list[Event] = field(default_factory=list)
    """Facts that are not served."""
    held_types: frozenset[str] = frozenset()

    calls: dict[str, CallKey] = field(default_factory=dict)
    started: set[tuple[str, int]] = field(default_factory=set)
    """Calls and their attempts that were begun."""

    request_digests: dict[tuple[str, int], bytes | None] = field(default_factory=dict)
    shown: dict[str, bytes | None] = field(default_factory=dict)
    """Of approvals: the digest of the arguments that were shown."""

    effects: Effects = field(default_factory=Effects)
    """Of the calls that were authorised before the run's start."""

    places: Places = field(default_factory=Places)
    compressions: Compressions = field(default_factory=Compressions)

    forks_pins: int = 0
    """How many documents stand first, which a fork pinned before its first turn."""

    unended: bool = False
    """The recorded session had not ended: where everything was served, nothing is missing."""

    @classmethod
    def of(cls, behind: Iterable[Event], before: Iterable[Event] = ()) -> Recording:
        """``behind``: what is served; ``before``: what the run takes over, if it does not begin with the session."""
        found = cls()
        effects = Effects()
        asked: dict[str, tuple[str, str]] = {}
        last: Event | None = None
        pinning = False
        for event in before:
            found._learn(event, asked, found.effects)
            pinning = is_fork(event)
        effects.add_all(found.effects)
        for event in behind:
            found._learn(event, asked, effects)
            pinning = pinning and event.type == "ConfigPinned"
            found.forks_pins += pinning
            if event.stub is None:
                found.places.record(event)
                # That a call is given up before it is begun is no fact of the world: a run does so by itself.
                given_up = event.type == "ToolCallFailed" and _attempt(event) not in found.started
                if (event.type in UNSOLICITED or event.type in FACT) and not given_up:
                    found.queue.append(event)
            last = event
        found.unended = last is not None and STATUS_AFTER.get(last.type) not in ENDED
        return found

    def _learn(self, event: Event, asked: dict[str, tuple[str, str]], effects: Effects) -> None:
        if event.stub is not None:
            return
        body = event.body
        self.compressions.record(event)
        if event.type == "ToolCallStarted":
            self.started.add(_attempt(event))
        elif event.type == "ToolCallRequested":
            asked[body["tool_call_id"]] = (body["name"], body["effect"])
        elif event.type == "ToolCallAuthorized":
            id = body["tool_call_id"]
            name, effect = asked.get(id, ("", "UNKNOWN"))
            arguments = body["effective_arguments_digest"] or b""
            self.calls[id] = CallKey(id.rpartition("/")[0], name, arguments, effects.digest)
            if effect != "READ":
                effects.add(name, arguments)
        elif event.type == "InferenceRequested":
            self.request_digests[body["inference_id"], body["attempt"]] = body["request_digest"]
        elif event.type == "ApprovalRequested":
            self.shown[body["approval_id"]] = body["arguments_digest"]

    def hold(self, types: Collection[str], *, reuse: bool = False) -> None:
        """Serve no fact of these types, but with ``reuse`` what a model said for a compression to one of the same key.
        They are put aside, so that no look for the next fact goes through them."""

        def is_held(event: Event) -> bool:
            reused = reuse and event.type in ANSWERS and self.compressions.is_for_one(event.body["inference_id"])
            return event.type in types and not reused

        self.held_types = self.held_types.union(types)
        self.put_aside(is_held)

    def put_aside(self, which: Callable[[Event], bool]) -> None:
        """Serve no fact of which this is so."""
        queue, self.queue = self.queue, []
        for event in queue:
            (self.held if which(event) else self.queue).append(event)

    def next(
        self, rows: MemoryRows, keys: dict[str, CallKey], *, reuse: bool = False, wherever: bool = False
    ) -> Served | None:
        """The first recorded event that can be delivered now; it is taken out. ``keys``: of this run's calls;
        ``reuse``: what a model said for a compression is served to one of the same key, also where it is held;
        ``wherever``: what comes by itself comes though the run is not where it came."""
        open_calls = _open_calls(rows, keys)
        for place, event in enumerate(self.queue):
            summary = None
            if reuse and event.type in ANSWERS:
                summary = self.compressions.answers(event.body["inference_id"], rows)
            if summary is not None:
                served = self._inference(event, summary, rows)
            elif event.type in self.held_types:
                continue
            elif event.type not in UNSOLICITED:
                served = self._fits(event, rows, keys, open_calls)
            else:
                served = Served(event, "", True) if wherever or self.places.is_reached(event) else None
            if served is not None:
                del self.queue[place]
                return served
        return None

    def has_result(self, rows: MemoryRows, keys: dict[str, CallKey]) -> bool:
        """Whether a result of a call that is open now was recorded."""
        open_calls = _open_calls(rows, keys)
        results = (event for event in self.queue if event.type in RESULTS)
        return any(self._result(event, fact_subject(event), keys, open_calls) for event in results)

    def _fits(
        self, event: Event, rows: MemoryRows, keys: dict[str, CallKey], open_calls: dict[tuple[str, bytes], list[str]]
    ) -> Served | None:
        id = bounded(fact_subject(event))
        head = rows.head_row
        assert head is not None
        if event.type == "StageStarted":
            return Served(event, id, True) if head.stage == id and head.stage_phase == "SCHEDULED" else None
        if event.type in ANSWERS:
            return self._inference(event, id, rows)
        if event.type == "ToolCallStarted":
            call = rows.get((CALL, id))
            begins = call is not None and call.phase == "AUTHORIZED" and call.attempt + 1 == event.body["attempt"]
            return Served(event, id, True) if begins and keys.get(id) == self.calls.get(id) else None
        if event.type in RESULTS:
            return self._result(event, id, keys, open_calls)
        if event.type in LEAVE:
            return self._answer(event, id, rows)
        family = VALIDATION if event.type == "VerdictReported" else REQUEST
        row = rows.get((family, id))
        return Served(event, id, True) if row is not None and row.phase == "OPEN" else None

    def _inference(self, event: Event, id: str, rows: MemoryRows) -> Served | None:
        row = rows.get((INFERENCE, id))
        # An attempt that a crash of then took is not open here: what came of the next one is the answer.
        if row is None or row.phase != "OPEN" or row.attempt > event.body["attempt"]:
            return None
        before = self.request_digests.get((event.body["inference_id"], event.body["attempt"]))
        if before == row.request_digest:
            return Served(event, id, True)
        return Served(event, id, False, "the model was asked something else")

    def _answer(self, event: Event, id: str, rows: MemoryRows) -> Served | None:
        row = rows.get((APPROVAL, id))
        if row is None or row.phase != "OPEN":
            return None
        # What was granted was shown: another call with the same id is not covered by it.
        return Served(event, id, True) if self.shown.get(event.body["approval_id"]) == row.arguments else None

    def _result(
        self,
        event: Event,
        id: str,
        keys: dict[str, CallKey],
        open_calls: dict[tuple[str, bytes], list[str]],
    ) -> Served | None:
        recorded = self.calls.get(event.body["tool_call_id"])
        if recorded is None:
            return None
        candidates = open_calls.get((recorded.name, recorded.arguments), [])
        same_turn = [each for each in candidates if keys[each].turn == recorded.turn]
        exact = [each for each in same_turn if keys[each].effects == recorded.effects]
        target = id if id in exact else exact[0] if exact else None
        if target is not None:
            return Served(event, target, True)
        rest = same_turn or candidates
        if not rest:
            return None
        why = "other effects came before it" if same_turn else "it was recorded in another turn"
        return Served(event, id if id in rest else rest[0], False, why)

    @property
    def left_over(self) -> Sequence[Event]:
        """Recorded results that nothing asked for; that something was begun is no result."""
        return [
            event
            for event in (*self.queue, *self.held)
            if event.type not in UNSOLICITED and event.type not in BEGINNINGS
        ]

    @property
    def is_over(self) -> bool:
        """Whether the session was recorded no further than it has been served."""
        return self.unended and not self.left_over


def _attempt(event: Event) -> tuple[str, int]:
    return event.body["tool_call_id"], event.body["attempt"]


def _open_calls(rows: MemoryRows, keys: dict[str, CallKey]) -> dict[tuple[str, bytes], list[str]]:
    found: dict[tuple[str, bytes], list[str]] = defaultdict(list)
    calls: dict[str, CallState] = rows.family(CALL)
    for id, call in calls.items():
        if call.phase in ("STARTED", "UNRESOLVED", "ATTEMPT_FAILED") and id in keys:
            found[keys[id].name, keys[id].arguments].append(id)
    return found
