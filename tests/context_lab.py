"""A session's context without its events: items as the fold keeps them, and compressions through the fold itself."""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
from types import SimpleNamespace
from typing import Any

from dalsegno.orchestration import compression, context
from dalsegno.orchestration.compression import Done, Plan
from dalsegno.orchestration.context import PackPlan
from dalsegno.orchestration.documents import (
    Agent,
    CompressionRule,
    CompressionRules,
    Configuration,
    HarnessBuild,
    Policy,
    Prompts,
    Recipe,
    Stage,
    Tokenizer,
    ToolCatalog,
    ToolSpec,
    Validators,
    Workflow,
)
from dalsegno.projections.decider import rendering
from dalsegno.projections.decider.context import FOLDS
from dalsegno.projections.decider.rows import ITEM, Head, Item, Packed
from dalsegno.projections.decider.table import ANSWER, BETWEEN, MEANWHILE, RESULTS, MemoryRows, put_item

AGENT = Agent(provider="scripted", model="m-1", prompt="main", params={"temperature": 0})
STAGE = "work.1"
TEMPLATE = "You work on {goal} in {stage} of {session}; it is {clock_start}. {{literal}}"
TOOLS = [ToolSpec(name="read", description="reads"), ToolSpec(name="bash"), ToolSpec(name="write")]


def configuration(rules: Sequence[CompressionRule] = (), **changes: Any) -> Configuration:
    documents: dict[str, Any] = {
        "workflow": Workflow(name="w", agents={"main": AGENT}, stages=[Stage(name="work", agent="main")]),
        "policy": Policy(),
        "compression": CompressionRules(rules=list(rules)),
        "tools": ToolCatalog(tools=TOOLS),
        "prompts": Prompts(templates={"main": TEMPLATE, "shorter": "Say it shorter."}),
        "validators": Validators(),
        "tokenizer": Tokenizer(),
        "build": HarnessBuild(harness="h/1", decider=1, builder=1, cel_engine="e/1"),
        "digests": {},
    }
    return Configuration(**(documents | changes))


class Transcript:
    """Turns, messages and stage attempts. Every provider id is ``call_0``, as some providers have it."""

    def __init__(self, goal: str = "the goal") -> None:
        self.rows, self.head, self.seq = MemoryRows(), Head(), 0
        self.contents: dict[bytes, bytes] = {}
        self.put("goal", "MESSAGE", rendering.goal(goal.encode()), (0, 0, 0))
        self.head.stage = STAGE

    # Contents of packs.
    def get(self, digest: bytes) -> bytes:
        return self.contents[digest]

    def keep(self, digest: bytes, content: bytes) -> None:
        self.contents[digest] = content

    def put(self, id: str, kind: str, content: bytes, place: tuple[int, int, int | None], name: str = "") -> None:
        self.seq += 1
        put_item(
            self.rows, self.head, self.keep, id=id, seq=self.seq, kind=kind, content=content,
            turn=place[0], phase=place[1], index=place[2], name=name,
        )  # fmt: skip

    def message(self, id: str, text: str, *, meanwhile: bool = False) -> None:
        body = {"role": "USER", "parts": [{"kind": "TEXT", "call_id": None, "name": None, "text": text, "blob": None}]}
        phase = MEANWHILE if meanwhile else BETWEEN
        self.put(f"m:{id}", "MESSAGE", rendering.message(body), (self.head.turn_ordinal, phase, None))

    def output(self, text: str) -> None:
        """The stage attempt's, after which another one begins."""
        stage, attempt = self.head.stage, int(self.head.stage.rpartition(".")[2])
        content = rendering.outputs(stage, text.encode())
        self.put(f"{stage}/out", "MESSAGE", content, (self.head.turn_ordinal, BETWEEN, None))
        self.head.stage = f"work.{attempt + 1}"

    def begin_turn(self) -> str:
        self.head.turn_ordinal += 1
        return f"{self.head.stage}/t{self.head.turn_ordinal}"

    def answer(self, turn: str, text: str, calls: Sequence[str]) -> None:
        self.put(f"{turn}/i", "MESSAGE", assistant(turn, text, calls), (self.head.turn_ordinal, ANSWER, None))

    def result(self, turn: str, ordinal: int, name: str, content: bytes, *, at: int | None = None) -> None:
        place = (self.head.turn_ordinal if at is None else at, RESULTS, ordinal)
        self.put(f"{turn}/c{ordinal}", "TOOL_RESULT", content, place, name)

    def turn(self, text: str = "", calls: Sequence[tuple[str, str, str]] = ()) -> str:
        """A whole one. ``calls``: name, how it ended (OK, ERROR, REJECTED, FAILED, OPEN), text."""
        turn = self.begin_turn()
        self.answer(turn, text, [name for name, *_ in calls])
        for ordinal, (name, ending, said) in enumerate(calls):
            if ending != "OPEN":
                self.result(turn, ordinal, name, ended(f"{turn}/c{ordinal}", name, ending, said))
        return turn

    # What decides.
    def held(self) -> dict[str, Item]:
        return self.rows.family(ITEM)

    def items(self, recipe: Recipe | None = None, stage: str = STAGE) -> list[Item]:
        return context.scope(self.held().values(), stage, recipe or Recipe())

    def due(self, config: Configuration, **given: Any) -> Plan | None:
        """At the start of the turn after the last one; ``turn_ordinal`` says otherwise."""
        items = self.items()
        total = sum(context.tokens(item.size, config.tokenizer) for item in items)
        given = {
            "turn_ordinal": self.head.turn_ordinal + 1, "first_turn_of_stage": False, "overflow": False,
            "token_total": total,
        } | given  # fmt: skip
        return compression.due(config, items, self, **given)

    def compress(self, plan: Plan, done: Done) -> None:
        """The event, folded."""
        self.seq += 1
        summary = None
        if done.summary is not None:
            digest = sha256(done.summary).digest()
            summary = {"digest": digest, "size": len(done.summary), "media_type": "text/plain", "inline": done.summary}
        body = {
            "compression_id": f"{STAGE}/k{self.seq}", "effect": "REAPPLIABLE", "method": plan.method,
            "forgotten": list(done.forgotten), "summary": summary, "inference_id": None,
        }  # fmt: skip
        event = SimpleNamespace(body=body, seq=self.seq, type="CompressionCompleted")
        FOLDS["CompressionCompleted"](self.rows, self.head, event, self.keep)

    def done(self, plan: Plan, config: Configuration) -> Done:
        if plan.method != "SUMMARY":
            return compression.apply(plan, config)
        made = compression.summarized(plan, config, b"what came before")
        assert made is not None
        return made

    def pack(self, base: dict[str, Packed], config: Configuration, recipe: Recipe | None = None) -> PackPlan:
        recipe = recipe or Recipe()
        return context.pack(
            self.items(recipe),
            base,
            system=rendering.system("be good"),
            template="be good",
            tools=[told for name, told in config.definitions.items() if name in ("bash", "read")],
            agent=AGENT,
            recipe=recipe,
            tokenizer=config.tokenizer,
            held=self.held(),
        )

    def spoken(self) -> list[dict[str, Any]]:
        return [json.loads(self.contents[item.digest]) for item in self.items()]


def assistant(turn: str, text: str, calls: Sequence[str]) -> bytes:
    parts = [{"kind": "TEXT", "call_id": None, "name": None, "text": text, "blob": None}]
    parts += [
        {"kind": "TOOL_CALL", "call_id": "call_0", "name": name, "text": '{"a": 1 }', "blob": None} for name in calls
    ]
    asked = [{"tool_call_id": f"{turn}/c{n}", "name": name, "arguments_digest": None} for n, name in enumerate(calls)]
    return rendering.assistant({"output": parts, "tool_calls": asked})


def ended(call_id: str, name: str, ending: str, said: str) -> bytes:
    if ending == "REJECTED":
        return rendering.rejected(call_id, said)
    if ending == "FAILED":
        return rendering.failed(call_id, said)
    return rendering.tool_result(call_id, name, ending, said.encode())


def after(base: dict[str, Packed], plan: PackPlan) -> dict[str, Packed]:
    """The rows of the pack that results, as the fold keeps them."""
    rows = {id: row for id, row in base.items() if id not in plan.removed}
    return rows | {item.item_id: Packed(item.digest or b"", item.mode) for item in plan.added}
