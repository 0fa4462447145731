"""Other documents in the place of pinned ones: what is taken of a file, and that what is the same is no change."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dalsegno.errors import InvalidDocument
from dalsegno.orchestration.configuration import configuration_of
from dalsegno.orchestration.documents import Configuration
from dalsegno.replay.changes import Changes
from workflow_lab import EXAMPLES, pinned


@pytest.fixture
def before() -> Configuration:
    return configuration_of({each.kind: each.content for each in pinned("triage")})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(EXAMPLES / "triage", tmp_path / "triage"))


def test_the_same_file_changes_nothing(before: Configuration, folder: Path) -> None:
    changes = Changes(workflow=folder / "workflow.yaml")
    assert changes.of(before) == []
    assert changes.override(before) == before
    assert changes.told(before) == ""
    assert changes
    assert not Changes()


def test_a_workflow_s_file_changes_the_documents_that_it_names_too(before: Configuration, folder: Path) -> None:
    policy = folder / "policy.yaml"
    policy.write_text("name: none\n")
    found = Changes(workflow=folder / "workflow.yaml").of(before)
    assert [each.kind for each in found] == ["POLICY"]


def test_a_model_is_another_workflow_document(before: Configuration) -> None:
    changes = Changes(model="larger")
    assert [each.kind for each in changes.of(before)] == ["WORKFLOW"]
    after = changes.override(before)
    assert {agent.model for agent in after.workflow.agents.values()} == {"larger"}
    assert after.digests["WORKFLOW"] != before.digests["WORKFLOW"]
    assert after.workflow.stages == before.workflow.stages


def test_a_policy_of_its_own_comes_before_the_workflow_s(before: Configuration, folder: Path) -> None:
    own = folder / "own.yaml"
    own.write_text("name: own\nrules: [{id: deny, decision: DENY, when: 'true'}]\n")
    changes = Changes(policy=own, workflow=folder / "workflow.yaml")
    assert [each.name for each in changes.of(before)] == ["own"]
    assert [rule.id for rule in changes.override(before).policy.rules] == ["deny"]
    assert changes.told(before).startswith("POLICY=")


def test_a_file_that_is_no_document_is_refused(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("rules: 7\n")
    with pytest.raises(InvalidDocument):
        Changes(policy=wrong)
