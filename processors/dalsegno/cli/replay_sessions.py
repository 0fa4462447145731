"""``dalsegno replay plan|run --mode full|inference-skipping|simulation``: decisions of recorded sessions replayed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from typing import Any, NamedTuple, Self

from dalsegno.cli.answers import say_positions
from dalsegno.cli.bisect_exit import Judged
from dalsegno.cli.common import open_reader, who
from dalsegno.cli.context import Context
from dalsegno.cli.output import emit, note, visible
from dalsegno.cli.progress import ALL, bars
from dalsegno.cli.replay_chosen import Chosen, check_chosen, start_of
from dalsegno.cli.replay_jobs import jobs_for, spread
from dalsegno.cli.replay_session_text import show_result, show_summary
from dalsegno.errors import NegativeVerdict, NotFound, NotReconstructable, Usage
from dalsegno.harness.clock import SystemClock
from dalsegno.harness.opening import Options, open_ports
from dalsegno.harness.people import read_people
from dalsegno.harness.performing import Ports
from dalsegno.harness.sessions import StoredContents, configuration_in_log
from dalsegno.log.publisher import Publisher
from dalsegno.log.service_records import write_records
from dalsegno.model.records import Event
from dalsegno.orchestration.configuration import PinnedDocument
from dalsegno.orchestration.documents import Configuration
from dalsegno.readers.datasets.choosing import chosen
from dalsegno.readers.lineage import counting_events
from dalsegno.readers.local import LocalReader
from dalsegno.replay.changes import Changes
from dalsegno.replay.compared import compare_run
from dalsegno.replay.execute import Progress, new_replay_id
from dalsegno.replay.forked import run_in_fork
from dalsegno.replay.rerun import Strategy
from dalsegno.replay.session_records import Told, records_of
from dalsegno.replay.session_replay import (
    KEPT,
    POLICY_DIGESTS,
    Asked,
    Replayed,
    cannot_run,
    plan_of,
    replay_session,
)
from dalsegno.replay.store import replays_topic
from dalsegno.settings import Settings
from dalsegno.storage.blobs import Blobs

# --- plan -------------------------------------------------------------------------------------------------------------


def plan_sessions(ctx: Context, mode: str, start: str | None, given: Chosen) -> None:
    """What a replay would look at, and what asking the models again would take. Nothing is kept."""
    check_chosen(mode, given)
    rows = []
    with open_reader(ctx) as reader:
        for session_id, history in _histories(reader, given):
            rows.append({"session": session_id, "mode": mode, **plan_of(history, start_of(start, session_id))})
        say_positions(reader)
    if not rows:
        raise NotFound("no session fits", wanted="sessions of this machine", todo="see dalsegno session list")
    emit(ctx, rows, tuple(rows[0]))


# --- run --------------------------------------------------------------------------------------------------------------


def run_sessions(
    ctx: Context, mode: str, start: str | None, given: Chosen, *, jobs: int | None = None, record: bool = False
) -> None:
    """Raises Judged: 0 all are equal, 3 something differs, 1 something could not be compared. Nothing is shown before
    all are replayed, and nothing kept (``record``: in the topic of replays)."""
    check_chosen(mode, given)
    started_at = SystemClock().now()
    told = _Told(ctx.settings.model_dump(), mode, start, given)
    replays = _Replays(told)
    if jobs is not None and jobs > 1 and replays.alone:
        raise Usage(
            f"--jobs {jobs} where somebody is asked or a fork is written",
            wanted="--jobs 1",
            todo="leave out --jobs: what is asked for then is asked for one by one",
        )
    with open_reader(ctx) as reader:
        lengths = _lengths(reader, given)
        say_positions(reader)
    if not lengths:
        raise NotFound("no session fits", wanted="sessions of this machine", todo="see dalsegno session list")
    many = 1 if replays.alone else jobs_for(jobs, len(lengths))
    found = map(replays.one, lengths) if many == 1 else spread(_open, told, list(lengths), many)
    with replays:
        results = list(_watched(found, lengths))
    if record:
        _record(ctx, given, replays.strategy, start, results, started_at)
    for result in results:
        show_result(ctx, result)
    if ctx.output == "json":
        emit(ctx, [each.as_data() for each in results])
    show_summary(ctx, results)
    differs = any(each.diverged for each in results)
    whole = all(each.verdict != "NOT_COMPARED" for each in results)
    code = NegativeVerdict.exit_code if differs else 0 if whole else NotReconstructable.exit_code
    # What was served inexactly is no proof of a difference, nor of none.
    judged = differs if (whole or differs) and not any(each.tainted for each in results) else None
    raise Judged(differs=judged, code=code)


def _record(
    ctx: Context, given: Chosen, strategy: Strategy, start: str | None, results: Sequence[Replayed], started_at: int
) -> None:
    """One replay each, told at once, when all of them are over."""
    for result in results:
        first = None if start is None else start_of(start, result.session_id)
        told = Told(new_replay_id(), strategy, who(), started_at, SystemClock().now(), first, given.until)
        write_records(ctx.kafka, replays_topic(ctx.prefix), records_of(told, result))
        note(f"recorded as {told.id}")


def _lengths(reader: LocalReader, given: Chosen) -> dict[str, int]:
    """The sessions that fit, in their order, with their numbers of events."""
    found = {}
    for each in chosen(reader, given.wanted):
        if each.row.held_reason is not None:
            note(f"{visible(each.session_id)} is held at {each.row.held_seq}: {each.row.held_reason}")
        if each.row.last_seq:
            found[each.session_id] = each.row.last_seq
    return found


def _watched(results: Iterable[Replayed], lengths: Mapping[str, int]) -> Iterator[Replayed]:
    """Shows the progress, in events; of an interrupted replay, how many sessions it got through."""
    done, events, total = 0, 0, sum(lengths.values())
    try:
        with bars("replay") as show:
            for result, length in zip(results, lengths.values(), strict=True):
                done, events = done + 1, events + length
                show([Progress(ALL, 0, events, total, done == len(lengths))])
                yield result
    except KeyboardInterrupt:
        note(f"{done} of {len(lengths)} sessions were replayed; nothing of them is shown")
        raise


class _Told(NamedTuple):
    """What a process is told of a replay. ``settings``: by their names."""

    settings: dict[str, Any]
    mode: str
    start: str | None
    given: Chosen


def _open(told: _Told) -> Callable[[str], Replayed]:
    """In a process of its own: what replays a session."""
    return _Replays(told).one


class _Replays:
    """Replays sessions one by one. ``alone``: it asks somebody or writes forks, which is done in one process."""

    def __init__(self, told: _Told) -> None:
        self._closing = ExitStack()
        self._ctx = Context(Settings(**told.settings))
        self._start, self._given = told.start, told.given
        given = told.given
        self._ports = _ports(given)
        self._people = None if given.approvals_from is None else read_people(given.approvals_from)
        self.strategy = given.strategy(told.mode)
        self._changes = Changes(policy=given.policy, workflow=given.workflow_file, model=given.model)
        self.alone = self._ports is not None or self._writes

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._closing.close()

    @cached_property
    def _reader(self) -> LocalReader:
        return self._closing.enter_context(open_reader(self._ctx))

    @property
    def _writes(self) -> bool:
        """Whether forks are written: where a full replay asks anybody again, or decides by other documents."""
        return self.strategy.mode == "full" and (self.strategy.inference != "recorded" or bool(self._changes))

    def one(self, session_id: str) -> Replayed:
        history = list(counting_events(self._reader, session_id))
        blobs = Blobs(self._ctx.store)
        pinned = configuration_in_log(history, blobs) if self._changes else None
        asked = Asked(
            history=history,
            strategy=self.strategy,
            contents=StoredContents(blobs),
            override=None if pinned is None else self._changes.override,
            ports=self._ports,
            people=self._people,
            start=start_of(self._start, session_id),
            until=self._given.until,
            changed=self._changed(pinned),
        )
        try:
            if self._writes:
                return self._fork(asked, [] if pinned is None else self._changes.of(pinned))
            return replay_session(asked)
        except NotReconstructable as error:  # of one session; the others are replayed
            result = Replayed(session_id, self.strategy.mode, asked.told, events=len(history), stopped=error.found)
            seq = error.data.get("seq")
            if seq is not None:
                result.unreconstructable = (seq, error.found)
            return result

    def _changed(self, pinned: Configuration | None) -> str:
        said = [] if pinned is None else [self._changes.told(pinned)]
        said += [] if self._people is None else [f"people={self._people.digest}"]
        return " ".join(said)

    def _fork(self, asked: Asked, documents: Sequence[PinnedDocument]) -> Replayed:
        refused = cannot_run(asked)
        if refused is not None:  # before anything is written
            return refused
        result = Replayed(asked.session_id, asked.strategy.mode, asked.told, events=len(asked.history))
        at = asked.start if asked.start > 1 else _first_turn(asked.history)
        with Publisher(self._ctx.kafka, prefix=self._ctx.prefix, blobs=Blobs(self._ctx.store)) as publisher:
            forked = run_in_fork(
                publisher, asked.session_id, at, asked.strategy, asked.ports, documents=documents,
                purpose="WHAT_IF" if documents else "DATASET", people=asked.people,
            )  # fmt: skip
        compared = compare_run(
            forked.recorded, forked.result.events, config=bool(documents),
            ignore=POLICY_DIGESTS if documents else frozenset(),
        )  # fmt: skip
        result.fork, result.snapped_back = forked.session_id, forked.boundary.snapped_back
        result.counts, result.inexact = forked.result.counts, forked.result.inexact
        result.left_over, result.stopped = len(forked.result.left_over), forked.result.stopped
        result.compared, result.equal = compared.compared, compared.equal
        result.diverged, result.divergences = len(compared.divergences), compared.divergences[:KEPT]
        result.identity = forked.events[-1].hash.hex()
        return result.settle()


def _first_turn(history: Sequence[Event]) -> int:
    own = history[-1].session_id  # a fork's seqs are those behind its ancestors'
    found = next((event for event in history if event.type == "TurnStarted" and event.session_id == own), None)
    if found is None:
        raise NotReconstructable("the session never began a turn", wanted="a session with a turn to begin again from")
    return found.seq


def _histories(reader: LocalReader, given: Chosen) -> Iterator[tuple[str, list[Event]]]:
    for found in chosen(reader, given.wanted):
        history = list(counting_events(reader, found.session_id))
        if history:
            if found.row.held_reason is not None:
                note(f"{visible(found.session_id)} is held at {found.row.held_seq}: {found.row.held_reason}")
            yield found.session_id, history


def _ports(given: Chosen) -> Ports | None:
    """Nothing that could touch the outside, unless the options ask for it."""
    asks = given.inference != "recorded"
    acts = given.tools != "receipts" or given.on_miss == "simulate"
    if not asks and not acts:
        return None
    return open_ports(Options(tools=given.tools_from, providers=given.providers if asks else ())).ports
