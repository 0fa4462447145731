"""SWE-agent's trajectories (``.traj``): one session per file; 0.x and 1.x.

A step of ``trajectory`` is an answer of the model, the command in it, and what came back. ``history`` holds the
conversation: what was said before the first answer is only there, the rest of it is the steps again. A demonstration in
it is an example from another task that the model was shown: context, not something that happened.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dalsegno.importers.base import ImportedSession, Importer, ImportReport
from dalsegno.importers.builder import PERSON, SessionBuilder, Source
from dalsegno.importers.fields import Fields
from dalsegno.importers.json_file import foreign, json_in, object_at, objects_at, read_object
from dalsegno.importers.opening import Pin, begin_session, labels_of, session_id_of
from dalsegno.importers.payload import TEXT_TYPE, content_text, digest_json, short_text, text_bytes
from dalsegno.importers.transcript import Transcript
from dalsegno.importers.wanted import Wanted, requested_calls
from dalsegno.model.events import (
    ContextItemRetrieved,
    InferenceCompleted,
    MessageReceived,
    NewEvent,
    SessionCompleted,
    SessionCreated,
    SessionFailed,
    StatePatched,
)
from dalsegno.model.payloads import MessageRole, SessionOutcome
from dalsegno.model.records import Actor

HARNESS = Actor("HARNESS", "swe-agent")
_WANTED = "a trajectory of SWE-agent"
_ROLES: dict[str, MessageRole] = {"system": "SYSTEM", "user": "USER"}
_BUILD = ("swe_agent_version", "swe_agent_hash", "swe_rex_version", "swe_rex_hash")
_SUBMITTED = "submitted"
_FAILED = "exit_error"


class SweAgentImporter(Importer):
    """SWE-agent, 0.x and 1.x."""

    name = "swe-agent"
    about = "SWE-agent's trajectories, 0.x and 1.x (.traj)"

    def sessions(self, path: Path, report: ImportReport) -> Iterator[ImportedSession]:
        document = read_object(path, _WANTED, needs=("trajectory", "history", "info"))
        steps = objects_at(path, "/trajectory", document["trajectory"], _WANTED)
        for index, step in enumerate(steps):
            object_at(path, f"/trajectory/{index}", step, _WANTED, needs=("action", "observation", "response"))
        history = objects_at(path, "/history", document["history"], _WANTED)
        for index, entry in enumerate(history):
            if not isinstance(entry.get("role"), str):
                raise foreign(path, f"/history/{index}", "no /role", _WANTED)
        object_at(path, "/info", document["info"], _WANTED)
        yield _Run(self.id, document, report).map()


class _Run:
    """One trajectory as one session."""

    def __init__(self, importer: str, document: dict[str, Any], report: ImportReport) -> None:
        self._report = report
        self._document = Fields(document, ("trajectory", "history", "info"))
        self._info = Fields(document["info"])
        self._steps: list[dict[str, Any]] = document["trajectory"]
        history: list[dict[str, Any]] = document["history"]
        first = next(
            (i for i, entry in enumerate(history) if entry["role"] == "assistant" and not entry.get("is_demo")),
            len(history),
        )
        # Places count from the beginning of the whole history.
        self._before = list(enumerate(history))[:first]
        self._after = list(enumerate(history))[first:]
        told = [entry for _, entry in self._before if not entry.get("is_demo")]
        self._builder = SessionBuilder(
            session_id=session_id_of(importer, digest_json([told, self._steps[:1]]).hex()[:32]),
            importer=importer,
            started=None,
        )
        self._script = Transcript(self._builder, HARNESS)
        self._state: Any = None

    def map(self) -> ImportedSession:
        model = self._begin()
        for index, entry in self._before:
            self._message(index, Fields(entry, ("role", "agent")))
        for index, step in enumerate(self._steps):
            self._step(index, Fields(step), model)
        self._rest_of_history()
        self._end()
        self._report.left("file", self._document.left())
        return self._builder.session()

    def _begin(self) -> str | None:
        """The first events. Gives the model's name, where the file has it."""
        pins = []
        config = self._document.take("replay_config")
        if config is not None:
            config = json_in(config)
            pins.append(Pin("WORKFLOW", "replay_config", None, config))
        build = {name: self._info.take(name) for name in _BUILD if self._info.data.get(name)}
        if build:
            pins.append(Pin("HARNESS_BUILD", "swe-agent", build.get(_BUILD[0]), build))
        entries = [entry for _, entry in self._before + self._after]
        agents = sorted({str(entry["agent"]) for entry in entries if entry.get("agent")})
        task = [entry for _, entry in self._before if entry["role"] == "user" and not entry.get("is_demo")]
        labels = [("environment", self._document.take("environment")), ("agent", ", ".join(agents))]
        created = SessionCreated(
            profile="IMPORTED",
            workflow_name="swe-agent",
            labels=labels_of("swe-agent", labels),
            goal=self._builder.blobs.of_text(content_text(task[-1].get("content"))) if task else None,
        )
        begin_session(self._builder, created, pins, Source("", None), HARNESS)
        agent = config.get("agent") if isinstance(config, dict) else None
        model = agent.get("model") if isinstance(agent, dict) else None
        return short_text(model.get("name")) or None if isinstance(model, dict) else None

    # --- history -----------------------------------------------------------------------------------------------------

    def _message(self, index: int, entry: Fields) -> None:
        """What stands before the first answer."""
        source = Source(f"/history/{index}", None, digest_json(entry.data))
        role, demo = str(entry.data["role"]), bool(entry.take("is_demo"))
        kind = f"history.{'demo' if demo else short_text(role)}"
        self._report.records[kind] += 1
        event: NewEvent
        blobs = self._builder.blobs
        if demo:
            event = ContextItemRetrieved(item_id=f"demo/{index}", content=blobs.of_json(entry.take_all()))
        elif role in _ROLES:
            parts = blobs.parts(entry.take("content"))
            event = MessageReceived(message_id=f"h{index}", role=_ROLES[role], parts=parts)
        else:
            self._kept(kind, entry, source)
            return
        self._report.mapped[kind] += 1
        self._script.add(event, source, PERSON if role == "user" and not demo else None)
        entry.take("message_type")
        self._report.left(kind, entry.left())

    def _rest_of_history(self) -> None:
        """Answers and results again, in the order of the steps; anything else is kept."""
        answers = iter(self._steps)
        step: dict[str, Any] = {}
        for index, entry in self._after:
            kind, text = f"history.{short_text(entry['role'])}", content_text(entry.get("content"))
            self._report.records[kind] += 1
            if entry["role"] == "assistant":
                step = next(answers, {})
                again = step.get("response") == text or step.get("action") == entry.get("action")
            else:
                again = isinstance(step.get("observation"), str) and step["observation"].strip() in text
            if step and again and not entry.get("is_demo"):
                self._report.repeats[kind] += 1
                continue
            source = Source(f"/history/{index}", None, digest_json(entry))
            self._kept(kind, Fields(entry), source)

    def _kept(self, kind: str, record: Fields, source: Source) -> None:
        self._report.notes[kind] += 1
        self._script.note(f"swe-agent.{kind}", record.take_all(), source)

    # --- steps -------------------------------------------------------------------------------------------------------

    def _step(self, index: int, step: Fields, model: str | None) -> None:
        source = Source(f"/trajectory/{index}", None, digest_json(step.data))
        response, thought = step.take("response", ""), step.take("thought")
        action, observation = step.take("action"), step.take("observation")
        self._report.records["step"] += 1
        if not response and isinstance(action, str) and action.strip().startswith("exit_"):
            self._kept("step", step, source)  # the harness ended the run: no model said that
            return
        self._report.mapped["step"] += 1
        query = step.data.get("query")  # the conversation so far again; its digest tells which it was
        asked = self._script.ask(source, None, model, digest_json(query) if query else None)
        wanted = [Wanted(None, "bash", text_bytes(action), TEXT_TYPE)] if isinstance(action, str) and action else []
        blobs = self._builder.blobs
        answer = blobs.parts(response)
        if isinstance(thought, str) and thought and thought.strip() not in content_text(response):
            answer.insert(0, blobs.part(thought, "REASONING"))
        event = InferenceCompleted(
            inference_id=asked.inference_id,
            model=model,
            output_digest=digest_json(response),
            tool_calls=requested_calls(asked.inference_id, wanted),
            output=answer,
        )
        for call in self._script.answer(asked, event, wanted, source):
            if observation is not None:
                self._script.calls.receive(call.call, source, observation)
        self._patch(step.take("state"), source)
        rest = {name: step.take(name) for name in ("execution_time", "extra_info") if step.data.get(name)}
        if rest:
            self._script.note("swe-agent.step", rest, source)
        self._report.left("step", step.left())

    def _patch(self, state: Any, source: Source) -> None:
        """The state of the shell after a step, where it is another one."""
        state = json_in(state)
        if state is None or state == self._state:
            return
        self._state = state
        patch = self._builder.blobs.of_json([{"op": "add", "path": "", "value": state}])
        event = StatePatched(namespace="swe-agent.state", patch=patch, state_digest_after=digest_json(state))
        self._script.add(event, source)

    # --- the end -----------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        status, submission = short_text(self._info.take("exit_status")), self._info.take("submission")
        if self._info.left():
            rest = {name: self._info.take(name) for name in self._info.left()}
            self._script.note("swe-agent.info", rest, Source("/info", None))
        if not status:
            return
        open_ops, blobs = self._script.calls.open_ids(), self._builder.blobs
        event: NewEvent
        if status == _FAILED:
            event = SessionFailed(open_ops=open_ops, error=blobs.error(status, None, submission))
        else:
            outcome: SessionOutcome = "SUCCESS" if status == _SUBMITTED else "PARTIAL" if submission else "GIVEN_UP"
            result = blobs.of_value(submission) if submission else None
            event = SessionCompleted(outcome=outcome, open_ops=open_ops, result=result)
        self._script.add(event, Source("/info/exit_status", None))
