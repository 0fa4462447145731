"""OpenTelemetry: what the shared trace holds, against the file read by json alone; made ones for what it lacks."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from dalsegno.errors import BadInputFile
from dalsegno.importers.otel import OtelImporter
from dalsegno.model.records import Event
from recordings import Mapped, Recording, events_of, of_type, recording_of, report_of


def recording() -> Recording:
    return recording_of("otel", "tempo_export_with_batches.json")


def native() -> list[dict[str, Any]]:
    """All spans, each with its attributes as an object under ``own``."""
    spans = []
    for batch in json.loads(recording().path.read_bytes())["batches"]:
        for group in batch["instrumentationLibrarySpans"]:
            for span in group["spans"]:
                own = {each["key"]: next(iter(each["value"].values())) for each in span["attributes"]}
                spans.append({**span, "own": own})
    return spans


def named(prefix: str) -> list[dict[str, Any]]:
    """By begin."""
    spans = [span for span in native() if span["name"].startswith(prefix)]
    return sorted(spans, key=lambda span: int(span["startTimeUnixNano"]))


def span_id(event: Event) -> str:
    return str(event.meta["origin"]["native_ref"]).rpartition("(span ")[2].rstrip(")")


def test_the_report() -> None:
    report = report_of(recording())
    assert len(native()) == report["records_read"] == 86
    assert report["records"] == {"span": 77, "span of a model": 6, "span of a tool": 1, "span of an agent": 2}
    parts = (report["records_mapped"], report["records_kept_as_notes"], report["records_repeated"])
    assert (parts, report["events_made"]) == ((5, 77, 4), 108)
    assert report["not_carried"] == {}
    assert report["lacks"] == {"cost of a model call": 2, "who let a tool call run": 1}
    ids = {span["spanId"] for span in native()}
    orphans = sum(bool(span["parentSpanId"]) and span["parentSpanId"] not in ids for span in native())
    (lost, repeated) = report["warnings"]
    assert f"{orphans} spans lie in spans that are not in the file" in lost
    assert orphans == 9
    assert "4 spans report a model's call that a span inside them reports too" in repeated


def test_three_spans_of_one_call_are_one_inference() -> None:
    innermost, outer = named("openai.chat"), [*named("call_llm"), *named("generate_content")]
    assert (len(innermost), len(outer)) == (2, 4)
    completed = of_type(recording(), "InferenceCompleted")
    assert [span_id(event) for event in completed] == [span["spanId"] for span in innermost]
    assert [event.body["response_id"] for event in completed] == [one["own"]["gen_ai.response.id"] for one in innermost]
    assert [event.body["provider"] for event in of_type(recording(), "InferenceRequested")] == ["openai", "openai"]
    for event, span in zip(completed, innermost, strict=True):
        own = span["own"]
        assert event.body["usage"] == {
            "input": own["gen_ai.usage.input_tokens"],
            "output": own["gen_ai.usage.output_tokens"],
            "cache_read": own["gen_ai.usage.cache_read_input_tokens"],
            "cache_creation": None,
            "reasoning": own["llm.usage.reasoning_tokens"],
        }
        assert event.body["finish_reasons"] == [own["gen_ai.completion.0.finish_reason"]]
    kept = [event for event in of_type(recording(), "NoteRecorded") if event.body["kind"] == "otel.same_call"]
    assert {span_id(event) for event in kept} == {span["spanId"] for span in outer}
    whole = [json.loads(event.body["data"]["inline"])["span"] for event in kept]
    assert all({**span, "own": 0} in [{**each, "own": 0} for each in outer] for span in whole)


def test_times_are_exact_though_they_are_numbers_beyond_doubles() -> None:
    spans = {span["spanId"]: span for span in native()}
    assert any(int(float(span["startTimeUnixNano"])) != span["startTimeUnixNano"] for span in spans.values())
    (events,) = events_of(recording())
    for event in events:
        span = spans[span_id(event)]
        assert event.meta["occurred_at"] in (span["startTimeUnixNano"] // 1000, span["endTimeUnixNano"] // 1000)
    receipt = of_type(recording(), "ToolReceiptRecorded")[0].body
    (tool,) = named("execute_tool")
    assert (receipt["started_at"], receipt["ended_at"]) == (1777555055632028, 1777555055707612)
    assert (tool["startTimeUnixNano"], tool["endTimeUnixNano"]) == (1777555055632028200, 1777555055707612400)


def test_what_no_event_holds_of_a_mapped_span_stands_beside_it() -> None:
    rest = [event for event in of_type(recording(), "NoteRecorded") if event.body["kind"] == "otel.rest"]
    assert len(rest) == 5
    spans = {span["spanId"]: span for span in native()}
    for event in rest:
        kept, whole = json.loads(event.body["data"]["inline"])["span"], spans[span_id(event)]
        assert {**kept, "attributes": 0} == {
            name: value for name, value in {**whole, "attributes": 0}.items() if name != "own"
        }
        assert kept["attributes"].items() <= whole["own"].items()
    model = next(
        json.loads(e.body["data"]["inline"])["span"] for e in rest if spans[span_id(e)]["name"] == "openai.chat"
    )
    assert sorted(model["attributes"]) == [
        "gen_ai.conversation.id",
        "gen_ai.task.id",
        "kagent.user_id",
        "llm.headers",
        "llm.usage.total_tokens",
        "openai.response.service_tier",
    ]


def test_the_tool_ran_for_the_call_that_the_model_asked_for() -> None:
    (tool,) = named("execute_tool")
    asked, called = of_type(recording(), "InferenceCompleted")[0], of_type(recording(), "ToolCallRequested")
    assert [event.body["native_call_id"] for event in called] == [tool["own"]["gen_ai.tool.call.id"]]
    assert called[0].body["tool_call_id"] == asked.body["tool_calls"][0]["tool_call_id"]
    assert called[0].body["arguments"]["inline"] == b"{}"
    assert called[0].body["effect"] == "UNKNOWN"
    (receipt,) = of_type(recording(), "ToolReceiptRecorded")
    assert receipt.body["result"]["inline"].decode() == tool["own"]["gcp.vertex.agent.tool_response"]
    assert (receipt.body["status"], receipt.body["tool_call_id"]) == ("OK", called[0].body["tool_call_id"])


def test_what_the_model_was_told_stands_once() -> None:
    first = named("openai.chat")[0]["own"]
    messages = of_type(recording(), "MessageReceived")
    assert [(event.body["role"], event.body["parts"][0]["text"]) for event in messages] == [
        ("SYSTEM", first["gen_ai.prompt.0.content"]),
        ("USER", first["gen_ai.prompt.1.content"]),
    ]
    (tools,) = of_type(recording(), "ContextItemRetrieved")
    names = [tool["name"] for tool in json.loads(tools.body["content"]["inline"])]
    assert names == [first[f"llm.request.functions.{place}.name"] for place in range(10)]


def test_agents_are_stages_and_hold_what_lies_in_them() -> None:
    stages = [event.body["stage_name"] for event in of_type(recording(), "StageScheduled")]
    assert (
        stages == [span["own"]["gen_ai.agent.name"] for span in named("invoke_agent")] == ["helm-agent", "helm_agent"]
    )
    assert {event.meta["stage_id"] for event in of_type(recording(), "InferenceCompleted")} == {"helm_agent.1"}


def test_spans_begin_in_order_and_none_before_its_parent() -> None:
    spans = {span["spanId"]: span for span in native()}
    (events,) = events_of(recording())
    begun = list(dict.fromkeys(span_id(event) for event in events[4:]))
    assert len(begun) == 86
    for before, after in pairwise(begun):
        keys = [(spans[each]["startTimeUnixNano"], spans[each]["endTimeUnixNano"], each) for each in (before, after)]
        assert keys[0] < keys[1]
    for place, each in enumerate(begun):
        assert spans[each]["parentSpanId"] not in begun[place:]


def test_all_other_spans_are_kept_whole_and_the_root_ends_the_session() -> None:
    notes = [event for event in of_type(recording(), "NoteRecorded") if event.body["kind"] == "otel.span"]
    kept = [json.loads(event.body["data"]["inline"])["span"] for event in notes]
    mapped = ("openai.chat", "call_llm", "generate_content", "execute_tool", "invoke_agent")
    others = [span for span in native() if not span["name"].startswith(mapped)]
    assert sorted(span["spanId"] for span in kept) == sorted(span["spanId"] for span in others)
    assert Counter(len(span.get("events", [])) for span in kept) == Counter(len(s.get("events", [])) for s in others)
    (root,) = [span for span in native() if not span["parentSpanId"]]
    (ended,) = of_type(recording(), "SessionCompleted")
    assert span_id(ended) == root["spanId"]
    assert ended.meta["origin"]["synthesized"]


# --- made traces -----------------------------------------------------------------------------------------------------


def value_of(value: Any) -> dict[str, Any]:
    kinds = {str: "stringValue", bool: "boolValue", int: "intValue", float: "doubleValue"}
    if isinstance(value, list):
        return {"arrayValue": {"values": [value_of(each) for each in value]}}
    if isinstance(value, dict):
        return {"kvlistValue": {"values": attributes(value)}}
    return {kinds[type(value)]: str(value) if type(value) is int else value}


def attributes(values: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": value_of(value)} for key, value in values.items()]


def span(
    id_: str, at: int, took: int, parent: str = "", *, code: int = 0, trace: str = "t", **own: Any
) -> dict[str, Any]:
    """Seconds after the epoch of 2001; ``own``: attributes, with ``__`` for a point."""
    events = own.pop("events", [])
    start = (1_000_000_000 + at) * 10**9
    return {
        "traceId": trace,
        "spanId": id_,
        "parentSpanId": parent,
        "name": f"span {id_}",
        "startTimeUnixNano": str(start),
        "endTimeUnixNano": str(start + took * 10**9),
        "attributes": attributes({key.replace("__", "."): value for key, value in own.items()}),
        "events": events,
        "status": {"code": code},
    }


def chat(
    id_: str, at: int, took: int, parent: str = "", *, tokens: int = 5, code: int = 0, **own: Any
) -> dict[str, Any]:
    told = {"gen_ai__operation__name": "chat", "gen_ai__request__model": "m", "gen_ai__usage__input_tokens": tokens}
    return span(id_, at, took, parent, code=code, **told, **own)


def tool(
    id_: str, at: int, took: int, parent: str = "", *, call: str = "c", code: int = 0, **own: Any
) -> dict[str, Any]:
    told = {"gen_ai__operation__name": "execute_tool", "gen_ai__tool__name": "look", "gen_ai__tool__call__id": call}
    return span(id_, at, took, parent, code=code, **told, **own)


WANTS = {"role": "assistant", "parts": [{"type": "tool_call", "id": "c", "name": "look", "arguments": {"at": 1}}]}


class Made(Mapped):
    """A file made to measure, and its sessions as a reader of the log sees them."""

    def __init__(self, path: Path, *spans: dict[str, Any], lines: bool = False) -> None:
        resource = {"attributes": attributes({"service.name": "s"})}
        documents = [
            {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": {"name": "lib"}, "spans": list(each)}]}]}
            for each in ([[one] for one in spans] if lines else [spans])
        ]
        path.write_text("\n".join(json.dumps(each) for each in documents))
        super().__init__(OtelImporter(), path)


@pytest.mark.parametrize(
    ("inner", "inferences", "repeats"),
    [
        ([chat("b", 1, 2, "a")], 1, 1),
        ([chat("b", 1, 2, "a", tokens=6)], 2, 0),
        ([span("b", 1, 2, "a", gen_ai__request__model="x")], 2, 0),
        ([chat("b", 1, 2, "a"), chat("c", 3, 1, "a")], 3, 0),
        ([tool("b", 1, 4, "a"), chat("c", 2, 1, "b")], 2, 0),
        ([span("b", 1, 4, "a"), chat("c", 2, 1, "b")], 1, 1),
    ],
    ids=["one call", "other tokens", "other model", "two inside", "a tool between", "noise between"],
)  # fmt: skip
def test_which_spans_report_one_call(
    inner: list[dict[str, Any]], inferences: int, repeats: int, tmp_path: Path
) -> None:
    made = Made(tmp_path / "t.json", chat("a", 0, 9), *inner)
    assert len(made.of("InferenceCompleted")) == inferences
    assert made.report.repeats.total() == repeats


def test_messages_in_the_json_of_the_conventions(tmp_path: Path) -> None:
    told = [
        {"role": "user", "parts": [{"type": "text", "content": "go"}]},
        WANTS,
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c", "response": "seen"}]},
    ]
    said = [{"role": "assistant", "parts": [{"type": "text", "content": "done"}], "finish_reason": "stop"}]
    system = [{"type": "text", "content": "be good"}]
    made = Made(
        tmp_path / "t.json",
        chat("a", 0, 1, gen_ai__input__messages=told[:1], gen_ai__output__messages=json.dumps([WANTS])),
        chat(
            "b",
            2,
            1,
            gen_ai__input__messages=json.dumps(told),
            gen_ai__output__messages=said,
            gen_ai__system_instructions=json.dumps(system),
        ),
    )
    assert [event.body["role"] for event in made.of("MessageReceived")] == ["USER", "SYSTEM"]
    (receipt,) = made.of("ToolReceiptRecorded")
    assert receipt.body["result"]["inline"] == b"seen"
    assert (receipt.meta["origin"]["synthesized"], receipt.meta["occurred_at"]) == (True, None)
    first, second = made.bodies("InferenceCompleted")
    assert json.loads(first["output"][0]["blob"]["inline"]) == {"at": 1}
    assert (second["output"][0]["text"], second["finish_reasons"]) == ("done", ["stop"])
    assert [body["request_digest"] is None for body in made.bodies("InferenceRequested")] == [False, False]


@pytest.mark.parametrize(("shown", "items"), [("seen it", 0), ("something else", 1)])
def test_what_a_tool_gave_is_not_told_again_unless_the_model_was_shown_something_else(
    shown: str, items: int, tmp_path: Path
) -> None:
    response = {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c", "response": shown}]}
    made = Made(
        tmp_path / "t.json",
        chat("a", 0, 1, gen_ai__output__messages=json.dumps([WANTS])),
        tool("b", 2, 1, gen_ai__tool__call__result='{"text": "seen it"}'),
        chat("d", 4, 1, gen_ai__input__messages=json.dumps([response])),
    )
    assert len(made.of("ToolReceiptRecorded")) == 1
    assert len(made.of("ContextItemRetrieved")) == items


def test_numbered_attributes_of_other_kinds(tmp_path: Path) -> None:
    told = {"gen_ai__prompt__0__role": "user", "gen_ai__prompt__0__content": [{"type": "image", "url": "x"}]}
    told |= {"gen_ai__completion__0__content": "yes", "gen_ai__completion__0__weight": 3}
    own = {"traceloop__span__kind": "workflow"}
    made = Made(tmp_path / "t.json", span("w", 0, 9, **own), chat("a", 1, 1, "w", **told))
    (message,) = made.bodies("MessageReceived")
    assert json.loads(message["parts"][0]["blob"]["inline"]) == [{"type": "image", "url": "x"}]
    (answer,) = made.bodies("InferenceCompleted")
    assert (answer["output"][0]["text"], json.loads(answer["output"][1]["blob"]["inline"])) == ("yes", {"weight": 3})
    assert made.bodies("StageScheduled")[0]["stage_name"] == "span w"


def test_an_answer_stands_before_the_tool_that_it_asked_for_though_its_span_goes_on(tmp_path: Path) -> None:
    out = json.dumps([WANTS])
    made = Made(tmp_path / "t.json", chat("a", 0, 9, gen_ai__output__messages=out), tool("b", 2, 3, "a"))
    order = [event.type for event in made.events if event.type.startswith(("Inference", "ToolCallS", "ToolR"))]
    assert order == ["InferenceRequested", "InferenceCompleted", "ToolCallStarted", "ToolReceiptRecorded"]
    (answer,), (call,) = made.of("InferenceCompleted"), made.bodies("ToolCallRequested")
    assert (answer.meta["occurred_at"], answer.body["latency_ms"]) == (None, None)
    assert call["inference_id"] == answer.body["inference_id"]


def test_a_span_that_ends_before_it_begins_took_an_unknown_time(tmp_path: Path) -> None:
    # case C50
    made = Made(tmp_path / "t.json", span("r", 0, 9), chat("a", 5, -3, "r"), chat("b", 6, 2, "r", tokens=9))
    assert [body["latency_ms"] for body in made.bodies("InferenceCompleted")] == [None, 2_000]


def test_tools_that_fail_or_that_nobody_asked_for(tmp_path: Path) -> None:
    raised = [{"name": "exception", "attributes": attributes({"exception.type": "E", "exception.message": "boom"})}]
    made = Made(
        tmp_path / "t.json",
        span("r", 0, 9),
        tool("a", 1, 1, "r", code=2, gen_ai__tool__call__result="no"),
        tool(
            "b", 2, 1, "r", call="d", gen_ai__tool__call__result='{"isError": true}', gen_ai__tool__call__arguments="{}"
        ),
        tool("c", 3, 1, "r", call="e", code=2, events=raised),
    )
    assert [body["inference_id"] for body in made.bodies("ToolCallRequested")] == [None, None, None]
    receipts = made.bodies("ToolReceiptRecorded")
    assert [body["status"] for body in receipts] == ["ERROR", "ERROR", "ERROR"]
    assert json.loads(receipts[2]["result"]["inline"]) == {"type": "E", "message": "boom"}
    rest = [json.loads(event.body["data"]["inline"]) for event in made.of("NoteRecorded")]
    kept = {"exception.type": "E", "exception.message": "boom"}
    assert rest[-1]["span"]["events"] == [{"name": "exception", "attributes": kept}]
    assert made.bodies("SessionCompleted")[0]["open_ops"] == []


def test_a_model_that_gave_nothing_and_a_root_that_failed(tmp_path: Path) -> None:
    own = {"error__type": "Timeout", "gen_ai__operation__name": "invoke_agent", "gen_ai__agent__name": "A"}
    made = Made(tmp_path / "t.json", span("r", 0, 9, code=2, **own), chat("a", 1, 1, "r", code=2, error__type="429"))
    assert made.bodies("InferenceFailed")[0]["error"]["error_class"] == "429"
    assert made.bodies("StageFailed")[0]["error"]["error_class"] == "Timeout"
    assert made.bodies("SessionFailed")[0]["error"]["error_class"] == "Timeout"
    assert made.bodies("SessionCreated")[0]["workflow_name"] == "A"


def test_evaluations_are_verdicts_on_what_the_span_did(tmp_path: Path) -> None:
    told = [("pass", 1.0), ("relevant", 0.5), ("FAIL", 0.0)]
    prefix = "gen_ai.evaluation"
    values = [{f"{prefix}.name": "e", f"{prefix}.score.label": label, f"{prefix}.score.value": n} for label, n in told]
    events = [{"name": f"{prefix}.result", "attributes": attributes(each)} for each in values]
    made = Made(tmp_path / "t.json", chat("a", 0, 1, events=events))
    decided = made.bodies("ValidationDecided")
    assert [(body["verdict"], body["label"], body["score"]) for body in decided] == [
        ("PASS", "pass", "1.0"),
        ("INCONCLUSIVE", "relevant", "0.5"),
        ("REJECT", "FAIL", "0.0"),
    ]
    concluded = {event.type for event in made.events if event.meta["origin"]["synthesized"]}
    assert concluded & {"ValidationRequested", "VerdictReported", "ValidationDecided"} == {"ValidationRequested"}
    (answer,) = made.of("InferenceCompleted")
    assert {body["target"]["seq"] for body in made.bodies("ValidationRequested")} == {answer.seq}


def test_a_trace_is_a_session_and_one_of_another_program_is_none(tmp_path: Path) -> None:
    made = Made(tmp_path / "t.json", chat("a", 0, 1), chat("a", 0, 1) | {"traceId": "u"}, span("n", 0, 1, trace="v"))
    assert list(made.statuses) == ["otel/1:t", "otel/1:u"]
    assert made.report.as_data()["skipped"] == {"span of another program": 1}


@pytest.mark.parametrize("lines", [True, False])
def test_one_document_or_one_a_line_is_the_same(lines: bool, tmp_path: Path) -> None:
    spans = [span("r", 0, 9), chat("a", 1, 1, "r"), chat("a", 1, 1, "r")]
    made = Made(tmp_path / "t.json", *spans, lines=lines)
    assert len(made.of("InferenceCompleted")) == 1
    assert made.report.as_data()["records_repeated"] == 1
    assert made.statuses == {"otel/1:t": "COMPLETED"}


def test_without_one_root_nothing_says_how_it_ended(tmp_path: Path) -> None:
    made = Made(tmp_path / "t.json", chat("a", 0, 1, "gone"))
    assert made.statuses == {"otel/1:t": "RUNNING"}
    assert made.report.warnings[-1].endswith("0 spans without a parent: nothing says how it ended")


def test_a_child_whose_clock_is_behind_begins_after_its_parent(tmp_path: Path) -> None:
    stage = {"gen_ai__operation__name": "invoke_agent", "gen_ai__agent__name": "A"}
    made = Made(tmp_path / "t.json", span("z", 5, 9, **stage), chat("a", 1, 1, "z"), chat("b", 6, 1, "z", tokens=9))
    assert [event.type for event in made.events if event.type.startswith(("Stage", "InferenceR"))] == [
        "StageScheduled",
        "StageStarted",
        "InferenceRequested",
        "InferenceRequested",
        "StageCompleted",
    ]
    assert {event.meta["stage_id"] for event in made.of("InferenceRequested")} == {"A.1"}


def test_a_span_that_has_not_ended_is_open(tmp_path: Path) -> None:
    made = Made(tmp_path / "t.json", span("r", 0, 9), chat("a", 1, 1, "r") | {"endTimeUnixNano": "0"})
    assert made.of("InferenceCompleted") == []
    assert made.bodies("SessionCompleted")[0]["open_ops"] == ["session/i1"]


def test_parents_in_a_ring_are_opened(tmp_path: Path) -> None:
    made = Made(tmp_path / "t.json", chat("a", 0, 1, "b"), span("b", 0, 1, "a"), span("c", 0, 1, "c"))
    assert made.report.as_data()["records_read"] == 3


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"startTimeUnixNano": 1.5e18}, "/startTimeUnixNano: no whole number of nanoseconds"),
        ({"endTimeUnixNano": "soon"}, "/endTimeUnixNano: no whole number of nanoseconds"),
        ({"endTimeUnixNano": True}, "/endTimeUnixNano: no whole number of nanoseconds"),
        ({"traceId": None}, "/spans/1: no span with a /traceId"),
        ({"name": 1}, "/spans/1: no text /name"),
        ({"spanId": "a"}, "/spans/1: span a stands twice in its trace, and differs"),
    ],
)
def test_spans_that_are_refused(fields: dict[str, Any], found: str, tmp_path: Path) -> None:
    with pytest.raises(BadInputFile, match=found):
        Made(tmp_path / "t.json", chat("a", 0, 1), chat("b", 0, 1) | fields)


def test_a_trace_without_any_agent_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputFile, match="no span has gen_ai attributes"):
        Made(tmp_path / "t.json", span("a", 0, 1))
