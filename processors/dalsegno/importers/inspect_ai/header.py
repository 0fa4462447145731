"""What all samples of one log share: the evaluation, its plan and configuration, and how sessions are named."""

from __future__ import annotations

import re
from collections.abc import Callable
from hashlib import sha256
from typing import Any

from dalsegno.importers.builder import Added, SessionBuilder, Source
from dalsegno.importers.inspect_ai.record import Resolver
from dalsegno.importers.inspect_ai.stages import HARNESS
from dalsegno.importers.payload import BlobMaker, clean_text, parse_time
from dalsegno.model.events import Blob, ConfigPinned, Label, SessionCreated, SessionStarted
from dalsegno.model.ids import SESSION_ID_MAX_BYTES, check_session_id
from dalsegno.model.lifecycle import config_set_digest

_UNSAFE = re.compile(r"[\x00-\x1f\x7f~%]")
_MODEL_KEYS = ("model", "model_base_url", "model_generate_config", "model_args", "model_roles")
_BUILD_KEYS = ("packages", "revision")
_LABELS = ("task", "task_id", "run_id", "eval_id", "eval_set_id", "model", "solver", "created")


class Header:
    """The evaluation of one log. ``name`` is the importer's name with its mapping version, as in ``inspect/1``."""

    def __init__(
        self, name: str, evaluation: dict[str, Any], plan: dict[str, Any], uri_of: Callable[[bytes], str]
    ) -> None:
        self._name = name
        self._evaluation = evaluation
        self._plan = plan
        self._uri_of = uri_of
        self.created, _ = parse_time(evaluation.get("created"))

    def only_scorer(self) -> str | None:
        """The scorer's name, where the evaluation has just one."""
        scorers = self._evaluation.get("scorers")
        if isinstance(scorers, list) and len(scorers) == 1 and isinstance(scorers[0], dict):
            name = scorers[0].get("name")
            return clean_text(name) if isinstance(name, str) else None
        return None

    def session_id(self, sample: dict[str, Any]) -> str:
        """``inspect/<mapping version>:<evaluation>:<sample>:<epoch>``, all from the log's own ids."""
        evaluation = self._evaluation
        own = evaluation.get("eval_id") or f"{evaluation.get('run_id')}.{evaluation.get('task_id')}"
        tail = f":{_safe(str(own))}:{_safe(str(sample['id']))}:{sample['epoch']}"
        session_id = self._name + tail
        if len(session_id.encode()) > SESSION_ID_MAX_BYTES:
            session_id = f"{self._name}:sha256-{sha256(tail.encode()).hexdigest()}:{sample['epoch']}"
        return check_session_id(session_id)

    def builder(self, sample: dict[str, Any], started: int) -> SessionBuilder:
        session_id = self.session_id(sample)
        return SessionBuilder(
            session_id=session_id,
            importer=self._name,
            native_id=session_id,
            started=started,
            blobs=BlobMaker(self._uri_of),
        )

    def begin(self, builder: SessionBuilder, resolver: Resolver, sample: dict[str, Any], start: Source) -> Added:
        """The first events of a session: what it is, how it was configured, that it began."""
        given = resolver.value(sample.get("input"))
        labels = [(f"inspect.{name}", self._evaluation[name]) for name in _LABELS if self._evaluation.get(name)]
        labels += [("inspect.sample_id", sample["id"]), ("inspect.epoch", sample["epoch"])]
        labels += [("inspect.sample_uuid", sample["uuid"])] if sample.get("uuid") else []
        created = SessionCreated(
            profile="IMPORTED",
            workflow_name=clean_text(str(self._evaluation.get("task") or "unknown")),
            labels=[Label(key=key, value=clean_text(str(value))) for key, value in sorted(labels)],
            goal=None if not given else builder.blobs.of_value(given),
        )
        at = Source("/eval", start.time)
        first = builder.add(created, at, HARNESS)
        pins = [(pin, self._pin(pin, builder)) for pin in self._pins()]
        for pin, content in pins:
            kind, name, version, _ = pin
            event = ConfigPinned(kind=kind, name=name, version=version, digest=content.digest, content=content)  # type: ignore[arg-type]
            builder.add(event, at, HARNESS)
        lines = sorted(f"{kind}:{name}:{content.digest.hex()}" for (kind, name, _, _), content in pins)
        started = SessionStarted(config_set_digest=config_set_digest(lines), clock_start=start.time)
        return builder.add(started, at, HARNESS, cause=first)

    def _pins(self) -> list[tuple[str, str, str | None, Any]]:
        """(kind, name, version, content) of everything that the log says of the configuration; all of it, in four."""
        evaluation = self._evaluation
        models = {key: evaluation[key] for key in _MODEL_KEYS if evaluation.get(key)}
        build = {key: evaluation[key] for key in _BUILD_KEYS if evaluation.get(key)}
        rest = {
            key: value
            for key, value in evaluation.items()
            if key not in {*_MODEL_KEYS, *_BUILD_KEYS, "scorers"} and value
        }
        if isinstance(rest.get("dataset"), dict):
            rest["dataset"] = {key: value for key, value in rest["dataset"].items() if key != "sample_ids"}
        task = clean_text(str(evaluation.get("task") or "unknown"))
        version = evaluation.get("task_version")
        packages = evaluation.get("packages")
        inspect_version = packages.get("inspect_ai") if isinstance(packages, dict) else None
        pins: list[tuple[str, str, str | None, Any]] = [
            (
                "WORKFLOW",
                task,
                None if version is None else clean_text(str(version)),
                {"eval": rest, "plan": self._plan},
            ),
            ("MODEL_PARAMS", clean_text(str(evaluation.get("model") or "unknown")), None, models),
        ]
        if build:
            pins.append(
                (
                    "HARNESS_BUILD",
                    "inspect_ai",
                    None if inspect_version is None else clean_text(str(inspect_version)),
                    build,
                )
            )
        if evaluation.get("scorers"):
            pins.append(("VALIDATORS", "scorers", None, evaluation["scorers"]))
        return pins

    @staticmethod
    def _pin(pin: tuple[str, str, str | None, Any], builder: SessionBuilder) -> Blob:
        return builder.blobs.of_json(pin[3])


def _safe(text: str) -> str:
    """A native id as a part of ours: what our ids may not hold is percent-encoded, so that no two ids become one."""
    return _UNSAFE.sub(lambda found: f"%{ord(found.group()):02X}", clean_text(text))
