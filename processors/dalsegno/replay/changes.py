"""What if: other documents in the place of those that a session pinned, in memory or pinned in a fork."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec

from dalsegno.harness.files import load, load_policy
from dalsegno.orchestration.configuration import PinnedDocument, documents, pinned
from dalsegno.orchestration.documents import KINDS, Configuration

KEPT: Final = frozenset({"TOOL_CATALOG", "HARNESS_BUILD"})
"""Of another workflow's file these are not taken: the tools are those of then, and what decides is this build."""

_FIELDS: Final = {
    "WORKFLOW": "workflow", "POLICY": "policy", "COMPRESSION_RULES": "compression", "TOOL_CATALOG": "tools",
    "PROMPT_TEMPLATE": "prompts", "VALIDATORS": "validators", "TOKENIZER": "tokenizer", "HARNESS_BUILD": "build",
}  # fmt: skip


class Changes:
    """``workflow``: a file, with all that it names but its tools; ``policy``: a file, before the workflow's own;
    ``model``: of every agent. Raises InvalidDocument."""

    def __init__(self, *, policy: Path | None = None, workflow: Path | None = None, model: str | None = None) -> None:
        self._policy = None if policy is None else load_policy(policy)
        self._workflow = workflow
        self._model = model
        self._known: dict[tuple[bytes, ...], list[PinnedDocument]] = {}

    def __bool__(self) -> bool:
        return not (self._policy is None and self._workflow is None and self._model is None)

    def of(self, before: Configuration) -> list[PinnedDocument]:
        """The documents that are other ones than those in force. Raises InvalidDocument."""
        key = tuple(before.digests[kind] for kind in sorted(before.digests))
        if key not in self._known:
            made = self._made(before)
            self._known[key] = [made[kind] for kind in KINDS if kind in made and _is_other(made[kind], before)]
        return self._known[key]

    def override(self, before: Configuration) -> Configuration:
        """The configuration with them."""
        changed = self.of(before)
        fields: dict[str, Any] = {
            _FIELDS[each.kind]: msgspec.json.decode(each.content, type=KINDS[each.kind]) for each in changed
        }
        return msgspec.structs.replace(
            before, **fields, digests={**before.digests, **{each.kind: each.digest for each in changed}}
        )

    def told(self, before: Configuration) -> str:
        """Which documents, by their digests."""
        return " ".join(f"{each.kind}={each.digest.hex()}" for each in self.of(before))

    def _made(self, before: Configuration) -> dict[str, PinnedDocument]:
        found: dict[str, PinnedDocument] = {}
        workflow = before.workflow
        if self._workflow is not None:
            loaded = load(self._workflow, tools=before.tools.tools)
            workflow = loaded.workflow
            found = {each.kind: each for each in documents(loaded, before.build) if each.kind not in KEPT}
        if self._model is not None:
            agents = {
                name: msgspec.structs.replace(agent, model=self._model) for name, agent in workflow.agents.items()
            }
            workflow = msgspec.structs.replace(workflow, agents=agents)
            found["WORKFLOW"] = pinned("WORKFLOW", workflow, workflow.name, workflow.version)
        if self._policy is not None:
            found["POLICY"] = pinned("POLICY", self._policy, self._policy.name, self._policy.version)
        return found


def _is_other(document: PinnedDocument, before: Configuration) -> bool:
    return before.digests[document.kind] != document.digest
