"""Documents as people write them: what is read, and how each mistake is named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dalsegno.errors import InvalidDocument
from dalsegno.harness.files import load, load_policy
from dalsegno.orchestration import cel
from dalsegno.orchestration.authoring import load as read_text
from dalsegno.orchestration.configuration import Loaded, configuration_of, documents
from dalsegno.orchestration.documents import HarnessBuild, ToolSpec
from dalsegno.orchestration.yaml_text import MAX_BYTES, read_yaml

PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"
EXAMPLE = re.search(r"```yaml\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)[1]  # type: ignore[index]


def loaded(text: str, **files: str) -> Loaded:
    whole = {"w.yaml": text, **{f"{name}.yaml": content for name, content in files.items()}}
    return read_text("w.yaml", lambda name: whole[name].encode())


def test_the_example_of_the_page_loads_and_is_pinned() -> None:
    found = loaded(EXAMPLE)
    assert [stage.name for stage in found.workflow.stages] == ["look", "act"]
    assert found.policy.rules[1].approval is not None
    build = HarnessBuild(harness="x", decider=1, builder=1, cel_engine=cel.ENGINE)
    again = configuration_of({each.kind: each.content for each in documents(found, build)})
    assert again.workflow == found.workflow
    assert again.policy == found.policy


def test_parts_may_stand_in_files_beside_the_workflow(tmp_path: Path) -> None:
    policy = "name: other\ndefault: DENY\n"
    (tmp_path / "policy.yaml").write_text(policy, "utf-8")
    head, rest = EXAMPLE.split("policy:\n")
    text = head + "policy: policy.yaml\ncompression:\n" + rest.split("compression:\n")[1]
    (tmp_path / "w.yaml").write_text(text, "utf-8")
    assert load(tmp_path / "w.yaml").policy == load_policy(tmp_path / "policy.yaml")
    (tmp_path / "policy.yaml").write_text("default: DANY\n", "utf-8")
    with pytest.raises(
        InvalidDocument, match=r"^policy.yaml, line 1, column 1, default: 'DANY' \(a text\); wanted: DENY"
    ):
        load(tmp_path / "w.yaml")
    with pytest.raises(InvalidDocument, match=r"nowhere\.yaml: No such file"):
        load(tmp_path / "nowhere.yaml")


def test_a_program_adds_the_tools_that_it_declares() -> None:
    text = EXAMPLE.replace("tools: [search]", "tools: [search, mine]")
    with pytest.raises(InvalidDocument, match=r"there is no tool 'mine'; wanted: .*; declare it, or give --tools"):
        loaded(text)
    found = read_text("w.yaml", lambda _: text.encode(), tools=[ToolSpec(name="mine")])
    assert [tool.name for tool in found.tools.tools] == ["search", "refund", "mine"]


MISTAKES = [
    # what is changed, into what; where; what was found; what was wanted
    ("depends_on:", "depend_on:", "line 19, column 5, stages[1].depend_on: there is no such key", "depends_on"),
    ("result: act", "polizy: {}\nresult: act", "polizy: there is no such key", "policy"),
    ("name: triage\n", "", "name: the key is missing", "name: a text"),
    ('version: "2"', "version: 2", "line 2, column 1, version: 2 (a whole number)", "a text; quote it"),
    (
        "budget_tokens: 8000",
        "budget_tokens: lots",
        "stages[0].context.budget_tokens: 'lots' (a text)",
        "a whole number",
    ),
    ("decision: MODIFY", "decision: MODIFIED", "policy.rules[0].decision: 'MODIFIED' (a text)", "MODIFY"),
    ("limits: {turns: 4", "limits: {turns: 0", "stages[0].limits.turns: 0", "at least 1"),
    ("history: stage", "history: stages", "stages[0].context.history", "stage"),
    ("    agent: worker\n    context", "    agent: workr\n    context", "there is no agent 'workr'", "worker"),
    ("[support], [lead]", "[], [], [], [], [], [], [], [], []", "to: 9 of them", "at most 8"),
    ("[support], [lead]", f"[{', '.join(f'p{n}' for n in range(17))}], [lead]", "17 of them", "at most 16"),
    ("tools: [search, refund]", "tools: [search, refnd]", "stages[1].tools[1]: there is no tool 'refnd'", "refund"),
    ("validators: [short, polite]", "validators: [shorts]", "there is no validator 'shorts'", "short"),
    ("prompt: main                  #", "prompt: mian   #", "agents.worker.prompt: there is no prompt 'mian'", "main"),
    ("depends_on: [look]", "depends_on: [lok]", "stages[1].depends_on[0]: there is no stage 'lok'", "look"),
    ("depends_on: [look]", "depends_on: [act]", "'act' depends on itself", "no circle"),
    ("result: act", "result: acts", "result: there is no stage 'acts'", "act"),
    ("    to: act", "    to: look", "no transition leads from the start to 'act'", "a transition to it"),
    ("to: look}", "to: act}", "no transition leads from the start to 'look'", "a transition to it"),
    ("{id: begin, to: look}", "{id: begin, from: act, to: look}", "no transition from the start", "one without 'from'"),
    (
        "stage.output.contains",
        "stage.labels.all(k, true) && stage.output.contains",
        "transitions[1].when: 'all' stands",
        "",
    ),
    ("call.tool ==", "cal.tool ==", "policy.rules[0].when: the expression uses 'cal'", "call"),
    ("      merge: {amount: 500}", "      explanation: x", "policy.rules[0].merge: no merge", "a merge patch"),
    ("[support], [lead]", "[support]", "ESCALATE, with nobody to escalate to", "two steps"),
    (
        "default: ALLOW",
        "default: DENY\n  default_approval: {}",
        "policy.default_approval: an approval",
        "REQUIRE_APPROVAL",
    ),
    ("method: MASK", "method: SUMMARY", "compression.rules[0].agent: no agent", "agent and prompt for SUMMARY"),
    ("when: {tokens: 6000, overflow: true}", "when: {}", "compression.rules[0].when: no trigger", "tokens"),
    ("tools: [refund]}", "tools: [refunds]}", "protect.tools[0]: there is no tool 'refunds'", "refund"),
    ("parameters: {type: object", "parameters: {type: objects", "tools[0].parameters.type", "a JSON Schema"),
    ("name: refund, effect", "name: search, effect", "tools[1].name: 'search' stands twice", "a name of its own"),
    ("name: refund,", "name: re/fund,", "the name 're/fund'", "letters, digits"),
    ("{goal}", "{gaol}", "prompts.main: the placeholder {gaol}", "goal"),
    ("{goal}", "{ goal}", "prompts.main: a single {", "{{ or }} for a brace that is shown"),
    ("{goal}", "{{goal}", "prompts.main: a single }", "{{ or }} for a brace that is shown"),
    ("agent: judge, ", "", "validators[1]: nothing that judges", "one of schema"),
    ('predicate: "', 'reporter: x, predicate: "', "validators[0]: predicate and reporter", "one of schema"),
    ("agent: judge, prompt: main", "agent: judge", "only one of agent and prompt", "both"),
    ("size(output) <", "size(ouput) <", "validators[0].predicate: the expression uses 'ouput'", "output"),
    ("result: act", "tokenizer: {name: cl100k}\nresult: act", "the tokenizer 'cl100k'", "bytes/4"),
]


@pytest.mark.parametrize(("old", "new", "found", "wanted"), MISTAKES, ids=[found[:40] for _, _, found, _ in MISTAKES])
def test_a_mistake_is_named_with_its_place_and_what_was_wanted(old: str, new: str, found: str, wanted: str) -> None:
    assert old in EXAMPLE
    with pytest.raises(InvalidDocument) as caught:
        loaded(EXAMPLE.replace(old, new, 1))
    assert re.match(r"w\.yaml, line [0-9]+, column [0-9]+", caught.value.found)
    assert found in caught.value.found
    assert wanted in caught.value.wanted
    key = re.sub(r"\[[0-9]+\]", "", caught.value.data["key"]).rpartition(".")[2]
    if f"{key}:" in new:
        assert f"{key}:" in EXAMPLE.replace(old, new, 1).splitlines()[caught.value.data["line"] - 1]


def test_a_whole_file_taken_for_a_document_is_not_repeated() -> None:
    with pytest.raises(InvalidDocument) as caught:
        loaded("secret " * 100)
    assert caught.value.found.endswith("(a text of 699 characters)")
    assert len(caught.value.found) < 160


SURPRISES = [
    ("a: no", "line 1, column 4, a: 'no', which"),
    ("a: 0o17", "'0o17', which"),
    ("a: 017", "'017', which"),
    ("a: 0x1F", "'0x1F', which"),
    ("a: 1_000", "'1_000', which"),
    ("a: 2026-01-01", "'2026-01-01', which"),
    ("a: 12:30", "'12:30', which"),
    ("a: True", "'True', which"),
    ("a: .inf", "'.inf', which"),
    ("a: 99999999999999999999", "the number 99999999999999999999"),
    ("a: 1\nb: &x 2", "line 2, column 4: an anchor"),
    ("<<: {a: 1}", "a merge key"),
    ("a: !!python/name:os.system x", "the tag tag:yaml.org,2002:python/name:os.system"),
    ("a: 1\nb: 2\na: 3", "line 3, column 1, a: the key stands twice"),
    ("1: 2", "the key '1'"),
    ("? [a]\n: 1", "a key that is no text"),
    ("a: [", "line 1, column 5: expected the node content"),
    ("---\na: 1\n---\na: 1", "line 3, column 1"),
    ("", "the file holds nothing"),
    ("a: \x07", "the character"),
    ("[" * 100, "nested too deep"),
    ("a" * (MAX_BYTES + 1), "the file has"),
]


@pytest.mark.parametrize(("text", "found"), SURPRISES, ids=[found[:30] for _, found in SURPRISES])
def test_surprises_of_yaml_are_refused(text: str, found: str) -> None:
    with pytest.raises(InvalidDocument) as caught:
        read_yaml(text.encode(), "f.yaml")
    assert found in caught.value.found


def test_a_file_that_is_no_utf_8_is_refused_at_its_line() -> None:
    with pytest.raises(InvalidDocument, match=r"f\.yaml, line 2"):
        read_yaml(b"a: 1\nb: \xff", "f.yaml")


def test_plain_values_are_those_of_json_and_keys_know_their_place() -> None:
    found = read_yaml(b'a: [1, -2.5, true, null, ~, "no", v1.2]\nb:\n  c: |\n    text\n', "f.yaml")
    assert found.value == {"a": [1, -2.5, True, None, None, "no", "v1.2"], "b": {"c": "text\n"}}
    assert found.places[("b", "c")] == (3, 3)
    assert found.places[("a", 1)] == (1, 8)
