"""The lifecycle on random sessions: it never raises, valid sessions break nothing, counts are what the rows say."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from dalsegno.model.catalogue import CATALOGUE
from dalsegno.model.lifecycle import MemoryOps, OpState, SessionState, Verdict, inherit, judge
from dalsegno.model.lifecycle.state import COUNTED, MAX_ID, OPEN_PHASES, RUNNING_PHASES
from dalsegno.model.records import Event
from dalsegno.testing.builder import SessionBuilder, shipped_schemas
from dalsegno.testing.strategies import History, histories, sessions

HASHES = st.sampled_from([b"\x01" * 32, b"\x02" * 32])
IDS = st.sampled_from(["a", "b", "", "x" * 500])
JUNK = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-3, 3), IDS, HASHES),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(IDS, inner, max_size=2)),
    max_leaves=6,
)


def values_of(schema: Any, named: dict[str, Any]) -> st.SearchStrategy[Any]:
    """What a decoder may give for a schema, small and with few different ids, so that events meet each other."""
    if isinstance(schema, list):
        return st.one_of([values_of(branch, named) for branch in schema])
    if isinstance(schema, str) and schema in named:
        return values_of(named[schema], named)
    kind = schema["type"] if isinstance(schema, dict) else schema
    if isinstance(schema, dict) and "name" in schema:
        named[schema["name"]] = schema
    if kind == "record":
        return st.fixed_dictionaries({f["name"]: values_of(f["type"], named) for f in schema["fields"]})
    if kind == "enum":
        return st.sampled_from(schema["symbols"])
    if kind == "fixed":
        return HASHES
    if kind == "array":
        return st.lists(values_of(schema["items"], named), max_size=2)
    simple = {
        "null": st.none(), "boolean": st.booleans(), "int": st.integers(0, 3), "long": st.integers(0, 3),
        "string": IDS, "bytes": st.just(b""),
    }  # fmt: skip
    return simple[kind] if kind in simple else values_of(kind, named)


def body_of(type_: str) -> st.SearchStrategy[dict[str, Any]]:
    named: dict[str, Any] = {}
    values_of(shipped_schemas().event(type_).schema["fields"][0]["type"], named)
    fields = shipped_schemas().event(type_).schema["fields"][1:]
    return st.fixed_dictionaries({field["name"]: values_of(field["type"], named) for field in fields})


BODIES = {type_: body_of(type_) for type_ in CATALOGUE}


@st.composite
def any_event(draw: st.DrawFn) -> Event:
    type_ = draw(st.sampled_from([*CATALOGUE, "SomethingNew"]))
    wild = draw(st.integers(0, 4)) == 0
    if type_ not in BODIES:
        body: dict[str, Any] = {}
    elif wild:
        names = [field["name"] for field in shipped_schemas().event(type_).schema["fields"]]
        body = draw(st.dictionaries(st.sampled_from(names), JUNK))
    else:
        body = draw(BODIES[type_])
    seq = draw(st.integers(1, 4))
    stub = draw(st.sampled_from([None] * 9 + ["ERASED"]))
    return Event(
        draw(st.sampled_from(["a", "a~1"])), seq, b"\x09" * 32, None if seq == 1 else draw(HASHES),
        draw(st.integers(0, 2)), type_, type_ in CATALOGUE, draw(st.booleans()), {}, {} if stub else body, stub,
    )  # fmt: skip


STATES = st.builds(
    SessionState,
    status=st.sampled_from(["NEW", "CREATED", "RUNNING", "RUNNING", "PAUSED", "COMPLETED"]),
    profile=st.sampled_from(["", "STRICT", "OBSERVED", "IMPORTED", "UNKNOWN"]),
    relation=st.sampled_from(["NONE", "FORK"]),
)


def picture(session: SessionState, ops: MemoryOps) -> bytes:
    return msgspec.msgpack.encode((session, sorted(ops.rows.items(), key=lambda row: row[0])))


def check_counts(session: SessionState, ops: MemoryOps) -> None:
    for place, kind in enumerate(COUNTED):
        rows = [op for (of, _), op in ops.rows.items() if of == kind]
        assert session.open[place] == sum(op.phase in OPEN_PHASES for op in rows)
    running = [op for (kind, _), op in ops.rows.items() if kind == "TOOL" and op.phase in RUNNING_PHASES]
    assert session.running == len(running)


@given(STATES, st.lists(any_event(), max_size=12), st.booleans())
def test_judge_is_total_and_a_violation_changes_nothing(state: SessionState, events: list[Event], fork: bool) -> None:
    session, ops = state, MemoryOps()
    session.open = [0] * len(COUNTED)
    if fork:
        inherit(SessionState(status="RUNNING", turn="a", stages=[("a", "ACTIVE"), ("b", "SCHEDULED")]), session)
    for event in events:
        before = picture(session, ops)
        verdict = judge(session, ops, event)
        assert verdict.violations == tuple(sorted(set(verdict.violations)))
        if verdict.violations:
            assert picture(session, ops) == before
            assert (verdict.opened, verdict.closed) == ((), ())
        check_counts(session, ops)
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(session), type=SessionState) == session
        assert len(msgspec.msgpack.encode(session)) < 8_000
        for (_, id), op in ops.rows.items():
            assert len(id) <= MAX_ID
            assert msgspec.msgpack.decode(msgspec.msgpack.encode(op), type=OpState) == op


@given(sessions())
def test_a_valid_session_breaks_no_rule(builder: SessionBuilder) -> None:
    for event, verdict in zip(builder.events, builder.verdicts, strict=True):
        assert (verdict.violations, verdict.findings) == ((), ()), event
    check_counts(builder.session, builder.ops)


@given(sessions(profile="STRICT"))
def test_what_is_open_is_what_was_opened_and_not_closed(builder: SessionBuilder) -> None:
    """The verdicts alone tell what is open: whoever folds them needs no rows of the lifecycle."""
    open_now: set[tuple[str, str]] = set()
    for verdict in builder.verdicts:
        assert not open_now & set(verdict.opened)
        assert open_now >= set(verdict.closed)
        open_now = (open_now | set(verdict.opened)) - set(verdict.closed)
    assert sum(builder.session.open) == len(open_now)


@given(sessions(), st.data())
def test_after_a_stub_nothing_is_a_violation(builder: SessionBuilder, data: st.DataObject) -> None:
    session, ops = SessionState(), MemoryOps()
    erased = data.draw(st.integers(1, len(builder.events)))
    for event in builder.events:
        if event.seq == erased:
            event = msgspec.structs.replace(event, meta={}, body={}, stub="ERASED")
        verdict = judge(session, ops, event)
        assert verdict.violations == ()
        check_counts(session, ops)


@given(sessions())
def test_judging_again_gives_the_same(builder: SessionBuilder) -> None:
    session, ops = SessionState(), MemoryOps()
    verdicts = [judge(session, ops, event) for event in builder.events]
    assert verdicts == builder.verdicts
    assert picture(session, ops) == picture(builder.session, builder.ops)


@given(histories())
def test_rivals_and_forks_break_rules_only_where_a_fork_leaves_something_open(history: History) -> None:
    for builder in history.sessions:
        broken = {rule for verdict in builder.verdicts for rule in verdict.violations}
        assert broken <= {"S6"}
        if "S6" in broken:
            assert builder.parent is not None
            parent = builder.parent.session
            assert parent.operations_open() or parent.status in ("COMPLETED", "FAILED", "CANCELLED")
        assert Verdict() in builder.verdicts
