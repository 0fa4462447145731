"""Compressions over any transcript: no half pair, what is protected stays, nothing is due twice on the same items."""

from __future__ import annotations

import json
import random
from hashlib import sha256
from typing import Any

import msgspec
import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from context_lab import AGENT, Transcript, after, configuration
from dalsegno.orchestration import compression, context
from dalsegno.orchestration.compression import Plan, rule_digest
from dalsegno.orchestration.documents import CompressionRule, Configuration, Prompts, Protected, Recipe, Triggers
from dalsegno.projections.decider import rendering
from dalsegno.projections.decider.rows import Item, Packed
from examples import examples

LONG = "the same again " * 20
ALWAYS = Triggers(tokens=0)

texts = st.sampled_from(["", "a", LONG, LONG + "!", "other " * 400])
names = st.sampled_from(["read", "bash", "write"])
calls = st.lists(st.tuples(names, st.sampled_from(["OK", "OK", "ERROR", "REJECTED", "FAILED"]), texts), max_size=4)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("turn"), texts, calls),
        st.tuples(st.just("message"), texts, st.booleans()),
        st.tuples(st.just("output"), texts, st.none()),
    ),
    max_size=12,
)
rules = st.lists(
    st.builds(
        CompressionRule,
        id=st.sampled_from(["a", "b", "c", "d"]),
        method=st.sampled_from(["TRIM", "MASK", "DEDUP", "SUMMARY"]),
        when=st.builds(Triggers, tokens=st.sampled_from([0, 100, 400]), turns=st.sampled_from([None, 0, 3])),
        protect=st.builds(
            Protected,
            turns=st.integers(0, 3),
            kinds=st.lists(st.sampled_from(["SUMMARY", "TOOL_RESULT", "MESSAGE"]), max_size=1),
            tools=st.lists(names, max_size=1),
        ),
        agent=st.just("main"),
        prompt=st.just("shorter"),
    ),
    min_size=1,
    max_size=4,
    unique_by=lambda rule: rule.id,
)


def rule(method: Any, when: Triggers = ALWAYS, **protect: Any) -> CompressionRule:
    return CompressionRule(id=f"the {method}", method=method, when=when, protect=Protected(**({"turns": 0} | protect)))


def due(transcript: Transcript, config: Configuration, **given: Any) -> Plan:
    plan = transcript.due(config, **given)
    assert plan is not None
    return plan


def applied(transcript: Transcript, *of: CompressionRule, **given: Any) -> Plan:
    config = configuration(of)
    plan = due(transcript, config, **given)
    transcript.compress(plan, transcript.done(plan, config))
    return plan


def protected(item: Item, plan: Plan, turn_ordinal: int) -> bool:
    kept = plan.rule.protect
    return (
        item.id == "goal"
        or item.id.endswith("/out")
        or item.place[0] >= turn_ordinal - kept.turns
        or item.kind in kept.kinds
        or (item.kind == "TOOL_RESULT" and item.name in kept.tools)
    )


def assert_whole_pairs(transcript: Transcript, *, open_turn: int | None = None) -> None:
    """Directly behind an answer stand the results of its calls, in their order, and no others; of the turn in progress
    some may be missing."""
    turn, asked, given = -1, [], list[str]()
    for item, said in zip([*transcript.items(), None], [*transcript.spoken(), {"role": ""}], strict=True):
        if said["role"] == "tool":
            given.append(said["tool_call_id"])
            continue
        assert given == ([id for id in asked if id in given] if turn == open_turn else asked)
        turn = -1 if item is None else item.place[0]
        asked, given = [call["id"] for call in said.get("tool_calls", ())], []


def play(transcript: Transcript, step: Any, number: int) -> None:
    what, text, more = step
    if what == "turn":
        transcript.turn(text, more)
    elif what == "message":
        transcript.message(str(number), text, meanwhile=more)
    else:
        transcript.output(text)


@settings(max_examples=examples(300))
@given(steps, rules, st.randoms(use_true_random=False))
def test_after_any_compressions_pairs_are_whole_and_what_is_protected_stays(
    played: list[Any], chosen: list[CompressionRule], shuffle: random.Random
) -> None:
    config, transcript, base = configuration(chosen), Transcript(), dict[str, Packed]()
    order: list[str] = []
    for number, step in enumerate(played):
        play(transcript, step, number)
        turn_ordinal = transcript.head.turn_ordinal + 1
        applications = 0
        while (plan := transcript.due(config)) is not None:
            applications += 1
            assert applications <= len(chosen) ** 2 + len(chosen), "no end of compressions"
            shuffled = list(transcript.held().items())
            shuffle.shuffle(shuffled)
            transcript.rows.families["item"] = dict(shuffled)
            assert transcript.due(config) == plan
            done = transcript.done(plan, config)
            assert transcript.done(plan, config) == done
            before = {item.id: item for item in transcript.items()}
            kept = [
                (item.id, item.digest, item.mode) for item in before.values() if protected(item, plan, turn_ordinal)
            ]
            transcript.compress(plan, done)
            now = {item.id: item for item in transcript.items()}
            assert [(id, now[id].digest, now[id].mode) for id, *_ in kept] == kept
            total = sum(context.tokens(item.size, config.tokenizer) for item in now.values())
            assert done.tokens_after == total
            assert compression.scope(plan.rule, transcript.items(), turn_ordinal, transcript) == ()
            assert_whole_pairs(transcript)
        items = transcript.items()
        assert [item.place for item in items] == sorted(item.place for item in items)
        pack = transcript.pack(base, config)
        order = context.resulting(order, pack.removed, pack.added)
        assert order == ["system", "tools", *(item.id for item in items)]
        base = after(base, pack)
        assert {id: row for id, row in base.items() if id not in ("system", "tools")} == {
            item.id: Packed(item.digest, item.mode) for item in items
        }


# case C44
def test_c44_what_covers_half_a_pair_and_a_call_in_progress_leaves_both_whole() -> None:
    transcript = Transcript()
    for number in range(4):
        transcript.turn(f"step {number}", [("bash", "OK", LONG), ("read", "REJECTED", "no")])
    open_turn = transcript.begin_turn()
    transcript.answer(open_turn, "", ["bash", "bash"])
    transcript.result(open_turn, 1, "bash", rendering.tool_result(f"{open_turn}/c1", "bash", "OK", b"half"))
    plan = applied(transcript, rule("TRIM"), turn_ordinal=transcript.head.turn_ordinal)
    assert {id.split("/")[1] for id in plan.forgotten} == {"t1", "t2", "t3", "t4"}
    assert [item.id for item in transcript.items()][-2:] == [f"{open_turn}/i", f"{open_turn}/c1"]
    assert_whole_pairs(transcript, open_turn=5)
    assert transcript.spoken()[1]["content"] == (
        "[in place of earlier items]\n12 items left out, of turns 1-4: 4 answers, 8 tool results (bash 4, read 4)."
    )


def test_a_protected_result_keeps_its_answer_and_the_results_beside_it() -> None:
    transcript = Transcript()
    first = transcript.turn("", [("read", "OK", LONG), ("bash", "OK", LONG)])
    transcript.message("1", "go on")
    transcript.turn("", [("bash", "OK", LONG)])
    applied(transcript, rule("TRIM", tools=["read"]))
    assert [item.id for item in transcript.items()][:4] == ["goal", f"{first}/i", f"{first}/c0", f"{first}/c1"]
    assert transcript.items()[4].kind == "SUMMARY"
    assert_whole_pairs(transcript)


def test_a_late_receipt_of_a_call_that_was_compressed_brings_no_half_pair_back() -> None:
    transcript = Transcript()
    turn = transcript.turn("", [("bash", "FAILED", "ABORTED")])
    applied(transcript, rule("TRIM"))
    transcript.result(turn, 0, "bash", rendering.tool_result(f"{turn}/c0", "bash", "OK", b"late"), at=1)
    assert f"{turn}/c0" in transcript.held()
    assert_whole_pairs(transcript)
    assert transcript.due(configuration([rule("TRIM"), rule("MASK"), rule("DEDUP")])) is None


def test_of_equal_results_the_last_stays_and_the_earlier_ones_say_what_they_were() -> None:
    transcript = Transcript()
    for said in (LONG, "else", LONG, LONG):
        transcript.turn("", [("read", "OK", said)])
    transcript.turn("", [("bash", "OK", LONG)])
    held = {id: (item.size, item.digest) for id, item in transcript.held().items()}
    plan = applied(transcript, rule("DEDUP"))
    assert plan.forgotten == ("work.1/t1/c0", "work.1/t3/c0")
    size, digest = held["work.1/t1/c0"]
    item = transcript.held()["work.1/t1/c0"]
    assert (item.mode, json.loads(transcript.get(item.digest))["content"]) == (
        "COMPRESSED",
        f"[left out to save space: {size} bytes, sha256 {digest.hex()}]",
    )
    assert_whole_pairs(transcript)


def test_a_result_that_a_mask_would_not_shorten_stays() -> None:
    transcript = Transcript()
    transcript.turn("", [("bash", "OK", "short"), ("bash", "OK", LONG)])
    assert applied(transcript, rule("MASK")).forgotten == ("work.1/t1/c1",)


def test_what_is_masked_is_not_masked_again_though_that_would_be_shorter_still() -> None:
    transcript = Transcript()
    transcript.turn("", [("bash", "OK", "x" * 10_000)])
    applied(transcript, rule("MASK"))
    masked = transcript.held()["work.1/t1/c0"]
    assert len(rendering.masked(masked)) < masked.size
    assert transcript.due(configuration([rule("MASK"), rule("DEDUP")])) is None


@pytest.mark.parametrize(
    ("when", "given", "trigger"),
    [
        (Triggers(tokens=100), {"token_total": 101}, "THRESHOLD"),
        (Triggers(tokens=100), {"token_total": 100}, None),
        (Triggers(turns=2), {}, "THRESHOLD"),
        (Triggers(turns=3), {}, None),
        (Triggers(stage_boundary=True), {"first_turn_of_stage": True}, "STAGE_BOUNDARY"),
        (Triggers(stage_boundary=True), {}, None),
        (Triggers(overflow=True), {"overflow": True}, "OVERFLOW_ERROR"),
        (Triggers(overflow=True), {"token_total": 10**9}, None),
        (Triggers(tokens=1, overflow=True), {"overflow": True}, "OVERFLOW_ERROR"),
    ],
)
def test_a_rule_is_due_when_one_of_its_triggers_says_so(when: Triggers, given: dict[str, Any], trigger: Any) -> None:
    transcript = Transcript()
    for _ in range(3):
        transcript.turn("said", [("bash", "OK", LONG)])
    plan = transcript.due(configuration([rule("TRIM", when)]), **given)
    assert (plan.trigger if plan else None) == trigger


def test_a_rule_that_gave_nothing_in_this_turn_makes_room_for_the_next() -> None:
    transcript = Transcript()
    transcript.turn("", [("bash", "OK", LONG)])
    config = configuration([rule("SUMMARY"), rule("TRIM")])
    assert due(transcript, config).rule.id == "the SUMMARY"
    assert due(transcript, config, failed_rules=["the SUMMARY"]).rule.id == "the TRIM"
    assert transcript.due(config, failed_rules=["the SUMMARY", "the TRIM"]) is None


def test_the_key_follows_the_rule_its_model_and_template_and_the_items_and_nothing_else() -> None:
    asked = CompressionRule(id="s", method="SUMMARY", when=ALWAYS, agent="main", prompt="shorter")
    config = configuration([asked])
    model = {"provider": "scripted", "model": "m-1", "params": {"temperature": 0}}
    by_hand = {"rule": msgspec.to_builtins(asked), "model": model, "template": "Say it shorter."}
    assert rule_digest(asked, config) == sha256(rfc8785.dumps(by_hand)).digest()
    others = configuration([asked, rule("TRIM")], prompts=Prompts(templates={"shorter": "Say it shorter.", "x": "y"}))
    assert rule_digest(asked, others) == rule_digest(asked, config)
    changed = configuration([asked], prompts=Prompts(templates={"shorter": "Say it shorter!"}))
    assert rule_digest(asked, changed) != rule_digest(asked, config)
    transcript = Transcript()
    transcript.turn("x", [("bash", "OK", LONG)])
    transcript.turn("y")
    plan = due(transcript, config)
    rows = [transcript.held()[id] for id in plan.forgotten]
    assert plan.forgotten == ("work.1/t1/i", "work.1/t1/c0")
    assert plan.key == ("s", rule_digest(asked, config), sha256(b"".join(row.digest for row in rows)).digest())


def test_a_model_is_asked_for_a_summary_by_the_template_and_the_items_a_line_each() -> None:
    transcript = Transcript()
    transcript.turn("x", [("bash", "OK", LONG)])
    config = configuration([rule("SUMMARY")])
    plan = due(transcript, config)
    request = compression.summary_request(plan, AGENT, "Say it shorter.")
    asked = compression.summary_messages(request, transcript)
    assert asked[0] == {"role": "system", "content": "Say it shorter."}
    lines = [json.loads(line) for line in asked[1]["content"].split("\n")]
    assert (asked[1]["role"], lines) == ("user", transcript.spoken()[1:])
    other = compression.summary_request(plan, AGENT, "Say it longer.")
    assert request.request_digest != other.request_digest
    assert compression.summarized(plan, config, b" \n") is None
    transcript.compress(plan, transcript.done(plan, config))
    assert transcript.spoken()[1:] == [{"role": "user", "content": "[in place of earlier items]\nwhat came before"}]


def test_what_one_stage_compresses_another_one_still_sees_of_what_is_every_stages() -> None:
    transcript = Transcript()
    transcript.turn("done")
    transcript.output("the result")
    transcript.head.stage = "next.1"
    transcript.put("next.1/t2/i", "MESSAGE", b'{"content":"x","role":"assistant"}', (2, 1, None))
    applied(transcript, rule("TRIM"), turn_ordinal=3)
    seen = transcript.items(Recipe(history="stage"), "third.1")
    assert [item.id for item in seen] == ["goal", "work.1/out"]
