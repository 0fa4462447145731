"""Plans of replays of sessions: made and kept, shown, and looked at again before they are carried out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
import msgspec

from dalsegno.cli.answers import say_positions
from dalsegno.cli.common import confirm, open_reader, who
from dalsegno.cli.context import Context
from dalsegno.cli.output import emit, note, visible
from dalsegno.cli.replay_chosen import Chosen, check_chosen, start_of
from dalsegno.cli.replay_topic import Topic
from dalsegno.cli.times import iso
from dalsegno.errors import Conflict, NotFound, PlanStale
from dalsegno.harness.clock import SystemClock
from dalsegno.log.service_records import write_records
from dalsegno.log.topics import EVENTS, topic_name
from dalsegno.projections.rows import SessionRow
from dalsegno.readers.datasets.choosing import chosen
from dalsegno.readers.lineage import counting_events, is_trial
from dalsegno.readers.local import LocalReader
from dalsegno.readers.sessions import SESSIONS, Found
from dalsegno.replay.execute import new_replay_id
from dalsegno.replay.modes import actions
from dalsegno.replay.session_plans import (
    Head,
    PlannedSession,
    SessionsPlan,
    StoredPlan,
    check_heads,
    cost_of,
    document,
    plan_key,
    plan_record,
    stale,
)
from dalsegno.replay.store import replays_topic
from dalsegno.storage.blobs import Blobs

_COLUMNS = ("number", "session", "state", "events", "inferences", "tokens_in", "tokens_out", "cost_usd_micros",
            "tool_results", "compared", "diverged")  # fmt: skip
_SHORT = _COLUMNS[1:2] + _COLUMNS[3:9]
_FILES = ("approvals_from", "policy", "workflow_file")


def fitting(reader: LocalReader, given: Chosen) -> Iterator[Found]:
    """The sessions that fit and have events, in their order. Without ``with_forks`` those that replays wrote only where
    they are named, or each what-if would add to what the next one is about."""
    left_out = 0
    for each in chosen(reader, given.wanted):
        if not given.sessions and not given.with_forks and is_trial(reader, each):
            left_out += 1
            continue
        if each.row.held_reason is not None:
            note(f"{visible(each.session_id)} is held at {each.row.held_seq}: {each.row.held_reason}")
        if each.row.last_seq:
            yield each
    if left_out:
        note(f"{left_out} forks for what-if, data sets or debugging are left out; to take them too: --forks")


def no_session() -> NotFound:
    return NotFound("no session fits", wanted="sessions of this machine", todo="see dalsegno session list")


def head_of(row: SessionRow) -> Head:
    return Head(row.last_seq, (row.head_hash or b"").hex(), row.stubs)


# --- made and kept ----------------------------------------------------------------------------------------------------


def make_plan(ctx: Context, mode: str, start: str | None, given: Chosen, reason: str) -> StoredPlan:
    """What would be looked at, and of which log; it is kept when this returns. Raises Usage, NotFound, and what writing
    does."""
    check_chosen(mode, given)
    planned = []
    with open_reader(ctx) as reader:
        for each in fitting(reader, given):
            history = list(counting_events(reader, each.session_id))
            cost = cost_of(history, start_of(start, each.session_id), given.until)
            planned.append(PlannedSession(each.session_id, head_of(each.row), cost))
        say_positions(reader)
    if not planned:
        raise no_session()
    plan = SessionsPlan(new_replay_id(), mode, start, _options(given), planned)
    stored = StoredPlan(plan, SystemClock().now(), who(), reason)
    blob = Blobs(ctx.store).put(document(plan), "application/json")
    record = plan_record(stored, blob, topic_name(ctx.prefix, EVENTS))
    write_records(ctx.kafka, replays_topic(ctx.prefix), [record])
    return stored


def withdraw_plan(ctx: Context, stored: StoredPlan, topic: Topic, *, yes: bool) -> None:
    """Take a plan back. Raises Conflict where anything came of it, and what asking and writing do."""
    id, row = stored.plan.id, plan_row(stored, topic)
    if topic.of_plan(stored):
        raise Conflict(
            f"results of plan {id} are kept",
            wanted="a plan that nothing was replayed by yet",
            todo="where it runs, Ctrl-C ends it; its results stay, and nothing else is left to undo",
            replay_id=id,
        )
    confirm(f"Take plan {id} back?", name=id, records=0, yes=yes)
    write_records(ctx.kafka, replays_topic(ctx.prefix), [(plan_key(id), None)])
    emit(ctx, {**row, "state": "CANCELLED"})


def _options(given: Chosen) -> dict[str, Any]:
    plain = {name: str(value) if isinstance(value, Path) else value for name, value in given._asdict().items()}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in plain.items()}


def given_by(plan: SessionsPlan) -> Chosen:
    """What was asked for when the plan was made. Raises PlanStale where it was by a build with other options."""
    if plan.options.keys() != set(Chosen._fields):
        raise stale(plan, "it was made with other options than this build has", wanted="a plan of this build")
    made: dict[str, Any] = {}
    for name, value in plan.options.items():
        path = name in _FILES and value is not None
        made[name] = Path(value) if path else tuple(value) if isinstance(value, list) else value
    return Chosen(**made)


def check_fresh(reader: LocalReader, plan: SessionsPlan) -> None:
    """Raises PlanStale where a session is not what it was."""
    now = {}
    for each in plan.sessions:
        with suppress(NotFound):
            row = reader.of_session(each.session).reads.row(SESSIONS, each.session)
            if isinstance(row, SessionRow):
                now[each.session] = head_of(row)
    check_heads(plan, now)


# --- shown ------------------------------------------------------------------------------------------------------------


def plan_sessions(ctx: Context, mode: str, start: str | None, given: Chosen, reason: str) -> None:
    """Make a plan, keep and show it."""
    stored = make_plan(ctx, mode, start, given, reason)
    plan = stored.plan
    if ctx.output == "text":
        emit(ctx, [{"session": each.session, **msgspec.structs.asdict(each.cost)} for each in plan.sessions], _SHORT)
        click.echo(f"plan {plan.id}")
    else:
        emit(ctx, plan_data(stored, Topic({}, {}, {})))
    cost = plan.cost
    note(
        f"{len(plan.sessions)} sessions, {cost.events} events; to ask for the {cost.inferences} answers again took "
        f"{cost.tokens_in} tokens in, {cost.tokens_out} out, {cost.cost_usd_micros / 1_000_000:.6f} USD then"
    )
    if given.forks(mode):
        note(f"it will write forks: one of each of the {len(plan.sessions)} sessions that can be decided again")
    note(f"to carry it out: dalsegno replay run {plan.id}")


def plan_row(stored: StoredPlan, topic: Topic) -> dict[str, Any]:
    """Its line in a list of replays."""
    plan = stored.plan
    over = [kept for kept in topic.of_plan(stored).values() if kept.inputs is not None]
    state = "COMPLETED" if len(over) == len(plan.sessions) else "STARTED" if over else "PLANNED"
    return {
        "id": plan.id,
        "state": state,
        "from": plan.start or "earliest",
        "records": plan.cost.events,
        "created": iso(stored.created_at),
        "by": stored.created_by,
        "reason": stored.reason or plan.mode,
    }


def plan_data(stored: StoredPlan, topic: Topic) -> dict[str, Any]:
    """All of it, for programs."""
    plan = stored.plan
    return {
        **plan_row(stored, topic),
        "mode": plan.mode,
        **_meaning(plan),
        "options": {name: value for name, value in plan.options.items() if value not in (None, [], False)},
        "total": msgspec.structs.asdict(plan.cost),
        "sessions": list(_rows(stored, topic)),
    }


def _meaning(plan: SessionsPlan) -> dict[str, Any]:
    """Of its options; unknown where they are another build's."""
    try:
        given = given_by(plan)
    except PlanStale:
        return {"strategy": None, "actions": None}
    strategy = given.strategy(plan.mode)
    return {"strategy": str(strategy), "actions": actions(strategy, fork=given.forks(plan.mode))}


def show_plan_of_sessions(ctx: Context, stored: StoredPlan, topic: Topic) -> None:
    """How far it has come, session by session."""
    if ctx.output != "text":
        emit(ctx, plan_data(stored, topic))
        return
    emit(ctx, plan_row(stored, topic))
    click.echo()
    emit(ctx, list(_rows(stored, topic)), _COLUMNS)


def _rows(stored: StoredPlan, topic: Topic) -> Iterator[dict[str, Any]]:
    found = topic.of_plan(stored)
    for number, each in enumerate(stored.plan.sessions, 1):
        kept = found.get(number)
        over = None if kept is None else kept.completed
        yield {
            "number": number,
            "replay": stored.plan.replay_id(number),
            "session": each.session,
            "head_seq": each.head.seq,
            "head_hash": each.head.hash,
            "state": "PLANNED" if kept is None else kept.state,
            **msgspec.structs.asdict(each.cost),
            "compared": None if over is None else over["compared"],
            "diverged": None if over is None else over["diverged"],
        }
