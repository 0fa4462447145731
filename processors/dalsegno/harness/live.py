"""The live loop: decide, append, act, append.

(1) append what is due until nothing is; (2) take up one command of the inbox, or one answer of a port, as a fact, and
begin again at (1); (3) where there is neither, append the intents of what is outstanding and begin it, each in a thread
of its own; (4) wait for the first answer, command or deadline. A crash between any two steps loses nothing that was
stored, and what is begun was stored before it is begun.

Who finds out that another process took the session over begins nothing more. What its tools did since is handed to that
process through the inbox, for it runs nothing again whose outcome it does not know.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, Protocol

from dalsegno.errors import DalsegnoError, InvalidEvent, SessionSuperseded
from dalsegno.harness.conductor import Conductor
from dalsegno.harness.performing import Ports, Unfinished, act_of, intent_of, too_late, unrecordable
from dalsegno.model.events import NewEvent, ToolReceiptRecorded
from dalsegno.orchestration.work import Kind, Work, is_under_way, outstanding, waited_for

THREADS: Final = 16
LAST_RECEIPTS_SECONDS: Final = 5
LOOK_SECONDS: Final = 0.5
"""How often the inbox is looked at while nothing else happens."""

COMMANDS_IN_A_ROW: Final = 100
"""Then the session goes on with its own work, and its limits, whatever is sent to it."""

_TAKEN_OVER: Final = "another process took the session over"


class Receipt(NamedTuple):
    """What a tool did. ``hash``: of the event that says it, where one was appended; it may stand on no path."""

    event: ToolReceiptRecorded
    hash: bytes | None = None


class Mail(Protocol):
    """What others ask of the session."""

    def take_up(self, conductor: Conductor) -> bool:
        """Take up one command, if there is one: whether there was."""
        ...

    def hand_in(self, conductor: Conductor, receipts: Sequence[Receipt]) -> Mapping[str, DalsegnoError | None]:
        """Ask the session's writer, who is another one now, to take in what tools did, where its history lacks it. By
        call: None where it was asked, else why it could not be."""
        ...


class NoMail:
    """Nobody asks anything."""

    def take_up(self, _conductor: Conductor) -> bool:
        return False

    def hand_in(self, _conductor: Conductor, _receipts: Sequence[Receipt]) -> Mapping[str, DalsegnoError | None]:
        return {}


class Stopped(NamedTuple):
    """Why the loop ended: ``ENDED`` the session is over, ``PAUSED``, ``WAITING`` nothing is under way and nobody
    answered in time, ``STOPPED`` it was asked to. ``waits_for``: ids of what is open then."""

    why: str
    waits_for: tuple[str, ...] = ()


class Live:
    """Runs one session until it ends or waits for people. ``patience_seconds``: how long it waits for them (None: for
    ever); ``waiting``: is told that it begins to, and for what; ``stop``: asked whether nothing more is to be begun:
    what is under way is waited for then, so that its outcome is known; ``tell``: is told, in a line, what became of
    receipts when another process took the session over."""

    def __init__(
        self,
        conductor: Conductor,
        ports: Ports,
        mail: Mail | None = None,
        *,
        patience_seconds: float | None = None,
        waiting: Callable[[tuple[str, ...]], None] = lambda _ids: None,
        stop: Callable[[], bool] = lambda: False,
        tell: Callable[[str], None] = lambda _line: None,
    ) -> None:
        self.conductor = conductor
        self._ports = ports
        self._mail = NoMail() if mail is None else mail
        self._patience = patience_seconds
        self._waiting = waiting
        self._stop = stop
        self._tell = tell
        self._answers: queue.SimpleQueue[tuple[Work, NewEvent | BaseException]] = queue.SimpleQueue()
        self._begun: set[Work] = set()
        self._running = 0
        self._calls = 0
        """Of those that run: tool calls."""
        self._receipts: list[Receipt] = []
        """Appended since it was last known that nobody had taken the session over."""

    def run(self) -> Stopped:
        """Raises what an append raises: the session is broken then, and must be resumed; SessionSuperseded where
        another process has done so."""
        try:
            stopped = self._loop()
            self._stored()  # whoever took it over meanwhile is the one whose events count
        except SessionSuperseded:
            self._hand_over()
            raise
        return stopped

    def _loop(self) -> Stopped:
        patient_since: int | None = None
        told = False
        commands = 0
        while True:
            self.conductor.drain()
            head = self.conductor.rows.head_row
            if head is None or head.status in ("ENDED", "CREATED"):
                self._finish()
                return Stopped("ENDED")
            if commands < COMMANDS_IN_A_ROW and self._mail.take_up(self.conductor):
                commands += 1
                patient_since, told = None, False
                continue
            if self._take_answer(None):
                patient_since, told = None, False
                continue
            if commands == COMMANDS_IN_A_ROW:
                if head.status == "PAUSED" or self._stop() or not self._begin(outstanding(self.conductor.world)):
                    commands = 0
                continue
            commands = 0
            if head.status == "PAUSED":
                if not self._running:
                    return Stopped("PAUSED")
                self._take_answer(LOOK_SECONDS)
                continue
            if self._stop():
                if not self._running:
                    return Stopped("STOPPED", self._waits_for())
                self._take_answer(LOOK_SECONDS)
                continue
            works = outstanding(self.conductor.world)
            if self._begin(works):
                continue
            now = self._ports.clock.now()
            if not self._running:
                waits_for = self._waits_for()
                patient_since = now if patient_since is None else patient_since
                if not told:
                    self._waiting(waits_for)
                    told = True
                if self._patience is not None and now - patient_since >= self._patience * 1_000_000:
                    return Stopped("WAITING", waits_for)
            self._take_answer(self._until(works, now, patient_since))

    def _begin(self, works: list[Work]) -> bool:
        """Begin what is due of it; True: an intent was appended, and something may be due."""
        now = self._ports.clock.now()
        for work in works:
            if work in self._begun or work.not_before > now:
                continue
            if self._running >= THREADS:
                return False
            self._begun.add(work)
            intent = intent_of(work, self.conductor.world, self._ports, self.conductor.writer.session_id)
            if intent is not None:
                self.conductor.append(intent)
            act = act_of(work, self.conductor.world, self._ports, self.conductor.writer.session_id)
            if act is not None:
                self._stored()
                self._running += 1
                self._calls += work.kind == Kind.RUN_TOOL
                # A daemon: who is interrupted need not wait for an answer that nobody takes up any more.
                threading.Thread(target=self._perform, args=(work, act), name=f"port-{work.id}", daemon=True).start()
            if intent is not None:
                return True
        return False

    def _perform(self, work: Work, act: Callable[[], NewEvent]) -> None:
        try:
            self._answers.put((work, act()))
        except BaseException as error:
            self._answers.put((work, error))

    def _take_answer(self, seconds: float | None) -> bool:
        """One answer of a port becomes a fact. ``seconds`` None: only if it is there already."""
        try:
            work, answer = self._answers.get(timeout=seconds) if seconds is not None else self._answers.get_nowait()
        except queue.Empty:
            return False
        self._running -= 1
        self._calls -= work.kind == Kind.RUN_TOOL
        if isinstance(answer, Unfinished):
            return True
        if isinstance(answer, BaseException):
            raise answer
        try:
            appended = self.conductor.append(answer)
            if isinstance(answer, ToolReceiptRecorded):
                self._receipts.append(Receipt(answer, appended.hash))
        except InvalidEvent as error:
            # It came for what was closed meanwhile, by a command or an early end; or the log cannot hold it.
            self.conductor.append(too_late(answer, error.found))
            if is_under_way(self.conductor.world, work):
                self.conductor.append(unrecordable(work, error.found))
        return True

    def _finish(self) -> None:
        """The session has ended: (1) the sub-sessions that were under way end too, for nobody asks any more for what
        they do; (2) what its calls did meanwhile belongs in its log (rule S4); (3) who asked too late is told so."""
        cancel, session_id = self._ports.cancel_below, self.conductor.writer.session_id
        below = [] if cancel is None else cancel(self.conductor.rows, session_id)
        # A sub-session waits as long for calls of its own before it has an end that can be recorded here.
        self._take_last_receipts(LAST_RECEIPTS_SECONDS * (2 if below else 1))
        for _ in range(COMMANDS_IN_A_ROW):
            if not self._mail.take_up(self.conductor):
                break

    def _take_last_receipts(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self._calls and (left := deadline - time.monotonic()) > 0:
            self._take_answer(left)

    def _stored(self) -> None:
        self.conductor.writer.stored()
        self._receipts.clear()

    def _hand_over(self) -> None:
        """What tools did that the process which took the session over cannot know: calls that still run have a last
        moment to say it."""
        deadline = time.monotonic() + LAST_RECEIPTS_SECONDS
        with suppress(queue.Empty):
            while self._calls and (left := deadline - time.monotonic()) > 0:
                work, answer = self._answers.get(timeout=left)
                self._calls -= work.kind == Kind.RUN_TOOL
                if isinstance(answer, ToolReceiptRecorded):
                    self._receipts.append(Receipt(answer))
        found: Mapping[str, DalsegnoError | None]
        try:
            found = self._mail.hand_in(self.conductor, self._receipts)
        except DalsegnoError as error:
            found = {each.event.tool_call_id: error for each in self._receipts}
        for id, why in found.items():
            if why is None:
                self._tell(f"{_TAKEN_OVER}; the receipt of {id} was handed to it through the inbox")
            else:
                self._tell(f"{_TAKEN_OVER}; what came of {id} could not be handed to it: {why}")

    def _until(self, works: list[Work], now: int, patient_since: int | None) -> float:
        limits = [LOOK_SECONDS, *((work.not_before - now) / 1_000_000 for work in works if work.not_before > now)]
        if patient_since is not None and self._patience is not None:
            limits.append(self._patience - (now - patient_since) / 1_000_000)
        return max(0.0, min(limits))

    def _waits_for(self) -> tuple[str, ...]:
        return tuple(waited_for(self.conductor.world))
