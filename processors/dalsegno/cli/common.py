"""What several nouns of the command line share: who asks, what is confirmed, what is read, which one is meant."""

from __future__ import annotations

import getpass
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import BinaryIO

import click

from dalsegno.cli.context import Context
from dalsegno.errors import Failed, NotFound, Unavailable, Usage
from dalsegno.log import admin
from dalsegno.log.amend_requests import Requests, read_requests
from dalsegno.log.history import SessionSource
from dalsegno.log.kafka import KafkaConfig
from dalsegno.log.topics import EVENTS, topic_name
from dalsegno.log.transport import KafkaTransport
from dalsegno.projections import registry
from dalsegno.readers.local import LocalReader, View
from dalsegno.readers.source import ShardSource
from dalsegno.replay.execute import Conductor
from dalsegno.replay.target import Target, TargetKind
from dalsegno.replay.world import Place
from dalsegno.snapshots.catalog import Catalog, TopicIdentity, read_catalog

# A confirmation above this asks for a name instead of a letter.
NAME_ABOVE_RECORDS = 1_000_000
# Ids that an error names.
NAMES_SHOWN = 5


def who() -> str:
    """User and host, for the records of what was done."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "unknown"
    return f"{user}@{socket.gethostname()}"


def confirm(question: str, *, name: str, records: int, yes: bool, above: int = NAME_ABOVE_RECORDS) -> None:
    """Ask before something is changed; for the name where more than ``above`` records are concerned. Raises Usage
    without a terminal and ``--yes``, Failed for a no."""
    if yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise Usage(
            "there is no terminal to ask on", wanted="a terminal, or --yes", todo="look at the plan, then add --yes"
        )
    if records > above:
        given = click.prompt(f"{question} Type {name} to go on", err=True, default="", show_default=False)
        agreed = given == name
    else:
        agreed = click.confirm(question, err=True)
    if not agreed:
        raise Failed("not confirmed; nothing was changed")


def open_reader(ctx: Context) -> LocalReader:
    """What this machine knows of the prefix."""
    return LocalReader(ctx.data, ctx.prefix, ctx.store, lambda: ctx.kafka, registry.chosen())


def whole_id(text: str) -> str:
    """The id of a session as it may stand in a key. Raises Usage for bytes that are no UTF-8."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise Usage(f"SESSION {text!r}", wanted="an id in UTF-8", todo="correct it") from None
    return text


def shard_source(ctx: Context) -> SessionSource:
    """Where a writer's records come from: the shard or snapshot here, and the tail of the log."""
    return ShardSource(ctx.data, ctx.prefix, ctx.store, ctx.kafka)


def view_of_log(ctx: Context, reader: LocalReader, session_id: str) -> View | None:
    """The session's partition as a shard or snapshot here knows it; None if none does, or if it is of another log."""
    try:
        view = reader.of_session(session_id)
    except (NotFound, Unavailable):
        return None
    today = admin.topic_facts(ctx.kafka, topic_name(ctx.prefix, EVENTS)).topic_id
    return view if view.reads.identity().topic_id == today else None


def topic_identity(ctx: Context) -> TopicIdentity:
    """Which log it is whose events the prefix names. Raises TopicMissing, BrokerUnavailable, WaitTimeout."""
    topic = admin.topic_facts(ctx.kafka, topic_name(ctx.prefix, EVENTS))
    return TopicIdentity(admin.cluster_facts(ctx.kafka).cluster_id, topic.topic_id, topic.partitions)


def audited_requests(ctx: Context) -> Requests:
    """What operators asked to have amended: only the log's admin audit says it."""
    with closing(KafkaTransport(ctx.kafka)) as transport:
        return read_requests(transport, ctx.prefix)


@contextmanager
def lines_of(file: str) -> Iterator[Iterator[bytes]]:
    """The lines of a file, or of stdin for ``-``. Raises NotFound, Usage, Failed."""
    if file == "-":
        if sys.stdin is None:  # the shell's <&-
            raise Usage("stdin is closed", wanted="lines on stdin", todo="pipe them in, or name a file")
        yield _told(sys.stdin.buffer, "stdin")
        return
    try:
        opened = Path(file).open("rb")  # noqa: SIM115 - closed below; errors of the caller are not the file's
    except FileNotFoundError as error:
        raise NotFound(f"there is no file {file}", todo="name a file, or '-' for stdin") from error
    except OSError as error:
        raise Failed(f"could not open {file}: {error.strerror}", todo="name a file that can be read") from error
    with opened:
        yield _told(opened, file)


def content_of(file: str) -> bytes:
    """All of it. Raises as ``lines_of``."""
    with lines_of(file) as lines:
        return b"".join(lines)


def _told(lines: BinaryIO, file: str) -> Iterator[bytes]:
    try:
        yield from lines
    except OSError as error:
        raise Failed(
            f"could not read {file}: {error.strerror}", todo="look at the disk, or get the file again"
        ) from error


def place_of(ctx: Context) -> Place:
    from dalsegno.projections.registry import installed

    kafka: KafkaConfig = ctx.kafka
    versions = {name: projection.version for name, projection in installed().items()}
    return Place(kafka, ctx.prefix, ctx.data, versions)


def conductor_of(ctx: Context) -> Conductor:
    """Carries out replays for this process's settings; says its steps on stderr."""
    from dalsegno.cli.output import note
    from dalsegno.streams.faults import fault_from_environment

    return Conductor(
        place=place_of(ctx),
        store=ctx.store,
        by=who(),
        session_timeout_seconds=ctx.settings.worker.session_timeout_seconds,
        tell=note,
        fault=fault_from_environment(),
    )


def one_match(given: str, names: Sequence[str], what: str) -> str:
    """The one name that is, or begins with, what was given. Raises NotFound, and Usage where several do.

    ``names``: those first that an error should show. A table cuts long ids and ends them with a mark, which is no part.
    """
    beginning = given.removesuffix("…")
    found = [name for name in names if name == beginning] or [name for name in names if name.startswith(beginning)]
    if not found or not beginning:
        there = f"there are: {some(names)}" if names else f"there is no {what} yet"
        raise NotFound(f"there is no {what} {given}", wanted=f"the id of a {what}, or its beginning", todo=there)
    if len(found) > 1:
        raise Usage(
            f"{given} begins {len(found)} ids: {some(found)}", wanted=f"the id of one {what}", todo="give more of it"
        )
    return found[0]


def some(names: Sequence[object], most: int = NAMES_SHOWN) -> str:
    """The first ``most`` names, and how many more there are."""
    rest = len(names) - most
    return ", ".join(map(str, names[:most])) + (f" and {rest} more" if rest > 0 else "")


@contextmanager
def meanwhile(look: Callable[[], None], every_seconds: float, name: str) -> Iterator[None]:
    """Call ``look`` again and again from a thread of that name, as long as the block lasts: a worker in it needs this
    thread for its signals. ``look`` must not raise."""
    over = threading.Event()

    def repeat() -> None:
        while not over.wait(every_seconds):
            look()

    thread = threading.Thread(target=repeat, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(10.0)


def one_snapshot(given: str, found: Catalog, *, named: bool = False) -> str:
    """The id of the snapshot, or shard snapshot, that is meant; its beginning is enough. ``named``: of no shard
    snapshot. Raises NotFound, Usage."""
    return one_match(given, [*list(found.named)[::-1], *([] if named else list(found.pointers)[::-1])], "snapshot")


def partition_ranges(numbers: Sequence[int]) -> str:
    """``partition 3``, ``partitions 0-3, 7``: numbers in order, those that follow one another as a range."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    texts = [str(first) if first == last else f"{first}-{last}" for first, last in ranges]
    return f"partition{'' if len(numbers) == 1 else 's'} {', '.join(texts)}"


def full_target(ctx: Context, target: Target) -> Target:
    """The target with the whole id of its snapshot. Raises NotFound, Usage."""
    if target.kind is not TargetKind.SNAPSHOT:
        return target
    return target._replace(name=one_snapshot(target.name, read_catalog(ctx.kafka, ctx.prefix)))
