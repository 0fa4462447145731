"""Which session a line belongs to: the conversation, a branch of it, or another agent's part. Pure.

Every line names the line before it. A prompt that names a line which something said already followed begins a branch:
the user went back and asked anew. Results of parallel calls name lines in the middle too, and begin none.
"""

from __future__ import annotations

import re
from dataclasses import replace

from dalsegno.importers.base import ImportedSession, ImportReport
from dalsegno.importers.builder import SessionBuilder
from dalsegno.importers.claude_code.records import CONTEXT, Findings, Native
from dalsegno.importers.claude_code.stream import HARNESS, Mark, Stream
from dalsegno.importers.opening import Pin, begin_session, labels_of, session_id_of
from dalsegno.importers.payload import digest_of, text_bytes
from dalsegno.model.events import SessionCreated, SessionForked
from dalsegno.model.ids import FORK_MARK, SESSION_ID_MAX_BYTES, check_session_id
from dalsegno.model.payloads import Relation

_SUFFIX = re.compile(r"[A-Za-z0-9-]{1,64}\Z")
_PLACE = ("cwd", "gitBranch")
_WORKFLOW = "claude-code"


class _Placed:
    """One session, and which of its lines came last."""

    def __init__(self, session: str, stream: Stream, *, side: bool = False, parent: _Placed | None = None) -> None:
        self.session = session
        self.stream = stream
        self.side = side
        self.parent = parent
        self.last_said = 0
        """Number of the last line that a model or the user said."""


class Branches:
    """The sessions of one file, in the order in which they began."""

    def __init__(self, importer: str, report: ImportReport, seen: Findings) -> None:
        self._importer, self._report, self._seen = importer, report, seen
        self._all: list[_Placed] = []
        self._current: dict[str, _Placed] = {}
        """Session id of the harness -> where its conversation goes on."""
        self._last: _Placed | None = None
        self._time: int | None = None
        self._agents: dict[tuple[str, str], _Placed] = {}
        self._lines: dict[str, tuple[_Placed, int]] = {}
        """By uuid: the session and the number of a line."""
        self._spoken: dict[str, bytes] = {}
        self._before: list[Native] = []
        """Lines that are no part of a conversation, before there is one: they do not say what a session begins with."""

    def feed(self, native: Native) -> None:
        self._report.records[native.kind] += 1
        self._look_at_time(native)
        if self._last is None and (native.session is None or native.uuid is None):
            self._before.append(native)
        elif native.uuid is not None and self._spoken.get(native.uuid) == native.spoken():
            self._report.repeats[native.kind] += 1
        else:
            self._into(self._place(native), native)

    def end(self, ended: bool) -> list[ImportedSession]:
        """All sessions, each behind the one that it goes out from. What is open is left for a longer file, unless there
        will be none."""
        made: dict[int, ImportedSession] = {}
        for placed in self._all:
            if ended:
                placed.stream.end()
            self._report.waiting.update(native.kind for native in placed.stream.waiting())
            parent = None if placed.parent is None else made[id(placed.parent)]
            made[id(placed)] = replace(placed.stream.builder.session(), parent=parent)
        self._report.waiting.update(native.kind for native in self._before)
        return list(made.values())

    def _look_at_time(self, native: Native) -> None:
        time = native.source.time
        self._report.zoneless(native.naive)
        if time is None:
            self._seen.timeless.append(native.line.number)
            return
        if self._time is not None and time < self._time:
            self._seen.backwards.append(native.line.number)
        self._time = time

    def _into(self, placed: _Placed, native: Native) -> None:
        self._last = placed
        before, self._before = self._before, []
        for earlier in before:
            placed.stream.feed(earlier)
        number = native.line.number
        if native.uuid is not None:
            self._lines[native.uuid] = placed, number
            self._spoken[native.uuid] = native.spoken()
        if native.type == "assistant" or native.says:
            placed.last_said = number
            for other in self._all:
                if other is not placed and (other.session, other.side) == (placed.session, False) and not placed.side:
                    other.stream.close()
        placed.stream.feed(native)

    # --- where a line belongs ----------------------------------------------------------------------------------------

    def _place(self, native: Native) -> _Placed:
        if native.session is None:
            assert self._last is not None
            return self._last
        if native.sidechain:
            return self._of_agent(native, native.session)
        current = self._current.get(native.session)
        if current is None:
            current = self._conversation(native, native.session)
        elif native.parent is not None:
            current = self._behind_parent(native, current)
        self._current[native.session] = current
        return current

    def _behind_parent(self, native: Native, current: _Placed) -> _Placed:
        found = self._lines.get(native.parent or "")
        if found is None:
            self._seen.orphans.append(native.line.number)
            return current
        parent, number = found
        if parent.side or parent.session != native.session:
            return current
        if not native.says or native.interrupts or number >= parent.last_said:
            return parent
        parent.stream.close()
        mark = parent.stream.marks.get(native.parent or "")
        if mark is None or mark.busy:
            self._seen.busy.append(native.line.number)
            root = parent.stream.builder.session_id
            return self._begin(native, native.session, [native.session, _name(native)], "CONTINUATION", root)
        return self._fork(native, native.session, parent, mark)

    def _conversation(self, native: Native, session: str) -> _Placed:
        """The first line of a session; in a file that holds several, the later ones go on with the earlier."""
        earlier = next((placed for placed in reversed(self._all) if not placed.side), None)
        parent = None if earlier is None else earlier.stream.builder.session_id
        return self._begin(native, session, [session], "NONE" if parent is None else "CONTINUATION", parent)

    def _of_agent(self, native: Native, session: str) -> _Placed:
        """Another agent's part, a session of its own; the call that asked for it is found by its prompt."""
        found = self._lines.get(native.parent or "")
        if found is not None and found[0].side:
            return found[0]
        agent = native.line.data.get("agentId")
        if isinstance(agent, str) and (session, agent) in self._agents:
            return self._agents[session, agent]
        root = session_id_of(self._importer, session)
        placed = self._begin(native, session, [session, _name(native)], "CHILD", root, side=True)
        if isinstance(agent, str):
            self._agents[session, agent] = placed
        for other in reversed(self._all[:-1]):
            if other.session == session and other.stream.delegate(
                native.text(), placed.stream.builder.session_id, native.source
            ):
                break
        return placed

    # --- beginnings --------------------------------------------------------------------------------------------------

    def _begin(
        self, native: Native, session: str, ids: list[str], relation: Relation, parent: str | None, *,
        side: bool = False,
    ) -> _Placed:  # fmt: skip
        context = {name: native.line.data[name] for name in CONTEXT if name in native.line.data}
        session_id = session_id_of(self._importer, *ids)
        builder = SessionBuilder(session_id=session_id, importer=self._importer, started=native.source.time)
        created = SessionCreated(
            profile="IMPORTED",
            workflow_name=_WORKFLOW,
            relation=relation,
            parent_session=parent,
            labels=labels_of(_WORKFLOW, [("sessionId", session), *context.items()]),
        )
        place = {name: value for name, value in context.items() if name in _PLACE}
        build = {name: value for name, value in context.items() if name not in _PLACE}
        pins = [Pin("WORKFLOW", _WORKFLOW, None, place), Pin("HARNESS_BUILD", _WORKFLOW, context.get("version"), build)]
        begin_session(builder, created, pins, native.source, HARNESS)
        return self._added(_Placed(session, Stream(builder, self._report, self._seen, context, side=side), side=side))

    def _fork(self, native: Native, session: str, parent: _Placed, mark: Mark) -> _Placed:
        parent_id = parent.stream.builder.session_id
        session_id = _fork_id(parent_id, _name(native))
        before = parent.stream.builder
        started = native.source.time
        builder = SessionBuilder(session_id=session_id, importer=self._importer, started=started, before=before)
        created = SessionCreated(
            profile="IMPORTED",
            workflow_name=_WORKFLOW,
            relation="FORK",
            parent_session=parent_id,
            parent_at=mark.at.ref(),
        )
        cause = builder.add(created, native.source, HARNESS, synthesized=True)
        forked = SessionForked(parent_session=parent_id, parent_at=mark.at.ref(), purpose="UNKNOWN")
        builder.add(forked, native.source, HARNESS, cause=cause, synthesized=True)
        stream = Stream(builder, self._report, self._seen, mark.context, before=parent.stream)
        stream.transcript.turn = mark.turn
        return self._added(_Placed(session, stream, parent=parent))

    def _added(self, placed: _Placed) -> _Placed:
        self._all.append(placed)
        return placed


def _name(native: Native) -> str:
    return native.uuid or native.line.ref


def _fork_id(parent_id: str, name: str) -> str:
    """``<root>~<the branch's first line>``: all branches of a conversation lie in one partition."""
    root = parent_id.split(FORK_MARK, 1)[0]
    suffix = name if _SUFFIX.match(name) else digest_of(text_bytes(name)).hex()[:32]
    if len(root.encode()) + 1 + len(suffix) > SESSION_ID_MAX_BYTES:
        suffix = digest_of(text_bytes(name)).hex()[: SESSION_ID_MAX_BYTES - 1 - len(root.encode())]
    return check_session_id(f"{root}{FORK_MARK}{suffix}", fork=True)
