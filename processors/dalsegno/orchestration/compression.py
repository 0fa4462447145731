"""Which compression of a context is due, of which items, and what it makes of them. Pure.

Only closed turns are looked at, so a call in progress is never touched. TRIM and SUMMARY take items out: a turn's
answer and its results go together or stay together. MASK and DEDUP leave every item in its place and shorten results.
What every stage is shown (the goal, stages' outputs) and what the rule protects stay in full.

A rule is due only if it has something to do that it leaves undone by no second application: TRIM and SUMMARY need an
item that is no summary, MASK and DEDUP a result in full that becomes shorter. Applied once, it is not due on what is
left.

Layouts. ``rule_digest``: SHA-256 of the canonical JSON of ``{"model": {"model", "params", "provider"} or null, "rule":
the rule, "template": text or null}``. ``input_digest``: SHA-256 over the digests (32 bytes each) of the items in scope,
in their order. ``output_digest``: SHA-256 of the summary; of MASK and DEDUP, over the digests of the masked items.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, Literal, TypeAlias

import msgspec

from dalsegno.orchestration.canonical import canonical
from dalsegno.orchestration.context import Contents, is_answer, is_result, request_digest, shared, tokens
from dalsegno.orchestration.documents import Agent, CompressionRule, Configuration, Method
from dalsegno.projections.decider import rendering
from dalsegno.projections.decider.rows import Item

Trigger: TypeAlias = Literal["THRESHOLD", "OVERFLOW_ERROR", "STAGE_BOUNDARY"]

SHORTENING: Final = frozenset({"MASK", "DEDUP"})
"""Methods that leave items in their places."""


@dataclass(frozen=True)
class Plan:
    """A compression that is due. ``scope``: the items that it replaces, in order; their ids are ``forgotten``."""

    rule: CompressionRule
    trigger: Trigger
    scope: tuple[Item, ...]
    rule_digest: bytes
    input_digest: bytes
    tokens_before: int
    """Of the whole pack, with everything in it."""

    @property
    def method(self) -> Method:
        return self.rule.method

    @property
    def forgotten(self) -> tuple[str, ...]:
        return tuple(item.id for item in self.scope)

    @property
    def key(self) -> tuple[str, bytes, bytes]:
        """A recorded compression with an equal key is reused."""
        return self.rule.id, self.rule_digest, self.input_digest


@dataclass(frozen=True)
class Done:
    """What a compression made. ``summary``: what stands for the forgotten items; None of MASK and DEDUP, where each
    item's ``rendering.masked`` does."""

    forgotten: tuple[str, ...]
    summary: bytes | None
    output_digest: bytes
    tokens_before: int
    tokens_after: int


# --- due --------------------------------------------------------------------------------------------------------------


def due(
    configuration: Configuration,
    items: Sequence[Item],
    contents: Contents,
    *,
    turn_ordinal: int,
    first_turn_of_stage: bool,
    overflow: bool,
    token_total: int,
    failed_rules: Collection[str] = (),
) -> Plan | None:
    """The first rule that is due before this turn's pack. ``items``: what the pack would hold, in order;
    ``token_total``: what it would have; ``overflow``: the provider found the last one of this turn too long."""
    turns = sum(1 for item in items if is_answer(item))
    for rule in configuration.compression.rules:
        if rule.id in failed_rules:
            continue
        trigger = _trigger(rule, token_total, turns, first_turn_of_stage, overflow)
        if trigger is None:
            continue
        chosen = scope(rule, items, turn_ordinal, contents)
        if chosen:
            return Plan(
                rule=rule,
                trigger=trigger,
                scope=chosen,
                rule_digest=rule_digest(rule, configuration),
                input_digest=_over(item.digest for item in chosen),
                tokens_before=token_total,
            )
    return None


def _trigger(
    rule: CompressionRule, token_total: int, turns: int, first_turn_of_stage: bool, overflow: bool
) -> Trigger | None:
    when = rule.when
    if overflow and when.overflow:
        return "OVERFLOW_ERROR"
    if first_turn_of_stage and when.stage_boundary:
        return "STAGE_BOUNDARY"
    over = (when.tokens is not None and token_total > when.tokens) or (when.turns is not None and turns > when.turns)
    return "THRESHOLD" if over else None


def rule_digest(rule: CompressionRule, configuration: Configuration) -> bytes:
    """Of that one rule, with the model and the template it names: the rest of the documents may change."""
    agent = None if rule.agent is None else configuration.workflow.agents.get(rule.agent)
    template = None if rule.prompt is None else configuration.prompts.templates.get(rule.prompt)
    model = None if agent is None else {"provider": agent.provider, "model": agent.model, "params": agent.params}
    return sha256(canonical(msgspec.to_builtins({"rule": rule, "model": model, "template": template}))).digest()


# --- scope ------------------------------------------------------------------------------------------------------------


def scope(rule: CompressionRule, items: Sequence[Item], turn_ordinal: int, contents: Contents) -> tuple[Item, ...]:
    """The items that the rule would replace, in order; empty: it has nothing to do."""
    free = _free(rule, turn_ordinal)
    if rule.method == "MASK":
        return tuple(item for item in items if free(item) and _shortens(item))
    if rule.method == "DEDUP":
        repeated = _repeated(items, contents)
        return tuple(item for item in items if item.id in repeated and free(item) and _shortens(item))
    bound = {item.place[0] for item in items if _paired(item) and not free(item)}
    chosen = tuple(item for item in items if free(item) and not (_paired(item) and item.place[0] in bound))
    return chosen if any(item.kind != "SUMMARY" for item in chosen) else ()


def _free(rule: CompressionRule, turn_ordinal: int) -> Callable[[Item], bool]:
    """Whether an item is of a closed turn and nothing protects it."""
    kinds, names = frozenset(rule.protect.kinds), frozenset(rule.protect.tools)
    first_kept = turn_ordinal - max(rule.protect.turns, 0)

    def free(item: Item) -> bool:
        return (
            item.place[0] < first_kept
            and not shared(item)
            and item.kind not in kinds
            and not (is_result(item) and item.name in names)
        )

    return free


def _paired(item: Item) -> bool:
    """An answer or a result: half of what a provider wants whole."""
    return is_answer(item) or is_result(item)


def _shortens(item: Item) -> bool:
    return is_result(item) and item.mode == "FULL" and len(rendering.masked(item)) < item.size


def _repeated(items: Sequence[Item], contents: Contents) -> set[str]:
    """Ids of results that a later one repeats: of the same tool, with the same text. Rendered bytes differ in the id of
    the call, which is as long for every call, so that only results of one size need be looked at."""
    alike: dict[tuple[str, int], list[Item]] = defaultdict(list)
    for item in items:
        if is_result(item) and item.mode == "FULL":
            alike[item.name, item.size].append(item)
    repeated: set[str] = set()
    for group in alike.values():
        if len(group) < 2:
            continue
        last: dict[str, str] = {}
        for item in group:
            text = json.loads(contents.get(item.digest))["content"]
            if text in last:
                repeated.add(last[text])
            last[text] = item.id
    return repeated


# --- what is made of it -----------------------------------------------------------------------------------------------


def apply(plan: Plan, configuration: Configuration) -> Done:
    """TRIM, MASK and DEDUP: of the plan alone."""
    if plan.method in SHORTENING:
        shorter = [rendering.masked(item) for item in plan.scope]
        return _done(plan, configuration, None, shorter, _over(sha256(content).digest() for content in shorter))
    if plan.method != "TRIM":
        raise ValueError(f"{plan.method} is not made without a model")
    return _summarized(plan, configuration, note(plan.scope).encode())


def note(items: Sequence[Item]) -> str:
    """What was left out, for the model: how many items, of which turns, how many of each kind."""
    answers = sum(1 for item in items if is_answer(item))
    results = Counter(item.name for item in items if is_result(item))
    notes = sum(1 for item in items if item.kind == "SUMMARY")
    other = len(items) - answers - sum(results.values()) - notes
    said = [_count(answers, "answer")]
    if results:
        by_tool = ", ".join(f"{rendering.text_of(name)} {number}" for name, number in sorted(results.items()))
        said.append(f"{_count(sum(results.values()), 'tool result')} ({by_tool})")
    said += [_count(other, "other message"), _count(notes, "earlier summary or note")]
    which = ", ".join(part for part in said if not part.startswith("0 "))
    return f"{_count(len(items), 'item')} left out, of turns {_ranges(item.place[0] for item in items)}: {which}."


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _ranges(numbers: Iterable[int]) -> str:
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


# --- a model's summary ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SummaryRequest:
    """What a model is asked: a system message, and the items in one message, a line each, so that no provider takes
    their calls for ones that it could answer. ``request_digest``: as of an agent's request, purpose COMPRESSION."""

    agent: Agent
    system: bytes
    items: tuple[Item, ...]
    request_digest: bytes


def summary_request(plan: Plan, agent: Agent, system_text: str) -> SummaryRequest:
    """``system_text``: the rule's template, filled in."""
    system = rendering.system(system_text)
    digests = [item.digest for item in plan.scope]
    return SummaryRequest(
        agent=agent,
        system=system,
        items=plan.scope,
        request_digest=request_digest("COMPRESSION", system, (), digests, agent.model, agent.params),
    )


def summary_messages(request: SummaryRequest, contents: Contents) -> list[dict[str, Any]]:
    """Raises NotReconstructable where the contents of an item are gone."""
    lines = b"\n".join(contents.get(item.digest) for item in request.items)
    return [json.loads(request.system), {"role": "user", "content": lines.decode()}]


def summarized(plan: Plan, configuration: Configuration, answer: bytes) -> Done | None:
    """What becomes of the model's text; None where it said nothing, and the compression failed."""
    return _summarized(plan, configuration, answer) if answer.strip() else None


def _summarized(plan: Plan, configuration: Configuration, summary: bytes) -> Done:
    return _done(plan, configuration, summary, [rendering.summary(summary)], sha256(summary).digest())


def _done(
    plan: Plan, configuration: Configuration, summary: bytes | None, instead: Sequence[bytes], output_digest: bytes
) -> Done:
    tokenizer = configuration.tokenizer
    before = sum(tokens(item.size, tokenizer) for item in plan.scope)
    after = sum(tokens(len(content), tokenizer) for content in instead)
    return Done(
        forgotten=plan.forgotten,
        summary=summary,
        output_digest=output_digest,
        tokens_before=plan.tokens_before,
        tokens_after=plan.tokens_before - before + after,
    )


def _over(digests: Iterable[bytes]) -> bytes:
    return sha256(b"".join(digests)).digest()
