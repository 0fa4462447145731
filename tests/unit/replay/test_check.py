"""Checking decisions against their recording: all equal as it is; each changed thing found where it was put in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dalsegno.errors import NotReconstructable
from dalsegno.model.records import Event
from dalsegno.orchestration import policy
from dalsegno.orchestration.decider import MemoryContents
from dalsegno.orchestration.documents import CompressionRule, Configuration, Policy, PolicyRule, Prompts, Triggers
from dalsegno.orchestration.policy import PolicyOutcome
from dalsegno.replay.check import Checked, Checker, check
from dalsegno.replay.divergence import ABSENT
from dalsegno.replay.subjects import FIELD
from decider_lab import TEMPLATES, Scene, stage
from workflow_lab import CODING, TRIAGE, Example, Run

DENY_WRITES = Policy(rules=[PolicyRule(id="no", decision="DENY", when='call.tool == "write"')])
DIGESTS = frozenset({"/policy_digest"})


def scene(**given: Any) -> Scene:
    """Two turns: one that looks and writes, one that ends the work."""
    found = Scene([stage(validators=["said"])], **given)
    found.answer("", ("look", {"what": "a"}), ("write", {"n": 1}))
    found.run("work.1/t1/c0")
    found.run("work.1/t1/c1")
    found.answer("done")
    assert found.events[-1].type == "SessionCompleted"
    return found


def crashed() -> Scene:
    """The writer dies while a tool that may be run again is under way."""
    found = Scene([stage(validators=["said"])])
    found.answer("", ("look", {"what": "a"}), ("write", {"n": 1}))
    found.start("work.1/t1/c0")
    found.recover()
    found.run("work.1/t1/c0")
    found.run("work.1/t1/c1")
    found.answer("done")
    assert found.events[-1].type == "SessionCompleted"
    return found


def seq_of(events: Sequence[Event], type_: str, **fields: Any) -> int:
    return next(
        event.seq
        for event in events
        if event.type == type_ and all(event.body[name] == value for name, value in fields.items())
    )


def decisions(events: Sequence[Event]) -> int:
    return sum(event.type in FIELD for event in events)


def altered(events: Sequence[Event], seq: int, change: Callable[[dict[str, Any]], None]) -> list[Event]:
    """The recording, with another body at that seq."""
    found = list(events)
    body = deepcopy(found[seq - 1].body)
    change(body)
    found[seq - 1] = msgspec.structs.replace(found[seq - 1], body=body)
    return found


def checked(events: Sequence[Event], **given: Any) -> Checked:
    return check(events, Checker(**given))


@pytest.mark.parametrize("make", [scene, crashed])
def test_every_decision_of_a_recording_is_the_one_that_was_due(make: Callable[[], Scene]) -> None:
    events = make().events
    found = checked(events)
    assert (found.compared, found.equal, found.diverged) == (decisions(events), decisions(events), 0)
    assert (found.events, found.head_seq, found.head_hash) == (len(events), events[-1].seq, events[-1].hash)
    assert found.unreconstructable is None
    assert not found.not_comparable
    assert found.what_if == []


@pytest.mark.parametrize("example", [TRIAGE, CODING], ids=lambda each: each.name)
def test_so_is_every_decision_of_the_examples(
    example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(example, tmp_path / "work", monkeypatch)
    assert run.to_its_end().why == "ENDED"
    events = run.recorded()
    found = checked(events)
    assert (found.compared, found.diverged) == (decisions(events), 0)
    assert found.compared > 40


def test_another_policy_is_found_at_the_first_call_that_it_decides_otherwise_and_nothing_cascades() -> None:
    events = scene().events
    found = checked(events, override=lambda pinned: msgspec.structs.replace(pinned, policy=DENY_WRITES), ignore=DIGESTS)
    assert found.first is not None
    assert found.first.seq == seq_of(events, "PolicyEvaluated", decision_id="work.1/t1/c1/d1")
    assert (found.first.type, found.first.event_class, found.first.kind) == ("PolicyEvaluated", "D", "CONFIG")
    differing = {each.pointer: (each.expected, each.actual) for each in found.first.fields}
    assert differing["/decision"] == ("ALLOW", "DENY")
    # Each is decided from what was recorded: the call that ran still ran, and what came behind it is as it was.
    assert found.diverged == len(found.divergences)
    assert found.equal == found.compared - found.diverged
    assert found.equal > found.compared // 2


def test_a_prompt_that_the_code_makes_otherwise_is_prompt_drift_at_the_first_pack() -> None:
    events = scene().events
    prompts = Prompts(templates={**TEMPLATES, "main": "You now work on {goal}."})
    pack = altered(
        events,
        seq_of(events, "ContextPackBuilt", pack_id="work.1/t1/p"),
        lambda body: body.update(request_digest=b"\1" * 32),
    )
    drifted = checked(pack)
    assert drifted.first is not None
    assert (drifted.first.type, drifted.first.kind) == ("ContextPackBuilt", "PROMPT_DRIFT")
    assert [each.pointer for each in drifted.first.fields] == ["/request_digest"]
    # By a document it is the configuration.
    other = checked(events, override=lambda pinned: msgspec.structs.replace(pinned, prompts=prompts))
    assert other.first is not None
    assert other.first.seq == seq_of(events, "ContextPackBuilt", pack_id="work.1/t1/p")
    assert other.first.kind == "CONFIG"


def test_another_workflow_is_found_where_it_first_decides_otherwise() -> None:
    events = scene().events

    def without_validator(pinned: Configuration) -> Configuration:
        stages = [msgspec.structs.replace(each, validators=[]) for each in pinned.workflow.stages]
        return msgspec.structs.replace(pinned, workflow=msgspec.structs.replace(pinned.workflow, stages=stages))

    found = checked(events, override=without_validator)
    assert found.first is not None
    assert (found.first.seq, found.first.type) == (seq_of(events, "ValidationRequested"), "ValidationRequested")
    assert found.first.because == "StageCompleted of work.1 was due"


def test_another_decider_is_found_where_it_decides_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    events = scene().events
    evaluated = policy.evaluate

    def stricter(*given: Any, **named: Any) -> PolicyOutcome:
        return replace(evaluated(*given, **named), decision="DENY")

    monkeypatch.setattr(policy, "evaluate", stricter)
    found = checked(events)
    assert found.first is not None
    assert (found.first.seq, found.first.type) == (seq_of(events, "PolicyEvaluated"), "PolicyEvaluated")
    assert found.first.kind == "CODE"


def test_what_is_no_decision_of_this_place_is_out_of_order_and_what_is_missing_is_named() -> None:
    events = scene().events
    at = seq_of(events, "TurnCompleted")
    without = [event for event in events if event.seq != at]
    found = checked(without)
    assert found.first is not None
    assert found.first.seq == at + 1
    assert found.first.kind == "CODE"
    assert found.first.because == "TurnCompleted of work.1/t1 was due"
    receipt = seq_of(events, "ToolReceiptRecorded", tool_call_id="work.1/t1/c1")
    early = [event for event in events if event.seq != receipt]
    found = checked(early)
    assert found.first is not None
    assert (found.first.seq, found.first.kind, found.first.because) == (receipt + 1, "ORDER", "nothing was due")
    assert found.first.fields[0].actual is ABSENT


def test_a_fact_before_which_something_was_due_is_a_missing_record() -> None:
    events = scene().events
    asked = seq_of(events, "InferenceRequested", inference_id="work.1/t1/i")
    found = checked([event for event in events if event.seq != asked])
    assert found.first is not None
    assert (found.first.seq, found.first.type, found.first.kind) == (asked + 1, "InferenceCompleted", "MISSING_RECORD")
    assert found.first.because == "InferenceRequested of work.1/t1/i was due before it"


def test_only_decisions_from_a_seq_on_are_compared_and_only_up_to_one() -> None:
    events = scene().events
    first = seq_of(events, "TurnStarted", turn_id="work.1/t2")
    assert checked(events, first_seq=first).compared == decisions(events[first - 1 :])
    assert check(events, Checker(), until=first).compared == decisions(events[:first])


def test_more_divergences_than_are_kept_are_counted() -> None:
    events = scene().events
    prompts = Prompts(templates={**TEMPLATES, "main": "Other."})
    found = checked(events, override=lambda pinned: msgspec.structs.replace(pinned, prompts=prompts), keep=1)
    assert len(found.divergences) == 1
    assert found.diverged > 1


# --- what cannot be reconstructed -------------------------------------------------------------------------------------


def test_from_an_amended_event_on_nothing_can_be_reconstructed() -> None:
    events = scene().events
    at = seq_of(events, "ToolReceiptRecorded")
    stubbed = [msgspec.structs.replace(event, stub="ERASED") if event.seq == at else event for event in events]
    found = checked(stubbed)
    assert found.unreconstructable == (at, f"the ToolReceiptRecorded at seq {at} was erased")
    assert found.compared == decisions(events[: at - 1])
    assert sum(found.not_comparable.values()) == decisions(events[at:])
    assert found.diverged == 0


def test_from_a_compression_that_says_only_that_it_happened_on_nothing_can_be_reconstructed() -> None:
    rules = [CompressionRule(id="trim", method="TRIM", when=Triggers(turns=1))]
    found = Scene([stage(validators=["said"])], rules=rules)
    found.answer("", ("look", {"what": "a"}))
    found.run("work.1/t1/c0")
    found.answer("", ("look", {"what": "b"}))
    found.run("work.1/t2/c0")
    found.answer("done")
    at = seq_of(found.events, "CompressionCompleted")
    assert checked(found.events).diverged == 0
    result = checked(altered(found.events, at, lambda body: body.update(effect="MARKER_ONLY")))
    assert result.unreconstructable == (at, f"the compression at seq {at} says only that it happened")
    assert result.diverged == 0
    assert sum(result.not_comparable.values()) == decisions(found.events[at - 1 :])


def test_without_its_configuration_no_decision_can_be_reconstructed() -> None:
    events = scene().events
    pin = next(event for event in events if event.type == "ConfigPinned" and event.body["kind"] == "POLICY")
    found = checked([event for event in events if event is not pin])
    assert found.unreconstructable is not None
    assert found.unreconstructable[1] == "no POLICY document was pinned"
    assert found.compared == 0
    assert found.not_comparable["no POLICY document was pinned"] == decisions(events)


class Empty(MemoryContents):
    """A store that has lost what it was given."""

    def keep(self, digest: bytes, content: bytes) -> None:
        pass


def test_a_content_that_is_missing_is_said_and_never_guessed() -> None:
    found = checked(scene().events, contents=Empty())
    assert found.unreconstructable is not None
    assert found.diverged == 0
    assert found.compared == found.equal
    assert sum(found.not_comparable.values()) + found.compared == decisions(scene().events)
    with pytest.raises(NotReconstructable):
        Empty().get(b"\0" * 32)


# --- identity ---------------------------------------------------------------------------------------------------------


def test_equal_identity_follows_from_head_configuration_and_strategy_alone() -> None:
    one, same, other = checked(scene().events), checked(scene().events), checked(crashed().events)
    assert one.identity("s") == same.identity("s")
    assert one.identity("s") != one.identity("t")
    assert one.identity("s") != other.identity("s")
    changed = checked(scene(policy=[PolicyRule(id="a", decision="ALLOW", when="true")]).events)
    changed.head_hash = one.head_hash
    assert one.identity("s") != changed.identity("s")


def test_only_what_a_fork_pins_first_may_stand_before_what_is_due() -> None:
    events = scene().events
    pin = next(event for event in events if event.type == "ConfigPinned")
    begun = next(place for place, event in enumerate(events, 1) if event.type == "SessionStarted")
    found = check([*events[:begun], pin, *events[begun:]])
    assert [(each.type, each.kind) for each in found.divergences] == [("ConfigPinned", "MISSING_RECORD")]
