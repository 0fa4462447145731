"""One trajectory as one session.

A command whose output ends the run has no message of its own: what follows it is the submission.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from dalsegno.importers.base import ImportedSession, ImportReport
from dalsegno.importers.builder import SessionBuilder, Source
from dalsegno.importers.chat_api import finish_reasons_of, usage_of
from dalsegno.importers.fields import Fields
from dalsegno.importers.mini_swe_agent.message import Message
from dalsegno.importers.opening import Pin, begin_session, labels_of, session_id_of
from dalsegno.importers.payload import digest_json, micros, short_text
from dalsegno.importers.transcript import OpenCall, Transcript
from dalsegno.importers.verdicts import report_verdict
from dalsegno.importers.wanted import requested_calls
from dalsegno.model.events import (
    InferenceCompleted,
    MessageReceived,
    NewEvent,
    SessionCompleted,
    SessionCreated,
    SessionFailed,
)
from dalsegno.model.payloads import MessageRole, ToolFailureReason, Verdict
from dalsegno.model.records import Actor

HARNESS = Actor("HARNESS", "mini-swe-agent")
_ROLES: dict[str, MessageRole] = {"system": "SYSTEM", "user": "USER"}
_ENDED_BY_LIMIT = frozenset({"LimitsExceeded", "TimeExceeded", "RepeatedFormatError"})
_SUBMITTED = "Submitted"
_VALIDATOR = "swe-bench"


class Run:
    """One trajectory as one session."""

    def __init__(
        self,
        importer: str,
        document: dict[str, Any],
        info: dict[str, Any],
        messages: Sequence[dict[str, Any]],
        report: ImportReport,
    ) -> None:
        self._report = report
        self._info = Fields(info)
        self._document = Fields(document, ("info", "messages"))
        self._messages = [Message(index, message) for index, message in enumerate(messages)]
        instance = self._document.take("instance_id", "unknown")
        times = [message.source.time for message in self._messages if message.source.time is not None]
        self._builder = SessionBuilder(
            session_id=session_id_of(importer, instance, self._run_id()),
            importer=importer,
            started=min(times, default=0),
        )
        self._script = Transcript(self._builder, HARNESS)
        self._instance = short_text(instance)
        self._newest: str | None = None
        self._model: str | None = None

    def session(self) -> ImportedSession:
        return self._builder.session()

    def _run_id(self) -> str:
        """What tells apart two runs on one instance: the first answer of the model."""
        first = next((message for message in self._messages if message.kind == "assistant"), None)
        own = None if first is None else first.response.take_text("id")
        return own or digest_json(None if first is None else first.data).hex()[:32]

    def map(self) -> None:
        config = Fields(self._info.take_object("config"))
        self._begin(config)
        for message in self._messages:
            self._report.records[message.kind] += 1
            self._report.zoneless(message.naive)
            if not self._one(message):
                self._report.notes[message.kind] += 1
                self._report.unknown[message.kind] += 1
                self._script.note(f"mini-swe-agent.{message.kind}", message.take_all(), message.source)
                continue
            self._report.mapped[message.kind] += 1
        self._end()
        for message in self._messages:
            self._report.left(message.kind, message.left())
        self._report.left("info.config", config.left())
        self._report.left("info", self._info.left())
        self._report.left("file", self._document.left())

    def _begin(self, config: Fields) -> None:
        version = self._info.take("mini_version")
        model = config.take_object("model")
        agent = config.take_object("agent")
        build = {name: config.take(name) for name in ("environment", "environment_type", "agent_type", "model_type")}
        pins = [
            Pin("PROMPT_TEMPLATE", "agent", None, agent),
            Pin("MODEL_PARAMS", short_text(model.get("model_name") or "unknown"), None, model),
            Pin("HARNESS_BUILD", "mini-swe-agent", version, {k: v for k, v in build.items() if v is not None}),
        ]
        self._model = short_text(model.get("model_name")) or None
        labels = [
            ("instance_id", self._instance if self._instance != "unknown" else None),
            ("format", self._document.take("trajectory_format")),
            ("version", version),
        ]
        task = next((message for message in self._messages if message.kind == "user"), None)
        created = SessionCreated(
            profile="IMPORTED",
            workflow_name="mini-swe-agent",
            labels=labels_of("mini-swe-agent", labels),
            goal=self._builder.blobs.of_text(task.text) if task is not None else None,
        )
        begin_session(self._builder, created, pins, Source("/info", None), HARNESS)

    # --- messages ----------------------------------------------------------------------------------------------------

    def _one(self, message: Message) -> bool:
        if message.kind == "assistant":
            self._answer(message)
            return True
        if message.kind == "exit":
            return self._is_end(message)
        if self._result(message) or self._is_end(message):
            return True
        if message.kind not in _ROLES:
            return False
        event = MessageReceived(
            message_id=f"m{message.source.ref.rpartition('/')[2]}",
            role=_ROLES[message.kind],
            channel=short_text(message.extra.take("interrupt_type")) or None,
            parts=self._builder.blobs.parts(message.content),
        )
        self._script.add(event, message.source)
        return True

    def _answer(self, message: Message) -> None:
        response = message.response
        provider = short_text(response.data.get("provider")) or None
        asked = self._script.ask(message.source, provider, self._model)
        self._newest = asked.inference_id
        wanted = message.wanted()
        said, choices = response.take_object("usage"), response.take_objects("choices")
        blobs = self._builder.blobs
        reasoning = [c["message"].get("reasoning") for c in choices if isinstance(c.get("message"), dict)]
        event = InferenceCompleted(
            inference_id=asked.inference_id,
            usage=usage_of(said),
            cost_usd_micros=micros(said.get("cost") if "cost" in said else message.extra.data.get("cost")),
            model=short_text(response.data.get("model")) or None,
            response_id=short_text(response.data.get("id")) or None,
            output_digest=digest_json(message.content),
            finish_reasons=finish_reasons_of(choices),
            tool_calls=requested_calls(asked.inference_id, wanted),
            output=[
                *(blobs.part(text, "REASONING") for text in reasoning if isinstance(text, str) and text),
                *blobs.parts(message.content),
            ],
            raw=blobs.of_json(response.data) if response.data else None,
        )
        message.extra.take_each("actions", "cost")
        self._script.answer(asked, event, wanted, message.source)

    def _result(self, message: Message) -> bool:
        """Whether the message is what came back of a command: of the one that it names, else of the newest answer's."""
        call = self._waiting(message)
        if call is None:
            return False
        calls, source = self._script.calls, message.source
        broken = message.extra.data.get("exception_info")
        if broken:
            not_run = "not executed" in str(broken)
            timed_out = message.extra.data.get("exception_type") == "TimeoutExpired"
            if not not_run:
                calls.start(call.call, source, synthesized=True)
            reason: ToolFailureReason = "CANCELLED" if not_run else "TIMEOUT" if timed_out else "EXECUTOR_CRASH"
            detail = {"content": message.content, **message.extra.take_all()}
            calls.fail(call.call, source, reason, message.extra.take("exception_type") or reason, broken, detail)
            return True
        code = message.return_code
        if code is None:
            if not message.timed_out:
                return False
            calls.start(call.call, source, synthesized=True)
            calls.fail(call.call, source, "TIMEOUT", "TIMEOUT", "the command timed out", message.content)
            return True
        raw = message.extra.take("raw_output")
        result = message.content if raw is None else {"content": message.content, "raw_output": raw}
        calls.receive(call.call, source, result, "ERROR" if code else "OK", exit_code=code)
        return True

    def _waiting(self, message: Message) -> OpenCall | None:
        native_id = message.take("tool_call_id")
        if native_id is not None:
            return self._script.open_call(native_id)
        return next((call for call in self._script.open_calls() if call.inference_id == self._newest), None)

    # --- the end -----------------------------------------------------------------------------------------------------

    def _is_end(self, message: Message) -> bool:
        """Whether the message is how the run ended, which the end of the session says."""
        if message is not self._messages[-1] or not self._info.data.get("exit_status"):
            return False
        message.extra.take_each("exit_status", "submission")
        is_submission = message.text == str(self._info.data.get("submission") or "")
        if message.kind == "exit" and message.text and not is_submission:
            message.drop("content")
        return message.kind == "exit" or is_submission

    def _end(self) -> None:
        status, submission = short_text(self._info.take("exit_status")), self._info.take("submission")
        stats = self._info.take("model_stats")
        at = self._messages[-1].source if self._messages else Source("/messages", None)
        end = Source("/info/exit_status", at.time)
        if status == _SUBMITTED:
            for call in self._script.open_calls():
                self._script.calls.start(call.call, at, synthesized=True)  # its output is the submission
        if stats:
            self._script.note("mini-swe-agent.model_stats", stats, Source("/info/model_stats", None))
        if not status:
            return
        open_ops = self._script.calls.open_ids()
        blobs = self._builder.blobs
        event: NewEvent
        if status == _SUBMITTED or status in _ENDED_BY_LIMIT:
            event = SessionCompleted(
                outcome="SUCCESS" if status == _SUBMITTED else "PARTIAL",
                open_ops=open_ops,
                result=blobs.of_value(submission) if submission else None,
            )
        else:
            last = self._messages[-1].extra if self._messages else Fields({})
            trace = self._info.take("traceback") or last.take("traceback")
            told = last.take("exception_str") or submission
            event = SessionFailed(open_ops=open_ops, error=blobs.error(status, told, trace))
        self._script.add(event, end)

    def judge(self, verdict: dict[str, Any]) -> None:
        """The verdict of somebody else on what was submitted, after the end."""
        report, source = self._report, Source("report", None, digest_json(verdict))
        report.records["report"] += 1
        report.mapped["report"] += 1
        said: Verdict = "PASS" if verdict["resolved"] else "REJECT"
        add = partial(self._script.add, source=source, actor=Actor("VALIDATOR", _VALIDATOR))
        report_verdict(add, f"{_VALIDATOR}/v1", _VALIDATOR, said, [self._builder.blobs.of_json(verdict)])
