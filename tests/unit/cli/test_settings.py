"""Order of the sources of settings, and what is said about wrong ones."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest

from dalsegno.errors import Usage
from dalsegno.settings import leaves, load_settings, source_of

TOML = """
prefix = "fromfile"
[kafka]
bootstrap_servers = "file:9092"
[kafka.options]
"ssl.ca.location" = "ca.pem"
[profile.prod]
prefix = "fromprofile"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("DALSEGNO_PREFIX", "DALSEGNO_DATA", "DALSEGNO_KAFKA__BOOTSTRAP_SERVERS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_flag_beats_environment_beats_profile_beats_default(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_settings({}).prefix == "dalsegno"
    (folder / "dalsegno.toml").write_text(TOML)
    assert load_settings({}).prefix == "fromfile"
    profiled = load_settings({}, profile="prod")
    assert (profiled.prefix, source_of("prefix", profiled, {})) == ("fromprofile", "profile")
    monkeypatch.setenv("DALSEGNO_PREFIX", "fromenv")
    assert load_settings({}, profile="prod").prefix == "fromenv"
    assert load_settings({"prefix": "fromflag"}, profile="prod").prefix == "fromflag"


def test_nested_values_of_two_sources_are_merged(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "dalsegno.toml").write_text(TOML)
    monkeypatch.setenv("DALSEGNO_KAFKA__BOOTSTRAP_SERVERS", "env:1")
    settings = load_settings({})
    assert settings.kafka.bootstrap_servers == "env:1"
    assert settings.kafka.options == {"ssl.ca.location": "ca.pem"}
    assert source_of(("kafka", "bootstrap_servers"), settings, {}) == "environment (DALSEGNO_KAFKA__BOOTSTRAP_SERVERS)"
    assert source_of(("kafka", "options", "ssl.ca.location"), settings, {}) == "profile"
    assert source_of(("worker", "emit_interval_seconds"), settings, {}) == "default"
    assert source_of(("kafka", "bootstrap_servers"), settings, {"kafka": {"bootstrap_servers": "f:1"}}) == "flag"


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ('prefixx = "a"', "there is no setting prefixx (there are: kafka, worker, data, prefix, store,"),
        ('[kafka]\nbootstrap = "a:1"', "there is no setting kafka.bootstrap (there are: bootstrap_servers, options)"),
        ("[worker]\nslots = 3", "there is no setting worker.slots (there are: emit_interval_seconds,"),
    ],
)
def test_a_setting_that_there_is_not_is_told_from_those_there_are(folder: Path, toml: str, said: str) -> None:
    (folder / "dalsegno.toml").write_text(toml)
    with pytest.raises(Usage) as caught:
        load_settings({})
    assert said in str(caught.value)


@pytest.mark.usefixtures("folder")
def test_a_variable_with_json_is_a_source_of_what_it_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DALSEGNO_KAFKA__OPTIONS", '{"sasl.username": "u"}')
    settings = load_settings({})
    assert dict(leaves(settings))[("kafka", "options", "sasl.username")] == "u"
    assert source_of(("kafka", "options", "sasl.username"), settings, {}) == "environment (DALSEGNO_KAFKA__OPTIONS)"
    assert source_of(("kafka", "bootstrap_servers"), settings, {}) == "default"


SECRET = "hunter2-not-to-be-seen"


@pytest.mark.parametrize(
    "environment",
    [
        {"DALSEGNO_KAFKA__PASSWORD": SECRET},
        {"DALSEGNO_KAFKA__OPTIONS": SECRET},
        {"DALSEGNO_KAFKA__OPTIONS": f'{{"sasl.password": ["{SECRET}"]}}'},
        {"DALSEGNO_KAFKA": f'{{"bootstrap_servers": ["{SECRET}"]}}'},
        {"DALSEGNO_KAFKA": f'{{"options": {SECRET}}}'},
    ],
)
@pytest.mark.usefixtures("folder")
def test_wrong_kafka_settings_are_refused_without_showing_them(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(Usage) as caught:
        load_settings({})
    assert "kafka" in str(caught.value)
    shown = "".join(traceback.format_exception(caught.value))
    assert SECRET not in shown


@pytest.mark.parametrize(
    ("setup", "expected"),
    [
        ({"toml": "prefix = ["}, "not valid TOML"),
        ({"toml": "preffix = 'x'"}, "preffix"),
        ({"toml": "prefix = 'no spaces'"}, "prefix"),
        ({"toml": "log_format = 'xml'"}, "log_format"),
        ({"env": {"DALSEGNO_PREFFIX": "x"}}, "DALSEGNO_PREFFIX"),
        ({"profile": "nosuch", "toml": TOML}, "nosuch"),
        ({"config": "missing.toml"}, "missing.toml"),
    ],
)
def test_wrong_settings_are_refused_by_name(
    folder: Path, monkeypatch: pytest.MonkeyPatch, setup: dict[str, object], expected: str
) -> None:
    if "toml" in setup:
        (folder / "dalsegno.toml").write_text(str(setup["toml"]))
    for name, value in dict(setup.get("env", {})).items():  # type: ignore[call-overload]
        monkeypatch.setenv(name, value)
    config = Path(str(setup["config"])) if "config" in setup else None
    profile = str(setup["profile"]) if "profile" in setup else None
    with pytest.raises(Usage) as caught:
        load_settings({}, config=config, profile=profile)
    assert expected in str(caught.value)
    assert caught.value.exit_code == 2
