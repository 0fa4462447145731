"""The modes of a replay, and what each does with each class of events: one table, which is shown and documented."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

MODES: Final[Mapping[str, Mapping[str, str]]] = {
    "full": {
        "decisions": "made again, compared by domain id",
        "answers of models": "recorded, or asked for again with a provider",
        "results of tools": "recorded receipts; a miss follows --on-miss",
        "people and the world": "recorded; a miss follows --on-miss",
        "writes": "a fork where anything is asked for again or a document is another; never the original",
    },
    "inference-skipping": {
        "decisions": "each computed from the record before it, and compared",
        "answers of models": "recorded",
        "results of tools": "recorded",
        "people and the world": "recorded",
        "writes": "nothing to any session",
    },
    "projection-only": {
        "decisions": "not looked at",
        "answers of models": "not looked at",
        "results of tools": "not looked at",
        "people and the world": "not looked at",
        "writes": "projections, as a new generation",
    },
    "simulation": {
        "decisions": "made again, compared by domain id or with a golden reference",
        "answers of models": "recorded or scripted",
        "results of tools": "recorded, simulated, or executed where the caller says",
        "people and the world": "recorded; never recorded leave where tools are executed",
        "writes": "nothing to any session",
    },
}
"""What each mode does with each class of events."""
