"""A session's configuration as values: workflow, policy, compression rules, tools, prompts, validators. Pure.

A document is canonical JSON (RFC 8785) of one of these structs; ``ConfigPinned`` records it with its content, so that
a replay needs no file. Reading and checking YAML is ``configuration``'s; here is only the shape. A field left out of a
document has its default in the canonical form too: adding a field with a default changes no recorded digest's meaning,
because a document is decoded from the bytes that were pinned.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal, TypeAlias

from msgspec import Struct, field

from dalsegno.orchestration.canonical import canonical

History: TypeAlias = Literal["stage", "session"]
RetrievalKind: TypeAlias = Literal["RETRIEVED", "FILE", "MEMORY"]
Effect: TypeAlias = Literal["READ", "WRITE", "DESTRUCTIVE", "EXTERNAL", "UNKNOWN"]
Risk: TypeAlias = Literal["UNKNOWN", "LOW", "MEDIUM", "HIGH"]
Decision: TypeAlias = Literal["ALLOW", "DENY", "REQUIRE_APPROVAL", "MODIFY", "SIMULATE"]
Expiry: TypeAlias = Literal["DENY", "ESCALATE"]
Method: TypeAlias = Literal["SUMMARY", "TRIM", "MASK", "DEDUP"]


class Document(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all that stands in a document."""


# --- workflow ---------------------------------------------------------------------------------------------------------


class Agent(Document, frozen=True, kw_only=True):
    """Who is asked. ``params`` go to the provider as they are; ``prompt`` names the template of the system message."""

    provider: str
    model: str
    prompt: str
    params: dict[str, Any] = field(default_factory=dict)


class Recipe(Document, frozen=True, kw_only=True):
    """What an agent is shown. ``history``: of its stage attempt alone (with the outputs of the stages before), or of
    the whole session. ``budget_tokens``: what a request may have; None: no limit."""

    history: History = "session"
    budget_tokens: int | None = None


class Retrieval(Document, frozen=True, kw_only=True):
    """Fetched before the first turn of a stage attempt; ``query`` is the port's business."""

    id: str
    kind: RetrievalKind = "RETRIEVED"
    query: Any = None


class Question(Document, frozen=True, kw_only=True):
    """Asked of a person before the first turn of a stage attempt. ``schema``: a JSON Schema of the answer."""

    id: str
    prompt: str
    schema: dict[str, Any] | None = None
    ttl_seconds: int | None = None


class StageLimits(Document, frozen=True, kw_only=True):
    """``turns``, ``tool_calls``: of one attempt. ``attempts``: of the stage; ``inference_attempts``, ``tool_attempts``:
    of one inference or call, the first one included."""

    turns: int = 8
    tool_calls: int | None = None
    attempts: int = 1
    inference_attempts: int = 3
    tool_attempts: int = 2


class Stage(Document, frozen=True, kw_only=True):
    name: str
    agent: str
    depends_on: list[str] = field(default_factory=list)
    context: Recipe = field(default_factory=Recipe)
    tools: list[str] = field(default_factory=list)
    validators: list[str] = field(default_factory=list)
    retrieve: list[Retrieval] = field(default_factory=list)
    ask: list[Question] = field(default_factory=list)
    limits: StageLimits = field(default_factory=StageLimits)


class Transition(Document, frozen=True, kw_only=True):
    """``source`` None: from the session's start. ``when``: a CEL guard; None is true. The first that holds is taken."""

    id: str
    to: str
    source: str | None = field(default=None, name="from")
    when: str | None = None


class SessionLimits(Document, frozen=True, kw_only=True):
    """Of the whole session; None: no limit. ``wall_time_seconds`` is kept by the clock port, which fires a timer."""

    turns: int | None = None
    tool_calls: int | None = None
    tokens: int | None = None
    cost_usd_micros: int | None = None
    wall_time_seconds: int | None = None


class Workflow(Document, frozen=True, kw_only=True):
    """``result``: the stage whose output is the session's result; None: the last one that was completed.

    Without ``transitions`` the stages run in their order, each when the one before is completed."""

    name: str
    version: str = "1"
    agents: dict[str, Agent]
    stages: list[Stage]
    transitions: list[Transition] = field(default_factory=list)
    limits: SessionLimits = field(default_factory=SessionLimits)
    result: str | None = None


# --- tools, prompts, validators ---------------------------------------------------------------------------------------


class ToolSpec(Document, frozen=True, kw_only=True):
    """What a tool is to the decider and to the model. ``idempotent``: its executor honours the idempotency key, so an
    attempt with an unknown outcome may be repeated. ``workflow``: the call is a sub-session of that workflow."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = field(default_factory=lambda: {"type": "object"})
    effect: Effect = "UNKNOWN"
    risk: Risk = "UNKNOWN"
    version: str = "1"
    idempotent: bool = False
    timeout_seconds: int | None = None
    workflow: str | None = None


class ToolCatalog(Document, frozen=True, kw_only=True):
    """In the order in which models are told of them."""

    tools: list[ToolSpec] = field(default_factory=list)


class Prompts(Document, frozen=True, kw_only=True):
    """Templates by name. ``{name}`` of: goal, session, stage, clock_start; ``{{`` and ``}}`` are braces."""

    templates: dict[str, str] = field(default_factory=dict)


class ValidatorSpec(Document, frozen=True, kw_only=True):
    """One of: ``schema`` (JSON Schema of the target, PURE), ``predicate`` (CEL over ``output``, PURE), ``agent`` with
    ``prompt`` (a model judges, INFERENCE), ``reporter`` (a named program outside reports, REPORTED)."""

    name: str
    version: str = "1"
    schema: dict[str, Any] | None = None
    predicate: str | None = None
    agent: str | None = None
    prompt: str | None = None
    reporter: str | None = None


class Validators(Document, frozen=True, kw_only=True):
    validators: list[ValidatorSpec] = field(default_factory=list)


class Tokenizer(Document, frozen=True, kw_only=True):
    """``bytes/4``: ceil(UTF-8 bytes / 4). Another one is pinned with the digest (hex) of its vocabulary."""

    name: str = "bytes/4"
    vocabulary_digest: str | None = None


class HarnessBuild(Document, frozen=True, kw_only=True):
    """What decides: name and version of the program, and the versions that replay must have."""

    harness: str
    decider: int
    builder: int
    cel_engine: str


# --- policy -----------------------------------------------------------------------------------------------------------


class Obligation(Document, frozen=True, kw_only=True):
    """Whom to ask, one list an escalation step (empty: anybody), and what follows when nobody answers in time."""

    to: list[list[str]] = field(default_factory=list)
    ttl_seconds: int | None = None
    on_expiry: Expiry = "DENY"


class PolicyRule(Document, frozen=True, kw_only=True):
    """``when``: CEL over ``call`` (tool, arguments, effect, risk), ``stage``, ``labels``, ``session``. ``merge``: for
    MODIFY, a JSON merge patch (RFC 7396) of the arguments, with which evaluation goes on at the next rule."""

    id: str
    decision: Decision
    when: str = "true"
    explanation: str = ""
    approval: Obligation | None = None
    merge: dict[str, Any] | None = None


class Policy(Document, frozen=True, kw_only=True):
    """The first rule that matches decides, but MODIFY goes on; if none does, ``default``."""

    name: str = "empty"
    version: str = "1"
    rules: list[PolicyRule] = field(default_factory=list)
    default: Literal["ALLOW", "DENY", "REQUIRE_APPROVAL"] = "ALLOW"
    default_approval: Obligation | None = None


# --- compression ------------------------------------------------------------------------------------------------------


class Triggers(Document, frozen=True, kw_only=True):
    """Any of these, looked at before a pack is built. ``tokens``, ``turns``: what the pack would have is above.
    ``stage_boundary``: at a stage attempt's first turn. ``overflow``: the provider said that the request is too long.
    """

    tokens: int | None = None
    turns: int | None = None
    stage_boundary: bool = False
    overflow: bool = False


class Protected(Document, frozen=True, kw_only=True):
    """Items that stay as they are: the last ``turns`` turns, kinds of items, results of tools by name. The goal always
    does."""

    turns: int = 1
    kinds: list[str] = field(default_factory=list)
    tools: list[str] = field(default_factory=list)


class CompressionRule(Document, frozen=True, kw_only=True):
    """``agent``, ``prompt``: for SUMMARY, who writes it and the template that asks for it. Scope: whole turns."""

    id: str
    method: Method
    when: Triggers
    protect: Protected = field(default_factory=Protected)
    agent: str | None = None
    prompt: str | None = None


class CompressionRules(Document, frozen=True, kw_only=True):
    name: str = "empty"
    version: str = "1"
    rules: list[CompressionRule] = field(default_factory=list)


# --- all of it --------------------------------------------------------------------------------------------------------

KINDS: dict[str, type[Document]] = {
    "WORKFLOW": Workflow,
    "POLICY": Policy,
    "COMPRESSION_RULES": CompressionRules,
    "TOOL_CATALOG": ToolCatalog,
    "PROMPT_TEMPLATE": Prompts,
    "VALIDATORS": Validators,
    "TOKENIZER": Tokenizer,
    "HARNESS_BUILD": HarnessBuild,
}
"""What is pinned before SessionStarted (rule S2), one document of each kind."""


class Configuration(Struct, frozen=True, kw_only=True, dict=True):
    """The documents in force. ``digests``: SHA-256 of each as it was pinned, by kind."""

    workflow: Workflow
    policy: Policy
    compression: CompressionRules
    tools: ToolCatalog
    prompts: Prompts
    validators: Validators
    tokenizer: Tokenizer
    build: HarnessBuild
    digests: dict[str, bytes]

    @cached_property
    def definitions(self) -> dict[str, bytes]:
        """What models are told of each tool, by its name in the catalogue's order: canonical JSON of an OpenAI function
        object. Every pack needs it, and it is the same as long as the documents are."""
        return {
            tool.name: canonical(
                {
                    "type": "function",
                    "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
                }
            )
            for tool in self.tools.tools
        }
