"""Log lines on stderr: plain for people or one JSON object a line. The code logs through the standard library."""

from __future__ import annotations

import logging
import sys

import structlog

from dalsegno.cli.output import visible_lines
from dalsegno.log.facts import facts_of


def _extras(_: object, __: str, event: structlog.types.EventDict) -> structlog.types.EventDict:
    record = event.get("_record")
    if isinstance(record, logging.LogRecord):
        event.update(facts_of(record))
    return event


def _harmless(_: object, __: str, event: structlog.types.EventDict) -> structlog.types.EventDict:
    """Texts of sessions must not act on a terminal; JSON escapes them by itself."""
    return {name: visible_lines(value) if isinstance(value, str) else value for name, value in event.items()}


def configure_logging(level: str, form: str, colors: bool | None = None) -> None:
    """Route every logger of this process to stderr at the given least level; ``form`` is text or json. ``colors``:
    of the text form; None means on a terminal only."""
    shared: list[structlog.types.Processor] = [
        _extras,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
    ]
    renderer: structlog.types.Processor
    if form == "json":
        renderer = structlog.processors.JSONRenderer()
    else:
        on = sys.stderr.isatty() if colors is None else colors
        renderer = structlog.dev.ConsoleRenderer(colors=on, timestamp_key="ts", repr_native_str=False)
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            *([] if form == "json" else [_harmless]),
            renderer,
        ],
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(getattr(logging, level.upper()))
    # Faust and its base library narrate their own start at INFO; what an operator needs of it we log ourselves. The
    # narration of our own services comes under the name of their module.
    for chatty in ("faust", "mode", "aiokafka", "asyncio", "dalsegno.streams.app"):
        logging.getLogger(chatty).setLevel(max(logging.WARNING, root.level))
