"""``dalsegno replay run`` of sessions: at once, or by a plan, whose results are kept one by one: it can go on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from dalsegno.cli.answers import say_positions
from dalsegno.cli.bisect_exit import Judged
from dalsegno.cli.common import open_reader, who
from dalsegno.cli.context import Context
from dalsegno.cli.output import emit, note
from dalsegno.cli.progress import ALL, bars
from dalsegno.cli.replay_chosen import Chosen, check_chosen, start_of
from dalsegno.cli.replay_jobs import jobs_for, spread
from dalsegno.cli.replay_plans import check_fresh, fitting, given_by, no_session
from dalsegno.cli.replay_session_text import show_result, show_summary
from dalsegno.cli.replay_topic import Topic
from dalsegno.cli.replaying import Order, Replays, open_one
from dalsegno.errors import (
    BlobDamaged,
    BlobMissing,
    DalsegnoError,
    NegativeVerdict,
    NotReconstructable,
    PlanStale,
    RecordDamaged,
    Usage,
)
from dalsegno.harness.clock import SystemClock
from dalsegno.log.service_records import RecordWriter
from dalsegno.replay.execute import Progress
from dalsegno.replay.replayed import Replayed
from dalsegno.replay.session_plans import StoredPlan, stale
from dalsegno.replay.session_records import Kept, Told, records_of
from dalsegno.replay.session_results import MEDIA_TYPE, decode_result, encode_result, inputs_of
from dalsegno.replay.store import replays_topic
from dalsegno.storage.blobs import Blobs

# --- at once ----------------------------------------------------------------------------------------------------------


def run_sessions(ctx: Context, mode: str, start: str | None, given: Chosen, jobs: int | None = None) -> None:
    """Raises Judged: 0 all are equal, 3 something differs, 1 something could not be compared. Nothing is shown before
    all are replayed, and nothing is kept."""
    check_chosen(mode, given)
    with Replays(_order(ctx, mode, start, given)) as replays:
        _check_jobs(replays, jobs)
        with open_reader(ctx) as reader:
            lengths = {each.session_id: each.row.last_seq for each in fitting(reader, given)}
            say_positions(reader)
        if not lengths:
            raise no_session()
        results: list[Replayed] = []
        try:
            _replay(replays, lengths, jobs, results.append)
        except KeyboardInterrupt:
            note(f"{len(results)} of {len(lengths)} sessions were replayed; nothing of them is shown")
            raise
    _judge(ctx, results)


# --- by a plan --------------------------------------------------------------------------------------------------------


def run_plan(ctx: Context, stored: StoredPlan, topic: Topic, jobs: int | None = None) -> None:
    """As ``run_sessions``. (1) Every session must be what it was; (2) what was kept of the same inputs is taken; (3)
    the others are replayed, and each result is kept as soon as it is whole: its last record has it. A crash at any
    place leaves whole results, and the same command goes on from there. Raises PlanStale, Judged."""
    plan = stored.plan
    with Replays(_order(ctx, plan.mode, plan.start, given_by(plan))) as replays:
        _check_jobs(replays, jobs)
        with open_reader(ctx) as reader:
            check_fresh(reader, plan)  # (1)
            say_positions(reader)
        keeping = _Keeping(ctx, stored, topic, replays)
        results = keeping.taken()  # (2)
        if results:
            note(f"{len(results)} of {len(plan.sessions)} sessions were replayed before; their results are taken")
        left = {each.session: each.cost.events for each in plan.sessions if each.session not in results}

        def keep(result: Replayed) -> None:
            keeping.keep(result)
            results[result.session_id] = result

        try:
            _replay(replays, left, jobs, keep)  # (3)
        except (KeyboardInterrupt, DalsegnoError) as error:
            if not isinstance(error, PlanStale):
                note(
                    f"{len(results)} of {len(plan.sessions)} sessions are replayed and kept; "
                    f"to go on: dalsegno replay run {plan.id}"
                )
            raise
    _judge(ctx, [results[each.session] for each in plan.sessions])


class _Keeping:
    """Keeps what comes of a plan's sessions, each as a replay of its own, and reads it again."""

    def __init__(self, ctx: Context, stored: StoredPlan, topic: Topic, replays: Replays) -> None:
        self._replays, self._plan = replays, stored.plan
        self._blobs = Blobs(ctx.store)
        self._writer = RecordWriter(ctx.kafka, replays_topic(ctx.prefix))
        self._kept: Mapping[int, Kept] = topic.of_plan(stored)
        self._numbers = {each.session: number for number, each in enumerate(self._plan.sessions, 1)}
        self._started_at = SystemClock().now()

    def _inputs(self, session_id: str, told: str) -> str:
        head = self._plan.sessions[self._numbers[session_id] - 1].head
        return inputs_of(f"{head.hash} {head.amended}", told)

    def taken(self) -> dict[str, Replayed]:
        """The results that were kept whole and follow from what would be looked at now, by session. What could not be
        compared is replayed again: a content that was missing then may be there."""
        found = {}
        for number, kept in self._kept.items():
            session_id = self._plan.sessions[number - 1].session
            if kept.inputs is not None and kept.inputs == self._inputs(session_id, self._replays.told(session_id)):
                assert kept.completed is not None
                with suppress(RecordDamaged, BlobMissing, BlobDamaged):  # it is replayed again
                    result = decode_result(self._blobs.get(kept.completed["result"]))
                    if result.verdict != "NOT_COMPARED" or result.fork is not None:
                        found[session_id] = result
        return found

    def keep(self, result: Replayed) -> None:
        """Raises PlanStale where the session went on meanwhile, and what writing does."""
        number = self._numbers[result.session_id]
        if result.head != self._plan.sessions[number - 1].head.hash:
            raise stale(self._plan, f"session {result.session_id} went on while it was replayed")
        first = None if self._plan.start is None else start_of(self._plan.start, result.session_id)
        told = Told(
            self._plan.replay_id(number), self._replays.strategy, who(), self._started_at, SystemClock().now(), first,
            given_by(self._plan).until, self._replays.writes, self._inputs(result.session_id, result.strategy),
        )  # fmt: skip
        blob = self._blobs.put(encode_result(result), MEDIA_TYPE)
        records = records_of(told, result, blob, self._kept.get(number))
        self._writer.write(records)


# --- both -------------------------------------------------------------------------------------------------------------


def _order(ctx: Context, mode: str, start: str | None, given: Chosen) -> Order:
    return Order(ctx.settings.model_dump(), mode, start, given)


def _check_jobs(replays: Replays, jobs: int | None) -> None:
    if jobs is not None and jobs > 1 and replays.alone:
        raise Usage(
            f"--jobs {jobs} where somebody is asked or a fork is written",
            wanted="--jobs 1",
            todo="leave out --jobs: what is asked for then is asked for one by one",
        )


def _replay(replays: Replays, lengths: Mapping[str, int], jobs: int | None, take: Callable[[Replayed], None]) -> None:
    """``lengths``: events by session, in the order in which ``take`` is given the results, each as soon as it is
    there."""
    many = 1 if replays.alone else jobs_for(jobs, len(lengths))
    found = map(replays.one, lengths) if many == 1 else spread(open_one, replays.order, list(lengths), many)
    for result in _watched(found, lengths):
        take(result)


def _watched(results: Iterable[Replayed], lengths: Mapping[str, int]) -> Iterator[Replayed]:
    """Shows the progress, in events."""
    events, total = 0, sum(lengths.values())
    with bars("replay") as show:
        for done, (result, length) in enumerate(zip(results, lengths.values(), strict=True), 1):
            events += length
            show([Progress(ALL, 0, events, total, done == len(lengths))])
            yield result


def _judge(ctx: Context, results: Sequence[Replayed]) -> None:
    """Show them all. Raises Judged."""
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
