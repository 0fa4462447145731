"""What all samples of one log share: the evaluation, its plan and configuration, and how sessions are named."""

from __future__ import annotations

from typing import Any

from dalsegno.importers.builder import Added, SessionBuilder, Source
from dalsegno.importers.inspect_ai.record import Resolver
from dalsegno.importers.inspect_ai.stages import HARNESS
from dalsegno.importers.opening import Pin, begin_session, labels_of, session_id_of
from dalsegno.importers.payload import clean_text, parse_time
from dalsegno.model.events import SessionCreated

_MODEL_KEYS = ("model", "model_base_url", "model_generate_config", "model_args", "model_roles")
_BUILD_KEYS = ("packages", "revision")
_LABELS = ("task", "task_id", "run_id", "eval_id", "eval_set_id", "model", "solver", "created")


class Header:
    """The evaluation of one log. ``name`` is the importer's name with its mapping version, as in ``inspect/1``."""

    def __init__(self, name: str, evaluation: dict[str, Any], plan: dict[str, Any]) -> None:
        self._name = name
        self._evaluation = evaluation
        self._plan = plan
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
        return session_id_of(self._name, own, sample["id"], sample["epoch"])

    def builder(self, sample: dict[str, Any], started: int | None) -> SessionBuilder:
        return SessionBuilder(session_id=self.session_id(sample), importer=self._name, started=started)

    def begin(self, builder: SessionBuilder, resolver: Resolver, sample: dict[str, Any], start: Source) -> Added:
        """The first events of a session: what it is, how it was configured, that it began."""
        given = resolver.value(sample.get("input"))
        labels = [(name, self._evaluation.get(name)) for name in _LABELS]
        labels += [("sample_id", sample["id"]), ("epoch", sample["epoch"]), ("sample_uuid", sample.get("uuid"))]
        created = SessionCreated(
            profile="IMPORTED",
            workflow_name=clean_text(str(self._evaluation.get("task") or "unknown")),
            labels=labels_of("inspect", labels),
            goal=None if not given else builder.blobs.of_value(given),
        )
        return begin_session(builder, created, self._pins(), Source("/eval", start.time), HARNESS)

    def _pins(self) -> list[Pin]:
        """Everything that the log says of the configuration, in four documents."""
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
        pins = [
            Pin("WORKFLOW", task, evaluation.get("task_version"), {"eval": rest, "plan": self._plan}),
            Pin("MODEL_PARAMS", clean_text(str(evaluation.get("model") or "unknown")), None, models),
        ]
        if build:
            packages = evaluation.get("packages")
            version = packages.get("inspect_ai") if isinstance(packages, dict) else None
            pins.append(Pin("HARNESS_BUILD", "inspect_ai", version, build))
        if evaluation.get("scorers"):
            pins.append(Pin("VALIDATORS", "scorers", None, evaluation["scorers"]))
        return pins
