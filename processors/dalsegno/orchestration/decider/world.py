"""What a decision is made from: a session's rows, its configuration, contents by digest. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, NamedTuple, Protocol

from dalsegno.errors import NotReconstructable
from dalsegno.model.events import Blob
from dalsegno.orchestration.documents import Agent, Configuration, Stage, ToolSpec, ValidatorSpec
from dalsegno.projections.decider.rows import CALL, INFERENCE, CallState, Head, InferenceState
from dalsegno.projections.decider.table import MemoryRows

JSON: Final = "application/json"


class Due(NamedTuple):
    """A decision that is due: the type of its event, and the domain id that it is about."""

    type: str
    subject: str


class Contents(Protocol):
    """Contents by their SHA-256: what stands in events, and the items that a model may be shown, rendered."""

    def get(self, digest: bytes) -> bytes:
        """Raises NotReconstructable where nobody has it any more."""
        ...


class MemoryContents:
    """Contents in a dict: ``keep`` is what a fold tells of them."""

    def __init__(self, found: Mapping[bytes, bytes] | None = None) -> None:
        self.found = dict(found or {})

    def keep(self, digest: bytes, content: bytes) -> None:
        self.found[digest] = content

    def get(self, digest: bytes) -> bytes:
        content = self.found.get(digest)
        if content is None:
            raise NotReconstructable(
                f"the content with SHA-256 {digest.hex()} is missing",
                wanted="every content that a decision rests on",
                todo="give the store of contents that the session was written with",
                digest=digest.hex(),
            )
        return content


@dataclass(frozen=True)
class World:
    """All that a decision may look at. ``configuration``: the documents in force."""

    rows: MemoryRows
    configuration: Configuration
    contents: Contents

    @property
    def head(self) -> Head:
        head = self.rows.head_row
        assert head is not None  # nothing is asked of a session without rows
        return head

    @property
    def stage(self) -> Stage:
        """The stage in progress, or the one that is to begin."""
        return self.stage_named(self.head.stage_name if self.head.stage else self.head.to_stage)

    def stage_named(self, name: str) -> Stage:
        for stage in self.configuration.workflow.stages:
            if stage.name == name:
                return stage
        raise _not_pinned("WORKFLOW", f"no stage {name!r}")

    def agent(self, name: str) -> Agent:
        agent = self.configuration.workflow.agents.get(name)
        if agent is None:
            raise _not_pinned("WORKFLOW", f"no agent {name!r}")
        return agent

    def tool(self, name: str) -> ToolSpec | None:
        """What the stage in progress may call by that name."""
        if name not in self.stage.tools:
            return None
        return next((tool for tool in self.configuration.tools.tools if tool.name == name), None)

    def validator(self, name: str) -> ValidatorSpec:
        for spec in self.configuration.validators.validators:
            if spec.name == name:
                return spec
        raise _not_pinned("VALIDATORS", f"no validator {name!r}")

    def inference(self, id: str) -> InferenceState | None:
        found: InferenceState | None = self.rows.get((INFERENCE, id))
        return found

    def call(self, id: str) -> CallState:
        found: CallState = self.rows.get((CALL, id))
        return found

    def turn_calls(self) -> list[tuple[str, CallState | None]]:
        """The calls that this turn's answer asks for, in its order; None where nothing was decided on one yet."""
        inference = self.inference(self.head.inference)
        listed = [] if inference is None else inference.calls
        return [(id, self.rows.get((CALL, id))) for id, *_ in listed]

    def blob(self, content: bytes, media_type: str = "text/plain; charset=utf-8") -> Blob:
        """A content to stand in an event. The session's writer puts away what is too large to stand there."""
        return Blob(digest=sha256(content).digest(), size=len(content), media_type=media_type, inline=content)


def _not_pinned(kind: str, found: str) -> NotReconstructable:
    return NotReconstructable(
        f"{found} in the pinned document {kind}",
        wanted="the configuration that the session was decided with",
        todo="pin a document that has it, or start another session",
        kind=kind,
    )
