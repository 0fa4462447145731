"""The facts of log lines. The code logs an event's name, with what it happened to in ``extra``; whoever formats lines
must show both, which Python's own last resort does not.

An application that has set up no logging sees warnings and errors on stderr, with their facts. As soon as it has a
handler of its own (``logging.basicConfig`` is enough), that one alone counts.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

# What every record has; what a call passed as `extra` is everything else.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message"}


def facts_of(record: logging.LogRecord) -> dict[str, Any]:
    """What the call passed as ``extra``."""
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}


class LastResort(logging.Handler):
    """Prints a record, with its facts, where nobody else does."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.setFormatter(_WithFacts("dalsegno: %(levelname)s: %(message)s"))
        self.addFilter(self._is_alone)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            print(self.format(record), file=sys.stderr)
        except Exception:
            self.handleError(record)

    def _is_alone(self, record: logging.LogRecord) -> bool:
        logger: logging.Logger | None = logging.getLogger(record.name)
        while logger is not None:
            if any(handler is not self for handler in logger.handlers):
                return False
            logger = logger.parent if logger.propagate else None
        return True


class _WithFacts(logging.Formatter):
    def formatMessage(self, record: logging.LogRecord) -> str:
        facts = " ".join(f"{name}={value!r}" for name, value in facts_of(record).items())
        return super().formatMessage(record) + (f" {facts}" if facts else "")


def install() -> None:
    """Once a process: the package does it when it is loaded."""
    logger = logging.getLogger("dalsegno")
    if not any(isinstance(handler, LastResort) for handler in logger.handlers):
        logger.addHandler(LastResort())
