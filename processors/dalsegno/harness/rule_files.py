"""Files of rules: YAML or JSON, a list. What a rule is, whoever reads it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from dalsegno.errors import Failed


def read_rules(path: Path, what: str) -> Any:
    """What stands in the file, a list or not. ``what`` it is read as. Raises Failed."""
    try:
        rules = msgspec.yaml.decode(path.read_bytes())
        msgspec.json.encode(rules)  # what holds itself has no end, and a key that is no text has no place in arguments
    except (OSError, msgspec.DecodeError, RecursionError, TypeError) as error:
        raise Failed(
            f"{path} cannot be read as a script of {what}: {error}",
            wanted="a YAML or JSON file with a list of rules",
            todo="name or correct the file",
            file=str(path),
        ) from error
    return rules
