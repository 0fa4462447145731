"""Sessions replayed one after the other, in this process or in one of several: each with readers of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple, Self

from dalsegno.cli.common import open_reader
from dalsegno.cli.context import Context
from dalsegno.cli.replay_chosen import Chosen, start_of
from dalsegno.errors import InvalidDocument, NoForkPoint, NotReconstructable, SessionHeld
from dalsegno.harness.opening import Options, open_ports
from dalsegno.harness.past import StoredContents, configuration_in_log
from dalsegno.harness.people import read_people
from dalsegno.harness.performing import Ports
from dalsegno.log.publisher import Publisher
from dalsegno.model.history import counting
from dalsegno.model.records import Event
from dalsegno.readers.lineage import counting_events, history_events
from dalsegno.readers.local import LocalReader
from dalsegno.replay.changes import Changes
from dalsegno.replay.replayed import Replayed
from dalsegno.replay.session_fork import fork_session
from dalsegno.replay.session_replay import Asked, ended_early, replay_session
from dalsegno.settings import Settings
from dalsegno.storage.blobs import Blobs


class Order(NamedTuple):
    """What a process is told of a replay: plain data. ``settings``: by their names."""

    settings: dict[str, Any]
    mode: str
    start: str | None
    given: Chosen


def open_one(order: Order) -> Callable[[str], Replayed]:
    """In a process of its own: what replays a session."""
    return Replays(order).one


class Replays:
    """Replays sessions. ``writes``: as forks; ``alone``: it asks somebody or writes forks, which one process does."""

    def __init__(self, order: Order) -> None:
        self._closing = ExitStack()
        self.order = order
        self._ctx = Context(Settings(**order.settings))
        self._start, self._given = order.start, order.given
        given = order.given
        self._ports = _ports(given)
        self._people = None if given.approvals_from is None else read_people(given.approvals_from)
        self.strategy = given.strategy(order.mode)
        self._changes = Changes(policy=given.policy, workflow=given.workflow_file, model=given.model)
        self.writes = given.forks(order.mode)
        self.alone = self._ports is not None or self.writes

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._closing.close()

    @cached_property
    def _reader(self) -> LocalReader:
        return self._closing.enter_context(open_reader(self._ctx))

    def one(self, session_id: str) -> Replayed:
        """Of a miss, and of a session that cannot be read, made again or forked, the result says so."""
        whole = list(history_events(self._reader, session_id))
        ran: list[Event] = []
        asked = replace(self._asked(session_id, list(counting(whole))), step=ran.append)
        try:
            asked = self._changed(asked)
            result = self._replayed(asked)
        except (NotReconstructable, NoForkPoint, SessionHeld) as error:
            result = ended_early(session_id, asked, error, ran)
        result.head = whole[-1].hash.hex()  # also where that event breaks a rule: it is the session's end
        return result

    def told(self, session_id: str) -> str:
        """All that is asked for of it, as its result says it."""
        if not self._changes:
            return self._asked(session_id, ()).told
        asked = self._asked(session_id, list(counting_events(self._reader, session_id)))
        with suppress(NotReconstructable):
            asked = self._changed(asked)
        return asked.told

    def _asked(self, session_id: str, history: Sequence[Event]) -> Asked:
        """As the session's own documents decide."""
        return Asked(
            history=history,
            strategy=self.strategy,
            contents=StoredContents(Blobs(self._ctx.store)),
            ports=self._ports,
            people=self._people,
            start=start_of(self._start, session_id),
            until=self._given.until,
            changed="" if self._people is None else f"people={self._people.digest}",
        )

    def _changed(self, asked: Asked) -> Asked:
        """As the documents decide that the options ask for. Raises NotReconstructable where those that it pinned cannot
        be read, InvalidDocument for the ones that are asked for."""
        with _its_own_documents():
            pinned = configuration_in_log(asked.history, Blobs(self._ctx.store)) if self._changes else None
        if pinned is None:
            return asked
        documents = self._changes.of(pinned)
        return replace(
            asked,
            override=self._changes.override if documents else None,
            documents=documents,
            changed=" ".join(filter(None, (self._changes.told(pinned), asked.changed))),
        )

    def _replayed(self, asked: Asked) -> Replayed:
        ctx = self._ctx
        with _its_own_documents():
            if not self.writes:
                return replay_session(asked)
            return fork_session(asked, lambda: Publisher(ctx.kafka, prefix=ctx.prefix, blobs=Blobs(ctx.store)))


@contextmanager
def _its_own_documents() -> Iterator[None]:
    """What a session pinned and this build cannot read concerns that session alone: others are replayed."""
    try:
        yield
    except InvalidDocument as error:
        raise NotReconstructable(error.found, wanted=error.wanted, todo=error.todo) from error


def _ports(given: Chosen) -> Ports | None:
    """Nothing that could touch the outside, unless the options ask for it."""
    asks = given.inference != "recorded"
    acts = given.tools != "receipts" or given.on_miss == "simulate"
    if not asks and not acts:
        return None
    return open_ports(Options(tools=given.tools_from, providers=given.providers if asks else ())).ports
