"""What ``dalsegno run`` and ``dalsegno session resume`` share: the loop, its signals, what is told and how it ended."""

from __future__ import annotations

import shlex
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, Final

import uuid_utils

from dalsegno.cli.common import shard_source
from dalsegno.cli.context import Context
from dalsegno.cli.output import emit, note
from dalsegno.cli.run_text import answers, resume_line, told
from dalsegno.cli.telling import Teller
from dalsegno.errors import DalsegnoError, Usage, WaitTimeout
from dalsegno.harness.conductor import Conductor
from dalsegno.harness.live import Live
from dalsegno.harness.mailbox import Mailbox
from dalsegno.harness.opening import Opened, Options, missing, open_documents, open_ports
from dalsegno.harness.past import Past, StoredContents, outcome_of, read_past
from dalsegno.harness.performing import Ports
from dalsegno.harness.sessions import begin, resume, session_of
from dalsegno.harness.subsessions import SubSessions, cancel_below
from dalsegno.log.history import SessionSource
from dalsegno.log.inbox import Inbox
from dalsegno.log.publisher import Publisher
from dalsegno.model.events import Label
from dalsegno.model.lifecycle.state import ENDED
from dalsegno.model.lifecycle.tables import STATUS_AFTER
from dalsegno.model.records import Event
from dalsegno.orchestration.configuration import PinnedDocument, configuration_of
from dalsegno.orchestration.decider import Contents
from dalsegno.orchestration.documents import Configuration
from dalsegno.storage.blobs import Blobs

EXIT_FAILED: Final = 1
EXIT_GAVE_UP: Final = 3
EXIT_INTERRUPTED: Final = 130


def run_workflow(
    ctx: Context,
    workflow: Path,
    goal: str,
    session_id: str | None,
    labels: Sequence[Label],
    seed: int | None,
    wait_seconds: float | None,
    ports: Mapping[str, Any],
    *,
    act_in_fork: bool,
) -> int:
    """Begin a session, or go on with it where it is in the log: the exit code. ``ports``: as of ``Options``."""
    options = Options(**ports)
    opened = _open(options)
    documents = open_documents(workflow, opened.tools)
    pinned_here = _read(documents)
    id_ = str(uuid_utils.uuid7()) if session_id is None else session_id
    with _publisher(ctx) as publisher:
        source, clock = shard_source(ctx), opened.ports.clock
        since = publisher.high(id_)
        past = None if session_id is None else read_past(publisher, id_, source)
        if past is not None and past.end is not None:
            return _ended_before(ctx, past, past.end, publisher)
        of_session = past.labels if past is not None and past.known else labels
        running = Running(ctx, publisher, id_, opened, source, options, wait_seconds, of_session, act_in_fork)
        if past is not None and past.known:
            note(f"session {id_} is in the log: it goes on, with the configuration it was begun with")
            running.check(past.configuration or pinned_here)
            return running.run(
                resume(
                    publisher, id_, clock=clock, documents=documents, seed=seed, source=source, after=running.see,
                    act_in_fork=act_in_fork,
                )
            )  # fmt: skip
        running.check(pinned_here)
        session = publisher.session(id_, source=source)
        note(f"session {id_}")
        return running.run(
            begin(
                session, documents, goal=goal, labels=labels, clock=clock, seed=seed, since=since, after=running.see
            )
        )  # fmt: skip


def resume_session(
    ctx: Context, session_id: str, wait_seconds: float | None, ports: Mapping[str, Any], *, act_in_fork: bool
) -> int:
    """Go on with a session: the exit code."""
    options = Options(**ports)
    opened = _open(options)
    with _publisher(ctx) as publisher:
        source = shard_source(ctx)
        past = read_past(publisher, session_id, source)
        if past.end is not None:
            return _ended_before(ctx, past, past.end, publisher)
        running = Running(ctx, publisher, session_id, opened, source, options, wait_seconds, past.labels, act_in_fork)
        configuration = past.configuration
        if configuration is not None:
            running.check(configuration)
        return running.run(
            resume(
                publisher, session_id, clock=opened.ports.clock, source=source, after=running.see,
                act_in_fork=act_in_fork,
            )
        )  # fmt: skip


def _read(documents: Sequence[PinnedDocument]) -> Configuration:
    return configuration_of({each.kind: each.content for each in documents})


def _open(options: Options) -> Opened:
    with redirect_stdout(sys.stderr):
        return open_ports(options)


def _publisher(ctx: Context) -> Publisher:
    return Publisher(ctx.kafka, prefix=ctx.prefix, blobs=Blobs(ctx.store))


class Running:
    """One run of a session in this process. ``see`` is to be told of all its events."""

    def __init__(
        self,
        ctx: Context,
        publisher: Publisher,
        session_id: str,
        opened: Opened,
        source: SessionSource,
        options: Options,
        wait_seconds: float | None,
        labels: Sequence[Label],
        act_in_fork: bool,
    ) -> None:
        self._ctx, self._session_id, self._opened, self._wait = ctx, session_id, opened, wait_seconds
        self._go_on = f"go on with: {shlex.join(resume_line(ctx, session_id, options, act_in_fork=act_in_fork))}"
        self._teller = Teller(publisher, note)
        self._inbox = Inbox(publisher.transport, prefix=ctx.prefix, blobs=publisher.blobs)
        self._below = SubSessions(
            publisher, opened.workflows, opened.ports, self._inbox,
            labels=labels, source=source, after=self._tell, live=self._live,
        )  # fmt: skip
        self.see = self._below.see
        self._end: Event | None = None
        self._stopping = threading.Event()

    def check(self, configuration: Configuration) -> None:
        """Raises Usage where the workflow, or one of those below it, uses what nobody fills here."""
        for each in (configuration, *map(_read, self._opened.workflows.values())):
            wanted = missing(each, self._opened)
            if wanted:
                found = f"workflow {each.workflow.name} uses what is not given here"
                raise Usage(found, wanted=", ".join(wanted), todo="add them, as docs/harness.md shows")

    def run(self, conductor: Conductor) -> int:
        """Run it, print how it ended or what it waits for, and give the exit code."""
        session = session_of(conductor)
        try:
            # What tools print is for people: on stdout is how it ended, and nothing else.
            with self._teller, session, self._signals(), redirect_stdout(sys.stderr):
                stopped = self._live(conductor, self._below.ports, Mailbox(self._inbox, self._session_id)).run()
        except KeyboardInterrupt:
            note(f"interrupted; the outcome of what was under way is not known here; {self._go_on}")
            return EXIT_INTERRUPTED
        except DalsegnoError:
            note(self._go_on)
            raise
        if self._end is not None:
            return _print_end(self._ctx, self._end, conductor.contents)
        waits_for = list(stopped.waits_for)
        emit(self._ctx, {"session": self._session_id, "status": stopped.why, "outcome": None, "waits_for": waits_for})
        note(self._go_on)
        return EXIT_INTERRUPTED if stopped.why == "STOPPED" else WaitTimeout.exit_code

    def _live(self, conductor: Conductor, ports: Ports, mail: Mailbox) -> Live:
        def waiting(ids: tuple[str, ...]) -> None:
            for line in answers(conductor, ids):
                self._teller.tell(line)

        return Live(
            conductor, ports, mail, patience_seconds=self._wait, waiting=waiting, stop=self._stopping.is_set,
            tell=self._teller.tell,
        )  # fmt: skip

    def _tell(self, event: Event) -> None:
        own = event.session_id == self._session_id
        if own and STATUS_AFTER.get(event.type) in ENDED:
            self._end = event
        line = told(event)
        if line is not None:
            self._teller.tell(line if own else f"{event.session_id} {line}", event)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """The first Ctrl-C, or SIGTERM, begins nothing more; the second one does not wait for what is under way."""
        if threading.current_thread() is not threading.main_thread():  # signals are the main thread's
            yield
            return

        def asked(*_: Any) -> None:
            if self._stopping.is_set():
                raise KeyboardInterrupt
            self._stopping.set()
            note("stopping: waiting for what is under way; once more does not wait")

        before = [(each, signal.signal(each, asked)) for each in (signal.SIGINT, signal.SIGTERM)]
        try:
            yield
        finally:
            for number, handler in before:
                signal.signal(number, handler)


def _ended_before(ctx: Context, past: Past, end: Event, publisher: Publisher) -> int:
    # Whoever ended it may have been killed before it asked them.
    cancel_below(past.rows, past.session_id, Inbox(publisher.transport, prefix=ctx.prefix, blobs=publisher.blobs))
    note(f"session {end.session_id} had ended before; nothing was run")
    return _print_end(ctx, end, StoredContents(publisher.blobs))


def _print_end(ctx: Context, end: Event, contents: Contents) -> int:
    """How a session ended, as data, and the exit code that says it."""
    outcome = outcome_of(end)
    result = end.body.get("result")
    content = None if result is None else result["inline"] or contents.get(result["digest"])
    emit(
        ctx,
        {
            "session": end.session_id,
            "status": STATUS_AFTER[end.type],
            "outcome": outcome,
            "seq": end.seq,
            "result": None if content is None else content.decode("utf-8", "replace"),
            "error": end.body.get("error"),
            "open_ops": end.body["open_ops"],
        },
    )
    return {"SUCCESS": 0, "FAILED": EXIT_FAILED}.get(outcome, EXIT_GAVE_UP)
