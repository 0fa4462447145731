"""The card of a data set: what is in it, of what it was made, what was left out and why. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from dalsegno.readers.datasets.left_out import REASONS

VERSION: Final = 1


def as_json(card: Mapping[str, Any]) -> bytes:
    return (json.dumps(card, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode("utf-8", "replace")


def from_json(data: bytes) -> dict[str, Any] | None:
    """None for what is no card of this version."""
    try:
        card = json.loads(data)
        splits = card["splits"].values()
        good = card["dataset"] == VERSION and all(
            isinstance(split[name], str) for split in splits for name in ("file", "file_sha256")
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return card if good else None


def as_text(card: Mapping[str, Any]) -> str:
    """The same for people, as Markdown."""
    what = "preference pairs" if card["options"]["pairs"] else "rows"
    sessions = card["sessions"]
    lines = [
        "# Data set",
        "",
        f"{sum(split['rows'] for split in card['splits'].values())} {what} from {sessions['with_rows']} of "
        f"{sessions['chosen']} chosen sessions, made by `dalsegno dataset build`.",
        "",
        f"- digest of the rows: `{card['digest']}`",
        f"- made of: `{card['log']['prefix']}.events` at {', '.join(card['log']['positions'])}"
        + (f"; not of partitions {card['log']['missing']}, which were not at hand" if card["log"]["missing"] else ""),
        f"- redaction: {_redaction(card['redaction'])}",
        "",
        "| split | file | rows |",
        "|---|---|---|",
        *(f"| {name} | {split['file']} | {split['rows']} |" for name, split in card["splits"].items()),
        "",
        "## Options",
        "",
        *(f"- {name}: `{json.dumps(value, ensure_ascii=False)}`" for name, value in sorted(card["options"].items())),
        "",
        "## Left out",
        "",
        *(f"- {count} `{reason}`: {REASONS[reason]}" for reason, count in sorted(card["left_out"].items())),
        *([] if card["left_out"] else ["Nothing."]),
    ]
    return "\n".join(lines) + "\n"


def _redaction(redaction: Mapping[str, Any] | None) -> str:
    if redaction is None:
        return "none; contents are as recorded"
    return f"rules {', '.join(redaction['rules'])} (document with SHA-256 `{redaction['digest']}`)"
