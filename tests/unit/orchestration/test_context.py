"""Packs: which items in which order, what a request's digest covers, the budget; and that all of it is linear."""

from __future__ import annotations

import sys
from hashlib import sha256
from types import FrameType
from typing import Any

import pytest

from context_lab import TEMPLATE, Transcript, after, configuration
from dalsegno.errors import NotReconstructable
from dalsegno.orchestration import compression, context
from dalsegno.orchestration.documents import CompressionRule, Protected, Recipe, Tokenizer, Triggers
from dalsegno.projections.decider import rendering
from dalsegno.projections.decider.rows import Packed


def test_a_stage_is_shown_itself_what_came_before_all_stages_and_the_outputs_of_others() -> None:
    transcript = Transcript()
    transcript.turn("of work", [("bash", "OK", "x")])
    transcript.output("made by work")
    transcript.head.stage = "check.1"
    transcript.put("check.1/t2/i", "MESSAGE", b'{"content":"of check","role":"assistant"}', (2, 1, None))
    own = ["goal", "work.1/out", "check.1/t2/i"]
    assert [item.id for item in transcript.items(Recipe(history="stage"), "check.1")] == own
    everything = [item.id for item in transcript.items(Recipe(history="session"), "check.1")]
    assert everything == ["goal", "work.1/t1/i", "work.1/t1/c0", *own[1:]]


def test_results_stand_in_the_order_of_their_calls_and_messages_behind_them() -> None:
    transcript = Transcript()
    turn = transcript.begin_turn()
    transcript.answer(turn, "", ["read", "bash"])
    transcript.message("early", "wait", meanwhile=True)
    transcript.result(turn, 1, "bash", rendering.rejected(f"{turn}/c1", "no"))
    transcript.result(turn, 0, "read", rendering.failed(f"{turn}/c0", "TIMEOUT"))
    assert [item.id for item in transcript.items()] == ["goal", f"{turn}/i", f"{turn}/c0", f"{turn}/c1", "m:early"]


def test_c43_ids_that_a_provider_repeats_give_pairs_of_their_own() -> None:
    transcript = Transcript()
    for _ in range(3):
        transcript.turn("", [("bash", "OK", "x"), ("bash", "OK", "x")])
    asked = [call["id"] for said in transcript.spoken() for call in said.get("tool_calls", ())]
    given = [said["tool_call_id"] for said in transcript.spoken() if said["role"] == "tool"]
    assert asked == given
    assert len(set(asked)) == 6


def test_the_request_digest_is_what_the_layout_says() -> None:
    transcript, config = Transcript(), configuration()
    transcript.turn("", [("bash", "OK", "x")])
    plan = transcript.pack({}, config)
    functions = [
        b'{"function":{"description":"reads","name":"read","parameters":{"type":"object"}},"type":"function"}',
        b'{"function":{"description":"","name":"bash","parameters":{"type":"object"}},"type":"function"}',
    ]
    lines = ["request 1 AGENT", "system " + sha256(b'{"content":"be good","role":"system"}').hexdigest()]
    told = ["tool " + sha256(function).hexdigest() for function in functions]
    lines += told + ["item " + item.digest.hex() for item in transcript.items()]
    lines += ["params " + sha256(b'{"model":"m-1","params":{"temperature":0}}').hexdigest(), ""]
    assert plan.request_digest == sha256("\n".join(lines).encode()).digest()
    assert plan.tools_digest == sha256("\n".join([*told, ""]).encode()).digest()
    assert plan.template_digest == sha256(b"be good").digest()
    assert [tool["function"]["name"] for tool in context.tools(plan)] == ["read", "bash"]
    assert context.messages(plan, transcript) == [{"role": "system", "content": "be good"}, *transcript.spoken()]
    assert plan.added[1].digest == plan.tools_digest


@pytest.mark.parametrize(("spare", "fits"), [(0, True), (-1, False)])
def test_what_is_over_the_budget_does_not_fit_and_nothing_is_taken_out(spare: int, fits: bool) -> None:
    transcript, config = Transcript(), configuration()
    transcript.turn("", [("bash", "OK", "x" * 1000)])
    total = transcript.pack({}, config).token_total
    plan = transcript.pack({}, config, Recipe(budget_tokens=total + spare))
    assert (plan.fits, plan.token_total, plan.token_budget) == (fits, total, total + spare)
    assert (len(plan.items), plan.dropped, plan.removed) == (3, (), ())
    assert total == sum(item.tokens or 0 for item in plan.added)


def test_a_pack_is_the_difference_to_the_one_before_and_says_what_was_compressed() -> None:
    config, transcript = configuration([CompressionRule(
        id="t", method="TRIM", when=Triggers(turns=1), protect=Protected(turns=1)
    )]), Transcript()  # fmt: skip
    transcript.turn("", [("bash", "OK", "x")])
    first = transcript.pack({}, config)
    base = after({}, first)
    assert transcript.pack(base, config).added == ()
    transcript.turn("last")
    plan = transcript.due(config)
    assert plan is not None
    transcript.compress(plan, compression.apply(plan, config))
    second = transcript.pack(base, config)
    assert second.removed == ("work.1/t1/c0", "work.1/t1/i")
    assert [(drop.item_id, drop.reason) for drop in second.dropped] == [
        ("work.1/t1/c0", "compressed"),
        ("work.1/t1/i", "compressed"),
    ]
    assert [(item.position, item.mode, item.kind) for item in second.added] == [
        (3, "SUMMARY", "SUMMARY"),
        (4, "FULL", "MESSAGE"),
    ]
    assert second.added[0].compression_id == second.added[0].item_id


def test_tokens_are_a_quarter_of_the_bytes_and_another_tokenizer_cannot_be_recomputed() -> None:
    assert [context.tokens(size, Tokenizer()) for size in (0, 1, 4, 5)] == [0, 1, 1, 2]
    with pytest.raises(NotReconstructable, match="cannot be recomputed"):
        context.tokens(4, Tokenizer(name="o200k", vocabulary_digest="00"))


def test_a_template_is_filled_in_once_and_other_braces_stay() -> None:
    filled = context.fill(
        TEMPLATE + ' {"a": {nobody} }', goal="{stage}", session="s", stage="work", clock_start=1_500_000
    )
    assert filled == ('You work on {stage} in work of s; it is 1970-01-01T00:00:01.500000Z. {literal} {"a": {nobody} }')
    assert context.fill("{clock_start}|", goal="", session="", stage="", clock_start=None) == "|"
    assert "microseconds" in context.fill("{clock_start}", goal="", session="", stage="", clock_start=2**62)


def lines_run(work: Any) -> int:
    """Lines of the two modules that ran: a count that no other load on the machine changes."""
    files, count = {context.__file__, compression.__file__}, 0

    def trace(frame: FrameType, what: str, _: Any) -> Any:
        nonlocal count
        if frame.f_code.co_filename not in files:
            return None
        count += what == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("method", ["TRIM", "MASK", "DEDUP"])
def test_ten_times_the_items_are_ten_times_the_work(method: Any) -> None:
    asked = CompressionRule(id="r", method=method, when=Triggers(tokens=0))
    config = configuration([asked])

    def count(turns: int) -> int:
        transcript = Transcript()
        for _ in range(turns):
            transcript.turn("said", [("bash", "OK", "the same " * 40)])
        items, base = transcript.items(), {f"old{n}": Packed(b"", "FULL") for n in range(turns)}

        def work() -> None:
            transcript.pack(base, config)
            plan = compression.due(
                config, items, transcript, turn_ordinal=turns + 1, first_turn_of_stage=False, overflow=False,
                token_total=10**6,
            )  # fmt: skip
            assert plan is not None
            compression.apply(plan, config)
            context.resulting([], (), transcript.pack({}, config).added)

        return lines_run(work)

    assert count(5_000) < 10.5 * count(500)


def test_params_and_model_are_part_of_the_request() -> None:
    given = (rendering.system(""), (), ())
    one = context.request_digest("AGENT", *given, "m", {"a": 1, "b": 2})
    assert one == context.request_digest("AGENT", *given, "m", {"b": 2, "a": 1})
    others = [
        context.request_digest("COMPRESSION", *given, "m", {"a": 1, "b": 2}),
        context.request_digest("AGENT", *given, "n", {"a": 1, "b": 2}),
        context.request_digest("AGENT", *given, "m", {"a": 1}),
    ]
    assert len({one, *others}) == 4


def test_contents_that_are_gone_are_an_error_of_their_keeper() -> None:
    transcript = Transcript()
    plan = transcript.pack({}, configuration())
    transcript.contents.clear()
    with pytest.raises(KeyError):
        context.messages(plan, transcript)
