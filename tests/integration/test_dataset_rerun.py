"""Data sets of recorded answers against another provider's: two commands, for many sessions, on a real broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dalsegno.harness.past import history
from dalsegno.log.publisher import Publisher
from harness_cli import Cli
from harness_worker import World

pytestmark = pytest.mark.broker
WORKFLOW = """
name: poem
agents:
  poet: {provider: model, model: m, prompt: write}
stages:
  - {name: write, agent: poet, validators: [short]}
prompts: {write: "Write: {goal}"}
validators:
  - {name: short, predicate: "size(output) < 20"}
"""
GOALS = {"p-1": "a haiku", "p-2": "a limerick", "p-3": "a sonnet"}


def script(folder: Path, name: str, says: str) -> str:
    file = folder / f"{name}.yaml"
    file.write_text(f"- {{match: '*', text: '{says}'}}\n")
    return f"scripted:{file}"


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in folder.glob("*.jsonl") for line in file.read_text("utf-8").splitlines()]


def test_answers_of_another_provider_are_paired_with_the_recorded_ones(world: World, cli: Cli, tmp_path: Path) -> None:
    workflow = tmp_path / "poem.yaml"
    workflow.write_text(WORKFLOW)
    recorded, other = script(tmp_path, "recorded", "a poem"), script(tmp_path, "other", "another poem")
    for session, goal in GOALS.items():
        cli("run", workflow, "--goal", goal, "--session", session, "--provider", recorded)
    world.start()
    world.settle()
    with Publisher(world.config, prefix=world.prefix) as publisher:
        before = {session: [event.hash for event in history(publisher, session)] for session in GOALS}
        rerun = ("--mode", "full", "--workflow", "poem", "--inference", "rerun", "--provider", other)
        planned = cli("replay", "plan", *rerun).json
        assert {row["session"]: row["inferences"] for row in planned["sessions"]} == dict.fromkeys(GOALS, 1)
        results = cli("replay", "run", *rerun, code=3).json
        assert {each["session"]: each["rerun"] for each in results} == dict.fromkeys(GOALS, 1)
        assert {session: [event.hash for event in history(publisher, session)] for session in GOALS} == before
    world.settle()

    card = cli("dataset", "build", "--workflow", "poem", "--pairs", "rerun", "--output", tmp_path / "pairs").json
    pairs = rows_of(tmp_path / "pairs")
    assert (card["left_out"], len(pairs)) == ({}, len(GOALS))
    for pair in pairs:
        chosen, rejected = pair["provenance"]["chosen"], pair["provenance"]["rejected"]
        assert (pair["chosen"][-1]["content"], pair["rejected"][-1]["content"]) == ("a poem", "another poem")
        assert (chosen["origin"], rejected["origin"]) == ("recorded", "rerun")
        assert rejected["parent_session"] == chosen["session"]
    assert {pair["provenance"]["chosen"]["session"] for pair in pairs} == set(GOALS)
    both = cli("dataset", "build", "--workflow", "poem", "--output", tmp_path / "rows").json
    origins = sorted(row["provenance"]["origin"] for row in rows_of(tmp_path / "rows"))
    assert (both["left_out"], origins) == ({}, ["recorded"] * len(GOALS) + ["rerun"] * len(GOALS))
