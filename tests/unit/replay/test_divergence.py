"""Two payloads of one event type: which fields differ, and what is shown of them."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dalsegno.cli.divergence_text import divergence_lines, field_lines
from dalsegno.replay.divergence import (
    ABSENT,
    Ancestor,
    Divergence,
    FieldDifference,
    causal_ancestors,
    compare_payloads,
    frozen,
)
from dalsegno.testing.builder import SessionBuilder, blob

values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=2) | st.binary(max_size=2),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["id", "key", "a/b", "m~n"]), inner),
    max_leaves=8,
)
bodies = st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), values)


@given(bodies)
def test_a_payload_does_not_differ_from_itself_whatever_its_envelope_says(body: dict[str, Any]) -> None:
    assert compare_payloads({**body, "meta": {"seq": 1}}, {"meta": {"seq": 2, "event_id": "x"}, **body}) == ()


@given(bodies, bodies)
def test_what_differs_from_the_one_side_differs_from_the_other(a: dict[str, Any], b: dict[str, Any]) -> None:
    there, back = compare_payloads(a, b), compare_payloads(b, a)
    sides = lambda found: sorted((repr(each.expected), repr(each.actual)) for each in found)  # noqa: E731
    assert sides(there) == sorted((y, x) for x, y in sides(back))
    assert (there == ()) == (_bare(a) == _bare(b)) == (frozen(a) == frozen(b))


def _bare(value: Any) -> Any:
    """Without nulls in records, and with true and 1 told apart, which Python takes for equal."""
    if isinstance(value, dict):
        return {name: _bare(each) for name, each in value.items() if each is not None}
    return [_bare(each) for each in value] if isinstance(value, list) else (type(value), value)


def test_one_inserted_element_is_one_difference_also_among_named_ones() -> None:
    scalars = compare_payloads({"rules": ["a", "b", "b"]}, {"rules": ["a", "x", "b", "b"]})
    assert scalars == (FieldDifference("/rules/1", ABSENT, "x"),)
    one = [{"item_id": "m1", "position": 0}, {"item_id": "m2", "position": 1}]
    other = [{"item_id": "m0", "position": 0}, {"item_id": "m1", "position": 1}, {"item_id": "m2", "position": 2}]
    assert [(each.pointer, each.expected, each.actual) for each in compare_payloads({"x": one}, {"x": other})] == [
        ("/x/0", ABSENT, other[0]),
        ("/x/0/position", 0, 1),
        ("/x/1/position", 1, 2),
    ]


def test_contents_are_compared_by_digest_and_shown_where_they_begin_to_differ() -> None:
    stored = {**blob(b"same"), "inline": None, "uri": "store:1"}
    assert compare_payloads({"goal": blob(b"same")}, {"goal": stored}) == ()
    long = "word " * 100
    found = compare_payloads({"goal": blob(f"{long}left".encode())}, {"goal": blob(f"{long}\x1b[31mright".encode())})
    assert [each.pointer for each in found] == ["/goal"]
    first, second = field_lines(found)
    assert first.endswith("word left")
    assert second.endswith("word \\u001b[31mright")
    assert len(first) < 120
    shown = json.loads(json.dumps(found[0].to_json()))
    assert shown["expected"].keys() == {"digest", "size", "media_type", "begins"}
    assert shown["expected"]["size"] == 504
    typed = {**blob(b"same"), "media_type": "application/json"}
    assert [each.pointer for each in compare_payloads({"goal": blob(b"same")}, {"goal": typed})] == ["/goal/media_type"]


def test_a_divergence_as_json_and_as_lines() -> None:
    fields = compare_payloads(
        {"decision": "ALLOW", "d/1": b"\x01", "rule_ids": ["a"]}, {"decision": "DENY", "d/1": b""}
    )
    causes = (Ancestor(3, "ToolCallRequested", "plan.1/t1/c0"),)
    found = Divergence(4, "PolicyEvaluated", "D", "CODE", "plan.1/t1/c0/d1", fields, "the rules\x07", causes)
    assert json.loads(json.dumps(found.to_json())) == {
        "seq": 4, "type": "PolicyEvaluated", "event_class": "D", "kind": "CODE", "subject": "plan.1/t1/c0/d1",
        "because": "the rules\x07",
        "fields": [
            {"pointer": "/decision", "expected": "ALLOW", "actual": "DENY"},
            {"pointer": "/d~11", "expected": "01", "actual": ""},
            {"pointer": "/rule_ids", "expected": ["a"], "actual": None},
        ],
        "causes": [{"seq": 3, "type": "ToolCallRequested", "subject": "plan.1/t1/c0"}],
    }  # fmt: skip
    assert list(divergence_lines(found)) == [
        "seq 4  PolicyEvaluated (D)  CODE  plan.1/t1/c0/d1",
        "  because  the rules\\u0007",
        "  /decision  - ALLOW",
        "             + DENY",
        "  /d~11  - 01",
        "         + ",
        """  /rule_ids  - ["a"]""",
        "             + null",
        "  led to by  seq 3  ToolCallRequested  plan.1/t1/c0",
    ]
    record = FieldDifference("/limits", {"ttl_ms": 5, "hard": True, "until": None, "by": "ä"}, ABSENT)
    assert list(field_lines([record])) == ['  /limits  - {"ttl_ms": 5, "hard": true, "by": "ä"}']
    only = FieldDifference("/rules/1", ABSENT, "x")
    assert only.to_json() == {"pointer": "/rules/1", "actual": "x"}
    lines = list(field_lines([only] * 8))
    assert (lines[0], lines[-1]) == ("  /rules/1  + x", "  and 2 more fields")


def test_ancestors_are_read_backwards_nearest_first_and_no_further_than_needed() -> None:
    builder = SessionBuilder("s", profile="OBSERVED").begin()
    ids = [event.meta["event_id"] for event in builder.events]
    builder.append("TurnStarted", turn_id="t1", meta={"causation_id": ids[0]})
    builder.append("NoteRecorded", kind="between")
    last = builder.append("TurnCompleted", turn_id="t1", meta={"causation_id": builder.events[-2].meta["event_id"]})
    before = iter(builder.events[-2::-1])
    assert last.event is not None
    found = causal_ancestors(last.event, before)
    assert [(each.type, each.subject) for each in found] == [("TurnStarted", "t1"), ("SessionCreated", "")]
    assert causal_ancestors(last.event, builder.events[-2::-1], most=1) == found[:1]
    assert causal_ancestors(builder.events[0], iter(())) == ()
