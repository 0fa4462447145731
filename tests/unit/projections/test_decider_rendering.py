"""Rendered items: canonical JSON whatever was recorded, and the exact bytes of each kind."""

from __future__ import annotations

import json
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from dalsegno.projections.decider import rendering
from dalsegno.projections.decider.rows import Item

HOSTILE = st.one_of(
    st.text(st.characters(codec=None, categories=["L", "Cc", "Cs", "P", "Zl", "So"])),
    st.sampled_from(["", "\0", "\ud800", "\udc00\ud800", "\u2028", '\x7f\x1f"\\', "x" * 100_000]),
)
CONTENT = st.one_of(st.binary(), st.sampled_from([b"", b"\xff\xfe", b"\xed\xa0\x80", b"\0" * 3, "é".encode()[:1]]))


@st.composite
def blobs(draw: st.DrawFn) -> dict[str, Any]:
    media_type, inline = draw(HOSTILE), draw(st.none() | CONTENT)
    return {"digest": draw(st.binary()), "size": draw(st.integers()), "media_type": media_type, "inline": inline}


KINDS = ["UNKNOWN", "TEXT", "REASONING", "TOOL_CALL", "TOOL_RESULT", "MEDIA", "OTHER"]
PARTS = st.lists(
    st.fixed_dictionaries(
        {
            "kind": st.sampled_from(KINDS),
            "call_id": st.none() | HOSTILE,
            "name": st.none() | HOSTILE,
            "text": st.none() | HOSTILE,
            "blob": st.none() | blobs(),
        }
    ),
    max_size=4,
)
CALLS = st.lists(st.fixed_dictionaries({"tool_call_id": HOSTILE, "name": HOSTILE}), max_size=4)
FINDINGS = st.lists(
    st.fixed_dictionaries({"code": HOSTILE, "severity": HOSTILE, "message": HOSTILE, "location": st.none() | HOSTILE}),
    max_size=3,
)
ROWS = st.builds(
    Item,
    id=HOSTILE,
    seq=st.just(1),
    place=st.just((1, 2, 0)),
    stage_id=st.just("s.1"),
    kind=st.sampled_from(["TOOL_RESULT", "MESSAGE"]),
    name=HOSTILE,
    digest=st.binary(),
    size=st.integers(),
)


@given(st.data())
def test_every_item_is_canonical_json_of_one_chat_message_whatever_was_recorded(data: st.DataObject) -> None:
    text, content = data.draw(HOSTILE), data.draw(CONTENT)
    message = {"role": data.draw(st.sampled_from(["USER", "SYSTEM", "EXTERNAL_AGENT"])), "parts": data.draw(PARTS)}
    rendered = [
        rendering.system(text),
        rendering.goal(content),
        rendering.message(message),
        rendering.assistant({"output": data.draw(PARTS), "tool_calls": data.draw(CALLS)}),
        rendering.tool_result(text, data.draw(HOSTILE), data.draw(st.sampled_from(["OK", "ERROR"])), content),
        rendering.rejected(text, text),
        rendering.failed(text, text),
        rendering.retrieved(text, data.draw(st.none() | HOSTILE), content),
        rendering.asked(text, content),
        rendering.provided(text, "ACCEPTED", content),
        rendering.outputs(text, content),
        rendering.findings(text, "REJECT", data.draw(FINDINGS)),
        rendering.summary(content),
        rendering.masked(data.draw(ROWS)),
    ]
    for line in rendered:
        said = json.loads(line)
        assert rfc8785.dumps(said) == line
        assert said["role"] in ("system", "developer", "user", "assistant", "tool")
        assert "\\u0000" not in line.decode().replace("\\\\", "")


@given(st.text(st.characters(categories=["L", "N", "Cc", "Cs", "Zs"])))
def test_a_text_and_its_bytes_are_shown_alike(text: str) -> None:
    assert rendering.text_of(text) == rendering.text_of(text.encode("utf-8", "surrogatepass"))


def part(kind: str, text: str | None, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "call_id": None, "name": None, "text": text, "blob": None} | more


def blob(inline: bytes | None, media_type: str = "text/plain") -> dict[str, Any]:
    return {"digest": b"\x01\x02", "size": 7, "media_type": media_type, "inline": inline}


CALL_ID = "plan.1/t1/c0"
PROVIDER_ID = "swb24vg2eneuczj6c6pnod5j2br6qd4ohoova5vw"
PICTURE = blob(None, "image/png")
ANSWER = {
    "output": [
        part("REASONING", "hm"),
        part("TEXT", "I "),
        part("TEXT", "look"),
        part("TOOL_CALL", None, call_id="call_0", blob=blob(b'{"b":1,  "a":2}')),
    ],
    "tool_calls": [{"tool_call_id": CALL_ID, "name": "bash"}],
}
"""The exact bytes are what sessions refer to by digest: a line that changes here is a new BUILDER_VERSION."""
EXACT = [
    (rendering.goal(b"do \xff\0it"), '{"content":"do ��it","role":"user"}'),
    (
        rendering.message({"role": "USER", "parts": [part("TEXT", "a"), part("MEDIA", None, blob=PICTURE)]}),
        '{"content":"a\\n[content of 7 bytes, image/png, sha256 0102, not shown]","role":"user"}',
    ),
    (
        rendering.message({"role": "EXTERNAL_AGENT", "parts": [part("TEXT", "a")]}),
        '{"content":"[message of another agent]\\na","role":"user"}',
    ),
    (rendering.message({"role": "DEVELOPER", "parts": []}), '{"content":"","role":"developer"}'),
    (
        rendering.assistant(ANSWER),
        '{"content":"I look","role":"assistant","tool_calls":[{"function":{"arguments":"{\\"b\\":1,  \\"a\\":2}",'
        '"name":"bash"},"id":"ID","type":"function"}]}',
    ),
    (
        rendering.assistant({"output": [], "tool_calls": ANSWER["tool_calls"]}),
        '{"content":null,"role":"assistant","tool_calls":[{"function":{"arguments":"","name":"bash"},"id":"ID",'
        '"type":"function"}]}',
    ),
    (rendering.assistant({"output": [], "tool_calls": []}), '{"content":"","role":"assistant"}'),
    (rendering.tool_result(CALL_ID, "bash", "OK", b"1"), '{"content":"1","role":"tool","tool_call_id":"ID"}'),
    (
        rendering.tool_result(CALL_ID, "bash", "ERROR", b"1"),
        '{"content":"[bash: ERROR]\\n1","role":"tool","tool_call_id":"ID"}',
    ),
    (rendering.rejected(CALL_ID, "no"), '{"content":"[not run] no","role":"tool","tool_call_id":"ID"}'),
    (rendering.failed(CALL_ID, "TIMEOUT"), '{"content":"[no result] TIMEOUT","role":"tool","tool_call_id":"ID"}'),
    (
        rendering.retrieved("plan.1/r.kb", "kb://1", b"x"),
        '{"content":"[retrieved plan.1/r.kb from kb://1]\\nx","role":"user"}',
    ),
    (rendering.retrieved("plan.1/r.kb", None, b"x"), '{"content":"[retrieved plan.1/r.kb]\\nx","role":"user"}'),
    (rendering.asked("plan.1/q.x", b"How?"), '{"content":"[question plan.1/q.x]\\nHow?","role":"user"}'),
    (
        rendering.provided("plan.1/q.x", "DECLINED", b""),
        '{"content":"[answer to plan.1/q.x: DECLINED]\\n","role":"user"}',
    ),
    (rendering.outputs("plan.1", b"x"), '{"content":"[output of plan.1]\\nx","role":"user"}'),
    (
        rendering.findings("tests", "REJECT", [
            {"code": "E1", "severity": "error", "message": "bad", "location": "a.py:1"},
            {"code": "E2", "severity": "warning", "message": "so so", "location": None},
        ]),
        '{"content":"[tests: REJECT]\\n- error E1: bad (a.py:1)\\n- warning E2: so so","role":"user"}',
    ),
    (rendering.summary(b"x"), '{"content":"[in place of earlier items]\\nx","role":"user"}'),
    (
        rendering.masked(Item(CALL_ID, 1, (1, 2, 0), "plan.1", "TOOL_RESULT", "bash", b"\x01", 7)),
        '{"content":"[left out to save space: 7 bytes, sha256 01]","role":"tool","tool_call_id":"ID"}',
    ),
]  # fmt: skip


@pytest.mark.parametrize(("rendered", "exact"), EXACT)
def test_the_bytes_of_each_kind_of_item(rendered: bytes, exact: str) -> None:
    assert rendering.BUILDER_VERSION == 1
    assert rendered.decode() == exact.replace("ID", PROVIDER_ID)


def test_providers_know_calls_by_ids_that_do_not_repeat() -> None:
    assert rendering.provider_call_id(CALL_ID) == PROVIDER_ID
    assert len(PROVIDER_ID) == 40
    assert rendering.provider_call_id("plan.1/t2/c0") != PROVIDER_ID


def test_a_call_that_has_no_part_of_its_own_has_no_arguments() -> None:
    calls = [{"tool_call_id": f"c{n}", "name": "x"} for n in range(2)]
    said = json.loads(rendering.assistant({"output": [part("TOOL_CALL", "{}")], "tool_calls": calls}))
    assert [call["function"]["arguments"] for call in said["tool_calls"]] == ["{}", ""]


def test_an_answer_that_has_only_bytes_is_the_same_text_in_its_message_and_as_the_output() -> None:
    output = [part("TEXT", "a"), part("REASONING", "no"), part("TEXT", None, blob=blob(b"long\0"))]
    assert rendering.said(output) == "along\ufffd"
    assert json.loads(rendering.assistant({"output": output, "tool_calls": []}))["content"] == rendering.said(output)
