"""What a workload holds, counted where it is decided and not where it is folded: projections are checked against it."""

from __future__ import annotations

from collections import Counter
from typing import Any


class Tally:
    """Counts of one session, or of many together.

    ``stages``, ``turns``: begun, completed, failed or aborted, open · ``approvals``: granted, denied, expired, open ·
    ``tool_calls``: ok, error (its receipt says so), failed (given up), rejected, sub_session, open · ``verdicts`` by
    their symbol · ``outcomes`` of sessions · ``open_operations``: what stands open in the end, by kind · ``tokens`` by
    ``provider/model``: input, output, cache_read, reasoning, inferences (answers), failures (attempts without one),
    cost_usd_micros.
    """

    FIELDS = ("stages", "turns", "approvals", "tool_calls", "verdicts", "open_operations", "outcomes")

    def __init__(self) -> None:
        self.sessions = 0
        self.events = 0
        self.value_bytes = 0
        self.by_type: Counter[str] = Counter()
        self.stages: Counter[str] = Counter()
        self.turns: Counter[str] = Counter()
        self.approvals: Counter[str] = Counter()
        self.tool_calls: Counter[str] = Counter()
        self.verdicts: Counter[str] = Counter()
        self.open_operations: Counter[str] = Counter()
        self.outcomes: Counter[str] = Counter()
        self.tokens: dict[str, Counter[str]] = {}

    def used(self, model: str, amounts: dict[str, int]) -> None:
        """Add the usage of one answer of a model."""
        of_model = self.tokens.get(model)
        if of_model is None:
            of_model = self.tokens[model] = Counter()
        of_model.update(amounts)

    def add(self, other: Tally) -> None:
        self.sessions += other.sessions
        self.events += other.events
        self.value_bytes += other.value_bytes
        self.by_type.update(other.by_type)
        for name in self.FIELDS:
            getattr(self, name).update(getattr(other, name))
        for model, amounts in other.tokens.items():
            self.used(model, amounts)

    def as_data(self) -> dict[str, Any]:
        return {
            "sessions": self.sessions,
            "events": self.events,
            "value_bytes": self.value_bytes,
            **{name: _plain(getattr(self, name)) for name in self.FIELDS},
            "tokens": {model: _plain(amounts) for model, amounts in sorted(self.tokens.items())},
            "by_type": _plain(self.by_type),
        }


def _plain(counts: Counter[str]) -> dict[str, int]:
    """Without zeros, by name."""
    return {name: count for name, count in sorted(counts.items()) if count}
