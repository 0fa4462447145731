"""The workload: deterministic, valid, skewed as asked, and with a tally that an independent recount confirms."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import pytest

from dalsegno.log.codec import check, place
from dalsegno.log.schema_set import SchemaSet
from dalsegno.model.events import to_record
from dalsegno.model.ids import partition_of
from dalsegno.model.lifecycle import MemoryOps, SessionState, judge
from dalsegno.model.records import Event
from dalsegno.testing.story import GOAL, story_records
from dalsegno.testing.tally import Tally
from dalsegno.testing.workload import Workload, generate, log_records

SCHEMAS = SchemaSet.load()
SESSIONS, SEED, ACTIVE, PARTITIONS = 400, 11, 20, 8


@pytest.fixture(scope="module")
def workload() -> Workload:
    return Workload(SESSIONS, SEED, ACTIVE)


@pytest.fixture(scope="module")
def events(workload: Workload) -> list[Event]:
    """All of it, read back from the bytes, in the order of publishing."""
    read = []
    for record in workload.records():
        event = place(SCHEMAS, record.key, record.value, partition_of(record.session_id, PARTITIONS), PARTITIONS)
        assert isinstance(event, Event)
        read.append(event)
    return read


def by_session(events: list[Event]) -> dict[str, list[Event]]:
    sessions: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        sessions[event.session_id].append(event)
    return sessions


def test_every_session_is_a_chain_that_breaks_no_rule(events: list[Event]) -> None:
    sessions = by_session(events)
    assert len(sessions) == SESSIONS
    profiles = Counter()
    for session_id, chain in sessions.items():
        state, ops, prev = SessionState(), MemoryOps(), None
        for seq, event in enumerate(chain, start=1):
            assert (event.seq, event.prev_hash) == (seq, prev)
            verdict = judge(state, ops, event)
            assert verdict.violations == (), (session_id, seq, event.type, verdict)
            # What an OBSERVED session may lack: pins and context packs.
            lacks = {"SessionStarted": ("S2",), "InferenceRequested": ("I1",)}
            assert verdict.findings in ((), lacks.get(event.type) if state.profile == "OBSERVED" else ())
            prev = event.hash
        profiles[state.profile] += 1
    assert set(profiles) == {"STRICT", "OBSERVED"}


def test_the_workload_has_everything_that_sessions_have(events: list[Event]) -> None:
    types = {event.type for event in events}
    wanted = {
        "ApprovalGranted", "ApprovalDenied", "ApprovalExpired", "CompressionCompleted", "InferenceFailed",
        "ToolCallFailed", "ToolRetryDecided", "ToolCallRejected", "SubSessionEnded", "SessionRecovered", "StageFailed",
        "TurnAborted", "SessionFailed", "SessionCancelled", "InputProvided", "ContextItemRetrieved", "SessionPaused",
    }  # fmt: skip
    assert wanted <= types
    started = Counter(e.body["tool_call_id"] + e.session_id for e in events if e.type == "ToolCallStarted")
    assert max(started.values()) > 1  # an attempt that was made again
    assert max(event.epoch for event in events) > 0


def test_a_child_session_is_named_by_its_final_hash(events: list[Event]) -> None:
    sessions = by_session(events)
    ended = [event for event in events if event.type == "SubSessionEnded"]
    assert ended
    for event in ended:
        child = sessions[event.body["child_session"]]
        assert child[-1].hash == event.body["child_final_hash"]
        assert child[0].body["relation"] == "CHILD"
        assert child[0].body["parent_session"] == event.session_id
        at = child[0].body["parent_at"]
        assert sessions[event.session_id][at["seq"] - 1].hash == at["hash"]


def test_lengths_are_skewed_and_records_of_a_real_size(events: list[Event]) -> None:
    lengths = sorted(len(chain) for chain in by_session(events).values())
    assert lengths[0] < 10
    assert lengths[-1] > 10 * lengths[len(lengths) // 2]
    sizes = [len(record.value) for record in Workload(50, 3, 5).records()]
    assert 450 < sum(sizes) / len(sizes) < 750
    mean = len(events) / SESSIONS
    assert 70 < mean < 140


def recount(events: list[Event]) -> dict[str, Any]:
    """The tally's numbers from the events alone: last word per operation, simply by scanning."""
    calls: dict[str, str] = {}
    approvals: dict[str, str] = {}
    open_ops: dict[tuple[str, str], None] = {}
    stages, turns, verdicts, outcomes = Counter(), Counter(), Counter(), Counter(RUNNING=1)
    tokens: dict[str, Counter[str]] = defaultdict(Counter)
    models: dict[str, str] = {}
    for event in events:
        body, type_ = event.body, event.type
        call = body.get("tool_call_id", "")
        match type_:
            case "StageScheduled":
                stages.update(begun=1, open=1)
            case "StageCompleted" | "StageFailed":
                stages.update({type_[5:].lower(): 1, "open": -1})
            case "TurnStarted":
                turns.update(begun=1, open=1)
            case "TurnCompleted" | "TurnAborted":
                turns.update({type_[4:].lower(): 1, "open": -1})
            case "ToolCallRequested":
                calls[call], open_ops["TOOL", call] = "open", None
            case "ToolCallRejected":
                calls[call] = "rejected"
                del open_ops["TOOL", call]
            case "ToolReceiptRecorded":
                calls[call] = body["status"].lower()
                del open_ops["TOOL", call]
            case "SubSessionEnded":
                calls[call] = "sub_session"
                del open_ops["TOOL", call]
            case "ToolRetryDecided" if not body["retry"]:
                calls[call] = "failed"
                del open_ops["TOOL", call]
            case "ApprovalRequested":
                approvals[body["approval_id"]], open_ops["APPROVAL", body["approval_id"]] = "open", None
            case "ApprovalGranted" | "ApprovalDenied" | "ApprovalExpired":
                approvals[body["approval_id"]] = type_[8:].lower()
                del open_ops["APPROVAL", body["approval_id"]]
            case "ValidationDecided":
                verdicts[body["verdict"]] += 1
            case "InferenceRequested":
                models[body["inference_id"]] = f"{body['provider']}/{body['model']}"
            case "InferenceFailed":
                tokens[models[body["inference_id"]]]["failures"] += 1
            case "InferenceCompleted":
                used = tokens[models[body["inference_id"]]]
                used.update({k: v for k, v in body["usage"].items() if v is not None}, inferences=1)
                used["cost_usd_micros"] += body["cost_usd_micros"]
            case "SessionCompleted" | "SessionFailed" | "SessionCancelled":
                outcomes = Counter({type_[7:].upper(): 1})
    return {
        "events": len(events),
        "stages": +stages, "turns": +turns, "verdicts": verdicts, "outcomes": outcomes,
        "approvals": Counter(approvals.values()), "tool_calls": Counter(calls.values()),
        "open_operations": Counter(kind for kind, _ in open_ops), "tokens": dict(tokens),
        "by_type": Counter(event.type for event in events),
    }  # fmt: skip


def plain(tally: Tally) -> dict[str, Any]:
    fields = (
        "events",
        "stages",
        "turns",
        "verdicts",
        "outcomes",
        "approvals",
        "tool_calls",
        "open_operations",
        "by_type",
    )
    return {**{f: +getattr(tally, f) if f != "events" else tally.events for f in fields}, "tokens": tally.tokens}


def test_the_tally_of_every_session_is_what_a_recount_finds(events: list[Event], workload: Workload) -> None:
    for session_id, chain in by_session(events).items():
        assert plain(workload.by_session[session_id]) == recount(chain), session_id


def test_the_total_is_the_sum_of_the_sessions(events: list[Event], workload: Workload) -> None:
    total = workload.tally
    assert total.sessions == SESSIONS
    assert total.events == len(events)
    assert total.by_type == Counter(event.type for event in events)
    answers = [event.body["usage"]["output"] for event in events if event.type == "InferenceCompleted"]
    assert sum(amounts["output"] for amounts in total.tokens.values()) == sum(answers)
    assert total.as_data()["by_type"]["SessionCreated"] == SESSIONS


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others() -> None:
    first = [(record.key, record.value) for record in Workload(60, 5, 7).records()]
    assert first == [(record.key, record.value) for record in Workload(60, 5, 7).records()]
    assert not {key for key, _ in first} & {record.key for record in Workload(60, 6, 7).records()}


def test_a_session_does_not_depend_on_how_many_run_beside_it() -> None:
    few = {record.key for record in Workload(40, 5, 1, mean_events=20).records()}
    many = {record.key for record in Workload(40, 5, 40, mean_events=20).records()}
    shared = sum(1 for key in few if key in many)
    assert shared > 0.9 * len(few)  # children take a number of their own, in the order in which they are wanted


def test_no_more_sessions_run_at_a_time_than_asked_for() -> None:
    last = {record.session_id: index for index, record in enumerate(Workload(80, 2, 9).records())}
    running: set[str] = set()
    most = 0
    for index, record in enumerate(Workload(80, 2, 9).records()):
        running.add(record.session_id)
        most = max(most, len(running))
        if last[record.session_id] == index:
            running.discard(record.session_id)
    assert 9 <= most <= 9 + 3  # a parent waits beside its child


def test_evenly_gives_every_session_one_event_in_turn() -> None:
    ids = [record.session_id for record in Workload(30, 2, evenly=True, mean_events=40).records()]
    assert len(set(ids[:30])) == 30
    assert sorted(ids[:30]) == sorted(ids[30:60])


def test_what_is_written_is_what_the_check_of_producers_lets_pass() -> None:
    for record in Workload(30, 9, 5).records():
        whole = {**to_record(record.event), "meta": record.meta}
        assert check(SCHEMAS.event(record.type), whole) == _as_lists(whole)


def _as_lists(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _as_lists(item) for name, item in value.items()}
    return [_as_lists(item) for item in value] if isinstance(value, list | tuple) else value


def test_generate_and_log_records_are_the_same_events() -> None:
    generated = [(session_id, event.TYPE, meta["seq"]) for session_id, event, meta in generate(10, 4, 3)]
    records = list(log_records(Workload(10, 4, 3), PARTITIONS))
    assert len(records) == len(generated)
    offsets: dict[int, list[int]] = defaultdict(list)
    for (partition, record), (session_id, _, seq) in zip(records, generated, strict=True):
        assert record.key is not None
        assert record.key.startswith(f"{session_id}:{seq}:".encode())
        assert partition == partition_of(session_id, PARTITIONS)
        offsets[partition].append(record.offset)
    assert all(found == [*range(len(found))] for found in offsets.values())


@pytest.mark.parametrize("wrong", [{"sessions": 0}, {"sessions": 1, "active": 0}, {"sessions": 1, "mean_events": 1}])
def test_counts_that_make_no_sense(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="wanted"):
        Workload(**wrong)


def test_the_story_is_a_strict_session_with_an_approval_and_a_verdict() -> None:
    records = story_records()
    assert 38 <= len(records) <= 46
    state, ops = SessionState(), MemoryOps()
    events = [place(SCHEMAS, r.key, r.value, partition_of(r.session_id, 4), 4) for r in records]
    for event in events:
        assert isinstance(event, Event)
        assert judge(state, ops, event)[:2] == ((), ())
    assert state.status == "COMPLETED"
    told = {event.type: event for event in events if isinstance(event, Event)}
    assert told["SessionCreated"].body["goal"]["inline"].decode() == GOAL
    assert told["ApprovalGranted"].meta["actor_id"] == "maria"
    assert told["ToolCallAuthorized"].body["basis"] == "APPROVAL"
    assert told["ValidationDecided"].body["verdict"] == "PASS"
    assert [r.key for r in records] == [r.key for r in story_records()]
    assert story_records("another")[5].session_id == "another"
