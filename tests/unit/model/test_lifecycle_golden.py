"""A session of 40 events, written by hand, through the rules: what each event opens, closes and breaks, and the end."""

from __future__ import annotations

from dalsegno.model.hashing import first_break
from dalsegno.model.lifecycle import OpState, SessionState, Verdict
from dalsegno.model.path import choose_path
from dalsegno.testing.builder import digest_of
from golden_session import golden_session, golden_story


def test_each_event_is_judged_as_written() -> None:
    entries, builder = golden_story()["events"], golden_session()
    assert len(builder.events) == 40
    for seq, (entry, verdict) in enumerate(zip(entries, builder.verdicts, strict=True), start=1):
        expected = Verdict(
            tuple(entry["violations"]),
            (),
            tuple((kind, id) for kind, id in entry["opened"]),
            tuple((kind, id) for kind, id in entry["closed"]),
        )
        assert verdict == expected, (seq, entry["type"])


def test_the_sessions_row_at_its_end() -> None:
    session = golden_session().session
    assert session == SessionState(
        status="COMPLETED",
        profile="STRICT",
        relation="NONE",
        pinned=[
            "COMPRESSION_RULES", "HARNESS_BUILD", "POLICY", "PROMPT_TEMPLATE", "TOKENIZER", "TOOL_CATALOG",
            "VALIDATORS", "WORKFLOW",
        ],
        config_set_digest=session.config_set_digest,
    )  # fmt: skip
    assert session.config_set_digest is not None


def test_the_operations_rows_at_its_end() -> None:
    rows = golden_session().ops.rows
    calls = ("write.1/t1/c0", "write.1/t1/c1")
    assert rows == {
        ("MESSAGE", "m1"): OpState("KNOWN"),
        ("STAGE", "write.1"): OpState("DONE"),
        ("TURN", "write.1/t1"): OpState("DONE"),
        ("PACK", "write.1/t1/p"): OpState("KNOWN"),
        ("INFERENCE", "write.1/t1/i"): OpState("DONE", 2, digest_of("request-1"), mark="AGENT", listed=calls),
        ("TOOL", calls[0]): OpState("DONE", 1, digest_of("args-0"), mark="READ", safe=True),
        ("TOOL", calls[1]): OpState("DONE", 2, digest_of("args-1"), mark="WRITE", safe=True),
        ("DECISION", calls[0] + "/d"): OpState("KNOWN", ref=calls[0], mark="ALLOW"),
        ("DECISION", calls[1] + "/d"): OpState("KNOWN", ref=calls[1], mark="REQUIRE_APPROVAL"),
        ("APPROVAL", calls[1] + "/a1"): OpState("GRANTED", 0, digest_of("args-1"), ref=calls[1], mark="ONCE"),
        ("VALIDATION", "write.1/v"): OpState("DONE"),
    }


def test_its_records_are_a_chain_and_their_own_path() -> None:
    links = [event.link for event in golden_session().events]
    assert first_break(links) is None
    assert choose_path(links).hashes == tuple(link.hash for link in links)
    assert golden_session().records == golden_session().records
