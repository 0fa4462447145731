"""``dalsegno demo``: the main job from end to end, in under two minutes, on this machine alone.

Steps: (1) broker and topics, (2) one session as a story, (3) more sessions and two workers, (4) a snapshot, (5) a
workflow that is killed and resumed, (6) kill -9 of one worker while events come in, (7) offsets reset to the snapshot
and replay, (8) verify, (9) a planted wrong byte, (10) the workflow's decisions replayed, (11) another policy.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import click

from dalsegno.cli.context import Context, pass_context
from dalsegno.cli.demo_findings import Findings, Say, step, tell_end
from dalsegno.cli.demo_story import tell
from dalsegno.cli.demo_workflow import Desk, change_the_policy, replay_in_all_modes, run_kill_resume
from dalsegno.cli.demo_world import WORKER_SESSION_SECONDS, DemoWorld
from dalsegno.cli.output import cell, note
from dalsegno.errors import VerifyDiffers
from dalsegno.importers.inspect_ai import InspectImporter
from dalsegno.importers.run import import_file
from dalsegno.log import embedded, topics
from dalsegno.log.kafka import KafkaConfig
from dalsegno.log.publisher import Publisher
from dalsegno.projections import registry
from dalsegno.readers.sessions import find_session
from dalsegno.storage.object_store import FolderStore
from dalsegno.testing.publish import publish
from dalsegno.testing.story import story_records
from dalsegno.testing.workload import Workload

FOLDER = "demo"
_ACTIVE = 25
_MEAN_EVENTS = 60
_WRITER = "demo/1"


@click.command(epilog="Example: dalsegno demo")
@click.argument(
    "recording", metavar="[FILE]", required=False, type=click.Path(path_type=Path, exists=True, dir_okay=False)
)
@click.option("--sessions", type=click.IntRange(20, 100_000), default=200, show_default=True, help="Made-up sessions.")
@click.option("--clean", is_flag=True, help="Stop the demo's broker and delete everything that the demo made.")
@pass_context
def command(ctx: Context, recording: Path | None, sessions: int, clean: bool) -> None:
    """Show the main job from end to end: events, projections, a crash, a snapshot, replay by offset reset, proof.

    Everything lies in a folder of its own and stays there, broker and data, until --clean. FILE is a recording to tell
    the story of instead (an Inspect AI log, .eval or .json). Exit code 3 if anything is not as it must be.
    """
    folder = (ctx.data / FOLDER).absolute()
    if clean:
        _clean(ctx, folder)
        return
    say: Say = click.echo if ctx.output == "text" else note
    # A broker that has just started, and workers that are killed, make clients warn of what they then put right.
    logging.getLogger("dalsegno").setLevel(logging.ERROR)
    begin = time.monotonic()
    world = _broker(ctx, folder, say)
    found = Findings()
    try:
        with Publisher(world.kafka, prefix=world.prefix, writer=_WRITER) as publisher:
            _story(world, publisher, recording, found, say)
            seed = int(time.time())
            _more_sessions(world, publisher, Workload(sessions, seed, _ACTIVE, mean_events=_MEAN_EVENTS), found, say)
            _snapshot(world, found, say)
            desk = _workflow(world, publisher, found, say)
            late = Workload(sessions // 2, seed + 1, _ACTIVE, mean_events=_MEAN_EVENTS)
            _crash(world, publisher, late, found, say)
        rows = desk.rows()
        _replay(world, found, say)
        _verify(world, found, say)
        _planted(world, found, say)
        step(say, 10, "the workflow's session, replayed in all modes")
        replay_in_all_modes(desk, rows, found, say)
        step(say, 11, "one line of its policy is another one: the first decision that differs")
        change_the_policy(desk, found, say)
    finally:
        world.stop_workers()
    tell_end(ctx, world, found, time.monotonic() - begin, say)


def _broker(ctx: Context, folder: Path, say: Say) -> DemoWorld:
    """(1) A real Kafka broker and the topics."""
    step(say, 1, "a Kafka broker, and the topics")
    folder.mkdir(parents=True, exist_ok=True)
    if ctx.embedded:
        _take_jars(ctx.data, folder)
        servers = embedded.start(folder, java=ctx.settings.java or None, announce=say)
        kafka, prefix = KafkaConfig(servers), ctx.prefix
    else:
        kafka, prefix = ctx.kafka, f"{ctx.prefix}-demo"
    public = [(each.name, each.version) for each in registry.chosen() if each.public]
    topics.apply(kafka, prefix, partitions=ctx.settings.partitions, projections=public)
    say(f"Kafka at {kafka.bootstrap_servers}; the events go to topic {prefix}.events")
    world = DemoWorld(folder, prefix, kafka)
    world.wait_until_group_is_empty()
    return world


def _take_jars(data: Path, folder: Path) -> None:
    """What the data folder's own broker has fetched need not be fetched again."""
    there, here = data / "broker" / "jars", folder / "broker" / "jars"
    if there.is_dir() and not here.exists():
        here.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(there, here)


def _story(world: DemoWorld, publisher: Publisher, recording: Path | None, found: Findings, say: Say) -> None:
    """(2) One session: published event by event, folded by two workers, told from what they have."""
    world.start_worker(0)
    world.start_worker(1)
    world.wait_until_folded()
    found.folded_before = world.folded()[1]
    if recording is None:
        found.session_id = f"story-{time.strftime('%Y%m%d-%H%M%S')}"
        receipts = [publisher.send(each.key, each.value) for each in story_records(found.session_id, publisher.schemas)]
        found.acknowledged += sum(1 for each in receipts if each.result(30))
        where = "published"
    else:
        outcome = import_file(publisher, InspectImporter(), recording, store=FolderStore(world.store))
        found.acknowledged += outcome.appended
        found.session_id = outcome.sessions[0].session_id
        where = f"one of {len(outcome.sessions)} imported from {recording.name}"
    world.wait_until_folded()
    with world.reader() as reader:
        session = find_session(reader, found.session_id)
        lines = tell(session.view.reads.path(found.session_id))
    step(say, 2, f"one session, {where}, as the log tells it")
    for line in lines:
        say(f"   {line}")
    say(f"   ({session.row.events} events, each with its own acknowledgement from Kafka)")


def _more_sessions(world: DemoWorld, publisher: Publisher, work: Workload, found: Findings, say: Say) -> None:
    """(3) Many sessions side by side, folded by two workers."""
    step(say, 3, "more sessions, and two workers that fold them")
    _publish(publisher, work, found)
    world.wait_until_folded()
    say(f"{work.tally.sessions} sessions with {work.tally.events} events, {_ACTIVE} sessions at a time")
    for slot in sorted(world.workers):
        say(f"worker {slot} (pid {world.workers[slot].pid}) has partitions {_listed(world.partitions_of(slot))}")


def _snapshot(world: DemoWorld, found: Findings, say: Say) -> None:
    """(4) A snapshot of every partition, taken by the workers while they run."""
    step(say, 4, "a snapshot: the sign to play on from")
    taken, _ = world.command("snapshot", "take", "--reason", "demo")
    found.snapshot_id = taken["id"]
    say(f"snapshot {found.snapshot_id}: {world.folder / 'store'}")


def _workflow(world: DemoWorld, publisher: Publisher, found: Findings, say: Say) -> Desk:
    """(5) A workflow that dalsegno itself decides: killed in the midst of it, and resumed."""
    step(say, 5, "a workflow, killed and resumed")
    desk = Desk(world)
    run_kill_resume(desk, publisher, found, say)
    return desk


def _crash(world: DemoWorld, publisher: Publisher, work: Workload, found: Findings, say: Say) -> None:
    """(6) One worker is killed while events come in; the other one takes over."""
    step(say, 6, "kill -9 of one worker while events come in")
    killed: list[float] = []

    def kill_once(_: int) -> None:
        if not killed:
            partitions, pid = world.partitions_of(1), world.kill_worker(1)
            killed.append(time.monotonic())
            say(f"worker 1 (pid {pid}) is dead; it had partitions {_listed(partitions)}")

    _publish(publisher, work, found, kill_once)
    kill_once(0)
    world.wait_until_folded()
    found.take_over_seconds = time.monotonic() - killed[0]
    say(f"worker 0 has taken over, {found.take_over_seconds:.1f} s later, with nothing left to fold")


def _replay(world: DemoWorld, found: Findings, say: Say) -> None:
    """(7) The group's offsets go back to the snapshot, and the projections are built anew from there."""
    step(say, 7, "offsets reset to the snapshot, and replay from there")
    found.digests = world.digests()
    world.stop_workers()
    say(f"the worker is stopped; Kafka keeps its place for {WORKER_SESSION_SECONDS} s, then the offsets may be moved")
    world.wait_until_group_is_empty()
    begin = time.monotonic()
    start = f"snapshot:{found.snapshot_id}"
    done, _ = world.command("replay", "run", "--from", start, "--yes", "--reason", "demo")
    found.replay_seconds, found.replay_records = time.monotonic() - begin, done["records"]
    say(f"replay {done['id']}: {found.replay_records} records behind the snapshot were folded again")
    now = world.digests()
    differing = sorted(each for each in now.keys() | found.digests.keys() if now.get(each) != found.digests.get(each))
    if differing:
        say(f"digests that differ from those before (projection and partition): {', '.join(differing)}")
    found.check("digests after the replay as before", "differ" if differing else "equal", "equal")


def _verify(world: DemoWorld, found: Findings, say: Say) -> None:
    """(8) The whole log is folded from its start beside the live state, and compared."""
    step(say, 8, "verify: fold the whole log from zero, and from the snapshot, and compare")
    begin = time.monotonic()
    reports, _ = world.command("verify")
    found.verify_seconds = time.monotonic() - begin
    found.verify_records = sum(report["folded"] for report in reports)
    differing = sum(report["differing"] for report in reports)
    found.check("differences from a fold of the log", differing, 0)
    say(f"{found.verify_records} records folded again: {differing or 'no'} differences")


def _planted(world: DemoWorld, found: Findings, say: Say) -> None:
    """(9) A copy of the state with one wrong byte must not pass."""
    step(say, 9, "one wrong byte, planted in a copy of the state")
    copy, partition = world.copy_with_a_wrong_byte(found.session_id)
    arguments = ("verify", "--partition", str(partition), "--no-snapshot")
    reports, _ = world.command(*arguments, codes=(0, VerifyDiffers.exit_code), data=copy)
    differences = [each for report in reports for each in report["differences"]]
    named = [each for each in differences if each["session"] == found.session_id] or differences
    for each in named[:1]:
        session = f", session {each['session']}" if each["session"] else ""
        say(f"verify found it: {each['what']}, partition {each['partition']}{session},")
        say(f"   {each['place']}: {cell(each['live'])} in the copy, {cell(each['expected'])} by {each['beside']}")
    found.check("planted wrong byte", "found" if named else "not found", "found")
    shutil.rmtree(copy, ignore_errors=True)


def _publish(
    publisher: Publisher, work: Workload, found: Findings, progress: Callable[[int], None] | None = None
) -> None:
    done = publish(publisher, work, progress=progress)
    found.acknowledged += done.acknowledged
    found.published += done.acknowledged
    found.publish_seconds += done.seconds


def _clean(ctx: Context, folder: Path) -> None:
    if not folder.is_dir():
        note(f"there is nothing to delete in {folder}")
        return
    embedded.stop(folder)
    shutil.rmtree(folder)
    note(f"deleted {folder}")
    if not ctx.embedded:
        note(
            f"the topics of prefix {ctx.prefix}-demo stay in {ctx.settings.kafka.bootstrap_servers}; delete them there"
        )


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers)) or "none"
