"""Documents to pins and back: equal bytes are an equal configuration."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dalsegno.errors import InvalidDocument
from dalsegno.orchestration import cel
from dalsegno.orchestration.canonical import canonical
from dalsegno.orchestration.configuration import Loaded, configuration_of, documents, pins
from dalsegno.orchestration.documents import (
    KINDS,
    Agent,
    CompressionRules,
    HarnessBuild,
    Policy,
    PolicyRule,
    Prompts,
    Stage,
    Tokenizer,
    ToolCatalog,
    Transition,
    Validators,
    ValidatorSpec,
    Workflow,
)

BUILD = HarnessBuild(harness="dalsegno/0", decider=1, builder=1, cel_engine=cel.ENGINE)


def loaded(**changed: Any) -> Loaded:
    agent = Agent(provider="scripted", model="m", prompt="main", params={"temperature": 0.5, "seed": 2**60 + 1})
    workflow = Workflow(name="one", agents={"a": agent}, stages=[Stage(name="plan", agent="a")])
    whole: dict[str, Any] = {
        "workflow": workflow,
        "policy": Policy(),
        "compression": CompressionRules(),
        "tools": ToolCatalog(),
        "prompts": Prompts(templates={"main": "Do {goal}."}),
        "validators": Validators(),
        "tokenizer": Tokenizer(),
    }
    return Loaded(**{**whole, **changed})


def contents(what: Loaded) -> dict[str, bytes]:
    return {each.kind: each.content for each in documents(what, BUILD)}


def test_eight_documents_are_pinned_with_their_content_and_its_digest() -> None:
    events = pins(documents(loaded(), BUILD))
    assert [event.kind for event in events] == list(KINDS)
    for event in events:
        assert event.content is not None
        assert event.content.inline is not None
        assert event.digest == event.content.digest == sha256(event.content.inline).digest()
        assert event.effective == "NOW"


def test_what_was_pinned_reads_as_what_was_loaded() -> None:
    what = loaded()
    found = configuration_of(contents(what))
    assert (found.workflow, found.policy, found.prompts, found.build) == (
        what.workflow,
        what.policy,
        what.prompts,
        BUILD,
    )
    assert found.digests == {each.kind: each.digest for each in documents(what, BUILD)}


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_document_and_one_that_is_none_are_named(kind: str) -> None:
    whole = contents(loaded())
    with pytest.raises(InvalidDocument, match=f"no {kind} document"):
        configuration_of({other: content for other, content in whole.items() if other != kind})
    for damaged in (b"", b"[]", b'{"unheard_of":1}', b"\xff"):
        with pytest.raises(InvalidDocument, match=f"the {kind} document cannot be read"):
            configuration_of({**whole, kind: damaged})


@pytest.mark.parametrize(
    ("changed", "where"),
    [
        ({"policy": Policy(rules=[PolicyRule(id="r", decision="DENY", when="nope")])}, r"POLICY, rules\[0\].when"),
        (
            {"validators": Validators(validators=[ValidatorSpec(name="v", predicate="now()")])},
            r"VALIDATORS, validators\[0\].predicate",
        ),
        (
            {
                "workflow": msgspec.structs.replace(
                    loaded().workflow, transitions=[Transition(id="t", to="plan", when="x")]
                )
            },
            r"WORKFLOW, transitions\[0\].when",
        ),
    ],
)
def test_a_condition_that_was_pinned_and_is_not_taken_is_named(changed: Any, where: str) -> None:
    with pytest.raises(InvalidDocument, match=where):
        configuration_of(contents(loaded(**changed)))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@given(json_values, st.text(min_size=1), st.integers(0, 2**62))
def test_equal_bytes_are_an_equal_configuration(value: Any, text: str, number: int) -> None:
    agent = Agent(provider=text, model="m", prompt="main", params={"any": value, text: number})
    stage = Stage(name="plan", agent=text, tools=[text])
    what = loaded(
        workflow=Workflow(name=text, agents={text: agent}, stages=[stage]), prompts=Prompts(templates={text: text})
    )
    first = contents(what)
    found = configuration_of(first)
    again = contents(loaded(workflow=found.workflow, prompts=found.prompts))
    assert again == first
    assert configuration_of(again) == found


@given(json_values)
def test_canonical_json_stays_as_it_is_when_it_is_read_and_written_again(value: Any) -> None:
    written = canonical(value)
    assert canonical(msgspec.json.decode(written)) == written
    if isinstance(value, dict):
        assert canonical(dict(reversed(value.items()))) == written
