"""Packs, compressions and requests of a turn: where the decider meets ``context`` and ``compression``. Pure."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any, NamedTuple

from dalsegno.errors import NotReconstructable
from dalsegno.model.events import (
    CompressionCompleted,
    CompressionFailed,
    CompressionStarted,
    ContextPackBuilt,
    ErrorInfo,
    NewEvent,
)
from dalsegno.model.payloads import InferencePurpose
from dalsegno.orchestration import compression, context
from dalsegno.orchestration.decider.world import World
from dalsegno.orchestration.documents import Agent, CompressionRule
from dalsegno.orchestration.ports import CONTEXT_OVERFLOW
from dalsegno.projections.decider import rendering
from dalsegno.projections.decider.rows import COMPRESSION, ITEM, PACKED, CompressionState, Item


class Asked(NamedTuple):
    """What an inference asks: of whom, for what, and the digest of the whole request."""

    purpose: InferencePurpose
    agent: Agent
    pack_id: str | None
    subject_id: str | None
    request_digest: bytes | None
    tools_digest: bytes | None


class Request(NamedTuple):
    """What is sent for it: chat messages and tool definitions."""

    agent: Agent
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]


# --- parts ------------------------------------------------------------------------------------------------------------


def shown_items(world: World) -> list[Item]:
    """What the stage in progress is shown, in order."""
    return context.scope(world.rows.family(ITEM).values(), world.head.stage, world.stage.context)


def _template(world: World, name: str) -> str:
    found = world.configuration.prompts.templates.get(name)
    if found is None:
        raise NotReconstructable(f"no prompt {name!r} in the pinned document PROMPT_TEMPLATE")
    return found


def _filled(world: World, template: str) -> str:
    head = world.head
    goal = "" if head.goal is None else rendering.text_of(world.contents.get(head.goal))
    return context.fill(template, goal=goal, session=head.session, stage=head.stage_name, clock_start=head.clock_start)


def _system(world: World, agent: Agent) -> bytes:
    return rendering.system(_filled(world, _template(world, agent.prompt)))


def _tools(world: World) -> tuple[bytes, ...]:
    allowed = set(world.stage.tools)
    return tuple(told for name, told in world.configuration.definitions.items() if name in allowed)


# --- packs ------------------------------------------------------------------------------------------------------------


def pack_built(world: World, pack_id: str) -> NewEvent:
    agent = world.agent(world.stage.agent)
    plan = context.pack(
        shown_items(world),
        world.rows.family(PACKED),
        system=_system(world, agent),
        template=_template(world, agent.prompt),
        tools=_tools(world),
        agent=agent,
        recipe=world.stage.context,
        tokenizer=world.configuration.tokenizer,
        held=world.rows.family(ITEM),
    )
    return ContextPackBuilt(
        pack_id=pack_id,
        base_pack_id=world.head.pack_id,
        builder_version=plan.builder_version,
        fits=plan.fits,
        token_total=plan.token_total,
        token_budget=plan.token_budget,
        tokenizer=plan.tokenizer,
        template_digest=plan.template_digest,
        tools_digest=plan.tools_digest,
        request_digest=plan.request_digest,
        removed=list(plan.removed),
        added=list(plan.added),
        dropped=list(plan.dropped),
    )


# --- requests ---------------------------------------------------------------------------------------------------------


def asked(world: World, inference_id: str) -> Asked:
    """For an inference that is to be requested, or was."""
    head = world.head
    subject, _, _ = inference_id.rpartition("/")
    if head.compressing and subject == head.compressing:
        request = _summary_request(world, subject)
        return Asked("COMPRESSION", request.agent, None, subject, request.request_digest, None)
    if "/v." in subject:
        agent, system, said = _judge(world, subject)
        digest = context.request_digest("VALIDATION", system, (), [sha256(said).digest()], agent.model, agent.params)
        return Asked("VALIDATION", agent, None, subject, digest, None)
    return Asked("AGENT", world.agent(world.stage.agent), head.pack_id, None, head.request_digest, head.tools_digest)


def request(world: World, inference_id: str) -> Request:
    """What is sent for an inference that is open. Raises NotReconstructable where contents are gone."""
    subject, _, _ = inference_id.rpartition("/")
    if world.head.compressing and subject == world.head.compressing:
        summary = _summary_request(world, subject)
        return Request(summary.agent, compression.summary_messages(summary, world.contents), [])
    if "/v." in subject:
        agent, system, answer = _judge(world, subject)
        return Request(agent, [json.loads(system), json.loads(answer)], [])
    agent = world.agent(world.stage.agent)
    packed = world.rows.family(PACKED)
    items = [item for item in world.rows.family(ITEM).values() if item.id in packed]
    items.sort(key=lambda item: (item.place, item.id))
    said = [json.loads(world.contents.get(packed[item.id].digest)) for item in items]
    tools = [json.loads(tool) for tool in _tools(world)]
    return Request(agent, [json.loads(_system(world, agent)), *said], tools)


def _judge(world: World, validation_id: str) -> tuple[Agent, bytes, bytes]:
    spec = world.validator(validation_id.rpartition("/v.")[2])
    agent = world.agent(spec.agent or "")
    system = rendering.system(_filled(world, _template(world, spec.prompt or agent.prompt)))
    answer = world.head.answer
    return agent, system, rendering.goal(b"" if answer is None else world.contents.get(answer))


# --- compression ------------------------------------------------------------------------------------------------------


def overflowed(world: World) -> bool:
    """Whether the provider found this turn's last request too long, and nothing was compressed since."""
    head = world.head
    inference = world.inference(head.inference)
    failed = inference is not None and inference.phase == "ATTEMPT_FAILED"
    return failed and not head.stale and inference is not None and inference.error_class == CONTEXT_OVERFLOW


def compression_due(world: World) -> compression.Plan | None:
    """The compression that comes before this turn's next pack."""
    if not world.configuration.compression.rules:
        return None
    head, tokenizer = world.head, world.configuration.tokenizer
    items = shown_items(world)
    sizes = [len(_system(world, world.agent(world.stage.agent)))]
    sizes += [len(tool) for tool in _tools(world)]
    sizes += [item.size for item in items]
    return compression.due(
        world.configuration,
        items,
        world.contents,
        turn_ordinal=head.turn_ordinal,
        first_turn_of_stage=head.stage_turns == 1 and not head.packs,
        overflow=overflowed(world),
        token_total=sum(context.tokens(size, tokenizer) for size in sizes),
        failed_rules=head.failed_rules,
    )


def asks_model(plan: compression.Plan) -> bool:
    return plan.method == "SUMMARY"


def _due_now(world: World) -> compression.Plan:
    plan = compression_due(world)
    if plan is None:
        raise NotReconstructable("no compression is due")
    return plan


def compression_started(world: World, compression_id: str) -> NewEvent:
    plan = _due_now(world)
    return CompressionStarted(
        compression_id=compression_id,
        trigger=plan.trigger,
        rule_id=plan.rule.id,
        rule_digest=plan.rule_digest,
        input_digest=plan.input_digest,
        tokens_before=plan.tokens_before,
        scope=list(plan.forgotten),
    )


def _plan_started(world: World, compression_id: str) -> compression.Plan:
    """The compression in progress, from its row."""
    state: CompressionState = world.rows.get((COMPRESSION, compression_id))
    items = [item for item in world.rows.family(ITEM).values() if item.compressing == compression_id]
    return compression.Plan(
        rule=_rule(world, state.rule_id),
        trigger="THRESHOLD",
        scope=tuple(sorted(items, key=lambda item: (item.place, item.id))),
        rule_digest=state.rule_digest or b"",
        input_digest=state.input_digest or b"",
        tokens_before=state.tokens_before or 0,
    )


def _rule(world: World, id: str) -> CompressionRule:
    for rule in world.configuration.compression.rules:
        if rule.id == id:
            return rule
    raise NotReconstructable(f"no rule {id!r} in the pinned document COMPRESSION_RULES")


def _summary_request(world: World, compression_id: str) -> compression.SummaryRequest:
    plan = _plan_started(world, compression_id)
    agent = world.agent(plan.rule.agent or "")
    return compression.summary_request(plan, agent, _filled(world, _template(world, plan.rule.prompt or "")))


def compression_completed(world: World, compression_id: str) -> NewEvent:
    if world.head.compressing == compression_id:
        plan = _plan_started(world, compression_id)
        inference_id: str | None = f"{compression_id}/i"
        done = compression.summarized(plan, world.configuration, _answer(world, compression_id))
        if done is None:
            raise NotReconstructable(f"the model gave no summary for {compression_id}")
    else:
        plan, inference_id = _due_now(world), None
        done = compression.apply(plan, world.configuration)
    return CompressionCompleted(
        compression_id=compression_id,
        method=plan.method,
        effect="REAPPLIABLE",
        rule_id=plan.rule.id,
        rule_digest=plan.rule_digest,
        input_digest=plan.input_digest,
        output_digest=done.output_digest,
        inference_id=inference_id,
        prev_compression_id=world.head.compression,
        window_number=world.head.windows + 1,
        tokens_before=done.tokens_before,
        tokens_after=done.tokens_after,
        forgotten=list(done.forgotten),
        summary=None if done.summary is None else world.blob(done.summary),
    )


def gave_summary(world: World, compression_id: str) -> bool:
    """Whether the model that was asked said anything."""
    return bool(_answer(world, compression_id).strip())


def _answer(world: World, compression_id: str) -> bytes:
    inference = world.inference(f"{compression_id}/i")
    if inference is None or inference.text is None:
        return b""
    return world.contents.get(inference.text)


def compression_failed(world: World, compression_id: str) -> NewEvent:
    inference = world.inference(f"{compression_id}/i")
    if inference is None or inference.phase == "DONE":
        error = ErrorInfo(error_class="empty-summary", message="the model gave no summary", retryable=False)
    else:
        error = ErrorInfo(error_class=inference.error_class, message=inference.error_message, retryable=False)
    return CompressionFailed(compression_id=compression_id, error=error)
