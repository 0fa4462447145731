"""A session that another harness decided, event by event: what the labs of its kinds begin with."""

from __future__ import annotations

from typing import Any

from dalsegno.testing.builder import SessionBuilder, Written


class Observed:
    """A session of profile OBSERVED that runs. ``builder``: goes on with this one instead."""

    def __init__(self, session_id: str = "s-1", builder: SessionBuilder | None = None, **created: Any) -> None:
        if builder is None:
            builder = SessionBuilder(session_id, profile="OBSERVED")
            builder.append(
                "SessionCreated", profile="OBSERVED", relation="NONE", **{"workflow_name": "demo", **created}
            )
            builder.start()
        self.builder = builder

    @property
    def records(self) -> list[Written]:
        return self.builder.records
