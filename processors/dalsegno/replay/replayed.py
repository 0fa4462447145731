"""What a replay of one session came to, as people and programs are told it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from dalsegno.model.records import Event
from dalsegno.replay.compared import Compared, compare_run
from dalsegno.replay.divergence import Divergence
from dalsegno.replay.rerun import Rerun
from dalsegno.replay.serving import EXACT, INEXACT, Counts, served_as

Verdict: TypeAlias = Literal["EQUAL", "DIVERGED", "NOT_COMPARED"]

POLICY_DIGESTS: Final = frozenset({"/policy_digest", "/validator_digest", "/engine"})
"""They differ for no other reason than that a document is another."""
KEPT: Final = 20
"""Divergences that are kept whole, the first ones."""


@dataclass
class Replayed:
    """``verdict`` NOT_COMPARED: no decision could be. ``left_over``: recorded results that nothing asked for.
    ``identity``: "" where anybody was asked. ``head``: the hash, in hex, of the last event that the session had."""

    session_id: str
    mode: str
    strategy: str
    verdict: Verdict = "NOT_COMPARED"
    identity: str = ""
    head: str = ""
    events: int = 0
    compared: int = 0
    equal: int = 0
    diverged: int = 0
    derived: int = 0
    divergences: list[Divergence] = field(default_factory=list)
    not_comparable: Counter[str] = field(default_factory=Counter)
    unreconstructable: tuple[int, str] | None = None
    what_if: list[str] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)
    inexact: list[tuple[int, str]] = field(default_factory=list)
    left_over: int = 0
    stopped: str | None = None
    todo: str | None = None
    snapped_back: int = 0
    fork: str | None = None

    @property
    def tainted(self) -> bool:
        """Recorded facts were served that are not exactly those of then."""
        return self.counts.tainted

    def of_run(self, recorded: Sequence[Event], run: Rerun, *, config: bool, open_end: bool) -> Replayed:
        """What a run of the events that were recorded came to. ``config``: by another configuration; ``open_end``: the
        recording goes no further."""
        compared = compare_run(
            recorded,
            run.events,
            config=config,
            ignore=POLICY_DIGESTS if config else frozenset(),
            open_end=open_end,
            missed=run.stopped if run.counts.missed else None,
        )
        self.counts, self.inexact, self.left_over = run.counts, run.inexact, len(run.left_over)
        self.stopped = run.stopped
        self._take(compared)
        return self.settle()

    def of_miss(self, recorded: Sequence[Event], ran: Sequence[Event], *, config: bool) -> None:
        """What a run came to that a miss ended: differences up to there are ones; without any, nothing is said of the
        rest."""
        ignore = POLICY_DIGESTS if config else frozenset()
        compared = compare_run(recorded, ran, config=config, ignore=ignore, up_to_miss=True)
        served = [served_as(event) for event in ran]
        self.counts.exact, self.counts.inexact = served.count(EXACT), served.count(INEXACT)
        self._take(compared)
        if self.diverged:
            self.verdict = "DIVERGED"

    def _take(self, compared: Compared) -> None:
        self.compared, self.equal = compared.compared, compared.equal
        self.diverged, self.divergences = len(compared.divergences), compared.divergences[:KEPT]

    def settle(self) -> Replayed:
        if self.diverged:
            self.verdict = "DIVERGED"
        elif self.compared and self.unreconstructable is None:
            self.verdict = "EQUAL"
        return self

    def as_data(self) -> dict[str, Any]:
        """Plain values for people and programs."""
        seq, why = self.unreconstructable or (None, None)
        return {
            "session": self.session_id, "mode": self.mode, "verdict": self.verdict, "events": self.events,
            "compared": self.compared, "equal": self.equal, "diverged": self.diverged, "derived": self.derived,
            "not_comparable": dict(sorted(self.not_comparable.items())),
            "unreconstructable_from": seq, "because": why, "what_if": self.what_if, "tainted": self.tainted,
            "served": {"exact": self.counts.exact, "inexact": self.counts.inexact},
            "rerun": self.counts.rerun, "simulated": self.counts.simulated, "missed": self.counts.missed,
            "reused_compressions": self.counts.reused,
            "inexact": [{"seq": seq, "because": why} for seq, why in self.inexact],
            "left_over": self.left_over, "stopped": self.stopped, "todo": self.todo, "fork": self.fork,
            "strategy": self.strategy, "identity": self.identity, "head": self.head,
            "divergences": [each.to_json() for each in self.divergences],
        }  # fmt: skip
