"""What documents must satisfy together, beyond the shape of each. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import jsonschema

from dalsegno.errors import InvalidDocument
from dalsegno.model.naming import likely
from dalsegno.orchestration import cel
from dalsegno.orchestration.configuration import Loaded
from dalsegno.orchestration.documents import Obligation, Policy, Stage, Workflow
from dalsegno.orchestration.policy import GUARD_INPUTS, POLICY_INPUTS
from dalsegno.orchestration.validation import predicate
from dalsegno.orchestration.yaml_text import Path
from dalsegno.projections.decider.rows import ASKED_IN_STEP, LISTED, STEPS

PLACEHOLDERS: Final = ("goal", "session", "stage", "clock_start")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_BRACES = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_]*)\}|[{}]")


@dataclass(frozen=True)
class Problem:
    """``document``: workflow, policy, compression, tools, prompts, validators or tokenizer; ``path`` within it."""

    document: str
    path: Path
    found: str
    wanted: str


def problems(loaded: Loaded) -> Iterator[Problem]:
    """What is named before what names it."""
    yield from _tools(loaded)
    yield from _prompts(loaded)
    yield from _validators(loaded)
    yield from policy_problems(loaded.policy)
    yield from _compression(loaded)
    yield from _workflow(loaded)
    yield from _paths(loaded.workflow)
    if loaded.tokenizer.name != "bytes/4":
        yield Problem("tokenizer", ("name",), f"the tokenizer {loaded.tokenizer.name!r}", "bytes/4")


# --- workflow ---------------------------------------------------------------------------------------------------------


def _workflow(loaded: Loaded) -> Iterator[Problem]:
    workflow = loaded.workflow
    if not workflow.stages:
        yield Problem("workflow", ("stages",), "no stage", "at least one")
    yield from _names("workflow", ("stages",), "name", [each.name for each in workflow.stages])
    yield from _names("workflow", ("transitions",), "id", [each.id for each in workflow.transitions])
    for name, agent in workflow.agents.items():
        yield from _known("workflow", ("agents", name, "prompt"), "prompt", agent.prompt, loaded.prompts.templates)
    stages = [each.name for each in workflow.stages]
    for number, stage in enumerate(workflow.stages):
        yield from _stage(loaded, stage, ("stages", number), stages)
    for number, transition in enumerate(workflow.transitions):
        at: Path = ("transitions", number)
        yield from _known("workflow", (*at, "to"), "stage", transition.to, stages)
        if transition.source is not None:
            yield from _known("workflow", (*at, "from"), "stage", transition.source, stages)
        if transition.when is not None:
            yield from _compiles("workflow", (*at, "when"), transition.when, GUARD_INPUTS)
    if workflow.result is not None:
        yield from _known("workflow", ("result",), "stage", workflow.result, stages)
    yield from _positive("workflow", ("limits",), workflow.limits)


def _stage(loaded: Loaded, stage: Stage, at: Path, stages: Sequence[str]) -> Iterator[Problem]:
    yield from _known("workflow", (*at, "agent"), "agent", stage.agent, loaded.workflow.agents)
    tools = [each.name for each in loaded.tools.tools]
    validators = [each.name for each in loaded.validators.validators]
    for key, kind, used, known in (
        ("tools", "tool", stage.tools, tools),
        ("validators", "validator", stage.validators, validators),
        ("depends_on", "stage", stage.depends_on, stages),
    ):
        for number, name in enumerate(used):
            yield from _known("workflow", (*at, key, number), kind, name, known)
            if name in used[:number]:
                yield Problem("workflow", (*at, key, number), f"{name!r} stands twice", "it once")
    yield from _names("workflow", (*at, "retrieve"), "id", [each.id for each in stage.retrieve])
    yield from _names("workflow", (*at, "ask"), "id", [each.id for each in stage.ask])
    yield from _most("workflow", (*at, "validators"), stage.validators, LISTED)
    yield from _most("workflow", (*at, "ask"), [*stage.retrieve, *stage.ask], LISTED)
    for number, question in enumerate(stage.ask):
        yield from _schema("workflow", (*at, "ask", number, "schema"), question.schema)
        yield from _positive("workflow", (*at, "ask", number), question)
    yield from _positive("workflow", (*at, "limits"), stage.limits)
    yield from _positive("workflow", (*at, "context"), stage.context)


def _paths(workflow: Workflow) -> Iterator[Problem]:
    """Every stage can be come to, with what it depends on completed before."""
    names = [each.name for each in workflow.stages]
    if len(set(names)) < len(names):
        return
    edges = [(each.source, each.to) for each in workflow.transitions] or list(zip([None, *names], names, strict=False))
    if workflow.transitions and not any(source is None for source, _ in edges):
        yield Problem("workflow", ("transitions",), "no transition from the start", "one without 'from'")
        return
    from_start = _reached(None, edges)
    depends = {stage.name: stage.depends_on for stage in workflow.stages}
    for number, stage in enumerate(workflow.stages):
        at: Path = ("stages", number, "depends_on")
        if stage.name in _reached(stage.name, [(a, b) for a, needed in depends.items() for b in needed]):
            yield Problem("workflow", at, f"{stage.name!r} depends on itself", "no circle of stages")
        elif stage.name not in from_start:
            found = f"no transition leads from the start to {stage.name!r}"
            yield Problem("workflow", ("stages", number, "name"), found, "a transition to it, or no such stage")
        else:
            for needed in stage.depends_on:
                if stage.name not in _reached(needed, edges):
                    found = f"{needed!r} can never be completed before {stage.name!r}"
                    yield Problem("workflow", at, found, f"transitions that lead from {needed!r} to {stage.name!r}")
    for number, transition in enumerate(workflow.transitions):
        if transition.source is None and depends.get(transition.to):
            found = f"{transition.to!r} depends on {depends[transition.to][0]!r}, and at the start nothing is completed"
            yield Problem("workflow", ("transitions", number, "to"), found, "a stage that depends on none")


def _reached(start: str | None, edges: Iterable[tuple[str | None, str]]) -> set[str]:
    edges = list(edges)
    found: set[str] = set()
    next_ = [start]
    while next_:
        here = next_.pop()
        further = {to for source, to in edges if source == here} - found
        found |= further
        next_ += further
    return found


# --- the others -------------------------------------------------------------------------------------------------------


def policy_problems(policy: Policy) -> Iterator[Problem]:
    yield from _names("policy", ("rules",), "id", [each.id for each in policy.rules])
    for number, rule in enumerate(policy.rules):
        at: Path = ("rules", number)
        yield from _compiles("policy", (*at, "when"), rule.when, POLICY_INPUTS)
        if (rule.merge is None) == (rule.decision == "MODIFY"):
            found = "no merge" if rule.merge is None else f"a merge, for the decision {rule.decision}"
            yield Problem("policy", (*at, "merge"), found, "a merge patch of the arguments for MODIFY, and only there")
        if rule.approval is not None and rule.decision != "REQUIRE_APPROVAL":
            found = f"an approval, for the decision {rule.decision}"
            yield Problem("policy", (*at, "approval"), found, "it for REQUIRE_APPROVAL only")
        yield from _obligation((*at, "approval"), rule.approval)
    if policy.default_approval is not None and policy.default != "REQUIRE_APPROVAL":
        found = f"an approval, for the default {policy.default}"
        yield Problem("policy", ("default_approval",), found, "it for REQUIRE_APPROVAL only")
    yield from _obligation(("default_approval",), policy.default_approval)


def _obligation(at: Path, duty: Obligation | None) -> Iterator[Problem]:
    if duty is None:
        return
    yield from _positive("policy", at, duty)
    yield from _most("policy", (*at, "to"), duty.to, STEPS)
    for number, step in enumerate(duty.to):
        yield from _most("policy", (*at, "to", number), step, ASKED_IN_STEP)
    if duty.on_expiry == "ESCALATE" and len(duty.to) < 2:
        yield Problem("policy", (*at, "on_expiry"), "ESCALATE, with nobody to escalate to", "two steps in 'to'")
    if duty.on_expiry == "ESCALATE" and duty.ttl_seconds is None:
        yield Problem("policy", (*at, "on_expiry"), "ESCALATE, without a time", "ttl_seconds")


def _compression(loaded: Loaded) -> Iterator[Problem]:
    rules = loaded.compression.rules
    yield from _names("compression", ("rules",), "id", [each.id for each in rules])
    yield from _most("compression", ("rules",), rules, LISTED)
    for number, rule in enumerate(rules):
        at: Path = ("rules", number)
        for key, value in (("agent", rule.agent), ("prompt", rule.prompt)):
            if (value is None) == (rule.method == "SUMMARY"):
                found = f"no {key}" if value is None else f"the {key} {value!r}, for the method {rule.method}"
                yield Problem("compression", (*at, key), found, "agent and prompt for SUMMARY, and only there")
        if rule.agent is not None:
            yield from _known("compression", (*at, "agent"), "agent", rule.agent, loaded.workflow.agents)
        if rule.prompt is not None:
            yield from _known("compression", (*at, "prompt"), "prompt", rule.prompt, loaded.prompts.templates)
        when = rule.when
        if when.tokens is None and when.turns is None and not when.stage_boundary and not when.overflow:
            yield Problem("compression", (*at, "when"), "no trigger", "tokens, turns, stage_boundary or overflow")
        yield from _positive("compression", (*at, "when"), when)
        for index, name in enumerate(rule.protect.tools):
            path = (*at, "protect", "tools", index)
            yield from _known("compression", path, "tool", name, [each.name for each in loaded.tools.tools])


def _tools(loaded: Loaded) -> Iterator[Problem]:
    tools = loaded.tools.tools
    yield from _names("tools", ("tools",), "name", [each.name for each in tools])
    for number, tool in enumerate(tools):
        yield from _schema("tools", ("tools", number, "parameters"), tool.parameters)
        yield from _positive("tools", ("tools", number), tool)


def _prompts(loaded: Loaded) -> Iterator[Problem]:
    for name, template in loaded.prompts.templates.items():
        for match in _BRACES.finditer(template):
            if match[0] in ("{", "}"):
                wanted = "{{ or }} for a brace that is shown, or {name} with a name that is filled in: "
                found = f"a single {match[0]} at character {match.start() + 1} of the text"
                yield Problem("prompts", ("templates", name), found, wanted + ", ".join(PLACEHOLDERS))
            elif match[1] is not None and match[1] not in PLACEHOLDERS:
                found = f"the placeholder {{{match[1]}}}"
                wanted = f"{likely(match[1], PLACEHOLDERS)}; braces that are none are written {{{{ and }}}}"
                yield Problem("prompts", ("templates", name), found, wanted)


def _validators(loaded: Loaded) -> Iterator[Problem]:
    validators = loaded.validators.validators
    yield from _names("validators", ("validators",), "name", [each.name for each in validators])
    for number, spec in enumerate(validators):
        at: Path = ("validators", number)
        kinds = {"schema": spec.schema, "predicate": spec.predicate, "agent": spec.agent, "reporter": spec.reporter}
        given = [key for key, value in kinds.items() if value is not None]
        if len(given) != 1:
            yield Problem("validators", at, " and ".join(given) or "nothing that judges", f"one of {', '.join(kinds)}")
        yield from _schema("validators", (*at, "schema"), spec.schema)
        if spec.predicate is not None:
            try:
                predicate(spec.predicate, where="")
            except InvalidDocument as error:
                yield _of(error, "validators", (*at, "predicate"))
        if (spec.agent is None) != (spec.prompt is None):
            yield Problem(
                "validators", (*at, "prompt"), "only one of agent and prompt", "both, for a model that judges"
            )
        if spec.agent is not None:
            yield from _known("validators", (*at, "agent"), "agent", spec.agent, loaded.workflow.agents)
        if spec.prompt is not None:
            yield from _known("validators", (*at, "prompt"), "prompt", spec.prompt, loaded.prompts.templates)


# --- what they share --------------------------------------------------------------------------------------------------


def _names(document: str, at: Path, key: str, names: Sequence[str]) -> Iterator[Problem]:
    """Names are parts of domain ids, which are paths, and tools' names are told to models."""
    for number, name in enumerate(names):
        path = (*at, number, key)
        if not _NAME.fullmatch(name):
            yield Problem(document, path, f"the name {name!r}", "letters, digits, - and _, at most 64")
        if name in names[:number]:
            yield Problem(document, path, f"{name!r} stands twice", "a name of its own")


def _most(document: str, path: Path, members: Sequence[Any], most: int) -> Iterator[Problem]:
    """What a decision remembers of a list is bounded."""
    if len(members) > most:
        yield Problem(document, path, f"{len(members)} of them", f"at most {most}")


def _known(document: str, path: Path, kind: str, name: str, known: Iterable[str]) -> Iterator[Problem]:
    names = list(known)
    if name not in names:
        wanted = likely(name, names) or f"a {kind}: there is none"
        if kind == "tool":  # the only ones that also come from outside of the documents
            wanted += "; declare it, or give --tools (in Python load(..., tools=...))"
        yield Problem(document, path, f"there is no {kind} {name!r}", wanted)


def _compiles(document: str, path: Path, text: str, inputs: cel.Inputs) -> Iterator[Problem]:
    try:
        cel.compile(text, inputs, where="")
    except InvalidDocument as error:
        yield _of(error, document, path)


def _of(error: InvalidDocument, document: str, path: Path) -> Problem:
    return Problem(document, path, error.found.removeprefix(": "), error.wanted)


def _schema(document: str, path: Path, schema: Mapping[str, Any] | None) -> Iterator[Problem]:
    if schema is None:
        return
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    error = next(kind(kind.META_SCHEMA).iter_errors(schema), None)
    if error is not None:
        yield Problem(document, (*path, *error.absolute_path), error.message[:200], "a JSON Schema")


def _positive(document: str, at: Path, holder: Any) -> Iterator[Problem]:
    for key in holder.__struct_fields__:
        value = getattr(holder, key)
        if isinstance(value, int) and not isinstance(value, bool) and value < 1:
            yield Problem(document, (*at, key), f"{value}", "at least 1")
