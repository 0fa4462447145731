"""A session told in a few lines."""

from __future__ import annotations

from dalsegno.cli.demo_story import MAX_LINES, tell
from dalsegno.importers.chain import chained
from dalsegno.log.codec import place
from dalsegno.log.schema_set import SchemaSet
from dalsegno.model.ids import partition_of
from dalsegno.model.records import Event
from dalsegno.testing.story import GOAL, story_records
from inspect_logs import BROWSER, needs_traces, sessions_of

SCHEMAS = SchemaSet.load()


def events_of(records: list[tuple[str, bytes, bytes]]) -> list[Event]:
    placed = [place(SCHEMAS, key, value, partition_of(session, 4), 4) for session, key, value in records]
    return [event for event in placed if isinstance(event, Event)]


def test_the_story_has_goal_stages_approval_and_verdict_in_at_most_fifteen_lines() -> None:
    lines = tell(events_of([(r.session_id, r.key, r.value) for r in story_records()]))
    assert len(lines) <= MAX_LINES
    assert lines[0] == f"goal      {GOAL}"
    assert [line for line in lines if line.startswith("stage")] == ["stage     investigate.1", "stage     repair.1"]
    text = "\n".join(lines)
    assert "change_database needs approval (rule ask-before-writes)" in text
    assert 'maria granted it after 4 min: "Checked with sales' in text
    assert "verdict   PASS by export-check" in text
    assert lines[-1].startswith("end       completed: The export runs again")


@needs_traces
def test_a_long_recording_is_shortened_in_its_middle_and_harmless_on_a_terminal() -> None:
    (session,) = sessions_of(BROWSER)
    records = [(session.session_id, r.key.encode(), r.value) for r in chained(session, SCHEMAS)]
    assert len(tell(events_of(records))) <= MAX_LINES
    lines = tell(events_of(records), max_lines=8)
    assert len(lines) == 8
    assert "more steps" in "\n".join(lines)
    assert lines[-2].startswith("verdict   PASS (C)")
    assert all(line.isprintable() and len(line) <= 96 for line in lines)
