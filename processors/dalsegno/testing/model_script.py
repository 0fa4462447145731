"""The part of a made-up session that asks models: context packs, questions, answers, compressions."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from random import Random

from dalsegno.model.events import (
    Blob,
    CompressionCompleted,
    CompressionFailed,
    CompressionStarted,
    ContextPackBuilt,
    ErrorInfo,
    InferenceCompleted,
    InferenceFailed,
    InferenceRequested,
    NewEvent,
    PackItem,
    Part,
    RequestedCall,
    Usage,
)
from dalsegno.testing.script import RULES_DIGEST, TEMPLATE_DIGEST, TOOLS_DIGEST, Script, Steps
from dalsegno.testing.texts import blob_of

MODELS = (("anthropic", "sonnet-9"), ("openai", "gpt-9-mini"), ("local", "llama-9"))
# Tool -> (effect, how long it typically runs in seconds).
TOOLS = {
    "read_file": ("READ", 0.2),
    "search": ("READ", 0.5),
    "list_files": ("READ", 0.1),
    "edit_file": ("WRITE", 0.3),
    "run_tests": ("WRITE", 30.0),
    "http_get": ("EXTERNAL", 2.0),
    "delete_branch": ("DESTRUCTIVE", 1.0),
    "deploy": ("EXTERNAL", 60.0),
    "build": ("WRITE", 45.0),
}
_NAMES = tuple(TOOLS)


@dataclass
class Call:
    id: str
    name: str
    arguments: Blob
    digest: bytes
    attempt: int = 0
    keyed: bool = False
    unresolved: bool = False
    """A crash came between: it ran, and only its receipt can say how it ended."""

    @property
    def effect(self) -> str:
        return TOOLS[self.name][0]

    @property
    def safe(self) -> bool:
        """Whether an attempt of unknown outcome may be made again."""
        return self.effect == "READ" or self.keyed


class ModelScript(Script):
    """Inferences and compressions. ``wanted`` are the calls that the last answer asked for."""

    def __init__(self, session_id: str, rng: Random, *, profile: str, start: int) -> None:
        super().__init__(session_id, rng, profile=profile, start=start)
        self.provider, self.model = MODELS[int(self.chance() ** 2 * len(MODELS))]
        self.spawn: Callable[[], Script | None] = lambda: None
        self.items: list[tuple[str, str]] = []
        """What the next context pack adds: (item id, kind)."""
        self.turns = 0
        self.outcome = "SUCCESS"
        self.last_inference: str | None = None
        self._packs = 0
        self._packed = 0
        self._compressions = 0
        self.wanted: list[Call] = []

    def wait(self, typical_seconds: float) -> None:
        """Let the session's clock go on."""
        self.now += int(typical_seconds * 1_000_000 * (0.2 + 1.6 * self.chance()))

    def crash(self) -> Steps:
        """A recovery in the middle: all that is open is resolved. An inference in flight is asked again by its code."""
        yield from self.recover()
        for key in [key for key in self.open if key[0] == "INFERENCE"]:
            del self.open[key]

    def error(self, name: str) -> ErrorInfo:
        return ErrorInfo(error_class=name, retryable=True, message=self.texts.text(110))

    def agent_inference(self) -> Steps:
        chance = self.chance()
        count = 0 if chance < 0.25 else 1 if chance < 0.72 else 2 if chance < 0.9 else 3 + int(self.chance() * 4)
        names = tuple(_NAMES[int(self.chance() * (len(_NAMES) - 2))] for _ in range(count))
        yield from self.inference(f"{self.turn_id}/i", "AGENT", names=names)

    def inference(
        self, inference_id: str, purpose: str, *, subject_id: str | None = None, names: tuple[str, ...] = ()
    ) -> Steps:
        """One question to a model, asked again after failures and crashes, until it is answered."""
        request_digest = self.texts.digest()
        pack_id = None
        if purpose == "AGENT":
            self.last_inference = inference_id
            if self.strict:
                pack_id = yield from self._pack(request_digest)
        attempt, key = 1, ("INFERENCE", inference_id)
        params = blob_of(b'{"temperature":0,"max_tokens":4096}', "application/json")
        while True:
            self.open[key] = "RETRY"
            yield InferenceRequested(
                inference_id=inference_id,
                attempt=attempt,
                purpose=purpose,  # type: ignore[arg-type]
                provider=self.provider,
                model=self.model,
                pack_id=pack_id,
                subject_id=subject_id,
                request_digest=request_digest,
                tools_digest=TOOLS_DIGEST,
                params=params,
            )
            self.wait(4)
            chance = self.chance()
            if chance >= 0.035:
                break
            if chance < 0.03:
                del self.open[key]
                self.tally.used(f"{self.provider}/{self.model}", {"failures": 1})
                yield InferenceFailed(
                    inference_id=inference_id, attempt=attempt, http_status=529, error=self.error("Overloaded")
                )
            else:
                yield from self.crash()
            attempt += 1
        del self.open[key]
        self.wanted = [self._call(f"{inference_id[:-2]}/c{i}", name) for i, name in enumerate(names)]
        yield self._answer(inference_id, attempt)

    def _answer(self, inference_id: str, attempt: int) -> InferenceCompleted:
        text = self.texts.text(750)
        usage = Usage(
            input=2_000 + int(self.chance() * 30_000),
            output=len(text) // 4 + 20 * len(self.wanted),
            cache_read=int(self.chance() * 20_000),
            reasoning=int(self.chance() * 300),
        )
        cost = (usage.input or 0) * 3 + (usage.output or 0) * 15
        self.tally.used(
            f"{self.provider}/{self.model}",
            {
                "inferences": 1,
                "input": usage.input or 0,
                "output": usage.output or 0,
                "cache_read": usage.cache_read or 0,
                "reasoning": usage.reasoning or 0,
                "cost_usd_micros": cost,
            },
        )
        self.items.append((inference_id, "MESSAGE"))
        parts = [Part(kind="TEXT", text=text)]
        parts += [Part(kind="TOOL_CALL", call_id=c.id, name=c.name, blob=c.arguments) for c in self.wanted]
        calls = [RequestedCall(tool_call_id=c.id, name=c.name, arguments_digest=c.digest) for c in self.wanted]
        return InferenceCompleted(
            inference_id=inference_id,
            attempt=attempt,
            cache="READ",
            usage=usage,
            cost_usd_micros=cost,
            latency_ms=1_000 + int(self.chance() * 8_000),
            model=self.model,
            response_id=f"r-{self.session_id}-{self.seq}",
            output_digest=self.texts.digest(),
            finish_reasons=("tool_calls",) if calls else ("stop",),
            tool_calls=calls,
            output=parts,
        )

    def _pack(self, request_digest: bytes) -> Generator[NewEvent, None, str]:
        self._packs += 1
        pack_id = f"p{self._packs}"
        base = None if self._packs == 1 else f"p{self._packs - 1}"
        added = [
            PackItem(item_id=item_id, kind=kind, mode="FULL", position=i, tokens=120, digest=self.texts.digest())  # type: ignore[arg-type]
            for i, (item_id, kind) in enumerate(self.items, self._packed)
        ]
        self.items.clear()
        self._packed += len(added)
        yield ContextPackBuilt(
            pack_id=pack_id,
            base_pack_id=base,
            builder_version="1",
            token_total=4_000 + 120 * len(added),
            token_budget=128_000,
            tokenizer="bytes/4",
            template_digest=TEMPLATE_DIGEST,
            tools_digest=TOOLS_DIGEST,
            request_digest=request_digest,
            added=added,
        )
        return pack_id

    def compression(self) -> Steps:
        self._compressions += 1
        compression_id = f"{self.turn_id}/k{self._compressions}"
        digest, key = self.texts.digest(), ("COMPRESSION", compression_id)
        scope = [item_id for item_id, _ in self.items[:20]]
        self.open[key] = "KEEP_WAITING"
        yield CompressionStarted(
            compression_id=compression_id,
            trigger="THRESHOLD",
            rule_id="summary",
            rule_digest=RULES_DIGEST,
            input_digest=digest,
            tokens_before=90_000,
            scope=scope,
        )
        inference_id = f"{compression_id}/i"
        yield from self.inference(inference_id, "COMPRESSION", subject_id=compression_id)
        del self.open[key]
        if self.chance() < 0.05:
            yield CompressionFailed(compression_id=compression_id, error=self.error("SummaryTooLong"))
            return
        yield CompressionCompleted(
            compression_id=compression_id,
            method="SUMMARY",
            effect="REAPPLIABLE",
            rule_id="summary",
            rule_digest=RULES_DIGEST,
            input_digest=digest,
            output_digest=self.texts.digest(),
            inference_id=inference_id,
            window_number=self._compressions,
            tokens_before=90_000,
            tokens_after=6_000,
            forgotten=scope,
            summary=self.texts.blob(900),
        )

    def _call(self, call_id: str, name: str) -> Call:
        text = f'{{"path":"src/{name}.py","why":"{self.texts.text(90)}"}}'
        arguments = blob_of(text.encode("ascii"), "application/json")
        return Call(call_id, name, arguments, arguments.digest)
