"""The rows of ``context_packs``, and packs put together from them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dalsegno.model.lifecycle import Verdict
from dalsegno.model.lifecycle.state import bounded
from dalsegno.projections.base import RowId
from dalsegno.projections.context_packs import COMPRESSIONS_LISTED, Assembled, ContextPacks, assembled
from dalsegno.projections.rows import ContextPackRow
from dalsegno.testing.builder import START_MICROS, STEP_MICROS, SessionBuilder, Written, blob, digest_of
from dalsegno.testing.story import story_records
from dalsegno.testing.workload import Workload
from examples import examples
from projection_lab import rows_of
from shard_lab import folded, reads

MEMBERS = ("item", "removed", "dropped")


@pytest.fixture
def builder() -> SessionBuilder:
    return SessionBuilder("s-1").begin()


@pytest.fixture
def observed() -> SessionBuilder:
    return SessionBuilder("s-1", profile="OBSERVED").begin()


def item(item_id: str, position: int = 0, **fields: Any) -> dict[str, Any]:
    return {"item_id": item_id, "kind": "MESSAGE", "mode": "FULL", "position": position, **fields}


def build(builder: SessionBuilder, pack_id: str, base: str | None = None, **fields: Any) -> int:
    builder.append("ContextPackBuilt", **{"pack_id": pack_id, "base_pack_id": base, "builder_version": "1", **fields})
    return builder.events[-1].seq


def rows(builder: SessionBuilder) -> dict[RowId, ContextPackRow]:
    return rows_of(ContextPacks(), builder)


def whole(builder: SessionBuilder, pack_id: str) -> Assembled:
    return assembled(pack_id, rows(builder).get)


def names(found: Assembled) -> list[str | None]:
    assert found.missing is None
    return [row.item_id for row in found.items]


# --- rows -------------------------------------------------------------------------------------------------------------


def test_a_pack_with_all_it_says(builder: SessionBuilder) -> None:
    builder.append("StageScheduled", stage_id="a.1", stage_name="a")
    builder.append("StageStarted", stage_id="a.1")
    builder.append("TurnStarted", turn_id="a.1/t1")
    digests = {name: digest_of(name) for name in ("template_digest", "tools_digest", "request_digest")}
    seq = build(
        builder, "p", added=[item("m", 0, tokens=7, digest=digest_of("m"), compression_id="k")],
        dropped=[{"item_id": "d", "rule_id": "r", "reason": "x" * 600}], token_total=7, token_budget=10,
        tokenizer="bytes/4", fits=False, **digests,
    )  # fmt: skip
    assert rows(builder) == {
        ("p",): ContextPackRow(
            seq=seq, built_at=START_MICROS + seq * STEP_MICROS, stage_id="a.1", turn_id="a.1/t1", items=1, added=1,
            dropped=1, compressed=1, compressions=["k"], token_total=7, token_budget=10, fits=False,
            builder_version="1", tokenizer="bytes/4", **digests,
        ),
        ("p", "item", 0): ContextPackRow(
            kind="ITEM", item_id="m", item_kind="MESSAGE", mode="FULL", position=0, tokens=7, digest=digest_of("m"),
            compression_id="k",
        ),
        ("p", "dropped", 0): ContextPackRow(kind="DROPPED", item_id="d", rule_id="r", reason="x" * 500),
    }  # fmt: skip


def test_what_a_pack_may_leave_out(observed: SessionBuilder) -> None:
    seq = build(observed, "p", added=[item("m")], dropped=[{"item_id": "d"}])
    found = rows(observed)
    assert found["p",] == ContextPackRow(
        seq=seq, built_at=START_MICROS + seq * STEP_MICROS, items=1, added=1, dropped=1, fits=True, builder_version="1"
    )
    assert found["p", "item", 0] == ContextPackRow(
        kind="ITEM", item_id="m", item_kind="MESSAGE", mode="FULL", position=0
    )
    assert found["p", "dropped", 0] == ContextPackRow(kind="DROPPED", item_id="d")


def test_a_pack_keeps_only_its_difference(builder: SessionBuilder) -> None:
    build(builder, "p0", added=[item(f"i{n}", n) for n in range(100)])
    for number in range(1, 20):
        removed = [f"i{number}"]
        build(builder, f"p{number}", f"p{number - 1}", removed=removed, added=[item(f"j{number}", 99)])
    found = rows(builder)
    assert len(found) == 1 + 100 + 19 * 3
    assert found["p19", "removed", 0] == ContextPackRow(kind="REMOVED", item_id="i19")
    assert (found["p19",].added, found["p19",].removed, found["p19",].items) == (1, 1, 100)


def test_how_many_items_is_not_known_where_the_base_is_not(builder: SessionBuilder) -> None:
    build(builder, "p", "nowhere", added=[item("m")])
    build(builder, "q", "p", added=[item("n")])
    found = rows(builder)
    assert [(found[id,].items, found[id,].added, found[id,].base_pack_id) for id in ("p", "q")] == [
        (None, 1, "nowhere"),
        (None, 1, "p"),
    ]


def test_compressions_are_named_once_and_counted(builder: SessionBuilder) -> None:
    kinds = [f"k{n}" for n in range(COMPRESSIONS_LISTED + 2)]
    added = [item(f"i{n}", n, compression_id=id) for n, id in enumerate([*kinds, kinds[0], None, ""])]
    build(builder, "p", added=added)
    row = rows(builder)["p",]
    assert (row.compressions, row.more_compressions) == (kinds[:COMPRESSIONS_LISTED], 2)
    assert row.compressed == len(kinds) + 1


def test_ids_of_any_length_are_bounded(builder: SessionBuilder) -> None:
    long = "x" * 70_000
    builder.append("MessageReceived", message_id=long, role="USER")
    build(builder, "p", added=[item(long, compression_id=long)], removed=[long], dropped=[{"item_id": long}])
    build(builder, long, "p")
    found = rows(builder)
    assert {found["p", kind, 0].item_id for kind in MEMBERS} == {bounded(long)}
    assert found["p", "item", 0].source_type == "MessageReceived"
    assert found["p",].compressions == [found["p", "item", 0].compression_id] == [bounded(long)]
    assert found[bounded(long),].base_pack_id == "p"
    assert names(whole(builder, long)) == [bounded(long)]


def test_a_pack_built_again_leaves_nothing_of_the_first(observed: SessionBuilder) -> None:
    three = [item(f"i{n}", n) for n in range(3)]
    dropped = [{"item_id": "d1"}, {"item_id": "d2"}]
    build(observed, "p", added=three, removed=["r1", "r2"], dropped=dropped)
    build(observed, "p", added=[item("new")])
    assert set(rows(observed)) == {("p",), ("p", "item", 0)}
    assert rows(observed)["p", "item", 0].item_id == "new"


def test_an_erased_pack_has_no_rows(builder: SessionBuilder) -> None:
    build(builder, "p", added=[item("m")])
    build(builder, "q", "p", added=[item("n", 1)])
    pack = builder.records[-2]
    found = rows_of(ContextPacks(), builder, [*builder.records, builder.amend([pack])])
    assert set(found) == {("q",), ("q", "item", 0)}
    assert assembled("q", found.get) == Assembled([], "p")


# --- where an item comes from -----------------------------------------------------------------------------------------

RECEIPT = {"receipt_id": "r", "status": "OK", "attempt": 1}
ERROR = {"error_class": "X", "message": "m", "retryable": False}
CALL = [("ToolCallRequested", {"name": "t", "effect": "READ"})]
ALLOWED = [*CALL, ("ToolCallAuthorized", {"basis": "SIMULATED"})]
STARTED = [*ALLOWED, ("ToolCallStarted", {"attempt": 1, "executor": "e", "child_session": "c"})]
SOURCES: list[tuple[str, str, list[tuple[str, dict[str, Any]]], dict[str, Any]]] = [
    ("MessageReceived", "message_id", [], {"role": "USER"}),
    (
        "InferenceCompleted",
        "inference_id",
        [("InferenceRequested", {"attempt": 1, "purpose": "OTHER"})],
        {"attempt": 1},
    ),
    ("ToolReceiptRecorded", "tool_call_id", STARTED, RECEIPT),
    ("ToolCallFailed", "tool_call_id", STARTED, {"attempt": 1, "reason": "TIMEOUT", "error": ERROR}),
    ("ToolCallRejected", "tool_call_id", CALL, {"basis": "POLICY_DENY", "message": "no"}),
    ("SubSessionEnded", "tool_call_id", STARTED, {"child_session": "c", "outcome": "SUCCESS"}),
    ("InputProvided", "request_id", [("InputRequested", {"prompt": blob(b"?")})], {"outcome": "ACCEPTED"}),
    ("ContextItemRetrieved", "item_id", [("RetrievalRequested", {"kind": "FILE"})], {"source_uri": "file:///x"}),
    ("CompressionCompleted", "compression_id", [], {"method": "TRIM", "effect": "REAPPLIABLE"}),
]


@pytest.mark.parametrize(("type_", "field", "before", "fields"), SOURCES, ids=[each[0] for each in SOURCES])
def test_an_item_names_the_event_that_gave_it(
    observed: SessionBuilder, type_: str, field: str, before: list[tuple[str, dict[str, Any]]], fields: dict[str, Any]
) -> None:
    for opens, its_fields in before:
        observed.append(opens, **{field: "x"}, **its_fields)
    build(observed, "too early", added=[item("x")])
    observed.append(type_, **{field: "x"}, **fields)
    assert not any(verdict.violations for verdict in observed.verdicts)
    given = observed.events[-1].seq
    build(observed, "p", added=[item("x"), item("y")])
    found = rows(observed)
    x, y, early = found["p", "item", 0], found["p", "item", 1], found["too early", "item", 0]
    assert (x.source_type, x.source_seq, x.source_uri) == (type_, given, fields.get("source_uri"))
    assert (y.source_type, y.source_seq, y.source_uri) == (None, None, None)
    assert early.source_type is None


def test_the_newest_event_counts(observed: SessionBuilder) -> None:
    for _ in range(2):
        observed.append("MessageReceived", message_id="m", role="USER")
    build(observed, "p", added=[item("m")])
    assert rows(observed)["p", "item", 0].source_seq == observed.events[-1].seq - 1


def test_a_sub_session_of_a_call_that_had_failed_is_known_by_what_it_names(observed: SessionBuilder) -> None:
    for type_, fields in STARTED:
        observed.append(type_, tool_call_id="call", **fields)
    observed.append("ToolCallFailed", tool_call_id="call", attempt=1, reason="TIMEOUT", error=ERROR)
    observed.append("SubSessionEnded", child_session="c", tool_call_id="call", outcome="SUCCESS")
    assert observed.verdicts[-1] == Verdict()
    build(observed, "p", added=[item("call")])
    assert rows(observed)["p", "item", 0].source_type == "SubSessionEnded"


def test_a_sub_session_that_does_not_name_its_call(observed: SessionBuilder) -> None:
    for type_, fields in STARTED:
        observed.append(type_, tool_call_id="call", **fields)
    observed.append("SubSessionEnded", child_session="c", tool_call_id=None, outcome="SUCCESS")
    build(observed, "p", added=[item("call")])
    assert rows(observed)["p", "item", 0].source_type == "SubSessionEnded"


# --- whole packs ------------------------------------------------------------------------------------------------------


def test_a_pack_is_its_base_without_what_was_removed_and_with_what_was_added(builder: SessionBuilder) -> None:
    build(builder, "p", added=[item("a", 0), item("b", 1), item("c", 2)])
    build(builder, "q", "p", removed=["b"], added=[item("e", 3), item("d", 1)])
    build(builder, "r", "q")
    assert names(whole(builder, "p")) == ["a", "b", "c"]
    assert names(whole(builder, "q")) == ["a", "d", "c", "e"]
    assert names(whole(builder, "r")) == ["a", "d", "c", "e"]
    assert rows(builder)["r",].items == 4


def test_an_item_whose_mode_changed(builder: SessionBuilder) -> None:
    build(builder, "p", added=[item("a", 0), item("b", 1)])
    build(builder, "q", "p", removed=["a"], added=[item("a", 0, mode="REFERENCE")])
    assert [(row.item_id, row.mode) for row in whole(builder, "q").items] == [("a", "REFERENCE"), ("b", "FULL")]


def test_an_item_that_is_added_again_moves(builder: SessionBuilder) -> None:
    """What changed is given as added without being removed."""
    build(builder, "p", added=[item("system", 0), item("tools", 1), item("a", 2), item("b", 3)])
    build(builder, "q", "p", removed=["b"], added=[item("c", 3), item("tools", 1), item("system", 0, tokens=7)])
    assert names(whole(builder, "q")) == ["system", "tools", "a", "c"]
    assert [row.tokens for row in whole(builder, "q").items] == [7, None, None, None]


def test_the_lowest_position_is_taken_first(builder: SessionBuilder) -> None:
    build(builder, "p", added=[item("x", 0)])
    build(builder, "q", "p", added=[item("b", 1), item("a", 0)])
    assert names(whole(builder, "q")) == ["a", "b", "x"]


def test_positions_outside_the_pack_are_its_ends(builder: SessionBuilder) -> None:
    build(builder, "p", added=[item("b", 9), item("a", -9)])
    assert names(whole(builder, "p")) == ["a", "b"]


def test_a_pack_that_cannot_be_put_together_says_what_is_missing(builder: SessionBuilder) -> None:
    build(builder, "p", "parent's", added=[item("a")])
    build(builder, "q", "p", added=[item("b", 1)])
    build(builder, "itself", "itself", added=[item("c")])
    assert whole(builder, "q") == Assembled([], "parent's")
    assert whole(builder, "itself") == Assembled([], "itself")
    assert whole(builder, "never built") == Assembled([], "never built")


def test_a_base_that_was_built_again_since_is_not_the_one_that_was_meant(observed: SessionBuilder) -> None:
    build(observed, "p", added=[item("a")])
    build(observed, "q", "p", added=[item("b", 1)])
    assert names(whole(observed, "q")) == ["a", "b"]
    build(observed, "p", added=[item("z")])
    assert whole(observed, "q") == Assembled([], "p")
    assert names(whole(observed, "p")) == ["z"]


ITEMS = st.lists(st.integers(0, 9), unique=True, max_size=6)


@settings(deadline=None, max_examples=examples(100))
@given(st.lists(st.tuples(ITEMS, st.integers(0, 5), st.sets(st.integers(0, 9))), min_size=1, max_size=6))
def test_every_pack_comes_back_from_its_difference(packs: list[tuple[list[int], int, set[int]]]) -> None:
    """Any list of items, given as a difference to any earlier pack, of which any part that stays in order is kept."""
    builder = SessionBuilder("s-1").begin()
    for number, (wanted, base, kept) in enumerate(packs):
        before = packs[base % number][0] if number else []
        stays: list[int] = []
        for each in before:
            place = wanted.index(each) if each in kept and each in wanted else -1
            if place >= 0 and all(wanted.index(other) < place for other in stays):
                stays.append(each)
        build(
            builder,
            f"p{number}",
            f"p{base % number}" if number else None,
            removed=[f"{each}" for each in before if each not in stays],
            added=[item(f"{each}", place) for place, each in enumerate(wanted) if each not in stays][::-1],
        )
    found = rows(builder)
    for number, (wanted, _, _) in enumerate(packs):
        assert names(assembled(f"p{number}", found.get)) == [f"{each}" for each in wanted]
        assert found[f"p{number}",].items == len(wanted)


def test_packs_of_made_up_sessions_are_whole_and_in_order() -> None:
    """Story and workload give positions as the contract says: what was said first stands first."""
    records = [*story_records(), *Workload(8, 1, 8).records()]
    shard = folded([Written(record.key, record.value, None) for record in records], projections=[ContextPacks()])
    longest = 0
    for session_id, _ in reads(shard).sessions():
        found = dict(reads(shard).rows(ContextPacks.name, session_id))
        for row_id, pack in found.items():
            if len(row_id) == 1:
                given = [row.source_seq for row in assembled(str(row_id[0]), found.get).items]
                assert None not in given
                assert given == sorted(given)  # type: ignore[type-var]
                assert len(given) == pack.items
                longest = max(longest, len(given))
    assert longest > 20
