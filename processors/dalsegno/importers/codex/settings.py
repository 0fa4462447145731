"""What a rollout says of configuration: once of the session, and again for each turn. Pure."""

from __future__ import annotations

from typing import Any

from dalsegno.importers.builder import SessionBuilder
from dalsegno.importers.codex.records import MAPPED, REPEAT, Native, Outcome, usable_id
from dalsegno.importers.opening import Pin, begin_session, labels_of, session_id_of
from dalsegno.importers.payload import digest_json, short_text
from dalsegno.importers.transcript import Transcript
from dalsegno.model.events import ConfigPinned, SessionCreated
from dalsegno.model.payloads import ConfigKind, Relation
from dalsegno.model.records import Actor

HARNESS = Actor("HARNESS", "codex")

_POLICY = (
    "approval_policy", "approvals_reviewer", "sandbox_policy", "file_system_sandbox_policy", "permission_profile",
    "active_permission_profile", "network",
)  # fmt: skip
_OF_THE_TURN = ("turn_id", "trace_id")
"""What differs with every turn and configures nothing."""
_PLACE = ("cwd", "git")
_PROMPT = ("base_instructions", "instructions")


def begin(importer: str, builder: SessionBuilder, meta: Native) -> None:
    """The first events of a session, from its ``session_meta``; all of it stands in them."""
    told = meta.fields.take_all()
    git = meta.fields.take_object("git")
    labels = [("id", told.get("id")), ("cwd", told.get("cwd")), ("originator", told.get("originator"))]
    labels += [("cli_version", told.get("cli_version")), ("model_provider", told.get("model_provider"))]
    labels += [(f"git.{name}", git.get(name)) for name in ("branch", "commit_hash")]
    relation, parent = _parent(told)
    created = SessionCreated(
        profile="IMPORTED",
        workflow_name="codex",
        relation=relation,
        parent_session=None if parent is None else session_id_of(importer, parent),
        labels=labels_of("codex", labels),
    )
    pins = [Pin("WORKFLOW", "codex", None, {name: told[name] for name in _PLACE if told.get(name)})]
    prompt = {name: told[name] for name in _PROMPT if told.get(name)}
    pins += [Pin("PROMPT_TEMPLATE", "codex", None, prompt)] if prompt else []
    pins += [Pin("TOOL_CATALOG", "codex", None, told["dynamic_tools"])] if told.get("dynamic_tools") else []
    rest = {name: told[name] for name in told if name not in (*_PLACE, *_PROMPT, "dynamic_tools")}
    pins.append(Pin("HARNESS_BUILD", "codex", told.get("cli_version"), rest))
    begin_session(builder, created, pins, meta.source, HARNESS)


def _parent(told: dict[str, Any]) -> tuple[Relation, str | None]:
    """A sub-agent's session is a child of the thread that spawned it; a forked one goes on with another's history,
    which its file repeats, so that there is no prefix to refer to."""
    source = told.get("source")
    if told.get("parent_thread_id") or (isinstance(source, dict) and "subagent" in source):
        return "CHILD", usable_id(told.get("parent_thread_id"))
    if told.get("forked_from_id"):
        return "CONTINUATION", usable_id(told.get("forked_from_id"))
    return "NONE", None


class Settings:
    """The configuration that turns run with: pinned when it is first told, and again when it has changed."""

    def __init__(self, transcript: Transcript, provider: str | None) -> None:
        self._transcript = transcript
        self._pinned: dict[ConfigKind, bytes] = {}
        self.provider = provider
        self.model: str | None = None

    def turn_context(self, native: Native) -> Outcome:
        told = {name: value for name, value in native.payload.items() if name not in _OF_THE_TURN}
        native.fields.take_each(*told)
        model = told.get("model")
        self.model = short_text(model) if isinstance(model, str) else None
        policy = {name: value for name, value in told.items() if name in _POLICY}
        rest = {name: value for name, value in told.items() if name not in _POLICY}
        changed = [self._pin("POLICY", "codex", policy, native), self._pin("MODEL_PARAMS", "codex", rest, native)]
        return MAPPED if any(changed) else REPEAT

    def _pin(self, kind: ConfigKind, name: str, document: dict[str, Any], native: Native) -> bool:
        digest = digest_json(document)
        if self._pinned.get(kind) == digest:
            return False
        self._pinned[kind] = digest
        content = self._transcript.blobs.of_json(document)
        event = ConfigPinned(kind=kind, effective="NEXT_TURN", name=name, digest=content.digest, content=content)
        self._transcript.add(event, native.source)
        return True
