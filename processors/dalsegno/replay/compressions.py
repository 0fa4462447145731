"""Recorded compressions, reused by their key: the rule, its digest, and the digest of what it was applied to. Pure.

What is reused is the text that stands for the items. MASK and DEDUP leave none: what they make follows from the items.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

from dalsegno.model.events import Blob, CompressionCompleted, NewEvent
from dalsegno.model.lifecycle.state import bounded
from dalsegno.model.records import Event
from dalsegno.orchestration.decider import Contents
from dalsegno.projections.decider.rows import COMPRESSION, CompressionState
from dalsegno.projections.decider.table import MemoryRows

Key: TypeAlias = tuple[str, bytes | None, bytes | None]


class Compressions:
    """Those of one recording."""

    def __init__(self) -> None:
        self._asked: dict[str, Key] = {}
        self._texts: dict[Key, Mapping[str, Any]] = {}

    def record(self, event: Event) -> None:
        """The recording's next event, which is no stub."""
        if event.type == "CompressionStarted":
            self._asked[event.body["compression_id"]] = _key(event.body)
        elif event.type == "CompressionCompleted" and event.body["summary"] is not None:
            self._texts[_key(event.body)] = event.body

    def reused(self, decision: NewEvent, contents: Contents) -> NewEvent | None:
        """A compression that is due, with the text that one of the same key was recorded with; None where none was.
        Raises NotReconstructable where that text is gone."""
        if not isinstance(decision, CompressionCompleted):
            return None
        recorded = self._texts.get((bounded(decision.rule_id or ""), decision.rule_digest, decision.input_digest))
        if recorded is None:
            return None
        blob, before, after = recorded["summary"], recorded["tokens_before"], recorded["tokens_after"]
        text = contents.get(blob["digest"]) if blob["inline"] is None else blob["inline"]
        tokens = decision.tokens_after
        if None not in (before, after, decision.tokens_before):
            tokens = (decision.tokens_before or 0) - before + after  # what else is in the pack may be more or less
        return msgspec.structs.replace(
            decision,
            summary=Blob(digest=blob["digest"], size=blob["size"], media_type=blob["media_type"], inline=text),
            output_digest=recorded["output_digest"],
            tokens_after=tokens,
        )

    def is_for_one(self, inference_id: str) -> bool:
        """Whether a model was asked by this inference for one of them."""
        return inference_id.rpartition("/")[0] in self._asked

    def answers(self, inference_id: str, rows: MemoryRows) -> str | None:
        """The inference of the compression in progress, if what was recorded of this one is an answer to it: it was
        asked for a compression of the same key."""
        head = rows.head_row
        state: CompressionState | None = (
            rows.get((COMPRESSION, head.compressing)) if head and head.compressing else None
        )
        key = self._asked.get(inference_id.rpartition("/")[0])
        if head is None or state is None or key is None:
            return None
        return f"{head.compressing}/i" if (state.rule_id, state.rule_digest, state.input_digest) == key else None


def _key(body: Mapping[str, Any]) -> Key:
    return bounded(body["rule_id"] or ""), body["rule_digest"], body["input_digest"]
