"""Where the facts of a replay come from: what was asked for, and what follows for what was recorded. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from dalsegno.replay.serving import ANSWERS, LEAVE, RESULTS

Inference: TypeAlias = Literal["recorded", "rerun", "recorded-else-rerun", "scripted"]
Tools: TypeAlias = Literal["receipts", "simulate", "execute"]
Approvals: TypeAlias = Literal["recorded", "deny", "script"]
Compression: TypeAlias = Literal["recorded", "recompute"]
OnMiss: TypeAlias = Literal["fail", "stop", "simulate"]


@dataclass(frozen=True)
class Strategy:
    """Where facts come from. ``approvals``: recorded ones, every one denied, or what a script of people says.
    ``compression``: what was recorded for the same rule and the same items is taken, or it is made again: by this
    build, or by a model, as other answers are."""

    mode: str = "full"
    inference: Inference = "recorded"
    tools: Tools = "receipts"
    approvals: Approvals = "recorded"
    compression: Compression = "recorded"
    on_miss: OnMiss = "fail"

    @property
    def denies(self) -> bool:
        """Whether no leave is given: an approval was given for effects of then, so none counts where tools run again,
        unless a script gives it."""
        return self.approvals == "deny" or (self.tools == "execute" and self.approvals == "recorded")

    @property
    def held(self) -> frozenset[str]:
        """Types of recorded facts that are not served."""
        asks, runs = self.inference in ("rerun", "scripted"), self.tools in ("simulate", "execute")
        return frozenset().union(
            ANSWERS if asks else (),
            {*RESULTS, "ToolCallStarted"} if runs else (),
            LEAVE if self.denies or self.approvals == "script" else (),
        )

    def __str__(self) -> str:
        return (
            f"{self.mode} inference={self.inference} tools={self.tools} approvals={self.approvals} "
            f"compression={self.compression} on-miss={self.on_miss}"
        )
