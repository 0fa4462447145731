"""Conditions on a session as it stands at one seq: CEL over event and state, or a validator over an output or a row."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

from dalsegno.errors import BlobDamaged, BlobMissing, Failed, InvalidDocument, NotFound, Usage
from dalsegno.model.events import Finding
from dalsegno.orchestration.documents import ValidatorSpec
from dalsegno.orchestration.validation import against_schema, judge, predicate
from dalsegno.orchestration.yaml_text import MAX_BYTES, read_yaml
from dalsegno.projections import registry
from dalsegno.projections.base import values_of
from dalsegno.readers.breakpoints import Breakpoint
from dalsegno.readers.sessions import SESSIONS
from dalsegno.readers.stepping import state_values
from dalsegno.replay.divergence import plain
from dalsegno.state.walk import Walk
from dalsegno.storage.blobs import Blobs

Condition: TypeAlias = Callable[[Walk], bool | None]
"""Whether it holds where the walk stands; None: it cannot be told there."""

STAGES: Final = "stages"


def of_breakpoint(asked: Breakpoint) -> Condition:
    def condition(walk: Walk) -> bool | None:
        state = state_values(walk.row(SESSIONS), walk.open()) if asked.needs_state else {}
        return asked.tells(walk.event(walk.seq), state)

    return condition


# --- validators -------------------------------------------------------------------------------------------------------


def read_validator(given: str) -> ValidatorSpec:
    """A file of YAML or JSON that holds a JSON Schema or a validator with a ``schema`` or a ``predicate``; or, if there
    is no such file, a JSON Schema (it begins with a brace) or a predicate in CEL. Raises Usage, NotFound, Failed."""
    content = _content(given)
    try:
        if content is None and not given.lstrip().startswith("{"):
            spec = ValidatorSpec(name=given, predicate=given)
        else:
            value = read_yaml(given.encode() if content is None else content, given).value
            spec = _validator(given, value)
        if spec.predicate is not None:
            predicate(spec.predicate, where="validator")
    except InvalidDocument as error:
        # It is part of no configuration: whoever typed it corrects it.
        raise Usage(error.found, wanted=error.wanted, todo=error.todo) from error
    if spec.schema is not None and against_schema(spec.schema, None) is None:
        raise Usage(f"validator {given}: its schema cannot be used", wanted="a JSON Schema", todo="correct it")
    return spec


def _content(given: str) -> bytes | None:
    path = Path(given)
    try:
        if not path.is_file():
            if path.suffix in (".json", ".yaml", ".yml"):
                raise NotFound(f"there is no file {given}", todo="name the file of a validator, or write it here")
            return None
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except ValueError:  # a text that no file can be named
        return None
    except OSError as error:
        if error.strerror == "File name too long":
            return None
        raise Failed(f"could not read {given}: {error.strerror}", todo="name a file that can be read") from error


def _validator(given: str, value: Any) -> ValidatorSpec:
    if not isinstance(value, dict):
        raise Usage(f"validator {given} is no mapping", wanted="a JSON Schema, or a validator: schema or predicate")
    schema, condition = value.get("schema"), value.get("predicate")
    name = str(value.get("name", given))
    if isinstance(condition, str) and schema is None:
        return ValidatorSpec(name=name, predicate=condition)
    if isinstance(schema, dict) and condition is None:
        return ValidatorSpec(name=name, schema=schema)
    if {"agent", "reporter", "predicate"} & value.keys():
        raise Usage(
            f"validator {given} is judged by somebody else, or by more than one rule",
            wanted="a schema or a predicate: only these judge without a model or a program",
            todo="name another validator",
        )
    return ValidatorSpec(name=name, schema=value)


class Rejects:
    """Whether a validator rejects what there is to judge; where there is nothing yet, it rejects nothing. ``errors``:
    how often it could not judge, by why; ``findings``: what it found, by the seq where it was asked."""

    def __init__(self, spec: ValidatorSpec, content: Callable[[Walk], bytes | None]) -> None:
        self._spec, self._content = spec, content
        self.errors: dict[str, int] = {}
        self.findings: dict[int, tuple[Finding, ...]] = {}

    def __call__(self, walk: Walk) -> bool | None:
        try:
            content = self._content(walk)
        except (BlobMissing, BlobDamaged) as error:
            why = error.found
        else:
            if content is None:
                return False
            found = judge(self._spec, content, {})
            if found.verdict in ("PASS", "REJECT"):
                self.findings[walk.seq] = found.findings
                return found.verdict == "REJECT"
            why = "; ".join(each.message for each in found.findings) or found.verdict
        self.errors[why] = self.errors.get(why, 0) + 1
        return None


def output_of_stage(blobs: Blobs, stage: str | None) -> Callable[[Walk], bytes | None]:
    """The output of the stage that was completed last (of this name); None where none was."""

    def content(walk: Walk) -> bytes | None:
        ended = [
            row.ended_seq
            for _, row in walk.rows(STAGES)
            if row.kind == "STAGE" and row.status == "COMPLETED" and (stage is None or row.stage_name == stage)
        ]
        if not ended:
            return None
        event = walk.event(max(ended))
        outputs: Mapping[str, Any] | None = None if event.stub is not None else event.body["outputs"]
        if outputs is None:
            raise BlobMissing(f"the output of the stage that ended at seq {event.seq} is not recorded")
        return blobs.get(outputs)

    return content


def row_of(given: str) -> Callable[[Walk], bytes | None]:
    """A row as JSON; None where it is not there. ``given``: name of the projection and parts of the row's id, with
    blanks between them. Raises NotFound, Usage."""
    try:
        name, *words = shlex.split(given)
    except ValueError as error:
        raise Usage(f"row {given!r}: {error}", wanted="PROJECTION, or PROJECTION and the ID of a row") from error
    registry.chosen([name])

    def content(walk: Walk) -> bytes | None:
        for row_id, row in walk.rows(name):
            if [str(part) for part in row_id] == words:
                return json.dumps(plain(values_of(row))).encode()
        return None

    return content
