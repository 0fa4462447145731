"""Settings of the entry points: flag > environment > profile in ``dalsegno.toml`` > default.

Built once per process by the command line and passed down as plain values; nothing deeper in the code reads the
environment.
Environment names are ``DALSEGNO_<FIELD>``, nested ones with two underscores (``DALSEGNO_KAFKA__BOOTSTRAP_SERVERS``).
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from dalsegno.errors import Usage

CONFIG_FILE = "dalsegno.toml"
_PREFIX = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,48}\Z")


class KafkaSettings(BaseModel):
    """Connection to Kafka. ``options`` are librdkafka's own settings (TLS, SASL, ...), given to every client."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    bootstrap_servers: str = ""
    options: dict[str, str] = Field(default_factory=dict)


class WorkerSettings(BaseModel):
    """How a worker works; times in seconds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    emit_interval_seconds: float = Field(0.2, gt=0, le=60)
    session_timeout_seconds: float = Field(10.0, ge=6, le=300)
    transaction_timeout_seconds: float = Field(10.0, ge=2, le=900)
    snapshot_every_events: int = Field(200_000, ge=1)
    snapshot_every_seconds: float = Field(900.0, gt=0)


class Settings(BaseSettings):
    """Everything that can be set, frozen."""

    model_config = SettingsConfigDict(
        env_prefix="DALSEGNO_",
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
        nested_model_default_partial_update=True,
    )
    profile_values: ClassVar[dict[str, Any]] = {}

    kafka: KafkaSettings = KafkaSettings()
    worker: WorkerSettings = WorkerSettings()  # type: ignore[call-arg]  # every field has a default
    data: Path = Path(".dalsegno")
    prefix: str = "dalsegno"
    store: str | None = None
    store_options: dict[str, str] = Field(default_factory=dict)
    partitions: int = Field(16, ge=1, le=4096)
    java: str = ""
    log_format: str = "text"
    log_level: str = "warning"

    @field_validator("prefix")
    @classmethod
    def _prefix_is_a_topic_name(cls, value: str) -> str:
        if not _PREFIX.match(value):
            raise ValueError("must be 1 to 49 of [A-Za-z0-9_-] and begin with a letter or digit")
        return value

    @field_validator("log_format")
    @classmethod
    def _log_format_is_known(cls, value: str) -> str:
        if value not in ("text", "json"):
            raise ValueError("must be text or json")
        return value

    @property
    def store_location(self) -> str:
        """Where snapshots and blobs lie: the setting, else a folder in the data folder."""
        return self.store if self.store is not None else str(self.data / "store")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        del dotenv_settings, file_secret_settings
        return init_settings, env_settings, InitSettingsSource(settings_cls, cls.profile_values)


# Names under DALSEGNO_ that are not settings of this model: they choose the file or belong to tests.
_OTHER_NAMES = {"DALSEGNO_PROFILE", "DALSEGNO_CONFIG"}
_OTHER_PREFIX = "DALSEGNO_TEST_"


def read_profile(path: Path | None, profile: str | None) -> dict[str, Any]:
    """The values of one profile: the file's top level, overlaid by ``[profile.NAME]``.

    Without a path ``./dalsegno.toml`` is read if it exists. Raises Usage for a missing file or profile, or broken TOML.
    """
    chosen = path or Path(CONFIG_FILE)
    if not chosen.exists():
        if path is None and profile is None:
            return {}
        raise Usage(f"no settings file {chosen}", wanted="a TOML file", todo="give --config FILE or drop --profile")
    try:
        document = tomllib.loads(chosen.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Usage(f"{chosen} is not valid TOML: {error}", todo="correct the file") from error
    profiles = document.pop("profile", {})
    if profile is None:
        return document
    if profile not in profiles:
        raise Usage(
            f"{chosen} has no profile {profile!r}",
            wanted=f"one of {', '.join(sorted(profiles)) or '(none defined)'}",
            todo=f"add [profile.{profile}] or choose another",
        )
    return _overlay(document, profiles[profile])


def _overlay(base: dict[str, Any], top: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in top.items():
        old = merged.get(key)
        merged[key] = _overlay(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def load_settings(flags: dict[str, Any], *, config: Path | None = None, profile: str | None = None) -> Settings:
    """The settings of this process. ``flags`` holds only what was given on the command line.

    Raises Usage naming each wrong field, what was found and where it came from.
    """
    values = read_profile(config, profile)
    unknown = sorted(
        name
        for name in os.environ
        if name.startswith("DALSEGNO_")
        and name not in _OTHER_NAMES
        and not name.startswith(_OTHER_PREFIX)
        and name.removeprefix("DALSEGNO_").split("__")[0].lower() not in Settings.model_fields
    )
    if unknown:
        raise Usage(
            f"unknown setting {', '.join(unknown)} in the environment",
            wanted="DALSEGNO_" + ", DALSEGNO_".join(name.upper() for name in Settings.model_fields),
            todo="correct or unset it",
        )

    class _Profiled(Settings):
        profile_values: ClassVar[dict[str, Any]] = values

    try:
        return _Profiled(**flags)
    except ValidationError as error:
        problems = "; ".join(_problem(item) for item in error.errors())
        raise Usage(f"wrong settings: {problems}", todo="correct the flag, DALSEGNO_* variable or profile") from None
    except SettingsError as error:
        # Not its cause: that one holds the value, which may be a secret.
        raise Usage(
            f"wrong settings: {error}",
            wanted="JSON where a variable holds several values",
            todo="correct the DALSEGNO_* variable",
        ) from None


def _problem(item: ErrorDetails) -> str:
    """One wrong value. What stands under ``kafka`` and ``store_options`` is not repeated: it may be a secret, also in
    the wrong place."""
    where = ".".join(str(part) for part in item["loc"])
    if item["type"] == "extra_forbidden":
        of: type[BaseModel] = Settings
        if len(item["loc"]) > 1:
            of = KafkaSettings if item["loc"][0] == "kafka" else WorkerSettings
        return f"there is no setting {where} (there are: {', '.join(of.model_fields)})"
    found = "" if item["loc"][:1] in (("kafka",), ("store_options",)) else f" (found {item['input']!r})"
    return f"{where}: {item['msg']}{found}"


def leaves(settings: Settings) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Path and value of every single setting; ``("kafka", "options", "sasl.username")`` is one."""
    for name in type(settings).model_fields:
        yield from _leaves((name,), getattr(settings, name))


def _leaves(path: tuple[str, ...], value: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    inner = value if isinstance(value, dict) else None
    if isinstance(value, BaseModel):
        inner = {name: getattr(value, name) for name in type(value).model_fields}
    if inner is None:
        yield path, value
        return
    for name, each in inner.items():
        yield from _leaves((*path, name), each)


def source_of(setting: str | tuple[str, ...], settings: Settings, flags: dict[str, Any]) -> str:
    """Where the value of a setting came from: flag, environment (and which variable), profile or default."""
    path = (setting,) if isinstance(setting, str) else setting
    if _holds(flags, path):
        return "flag"
    environment = {name.upper(): value for name, value in os.environ.items()}
    for size in range(len(path), 0, -1):
        name = "DALSEGNO_" + "__".join(path[:size]).upper()
        if name in environment and _holds(_json(environment[name]), path[size:]):
            return f"environment ({name})"
    return "profile" if _holds(type(settings).profile_values, path) else "default"


def _holds(values: Any, path: tuple[str, ...]) -> bool:
    for name in path:
        if not isinstance(values, dict) or name not in values:
            return False
        values = values[name]
    return True


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
