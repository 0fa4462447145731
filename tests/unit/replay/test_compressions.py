"""Recorded compressions are reused where rule and items are the same, or made again: what each shows, and of whom."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import msgspec
import pytest

from dalsegno.model.records import Event
from dalsegno.orchestration import compression
from dalsegno.orchestration.documents import CompressionRule, Protected, Triggers
from dalsegno.orchestration.ports import Answer
from dalsegno.replay.compared import compare_run
from dalsegno.replay.session_replay import Asked, replay_session
from dalsegno.replay.strategy import Strategy
from decider_lab import Scene, stage
from rerun_lab import STOP, Same, again

TRIM = CompressionRule(id="trim", method="TRIM", when=Triggers(turns=0), protect=Protected(turns=0))
SUMMARY = CompressionRule(
    id="sum", method="SUMMARY", when=Triggers(turns=0), protect=Protected(turns=0), agent="judge", prompt="shorter"
)
K = "work.1/t2/k1"
RERUN = Strategy(inference="rerun", on_miss="stop")


def session(*rules: CompressionRule) -> list[Event]:
    found = Scene([stage(validators=["said"])], rules=rules)
    found.answer("", ("look", {"what": "a"}))
    found.run("work.1/t1/c0", "a long story " * 50)
    if rules[0].method == "SUMMARY":
        found.answer("a story", to=f"{K}/i")
    found.answer("done")
    assert found.events[-1].type == "SessionCompleted"
    assert found.body("CompressionCompleted")["compression_id"] == K
    return found.events


@pytest.fixture
def trimmed(monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    """Recorded by a build that trimmed with other words than this one."""
    recorded = session(TRIM)
    monkeypatch.setattr(compression, "note", lambda items: f"{len(items)} gone")
    return recorded


@pytest.mark.parametrize("mode", ["inference-skipping", "full", "simulation"])
def test_another_way_to_compress_shows_only_where_it_is_made_again(trimmed: list[Event], mode: str) -> None:
    reused = replay_session(Asked(trimmed, replace(STOP, mode=mode, compression="recorded")))
    assert (reused.verdict, reused.divergences) == ("EQUAL", [])
    assert reused.counts.reused == (mode != "inference-skipping")
    again = replay_session(Asked(trimmed, replace(STOP, mode=mode, compression="recompute")))
    first = again.divergences[0]
    assert (first.type, first.kind, first.subject) == ("CompressionCompleted", "CODE", K)
    assert {"/summary", "/output_digest"} <= {each.pointer for each in first.fields}
    assert again.counts.reused == 0
    # The check takes the context from the record; a run goes on with what it made.
    assert (again.diverged > 1) == (mode != "inference-skipping")
    assert reused.identity != again.identity


def test_another_rule_is_another_key_and_is_never_answered_by_what_was_recorded(trimmed: list[Event]) -> None:
    other = replace_rule(TRIM, protect=Protected(turns=0, tools=["put"]))
    found = again(trimmed, STOP, override=lambda pinned: msgspec.structs.replace(
        pinned, compression=msgspec.structs.replace(pinned.compression, rules=[other])
    ))  # fmt: skip
    made = next(event for event in found.events if event.type == "CompressionCompleted")
    assert b"gone" in made.body["summary"]["inline"]
    assert found.counts.reused == 0


def replace_rule(rule: CompressionRule, **fields: Any) -> CompressionRule:
    return msgspec.structs.replace(rule, **fields)


@pytest.mark.parametrize("how", ["recorded", "recompute"])
def test_a_model_is_asked_for_a_summary_again_only_where_it_is_made_again(
    how: Literal["recorded", "recompute"],
) -> None:
    recorded = session(SUMMARY)
    model = Same(recorded, {f"{K}/i": Answer(text="another story")})
    found = again(recorded, replace(RERUN, compression=how), ports=model.ports)
    asked = [request.inference_id for request in model.requests]
    assert asked == ["work.1/t1/i", *([f"{K}/i"] if how == "recompute" else []), "work.1/t2/i"]
    said = next(event.body["summary"]["inline"] for event in found.events if event.type == "CompressionCompleted")
    assert said == (b"a story" if how == "recorded" else b"another story")
    assert (compare_run(recorded, found.events).divergences == []) == (how == "recorded")
    assert found.counts.exact == 1 + (how == "recorded"), "the receipt, and what was said for the summary"


def test_a_summary_is_found_by_its_key_where_it_has_another_id() -> None:
    recorded = session(SUMMARY)
    elsewhere = [msgspec.structs.replace(event, body=renamed(event.body)) for event in recorded]
    found = again(elsewhere, STOP)
    assert found.ended
    assert next(e.body for e in found.events if e.type == "CompressionCompleted")["inference_id"] == f"{K}/i"
    assert (found.counts.missed, found.counts.inexact, list(found.left_over)) == (0, 0, [])
    unfound = again(elsewhere, replace(STOP, compression="recompute"))
    assert (unfound.ended, unfound.counts.missed) == (False, 1)


def renamed(value: Any) -> Any:
    """With another id for the compression wherever it stands."""
    if isinstance(value, dict):
        return {name: renamed(each) for name, each in value.items()}
    if isinstance(value, list):
        return [renamed(each) for each in value]
    return value.replace("/k1", "/k7") if isinstance(value, str) else value
