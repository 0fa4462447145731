"""ATIF trajectories (Agent Trajectory Interchange Format, 1.x): one session per file.

A step of an agent is an answer of a model with its calls and what came back. A step that was copied from an earlier
trajectory (``is_copied_context``) is what the model sees from there: context, not something that happened again. A step
about context management says that a compression took place, and not what it did. The format has no field for how a run
ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dalsegno.importers.base import ImportedSession, Importer, ImportReport
from dalsegno.importers.builder import PERSON, SessionBuilder, Source
from dalsegno.importers.fields import Fields
from dalsegno.importers.json_file import foreign, object_at, objects_at, read_object
from dalsegno.importers.opening import Pin, begin_session, labels_of, session_id_of
from dalsegno.importers.payload import count, digest_json, micros, parse_time, short_text
from dalsegno.importers.transcript import Transcript
from dalsegno.importers.wanted import requested_calls, wanted_call
from dalsegno.model.events import (
    CompressionCompleted,
    ContextItemRetrieved,
    InferenceCompleted,
    MessageReceived,
    SessionCreated,
    Usage,
)
from dalsegno.model.payloads import MessageRole
from dalsegno.model.records import Actor

_WANTED = "an ATIF trajectory, version 1"
_VERSION = "ATIF-v1."
_ROLES: dict[str, MessageRole] = {"system": "SYSTEM", "user": "USER"}
_AGENT = "agent"
_USAGE = ("prompt_tokens", "completion_tokens", "cached_tokens", "cost_usd")


class AtifImporter(Importer):
    """ATIF, any 1.x."""

    name = "atif"
    about = "ATIF trajectories, 1.x (.json)"

    def sessions(self, path: Path, report: ImportReport) -> Iterator[ImportedSession]:
        document = read_object(path, _WANTED, needs=("schema_version", "session_id", "agent", "steps"))
        if not str(document["schema_version"]).startswith(_VERSION):
            raise foreign(path, "/schema_version", f"{document['schema_version']!r}, known is {_VERSION}*", _WANTED)
        if not isinstance(document["session_id"], str):
            raise foreign(path, "/session_id", "no text", _WANTED)
        object_at(path, "/agent", document["agent"], _WANTED, needs=("name",))
        seen: dict[Any, int] = {}
        for index, step in enumerate(objects_at(path, "/steps", document["steps"], _WANTED)):
            object_at(path, f"/steps/{index}", step, _WANTED, needs=("step_id", "source"))
            number = count(step["step_id"])
            if number is None or number in seen:
                found = "no number" if number is None else f"{number} is also that of /steps/{seen[number]}"
                raise foreign(path, f"/steps/{index}/step_id", found, _WANTED)
            seen[number] = index
        yield _Run(self.id, document, report).map()


class _Run:
    """One trajectory as one session."""

    def __init__(self, importer: str, document: dict[str, Any], report: ImportReport) -> None:
        self._importer = importer
        self._report = report
        self._document = Fields(document, ("steps", "schema_version", "session_id"))
        self._agent = Fields(self._document.take_object("agent"))
        self._steps: list[dict[str, Any]] = document["steps"]
        self._native_id: str = document["session_id"]
        self._agent_name = short_text(self._agent.take("name"))
        self._harness = Actor("HARNESS", self._agent_name)
        self._copied = [step for step in self._steps if step.get("is_copied_context")]
        extra = self._agent.data.get("extra")
        self._part = count(extra.get("continuation_index")) if isinstance(extra, dict) else None
        times = [time for step in self._steps if (time := parse_time(step.get("timestamp"))[0]) is not None]
        self._builder = SessionBuilder(
            session_id=self._session_id(self._own_part()), importer=importer, started=min(times, default=None)
        )
        self._script = Transcript(self._builder, self._harness)

    def _session_id(self, part: int | str) -> str:
        """The trajectory's id, its agent, and which of the files it is that continue each other."""
        return session_id_of(self._importer, self._native_id, self._agent_name, part)

    def _own_part(self) -> int | str:
        """Its number; of a continuation without one, what it was given of the trajectory before."""
        return digest_json(self._copied).hex()[:16] if self._part is None and self._copied else self._part or 0

    def map(self) -> ImportedSession:
        self._begin()
        for index, step in enumerate(self._steps):
            self._step(index, Fields(step, ("step_id", "source", "timestamp")))
        totals = {name: self._document.take(name) for name in ("final_metrics", "notes", "continued_trajectory_ref")}
        told = {name: value for name, value in totals.items() if value}
        if told:
            self._script.note("atif.trajectory", told, Source("/final_metrics", None))
        self._report.left("file", self._document.left())
        self._report.left("agent", self._agent.left())
        return self._builder.session()

    def _begin(self) -> None:
        model, version = self._agent.take("model_name"), self._agent.take("version")
        extra, tools = self._agent.take("extra"), self._agent.take("tool_definitions")
        pins = [Pin("HARNESS_BUILD", self._agent_name, version, {"name": self._agent_name, "version": version})]
        if model:
            pins.append(Pin("MODEL_PARAMS", short_text(model), None, {"model_name": model}))
        if extra:
            pins.append(Pin("WORKFLOW", self._agent_name, version, extra))
        if tools:
            pins.append(Pin("TOOL_CATALOG", self._agent_name, None, tools))
        self._model = short_text(model) or None
        labels = [
            ("session_id", self._native_id),
            ("schema_version", self._document.data["schema_version"]),
            ("agent", self._agent_name),
            ("agent_version", version),
        ]
        task = next((step for step in self._steps if step["source"] == "user"), None)
        goal = task.get("message") if task is not None else None
        created = SessionCreated(
            profile="IMPORTED",
            workflow_name=self._agent_name,
            relation="CONTINUATION" if self._part or self._copied else "NONE",
            parent_session=self._session_id(self._part - 1) if self._part else None,
            labels=labels_of("atif", labels),
            goal=self._builder.blobs.of_value(goal) if goal else None,
        )
        begin_session(self._builder, created, pins, Source("/agent", None), self._harness)

    # --- steps -------------------------------------------------------------------------------------------------------

    def _step(self, index: int, step: Fields) -> None:
        time, naive = parse_time(step.data.get("timestamp"))
        source = Source(f"/steps/{index}", time, digest_json(step.data))
        self._report.zoneless(naive)
        kind, number = short_text(step.data["source"]), step.data["step_id"]
        extra = step.data.get("extra")
        management = extra.get("context_management") if isinstance(extra, dict) else None
        if step.data.get("is_copied_context"):
            kind = f"copied.{kind}"
            content = self._builder.blobs.of_json(step.take_all())
            self._script.add(ContextItemRetrieved(item_id=f"copied/{number}", content=content), source)
        elif management:
            kind = "context_management"
            self._compression(step, source)
        elif kind == _AGENT:
            self._answer(index, step, source)
        elif kind in _ROLES:
            parts = self._builder.blobs.parts(step.take("message"))
            event = MessageReceived(message_id=f"step/{number}", role=_ROLES[kind], parts=parts)
            self._script.add(event, source, PERSON if kind == "user" else None)
            self._results(index, step, source)
        else:
            self._report.records[kind] += 1
            self._report.notes[kind] += 1
            self._report.unknown[kind] += 1
            self._script.note(f"atif.{kind}", step.take_all(), source)
            return
        self._report.records[kind] += 1
        self._report.mapped[kind] += 1
        self._report.left(kind, step.left())

    def _compression(self, step: Fields, source: Source) -> None:
        """By what the history was replaced stands in other trajectories: the step is kept whole."""
        extra = Fields(step.data).take_object("extra")["context_management"]
        replaced = isinstance(extra, dict) and extra.get("boundary") == "replace"
        event = CompressionCompleted(
            compression_id=self._script.number("k"),
            method="REPLACE_HISTORY" if replaced else "UNKNOWN",
            effect="MARKER_ONLY",
        )
        self._script.add(event, source)
        self._script.note("atif.context_management", step.take_all(), source)

    def _answer(self, index: int, step: Fields, source: Source) -> None:
        model = short_text(step.take("model_name")) or self._model
        asked = self._script.ask(source, None, model)
        calls = step.take_objects("tool_calls")
        wanted = [
            wanted_call(call.get("tool_call_id"), call.get("function_name"), call.get("arguments")) for call in calls
        ]
        metrics = Fields(step.take_object("metrics"))
        more = Fields(metrics.take_object("extra"))
        usage = {name: metrics.take(name) for name in _USAGE}
        blobs = self._builder.blobs
        message, reasoning = step.take("message"), step.take_text("reasoning_content")
        event = InferenceCompleted(
            inference_id=asked.inference_id,
            model=model,
            usage=Usage(
                input=count(usage["prompt_tokens"]),
                output=count(usage["completion_tokens"]),
                cache_read=count(usage["cached_tokens"]),
                cache_creation=count(more.take("cache_creation_input_tokens")),
                reasoning=count(more.take("reasoning_tokens")),
            ),
            cost_usd_micros=micros(usage["cost_usd"]),
            output_digest=digest_json([message, calls]),
            tool_calls=requested_calls(asked.inference_id, wanted),
            output=[*([blobs.part(reasoning, "REASONING")] if reasoning else []), *blobs.parts(message)],
        )
        self._script.answer(asked, event, wanted, source)
        for name in [*metrics.left(), *(f"extra.{name}" for name in more.left())]:
            step.drop(f"metrics.{name}")
        self._results(index, step, source)

    def _results(self, index: int, step: Fields, source: Source) -> None:
        """What came back: of a call, or of what the harness did by itself, which the model is shown like a message."""
        results = Fields(step.take_inside("observation", ("results",))).take_objects("results")
        for number, result in enumerate(results):
            at = source._replace(ref=f"/steps/{index}/observation/results/{number}")
            native_id = result.get("source_call_id")
            whole = {name: value for name, value in result.items() if name != "source_call_id" and value is not None}
            content = whole["content"] if set(whole) == {"content"} else whole
            call = None if native_id is None else self._script.open_call(native_id)
            if call is not None:
                self._script.calls.receive(call.call, at, content)
                continue
            if native_id is not None:
                self._report.warnings.append(f"{at.ref}: no open call {str(native_id)!r} has this result")
            item_id = f"step/{step.data['step_id']}/r{number}"
            self._script.add(ContextItemRetrieved(item_id=item_id, content=self._builder.blobs.of_value(content)), at)
