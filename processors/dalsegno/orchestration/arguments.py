"""Whether a tool call's arguments are what the tool takes, and what every policy can look at. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dalsegno.orchestration.canonical import read_arguments
from dalsegno.orchestration.validation import against_schema

_SHOWN: Final = 200


def problem_with(arguments: bytes, parameters: Mapping[str, Any]) -> str | None:
    """What is wrong with arguments as they were received; None if a policy may look at them.

    They must be a JSON object that every reader reads alike (``canonical.read_arguments``), and satisfy the tool's JSON
    Schema. No arguments at all are an empty object. The words are ours: they stand in decisions.
    """
    try:
        value = read_arguments(arguments or b"{}")
    except ValueError as error:
        return f"the arguments cannot be used: {str(error)[:_SHOWN]}"
    wrong = against_schema(parameters, value)
    if wrong is None:
        return "the tool's schema cannot be used"
    return f"{wrong[0].location or 'the arguments'}: {wrong[0].code}, {wrong[0].message}" if wrong else None
