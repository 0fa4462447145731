"""The modes of a replay, and what each does with each class of events: one table, which is shown and documented."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dalsegno.replay.strategy import Compression, Strategy

MODES: Final[Mapping[str, Mapping[str, str]]] = {
    "full": {
        "decisions": "made again, compared by domain id",
        "answers of models": "recorded, or asked for again with a provider",
        "compressions": "recorded ones by their key, else made again",
        "results of tools": "recorded receipts; a miss follows --on-miss",
        "people and the world": "recorded or scripted; a miss follows --on-miss",
        "writes": "a fork where anything is asked for again or a document is another; never the original",
    },
    "inference-skipping": {
        "decisions": "each computed from the record before it, and compared",
        "answers of models": "recorded",
        "compressions": "recorded; each also made again, and compared",
        "results of tools": "recorded",
        "people and the world": "recorded",
        "writes": "nothing to any session",
    },
    "projection-only": {
        "decisions": "not looked at",
        "answers of models": "not looked at",
        "compressions": "not looked at",
        "results of tools": "not looked at",
        "people and the world": "not looked at",
        "writes": "projections, as a new generation",
    },
    "simulation": {
        "decisions": "made again, compared by domain id or with a golden reference",
        "answers of models": "recorded or scripted",
        "compressions": "made again, compared by domain id",
        "results of tools": "recorded, simulated, or executed where the caller says",
        "people and the world": "recorded or scripted; never recorded leave where tools are executed",
        "writes": "nothing to any session",
    },
}
"""What each mode does with each class of events."""

COMPRESSION: Final[Mapping[str, Compression]] = {
    "full": "recorded",
    "inference-skipping": "recompute",
    "simulation": "recompute",
}
"""Where nobody says otherwise: a test is there to find that this build compresses otherwise; a session that is gone on
with as a fork goes on from what its models were shown."""

_ANSWERS: Final = {
    "recorded": "recorded",
    "rerun": "asked for again",
    "recorded-else-rerun": "recorded; asked for again where the question is another",
    "scripted": "scripted",
}
_COMPRESSIONS: Final = {"recorded": MODES["full"]["compressions"], "recompute": MODES["simulation"]["compressions"]}
_RESULTS: Final = {"receipts": "recorded receipts", "simulate": "simulated", "execute": "executed"}
_LEAVE: Final = {
    "recorded": "recorded",
    "deny": "recorded, all leave denied",
    "script": "leave scripted; answers to questions too where the script has a rule for any; else recorded",
}
_MISS: Final = {"fail": "a miss ends it", "stop": "a miss stops it", "simulate": "a miss is simulated"}


def actions(strategy: Strategy, *, fork: bool = False) -> dict[str, str]:
    """The mode's row of the table after all that was asked for. ``fork``: it is written as one."""
    row = dict(MODES[strategy.mode])
    if strategy.mode == "inference-skipping":
        if strategy.compression == "recorded":
            row["compressions"] = "recorded"
        return row
    leave = "deny" if strategy.denies else strategy.approvals
    results = _RESULTS[strategy.tools]
    return {
        **row,
        "decisions": "made again, compared by domain id",
        "answers of models": _ANSWERS[strategy.inference],
        "compressions": _COMPRESSIONS[strategy.compression],
        "results of tools": f"{results}; {_MISS[strategy.on_miss]}" if strategy.tools == "receipts" else results,
        "people and the world": _LEAVE[leave],
        "writes": "a fork" if fork else "nothing to any session",
    }
