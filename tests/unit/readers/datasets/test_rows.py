"""Rows of data sets: what a model saw, its answer, where it comes from; and why an answer is no row."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dalsegno.model.records import Event, stub_event
from dalsegno.readers.datasets.chat import tools_of
from dalsegno.readers.datasets.history import Told
from dalsegno.readers.datasets.left_out import REASONS
from dalsegno.readers.datasets.rows import Missed
from dalsegno.replay.serving import EXACT, INEXACT
from dalsegno.testing.builder import blob
from dataset_lab import Chat, brief, item, made, part, rows

SERVED_EXACTLY = {"importer": EXACT, "native_ref": "s-1#9", "native_digest": None, "synthesized": False}
SERVED_INEXACTLY = {**SERVED_EXACTLY, "importer": INEXACT}


def test_calls_and_results_are_paired_by_our_ids_whatever_the_provider_calls_them() -> None:
    """Both calls have one provider's id; results come in the other order, and a message between them."""
    chat = Chat().user("go").ask("i1").answer("", "i1", [("c0", "ls", "{}"), ("c1", "cat", '{"f":1}')])
    chat.result("c1", "second").user("hurry", "m2").result("c0", "first")
    chat.ask("i2").answer("again", "i2", [("c2", "ls", "")]).result("c2", "third").ask("i3").answer("done", "i3")
    first, second, third = rows(chat.told)
    assert brief(first) == [("user", "go"), ("assistant", None, "c0", "c1")]
    assert brief(second) == [
        ("user", "go"), ("assistant", None, "c0", "c1"), ("tool", "first", "c0"), ("tool", "second", "c1"),
        ("user", "hurry"), ("assistant", "again", "c2"),
    ]  # fmt: skip
    assert brief(third)[-2:] == [("tool", "third", "c2"), ("assistant", "done")]
    assert first.answer["tool_calls"][1]["function"] == {"name": "cat", "arguments": '{"f":1}'}
    assert {row.provenance["context"] for row in (first, second, third)} == {"transcript"}
    assert rows(chat.told, whole_session=True) == [third]


def test_a_context_pack_says_what_the_model_saw() -> None:
    """Not the transcript: an item was removed, another stands in another place, a summary in place of the forgotten."""
    chat = Chat().user("one", "m1").user("two", "m2").user("three", "m3")
    chat.pack("p1", item("m1", 0), item("m2", 1)).ask("i1", pack_id="p1").answer("a", "i1", [("c0", "ls", "{}")])
    chat.result("c0", "r")
    chat.add("CompressionCompleted", compression_id="k", method="SUMMARY", effect="REAPPLIABLE", forgotten=["m1"],
             summary=blob(b"in short"))  # fmt: skip
    shown = [item("k", 0, "SUMMARY", mode="SUMMARY", compression_id="k"), item("i1", 2), item("c0", 3, "TOOL_RESULT")]
    chat.pack("p2", *shown, base="p1", removed=["m1"]).ask("i2", pack_id="p2").answer("b", "i2")
    chat.pack("p3", item("m3", 4), base="p2").ask("i3", pack_id="p3").answer("c", "i3")
    first, second, third = rows(chat.told)
    assert brief(first)[:-1] == [("user", "one"), ("user", "two")]
    assert brief(second)[:-1] == [("user", "in short"), ("user", "two"), ("assistant", "a", "c0"), ("tool", "r", "c0")]
    assert brief(third)[:-1] == [*brief(second)[:-1], ("user", "three")]
    assert first.provenance["context"] == "pack"


def test_a_transcript_behind_a_compression_is_what_was_left() -> None:
    chat = Chat().user("one", "m1").user("two", "m2").ask("i1").answer("a", "i1").user("three", "m3")
    chat.add("CompressionCompleted", compression_id="k", method="SUMMARY", effect="REAPPLIABLE",
             forgotten=["m2", "i1"], summary=blob(b"in short"))  # fmt: skip
    chat.ask("i2").answer("b", "i2")
    assert brief(rows(chat.told)[1]) == [("user", "one"), ("user", "in short"), ("user", "three"), ("assistant", "b")]


def test_what_a_model_was_told_of_a_call_that_gave_nothing() -> None:
    chat = Chat().user("go").ask("i1").answer("", "i1", [("c0", "ls", "{}"), ("c1", "rm", "{}"), ("c2", "up", "{}")])
    chat.add("ToolCallRejected", tool_call_id="c1", basis="POLICY_DENY", message="not this")
    chat.add("ToolCallAuthorized", tool_call_id="c0", basis="POLICY_ALLOW")
    chat.add("ToolCallStarted", tool_call_id="c0")
    error = {"error_class": "E", "retryable": None, "message": "broke", "detail": None}
    chat.add("ToolCallFailed", tool_call_id="c0", reason="INFRA", not_started=True, error=error)
    chat.add("ToolCallAuthorized", tool_call_id="c2", basis="POLICY_ALLOW")
    chat.add("ToolCallStarted", tool_call_id="c2")
    chat.add("ToolCallFailed", tool_call_id="c2", reason="TIMEOUT", not_started=True, error=None)
    chat.add("ToolRetryDecided", tool_call_id="c2", attempt=1, retry=True)
    chat.add("ToolCallStarted", tool_call_id="c2", attempt=2)
    chat.add("ToolReceiptRecorded", tool_call_id="c2", attempt=2, status="OK", receipt_id="r", result=blob(b"up"))
    chat.ask("i2").answer("b", "i2")
    assert [message[1] for message in brief(rows(chat.told)[1])[2:5]] == ["broke", "not this", "up"]


# --- what is no row ---------------------------------------------------------------------------------------------------


def asked(**fields: Any) -> Chat:
    return Chat().user("go").ask("i1", **fields)


def without(type_: str, told: list[Told]) -> list[Told]:
    """The events of this type were erased."""
    return [
        each._replace(event=stub_event(each.event.session_id, each.event.link, type_, "ERASED"))
        if each.event.type == type_
        else each
        for each in told
    ]


def compressed(**fields: Any) -> list[Told]:
    chat = Chat().user("go")
    chat.add("CompressionCompleted", compression_id="k", **{"method": "TRIM", "effect": "REAPPLIABLE", **fields})
    return chat.ask("i1").answer("a").told


def packed(*items: dict[str, Any], **fields: Any) -> list[Told]:
    chat = Chat().user("go").ask("i0").answer("", "i0", [("c0", "ls", "{}")]).result("c0", "r")
    return chat.pack("p", *items, **fields).ask("i1", pack_id="p").answer("a").told[1:]


def orchestrated() -> list[Told]:
    """A session whose harness is the product's own."""
    chat = Chat().user("go")
    build = blob(b'{"builder":1,"cel_engine":"x","decider":1,"harness":"dalsegno"}')
    pin = {"kind": "HARNESS_BUILD", "name": "main", "digest": build["digest"], "content": build}
    chat.add("ConfigPinned", effective="NEXT_TURN", **pin)
    chat.add("TurnStarted", turn_id="t")
    return chat.pack("p", item("m1", 0)).ask("i1", pack_id="p").answer("a").told


def message(**fields: Any) -> list[Told]:
    chat = Chat()
    chat.add("MessageReceived", message_id="m1", role="USER", parts=[part(**fields)])
    return chat.ask().answer("a").told


def of_problem(type_: str, problem: str) -> list[Told]:
    return [each._replace(problem=problem) if each.event.type == type_ else each for each in asked().answer("a").told]


MISSED: list[tuple[str, Callable[[], list[Told]]]] = [
    ("no-answer", lambda: asked().told),
    ("cut-off", lambda: asked().answer("a", complete=False).told),
    ("empty-answer", lambda: asked().answer("").told),
    ("not-requested", lambda: Chat().user("go").answer("a").told),
    ("erased", lambda: without("MessageReceived", asked().answer("a").told)),
    ("content-missing", lambda: of_problem("MessageReceived", "content-missing")),
    ("not-redactable", lambda: of_problem("SessionCreated", "not-redactable")),
    ("not-redactable", lambda: of_problem("InferenceCompleted", "not-redactable")),
    ("content-not-text", lambda: message(blob=blob(b"\xff\xfe"))),
    ("media", lambda: message(kind="MEDIA", blob=blob(b"png"))),
    ("item-not-text", lambda: message(kind="OTHER", blob=blob(b"{}"))),
    ("call-without-result", lambda: asked().answer("", "i1", [("c", "ls", "{}")]).ask("i2").answer("b", "i2").told),
    ("half-a-pair", lambda: packed(item("m1", 0), item("i0", 1))),
    ("half-a-pair", lambda: packed(item("m1", 0), item("c0", 1, "TOOL_RESULT"))),
    ("own-builder", orchestrated),
    ("item-unknown", lambda: packed(item("m9", 0))),
    ("item-unknown", lambda: packed(item("m1", 0), base="p0")),
    ("item-not-whole", lambda: packed(item("m1", 0, mode="REFERENCE"))),
    ("item-not-whole", lambda: packed(item("m1", 0, mode="COMPRESSED", compression_id="k"))),
    ("erased", lambda: without("MessageReceived", packed(item("m1", 0)))),
    ("compression-unknown", lambda: compressed(effect="MARKER_ONLY")),
    ("compression-unknown", lambda: compressed(method="MASK", forgotten=["m1"])),
    ("compression-unknown", lambda: compressed(method="REPLACE_HISTORY", replacement=blob(b"[]"))),
]


@pytest.mark.parametrize(("reason", "told"), MISSED, ids=[f"{n}-{reason}" for n, (reason, _) in enumerate(MISSED)])
def test_an_answer_that_is_no_row_says_why(reason: str, told: Callable[[], list[Told]]) -> None:
    assert made(told())[-1] == Missed(reason)


def test_a_request_without_an_answer_does_not_hide_the_later_ones() -> None:
    chat = asked(attempt=1)
    chat.add("InferenceFailed", inference_id="i1", attempt=1,
             error={"error_class": "E", "retryable": True, "message": "", "detail": None})  # fmt: skip
    chat.ask("i1", attempt=2).answer("a", attempt=2).ask("x", purpose="COMPRESSION").answer("summary", "x")
    (row,) = rows(chat.told)
    assert brief(row) == [("user", "go"), ("assistant", "a")]


# --- where it comes from ----------------------------------------------------------------------------------------------


def test_a_row_says_where_it_comes_from() -> None:
    labels = [{"key": "team", "value": "data"}]
    chat = Chat(labels=labels, workflow_name="repair").user("go").ask(request_digest=b"r" * 32).answer("a")
    chat.add("FeedbackRecorded", kind="stars", value="5")
    chat.add("FeedbackRecorded", kind="other", value="1", target={"seq": 2, "hash": None, "event_id": None})
    chat.add("ToolCallRequested", tool_call_id="own", name="x", inference_id=None)
    chat.ask("i2").answer("b", "i2")
    first, second = (row.provenance for row in rows(chat.told))
    last = chat.records[-1].event
    start = next(event for event in chat.builder.events if event.type == "SessionStarted")
    assert last is not None
    assert (first["session"], first["workflow"], first["labels"]) == ("s-1", "repair", labels)
    assert (first["inference"], first["provider"], first["model"]) == ("i1", "p", "m")
    assert first["configuration_digest"] == start.body["config_set_digest"].hex()
    assert (first["request_digest"], second["request_digest"]) == ((b"r" * 32).hex(), None)
    assert (first["first_seq"], first["last_seq"], second["last_seq"]) == (start.seq + 1, start.seq + 3, last.seq)
    assert (first["origin"], first["tainted"], first["redacted"], first["parent_session"]) == (
        "recorded", False, False, None,
    )  # fmt: skip
    assert first["feedback"] == [{"kind": "stars", "value": "5"}]
    assert (first["omitted"], second["omitted"]) == ([], ["calls of no model"])


@pytest.mark.parametrize(
    ("target", "expected"),
    [("i1", ("REJECT", "answer")), ("t1", ("REJECT", "turn")), ("plan.1", ("REJECT", "stage")),
     ("elsewhere", ("REJECT", "session")), (None, ("REJECT", "session"))],
)  # fmt: skip
def test_the_verdict_nearest_to_the_answer_counts(target: str | None, expected: tuple[str, str]) -> None:
    chat = Chat().user("go").ask()
    chat.answer("a", meta={"turn_id": "t1", "stage_id": "plan.1"}).judge("REJECT", target)
    (row,) = rows(chat.told)
    assert (row.provenance["verdict"], row.provenance["verdict_of"]) == expected


def test_of_several_verdicts_one_rejection_is_enough_and_an_amended_one_counts_as_amended() -> None:
    chat = Chat().user("go").ask().answer("a").judge("PASS", "i1", "v1").judge("REJECT", "i1", "v2")
    chat.judge("REJECT", "i1", "v3", intermediate=True)
    assert rows(chat.told)[0].provenance["verdict"] == "REJECT"
    chat.add("ValidationAmended", validation_id="v2", verdict="PASS")
    assert rows(chat.told)[0].provenance["verdict"] == "PASS"


def test_a_fork_sees_its_parents_part_and_has_rows_of_its_own_alone() -> None:
    parent = Chat().user("go").ask().answer("a")
    child = parent.fork("f").user("more", "m2").ask("i2").answer("b", "i2")
    (row,) = rows(child.told)
    assert brief(row) == [("user", "go"), ("assistant", "a"), ("user", "more"), ("assistant", "b")]
    facts = row.provenance
    assert (facts["session"], facts["parent_session"], facts["origin"]) == ("s-1~f", "s-1", "rerun")
    assert (facts["parent_seq"], facts["first_seq"], row.ancestors) == (len(parent.records), 3, ["s-1"])


def test_what_a_fork_was_served_is_no_row_and_what_does_not_fit_taints_it() -> None:
    child = Chat().user("go").fork("f").ask().answer("a", meta={"origin": SERVED_EXACTLY})
    child.ask("i2").answer("b", "i2")
    served, rerun = made(child.told)
    assert served == Missed("served-again")
    assert not isinstance(rerun, Missed)
    assert rerun.provenance["tainted"] is False
    child.ask("i3").answer("c", "i3", meta={"origin": SERVED_INEXACTLY})
    assert made(child.told) == [Missed("tainted")] * 3
    found = made(child.told, allow_tainted=True)
    assert [each.provenance["origin"] for each in found if not isinstance(each, Missed)] == ["rerun", "recorded"]
    assert all(each.provenance["tainted"] for each in found if not isinstance(each, Missed))


def test_a_document_for_the_next_turn_is_in_force_only_then() -> None:
    chat = Chat().user("go").ask("i1").answer("a", "i1")
    chat.add("ConfigPinned", kind="POLICY", name="main", version="2", effective="NEXT_TURN", digest=b"2" * 32)
    chat.ask("i2").answer("b", "i2")
    chat.add("TurnStarted", turn_id="t")
    chat.ask("i3").answer("c", "i3")
    first, second, third = (row.provenance["configuration_digest"] for row in rows(chat.told))
    assert first == second != third


# --- tools ------------------------------------------------------------------------------------------------------------


def tool(name: str, schema: str = "parameters") -> dict[str, Any]:
    return {"name": name, "description": "d", schema: {"type": "object"}}


def openai(name: str) -> dict[str, Any]:
    return {"type": "function", "function": tool(name)}


@pytest.mark.parametrize(
    "document",
    [[openai("ls")], [tool("ls")], {"tools": [tool("ls", "input_schema")]}, [tool("ls", "inputSchema")],
     [{"name": "ls", "description": "d", "parameters": '{"type": "object"}'}]],
)  # fmt: skip
def test_definitions_of_tools_in_the_forms_there_are(document: Any) -> None:
    assert tools_of(json.dumps(document)) == [openai("ls")]


NO_TOOLS = [
    "", "{}", "[1]", '[{"name": "x"}]', '{"tools": {}}', "[" * 100_000,
    '[{"name": "\\ud800", "parameters": {}}]', '[{"name": "x", "parameters": {"a": NaN}}]',
]  # fmt: skip


@pytest.mark.parametrize("text", NO_TOOLS, ids=range(len(NO_TOOLS)))
def test_what_defines_no_tools(text: str) -> None:
    assert tools_of(text) is None


def test_the_tools_are_those_of_the_request_or_of_the_catalogue_for_the_stage() -> None:
    catalogue, retrieved = blob(json.dumps([tool("ls"), tool("rm")]).encode()), blob(json.dumps([tool("cat")]).encode())
    workflow = blob(json.dumps({"stages": [{"name": "plan", "tools": ["rm"]}]}).encode())
    chat = Chat().user("go").ask("i0").answer("a", "i0")
    for kind, content in (("TOOL_CATALOG", catalogue), ("WORKFLOW", workflow)):
        chat.add(
            "ConfigPinned", kind=kind, name="main", effective="NEXT_TURN", digest=content["digest"], content=content
        )
    chat.add("TurnStarted", turn_id="t")
    chat.ask("i1").answer("b", "i1")
    chat.add("InferenceRequested", {"stage_id": "plan.2"}, inference_id="i2", purpose="AGENT")
    chat.answer("c", "i2")
    chat.add("ContextItemRetrieved", item_id="tools/1", content={**retrieved, "media_type": "application/json"})
    chat.ask("i3", tools_digest=retrieved["digest"]).answer("d", "i3")
    found = [
        (row.provenance["tools_recorded"], [each["function"]["name"] for each in row.tools]) for row in rows(chat.told)
    ]
    assert found == [(False, []), (True, ["ls", "rm"]), (True, ["rm"]), (True, ["cat"])]
    assert brief(rows(chat.told)[-1])[-2] == ("assistant", "c"), "definitions of tools are no message"


def test_every_reason_is_one_that_something_gives() -> None:
    of_rows = {reason for reason, _ in MISSED} | {"tainted", "served-again"}
    of_pairs = {"duplicate", "no-counterpart", "equal-answers", "no-verdict"}
    assert of_rows | of_pairs == set(REASONS)


def test_every_reason_is_in_the_document() -> None:
    text = (Path(__file__).parents[4] / "docs" / "datasets.md").read_text("utf-8")
    assert re.findall(r"^\| `([a-z-]+)` \| (.+) \|$", text, re.M)[-len(REASONS) :] == list(REASONS.items())


def test_events_are_not_changed() -> None:
    told = asked().answer("a", "i1", [("c", "ls", "{}")]).told
    before = [Event.__repr__(each.event) for each in told]
    made(told)
    assert [Event.__repr__(each.event) for each in told] == before
