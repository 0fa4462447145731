"""A session stepped through: what a step shows, how far it folds, where breakpoints stop."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from dalsegno.errors import NotFound, Usage
from dalsegno.readers.breakpoints import parse_breakpoint
from dalsegno.readers.packs import CONTENT_CHARACTERS
from dalsegno.readers.stepping import Step, Stepper
from dalsegno.state.ladder import WINDOW_EVENTS
from dalsegno.testing.bench_flat import long_session
from dalsegno.testing.builder import SessionBuilder, Written, blob, digest_of
from shard_lab import folded, reads

SESSION = "s-1"


def stepper(
    records: Sequence[Written], seq: int = 1, session_id: str = SESSION, window_events: int = WINDOW_EVENTS
) -> Stepper:
    return Stepper(reads(folded(records, window_events=window_events)).walk(session_id), seq)


def chat() -> SessionBuilder:
    builder = SessionBuilder(SESSION, profile="OBSERVED").begin()
    for name in ("m1", "m2"):
        part = {"kind": "TEXT", "text": f"words of {name}"}
        builder.append("MessageReceived", message_id=name, role="USER", parts=[part])
    builder.append("TurnStarted", turn_id="t1")
    return builder


def item(item_id: str, position: int, mode: str = "FULL", **more: str) -> dict[str, object]:
    return {
        "item_id": item_id, "kind": "MESSAGE", "mode": mode, "position": position, "tokens": 7,
        "digest": digest_of(item_id), "compression_id": None, **more,
    }  # fmt: skip


def seqs(builder: SessionBuilder, type_: str) -> list[int]:
    return [event.seq for event in builder.events if event.type == type_]


def with_packs() -> SessionBuilder:
    """A pack of two messages; then one in which a compression has taken the first message's place."""
    builder = chat()
    builder.append("ContextPackBuilt", pack_id="p1", added=[item("m1", 0), item("m2", 1)], token_total=14)
    builder.append("CompressionStarted", compression_id="k1", rule_id="shorten")
    builder.append("CompressionCompleted", compression_id="k1", rule_id="shorten", summary=blob(b"in short"))
    builder.append(
        "ContextPackBuilt",
        pack_id="p2",
        base_pack_id="p1",
        added=[item("k1", 0, "SUMMARY", compression_id="k1")],
        removed=["m1"],
        dropped=[{"item_id": "m0", "rule_id": "too-old", "reason": "no room"}],
        token_total=14,
    )
    return builder


# --- what a step shows ------------------------------------------------------------------------------------------------


def test_rows_as_they_were_before_and_are_after_the_event() -> None:
    builder = chat()
    builder.append("ToolCallRequested", tool_call_id="c", name="shell")
    builder.append("ToolCallAuthorized", tool_call_id="c", basis="POLICY_ALLOW")
    stepping = stepper(builder.records, len(builder.records))
    (changed,) = [each for each in stepping.step.changes if each.projection == "tools"]
    assert changed.id == ("c",)
    assert changed.before != changed.after
    assert ("TOOL", "c") in stepping.step.open
    before = stepping.back()
    assert before is not None
    (begun,) = [each for each in before.changes if each.projection == "tools"]
    assert begun.before is None
    assert begun.after == changed.before


def test_the_first_event_changes_rows_that_were_not_there() -> None:
    step = stepper(chat().records).step
    assert {each.projection for each in step.changes} >= {"sessions"}
    assert all(each.before is None and each.after is not None for each in step.changes)


def test_the_session_row_is_told_of_the_path_up_to_the_step_and_no_further() -> None:
    stepping = stepper(long_session(600), 257, "long")
    for seq in (257, 258, 256, 512, 513, 1):
        step = stepping.to(seq)
        (row,) = [each for each in step.changes if each.projection == "sessions"] or [None]
        assert (step.state.last_seq, step.state.events) == (seq, seq)
        if row is not None and row.before is not None:
            assert row.before.last_seq == seq - 1


def test_a_pack_as_the_model_saw_it() -> None:
    builder = with_packs()
    first, second = seqs(builder, "ContextPackBuilt")
    stepping = stepper(builder.records, first - 1)
    assert stepping.step.pack is None
    pack = stepping.to(first).pack
    assert pack is not None
    assert [(each.row.item_id, each.row.mode, each.row.tokens, each.content) for each in pack.items] == [
        ("m1", "FULL", 7, "words of m1"),
        ("m2", "FULL", 7, "words of m2"),
    ]
    assert stepping.to(second - 1).pack == pack
    pack = stepping.to(second).pack
    assert pack is not None
    assert [(each.row.item_id, each.row.mode, each.content) for each in pack.items] == [
        ("k1", "SUMMARY", "in short"),
        ("m2", "FULL", "words of m2"),
    ]
    assert pack.items[0].row.digest == digest_of("k1")
    assert pack.rules == {"k1": "shorten"}
    assert [(each.item_id, each.rule_id, each.reason) for each in pack.dropped] == [("m0", "too-old", "no room")]
    assert [each.item_id for each in pack.removed] == ["m1"]
    assert stepping.to(first).pack == stepper(builder.records, first).step.pack


def test_a_pack_whose_base_is_not_here_shows_no_guess() -> None:
    builder = chat()
    builder.append("ContextPackBuilt", pack_id="p2", base_pack_id="elsewhere", added=[item("m1", 0)])
    pack = stepper(builder.records, len(builder.records)).step.pack
    assert pack is not None
    assert (pack.items, pack.missing) == ((), "elsewhere")


def test_a_long_text_in_a_pack_is_cut_and_its_length_said() -> None:
    builder = SessionBuilder(SESSION, profile="OBSERVED").begin()
    text = "x" * (CONTENT_CHARACTERS + 9)
    builder.append("MessageReceived", message_id="m1", role="USER", parts=[{"kind": "TEXT", "text": text}])
    builder.append("ContextPackBuilt", pack_id="p1", added=[item("m1", 0)])
    pack = stepper(builder.records, len(builder.records)).step.pack
    assert pack is not None
    assert (pack.items[0].content, pack.items[0].characters) == (text[:CONTENT_CHARACTERS], len(text))


def test_an_erased_message_shows_no_text_in_the_pack_that_held_it() -> None:
    builder = with_packs()
    control = builder.amend([builder.records[seqs(builder, "MessageReceived")[1] - 1]], request_id="r")
    stepping = stepper([*builder.records, control], seqs(builder, "ContextPackBuilt")[0])
    assert stepping.step.pack is not None
    assert [each.content for each in stepping.step.pack.items] == ["words of m1", None]


def test_validation_outcomes_so_far() -> None:
    builder = chat()
    builder.append("ValidationRequested", validation_id="v1", validator="exact")
    builder.append("ValidationDecided", validation_id="v1", verdict="PASS")
    builder.append("ValidationRequested", validation_id="v2", validator="exact")
    stepping = stepper(builder.records, len(builder.records))
    assert stepping.step.validations.outcomes == {"OPEN": 1, "PASS": 1}
    assert [id for id, _ in stepping.step.validations.newest] == ["v2", "v1"]
    at_request = stepping.to(seqs(builder, "ValidationRequested")[0])
    assert at_request.validations.outcomes == {"OPEN": 1}
    assert stepping.to(1).validations.outcomes == {}


# --- moves ------------------------------------------------------------------------------------------------------------


def folds_of_every_kind_of_move(count: int) -> None:
    stepping = stepper(long_session(count), count, "long")
    worst = 0
    for _ in range(WINDOW_EVENTS * 2 + 3):
        before = stepping.folded
        assert stepping.back() is not None
        worst = max(worst, stepping.folded - before)
    assert 1 < worst <= WINDOW_EVENTS
    for seq in range(1, count, max(1, count // 40)):
        before = stepping.folded
        stepping.to(seq)
        assert stepping.folded - before <= WINDOW_EVENTS
        before = stepping.folded
        assert stepping.forward() is not None
        assert stepping.folded - before == 1


def test_a_step_back_folds_at_most_a_window_and_a_step_forward_one_event() -> None:
    folds_of_every_kind_of_move(3_000)


@pytest.mark.long
def test_a_step_back_in_a_session_of_100_000_events_folds_at_most_256() -> None:
    assert WINDOW_EVENTS == 256
    folds_of_every_kind_of_move(100_000)


def test_there_is_nothing_before_the_first_and_behind_the_last_event() -> None:
    stepping = stepper(chat().records)
    assert stepping.back() is None
    assert stepping.seq == 1
    stepping.to(stepping.end)
    assert stepping.forward() is None
    assert stepping.seq == stepping.end
    for seq in (0, -1, stepping.end + 1):
        with pytest.raises(NotFound, match=f"no event at seq {seq}"):
            stepping.to(seq)
    assert stepping.seq == stepping.end


def test_to_the_next_and_the_previous_of_a_type() -> None:
    builder = with_packs()
    first, second = seqs(builder, "ContextPackBuilt")
    stepping = stepper(builder.records)
    assert seq_of(stepping.to_next("ContextPackBuilt")) == first
    assert seq_of(stepping.to_next("ContextPackBuilt")) == second
    assert stepping.to_next("ContextPackBuilt") is None
    assert stepping.seq == second
    assert seq_of(stepping.to_previous("ContextPackBuilt")) == first
    assert stepping.to_previous("ContextPackBuilt") is None


def seq_of(step: Step | None) -> int | None:
    return None if step is None else step.seq


# --- breakpoints ------------------------------------------------------------------------------------------------------


def hits(stepping: Stepper, *, backwards: bool = False) -> list[int]:
    stepping.to(stepping.end if backwards else 1)
    found = []
    while (step := stepping.continue_(backwards=backwards)) is not None:
        found.append(step.seq)
    return found


def wanted_by(builder: SessionBuilder) -> dict[str, list[int]]:
    calls = [event.seq for event in builder.events if event.type == "ToolCallRequested"]
    shell = [event.seq for event in builder.events if event.body.get("name") == "shell"]
    return {
        "type ToolCallRequested": calls,
        "tool shell": shell,
        "seq 5": [5],
        'when event.type == "ToolCallRequested" && event.name == "shell"': shell,
        'when event.meta.turn_id == "t1" && event.seq < 17': list(range(calls[0], 17)),
        "when state.tool_calls == 2": list(range(calls[1], calls[2])),
        'when state.open.exists(each, each.kind == "TOOL" && each.id == "c1")': list(range(calls[1], calls[1] + 2)),
    }


def with_calls() -> SessionBuilder:
    builder = chat()
    for number, name in enumerate(("shell", "search", "shell")):
        builder.append("ToolCallRequested", tool_call_id=f"c{number}", name=name)
        builder.append("ToolCallAuthorized", tool_call_id=f"c{number}", basis="POLICY_ALLOW")
        builder.append("ToolCallRejected", tool_call_id=f"c{number}")
    return builder


@pytest.mark.parametrize("window_events", [2, 3, WINDOW_EVENTS])
@pytest.mark.parametrize("text", wanted_by(with_calls()))
def test_breakpoints_stop_at_the_same_events_in_both_directions(text: str, window_events: int) -> None:
    builder = with_calls()
    stepping = stepper(builder.records, window_events=window_events)
    stepping.breakpoints.append(parse_breakpoint(text))
    wanted = wanted_by(builder)[text]
    assert hits(stepping) == wanted
    assert hits(stepping, backwards=True) == wanted[::-1]


def test_one_of_several_breakpoints_is_enough_and_none_stops_nowhere() -> None:
    stepping = stepper(with_calls().records)
    assert stepping.continue_() is None
    stepping.breakpoints += [parse_breakpoint("seq 4"), parse_breakpoint("when state.last_seq == 6")]
    assert hits(stepping) == [4, 6]


def test_a_condition_that_cannot_be_told_does_not_hold_and_says_why() -> None:
    builder = with_calls()
    stepping = stepper(builder.records)
    point = parse_breakpoint('when event.name == "shell"')
    stepping.breakpoints.append(point)
    assert hits(stepping) == [event.seq for event in builder.events if event.body.get("name") == "shell"]
    assert sum(point.errors.values()) > 0
    assert all(why.startswith("no such key") for why in point.errors)


@pytest.mark.parametrize("text", ["", "type", "when", "sometimes x", "seq x", "seq -1", "seq ²"])
def test_what_is_no_breakpoint_is_refused(text: str) -> None:
    with pytest.raises(Usage, match="breakpoint"):
        parse_breakpoint(text)


@pytest.mark.parametrize("text", ["when 1 +", "when now() > 3", "when stage.x == 1"])
def test_what_is_no_condition_is_refused(text: str) -> None:
    with pytest.raises(Usage, match="breakpoint: the expression"):
        parse_breakpoint(text)
