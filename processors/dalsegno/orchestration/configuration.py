"""A session's configuration: pinned as canonical documents, and back from them. Pure.

What people write is read by ``authoring``. What was pinned is all that a decision depends on: equal bytes are an equal
configuration, wherever they are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256

import msgspec

from dalsegno.errors import InvalidDocument
from dalsegno.model.events import Blob, ConfigPinned
from dalsegno.model.payloads import ConfigKind, Effective
from dalsegno.orchestration import cel
from dalsegno.orchestration.canonical import canonical
from dalsegno.orchestration.documents import (
    KINDS,
    CompressionRules,
    Configuration,
    Document,
    HarnessBuild,
    Policy,
    Prompts,
    Tokenizer,
    ToolCatalog,
    Validators,
    Workflow,
)
from dalsegno.orchestration.policy import GUARD_INPUTS, POLICY_INPUTS
from dalsegno.orchestration.validation import predicate

MEDIA_TYPE = "application/json"


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """The documents of a workflow, checked together. What runs it adds its ``HarnessBuild``."""

    workflow: Workflow
    policy: Policy
    compression: CompressionRules
    tools: ToolCatalog
    prompts: Prompts
    validators: Validators
    tokenizer: Tokenizer


@dataclass(frozen=True)
class PinnedDocument:
    """``content``: canonical JSON; ``digest``: SHA-256 of it."""

    kind: ConfigKind
    name: str
    version: str
    content: bytes
    digest: bytes


def documents(loaded: Loaded, build: HarnessBuild) -> list[PinnedDocument]:
    """One of each kind, in the order of KINDS. What has no name of its own has the workflow's."""
    workflow = loaded.workflow
    each: list[tuple[ConfigKind, Document, str, str]] = [
        ("WORKFLOW", workflow, workflow.name, workflow.version),
        ("POLICY", loaded.policy, loaded.policy.name, loaded.policy.version),
        ("COMPRESSION_RULES", loaded.compression, loaded.compression.name, loaded.compression.version),
        ("TOOL_CATALOG", loaded.tools, workflow.name, workflow.version),
        ("PROMPT_TEMPLATE", loaded.prompts, workflow.name, workflow.version),
        ("VALIDATORS", loaded.validators, workflow.name, workflow.version),
        ("TOKENIZER", loaded.tokenizer, loaded.tokenizer.name, "1"),
        ("HARNESS_BUILD", build, build.harness, str(build.decider)),
    ]
    return [pinned(kind, document, name, version) for kind, document, name, version in each]


def pinned(kind: ConfigKind, document: Document, name: str, version: str) -> PinnedDocument:
    content = canonical(msgspec.to_builtins(document))
    return PinnedDocument(kind, name, version, content, sha256(content).digest())


def pins(pinned: Iterable[PinnedDocument], effective: Effective = "NOW") -> list[ConfigPinned]:
    """The events that record documents. The log keeps a content beside the event where it is too large for it."""
    return [
        ConfigPinned(
            kind=each.kind,
            effective=effective,
            name=each.name,
            version=each.version,
            digest=each.digest,
            content=Blob(
                digest=each.digest, size=len(each.content), media_type=MEDIA_TYPE, inline=each.content
            ),
        )
        for each in pinned
    ]  # fmt: skip


def configuration_of(contents: Mapping[str, bytes]) -> Configuration:
    """From the content of the document of each kind. Raises InvalidDocument where one is missing, is none that this
    build reads, or holds a condition that it does not take."""
    read = {kind: _document(kind, contents) for kind in KINDS}
    found = Configuration(
        workflow=read["WORKFLOW"],  # type: ignore[arg-type]  # each is of its kind's type, by ``_document``
        policy=read["POLICY"],  # type: ignore[arg-type]
        compression=read["COMPRESSION_RULES"],  # type: ignore[arg-type]
        tools=read["TOOL_CATALOG"],  # type: ignore[arg-type]
        prompts=read["PROMPT_TEMPLATE"],  # type: ignore[arg-type]
        validators=read["VALIDATORS"],  # type: ignore[arg-type]
        tokenizer=read["TOKENIZER"],  # type: ignore[arg-type]
        build=read["HARNESS_BUILD"],  # type: ignore[arg-type]
        digests={kind: sha256(contents[kind]).digest() for kind in KINDS},
    )
    for number, transition in enumerate(found.workflow.transitions):
        if transition.when is not None:
            cel.compile(transition.when, GUARD_INPUTS, where=f"WORKFLOW, transitions[{number}].when")
    for number, rule in enumerate(found.policy.rules):
        cel.compile(rule.when, POLICY_INPUTS, where=f"POLICY, rules[{number}].when")
    for number, spec in enumerate(found.validators.validators):
        if spec.predicate is not None:
            predicate(spec.predicate, where=f"VALIDATORS, validators[{number}].predicate")
    return found


def _document(kind: str, contents: Mapping[str, bytes]) -> Document:
    if kind not in contents:
        raise InvalidDocument(f"there is no {kind} document", wanted=f"one of each: {', '.join(KINDS)}", kind=kind)
    try:
        return msgspec.json.decode(contents[kind], type=KINDS[kind])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        found = f"the {kind} document cannot be read: {error}"
        todo = "read the session with the version that pinned it"
        raise InvalidDocument(found, wanted="a document of this version", todo=todo, kind=kind) from None
