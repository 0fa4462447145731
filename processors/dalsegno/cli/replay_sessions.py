"""``dalsegno replay plan|run --mode full|inference-skipping|simulation``: decisions of recorded sessions replayed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, wraps
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from dalsegno.cli.answers import say_positions
from dalsegno.cli.bisect_exit import Judged
from dalsegno.cli.common import open_reader
from dalsegno.cli.completion import complete_session
from dalsegno.cli.context import Context
from dalsegno.cli.divergence_text import divergence_lines
from dalsegno.cli.output import emit, note, visible
from dalsegno.cli.progress import ALL, bars
from dalsegno.cli.replay_jobs import jobs_for, spread
from dalsegno.cli.session_fork import parse_label
from dalsegno.errors import NegativeVerdict, NotReconstructable, Usage
from dalsegno.harness.opening import Options, open_ports
from dalsegno.harness.performing import Ports
from dalsegno.harness.sessions import StoredContents, configuration_in_log
from dalsegno.log.publisher import Publisher
from dalsegno.model.ids import SEQ_MAX
from dalsegno.model.records import Event
from dalsegno.orchestration.configuration import PinnedDocument
from dalsegno.readers.datasets.choosing import Wanted, chosen
from dalsegno.readers.lineage import counting_events
from dalsegno.readers.local import LocalReader
from dalsegno.replay.changes import Changes
from dalsegno.replay.compared import compare_run
from dalsegno.replay.execute import Progress
from dalsegno.replay.forked import run_in_fork
from dalsegno.replay.rerun import Strategy
from dalsegno.replay.session_replay import KEPT, MODES, POLICY_DIGESTS, Asked, Replayed, plan_of, replay_session
from dalsegno.settings import Settings
from dalsegno.storage.blobs import Blobs

SESSION_MODES: Final = ("full", "inference-skipping", "simulation")

_OPTIONS: Final = (
    click.option(
        "--session",
        "sessions",
        multiple=True,
        metavar="ID",
        shell_complete=complete_session,
        help="Of sessions: which.",
    ),
    click.option("--workflow", metavar="NAME", help="Sessions of this workflow."),
    click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="Of sessions: those with this label."),
    click.option("--all", "everything", is_flag=True, help="All sessions."),
    click.option("--until", type=click.IntRange(1), metavar="SEQ", help="Look at nothing behind this event."),
    click.option(
        "--inference",
        type=click.Choice(["recorded", "rerun", "recorded-else-rerun", "scripted"]),
        default="recorded",
        help="Where answers of models come from.",
    ),
    click.option(
        "--tools",
        type=click.Choice(["receipts", "simulate", "execute"]),
        default="receipts",
        help="Where results of tools come from; code runs in a simulation alone.",
    ),
    click.option("--tools-from", multiple=True, metavar="CODE", help="The tools: a Python file, or module:name."),
    click.option(
        "--approvals", type=click.Choice(["recorded", "deny"]), default="recorded", help="Whether leave of then counts."
    ),
    click.option(
        "--on-miss",
        type=click.Choice(["fail", "stop", "simulate"]),
        default="fail",
        help="What follows where the record has no such fact.",
    ),
    click.option("--provider", "providers", multiple=True, metavar="[NAME=]KIND:VALUE", help="As of 'dalsegno run'."),
    click.option("--model", metavar="NAME", help="Ask this model instead of the agents' own."),
    click.option("--policy", type=click.Path(path_type=Path), metavar="FILE", help="What if this were the policy?"),
    click.option(
        "--workflow-file", type=click.Path(path_type=Path), metavar="FILE", help="What if this were the workflow?"
    ),
)


class Chosen(NamedTuple):
    """What the options say of a replay of sessions."""

    sessions: tuple[str, ...]
    workflow: str | None
    labels: tuple[str, ...]
    everything: bool
    until: int | None
    inference: Any
    tools: Any
    tools_from: tuple[str, ...]
    approvals: Any
    on_miss: Any
    providers: tuple[str, ...]
    model: str | None
    policy: Path | None
    workflow_file: Path | None

    @property
    def named(self) -> bool:
        """Whether any session is meant."""
        return bool(self.sessions or self.workflow or self.labels or self.everything)

    @property
    def wanted(self) -> Wanted:
        pairs = tuple((label.key, label.value) for label in map(parse_label, self.labels))
        return Wanted(ids=self.sessions, workflow=self.workflow, labels=pairs)


def of_sessions(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options; the command is given one ``chosen_sessions`` for all of them."""

    @wraps(command)
    def with_chosen(*arguments: Any, **options: Any) -> Any:
        given = Chosen(**{name: options.pop(name) for name in Chosen._fields})
        return command(*arguments, chosen_sessions=given, **options)

    made: Callable[..., Any] = with_chosen
    for option in reversed(_OPTIONS):
        made = option(made)
    return made


def table() -> str:
    """What each mode does with each class of events, for the help."""
    lines = []
    for mode, actions in MODES.items():
        lines.append(f"{mode}:")
        lines += [f"  {what}: {action}" for what, action in actions.items()]
    return "\n".join(lines)


# --- plan -------------------------------------------------------------------------------------------------------------


def plan_sessions(ctx: Context, mode: str, start: str | None, given: Chosen) -> None:
    """What a replay would look at, and what asking the models again would take. Nothing is kept."""
    _check(mode, given)
    rows = []
    with open_reader(ctx) as reader:
        for session_id, history in _histories(reader, given):
            rows.append({"session": session_id, "mode": mode, **plan_of(history, _seq(start, session_id))})
        say_positions(reader)
    if not rows:
        raise Usage(
            "no session fits", wanted="--session ID, --workflow NAME or --all", todo="see dalsegno session list"
        )
    emit(ctx, rows, tuple(rows[0]))


# --- run --------------------------------------------------------------------------------------------------------------


def run_sessions(ctx: Context, mode: str, start: str | None, given: Chosen, *, jobs: int | None = None) -> None:
    """Raises Judged: 0 all are equal, 3 something differs, 1 something could not be compared. Nothing is shown before
    all are replayed."""
    _check(mode, given)
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
        raise Usage(
            "no session fits", wanted="--session ID, --workflow NAME or --all", todo="see dalsegno session list"
        )
    many = 1 if replays.alone else jobs_for(jobs, len(lengths))
    found = map(replays.one, lengths) if many == 1 else spread(_open, told, list(lengths), many)
    results = list(_watched(found, lengths))
    for result in results:
        _show(ctx, result)
    if ctx.output == "json":
        emit(ctx, [each.as_data() for each in results])
    _summary(ctx, results)
    differs = any(each.diverged for each in results)
    whole = all(each.verdict != "NOT_COMPARED" for each in results)
    code = NegativeVerdict.exit_code if differs else 0 if whole else NotReconstructable.exit_code
    # What was served inexactly is no proof of a difference, nor of none.
    judged = differs if (whole or differs) and not any(each.tainted for each in results) else None
    raise Judged(differs=judged, code=code)


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
        note(f"{done} of {len(lengths)} sessions were replayed; nothing of them is kept")
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
        self._ctx = Context(Settings(**told.settings))
        self._start, self._given = told.start, told.given
        given = told.given
        self._ports = _ports(given)
        self._strategy = Strategy(
            mode=told.mode, inference=given.inference, tools=given.tools, approvals=given.approvals,
            on_miss=given.on_miss,
        )  # fmt: skip
        self._changes = Changes(policy=given.policy, workflow=given.workflow_file, model=given.model)
        self.alone = self._ports is not None or self._writes

    @cached_property
    def _reader(self) -> LocalReader:
        return open_reader(self._ctx)  # open as long as the process lives: it only reads

    @property
    def _writes(self) -> bool:
        """Whether forks are written: where a full replay asks anybody again, or decides by other documents."""
        return self._strategy.mode == "full" and (self._strategy.inference != "recorded" or bool(self._changes))

    def one(self, session_id: str) -> Replayed:
        history = list(counting_events(self._reader, session_id))
        blobs = Blobs(self._ctx.store)
        pinned = configuration_in_log(history, blobs) if self._changes else None
        asked = Asked(
            history=history,
            strategy=self._strategy,
            contents=StoredContents(blobs),
            override=None if pinned is None else self._changes.override,
            ports=self._ports,
            start=_seq(self._start, session_id),
            until=self._given.until,
            changed="" if pinned is None else self._changes.told(pinned),
        )
        try:
            if self._writes:
                return self._fork(asked, [] if pinned is None else self._changes.of(pinned))
            return replay_session(asked)
        except NotReconstructable as error:  # of one session; the others are replayed
            result = Replayed(session_id, self._strategy.mode, asked.told, events=len(history), stopped=error.found)
            seq = error.data.get("seq")
            if seq is not None:
                result.unreconstructable = (seq, error.found)
            return result

    def _fork(self, asked: Asked, documents: Sequence[PinnedDocument]) -> Replayed:
        result = Replayed(asked.session_id, asked.strategy.mode, asked.told, events=len(asked.history))
        at = asked.start if asked.start > 1 else _first_turn(asked.history)
        with Publisher(self._ctx.kafka, prefix=self._ctx.prefix, blobs=Blobs(self._ctx.store)) as publisher:
            forked = run_in_fork(
                publisher, asked.session_id, at, asked.strategy, asked.ports, documents=documents,
                purpose="WHAT_IF" if documents else "DATASET",
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


def _check(mode: str, given: Chosen) -> None:
    if not given.named:
        raise Usage("no session is named", wanted="--session ID, --workflow NAME, --label KEY=VALUE or --all")
    if given.tools != "receipts" and mode != "simulation":
        raise Usage(
            f"--tools {given.tools} with --mode {mode}", wanted="--mode simulation", todo="tool code runs nowhere else"
        )
    if given.tools == "execute" and not given.tools_from:
        raise Usage("--tools execute without tools", wanted="--tools-from CODE", todo="name the tools that may run")
    asks = given.inference != "recorded"
    if asks and not given.providers:
        raise Usage(f"--inference {given.inference} without a model", wanted="--provider [NAME=]KIND:VALUE")
    if mode == "inference-skipping" and asks:
        raise Usage("--mode inference-skipping takes everything from the record", wanted="--mode full or simulation")


def _seq(start: str | None, session_id: str) -> int:
    """``SEQ`` or ``session:ID@SEQ``."""
    if start is None or start == "earliest":
        return 1
    text = start.removeprefix(f"session:{session_id}@")
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text[:20]) <= SEQ_MAX:
        raise Usage(f"--from {start}", wanted="a SEQ, or session:ID@SEQ of the session", todo="correct it")
    return int(text)


def _ports(given: Chosen) -> Ports | None:
    """Nothing that could touch the outside, unless the options ask for it."""
    asks = given.inference != "recorded"
    acts = given.tools != "receipts" or given.on_miss == "simulate"
    if not asks and not acts:
        return None
    return open_ports(Options(tools=given.tools_from, providers=given.providers if asks else ())).ports


# --- what is shown ----------------------------------------------------------------------------------------------------


def _show(ctx: Context, result: Replayed) -> None:
    if ctx.output == "jsonl":
        emit(ctx, result.as_data())
    if ctx.output != "text":
        return
    click.echo(f"{visible(result.session_id)}  {result.mode}  {result.verdict}  {_said(result)}")
    for line in divergence_lines(result.divergences[0]) if result.divergences else ():
        click.echo(f"  {line}")
    if result.diverged > 1:
        click.echo(f"  and {result.diverged - 1} more")
    if result.unreconstructable is not None:
        seq, why = result.unreconstructable
        click.echo(f"  cannot be reconstructed from seq {seq}, because {visible(why)}")
    for reason, count in sorted(result.not_comparable.items()):
        click.echo(f"  {count} not compared: {visible(reason)}")
    for said in result.what_if:
        click.echo(f"  what if: {visible(said)}")
    if result.stopped is not None:
        click.echo(f"  stopped: {visible(result.stopped)}")
    if result.snapped_back:
        click.echo(f"  began {result.snapped_back} events before what was asked for, at the turn's beginning")
    if result.fork is not None:
        click.echo(f"  written as {visible(result.fork)}")
    if result.tainted:
        click.echo(f"  tainted: {result.counts.inexact} recorded facts were served that are not exactly those of then")


def _said(result: Replayed) -> str:
    parts = [f"{result.equal} of {result.compared} decisions equal"]
    if result.derived:
        parts.append(f"{result.derived} derived")
    counts = result.counts
    numbers = (
        ("exact", counts.exact), ("inexact", counts.inexact), ("asked again", counts.rerun),
        ("simulated", counts.simulated), ("missed", counts.missed), ("left over", result.left_over),
    )  # fmt: skip
    parts += [f"{number} {what}" for what, number in numbers if number]
    return ", ".join(parts)


def _summary(ctx: Context, results: Sequence[Replayed]) -> None:
    if ctx.output == "text":
        if len(results) == 1:
            note(f"identity {results[0].identity}")
        if len(results) > 1:
            verdicts = {each.verdict: 0 for each in results}
            for each in results:
                verdicts[each.verdict] += 1
            note(f"{len(results)} sessions: " + ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items()))
