"""`dalsegno doctor`: each check provoked, each setting with its source, and no secret anywhere."""

from __future__ import annotations

import json
import os
import resource
import shutil
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dalsegno.cli import doctor
from dalsegno.cli.context import Context
from dalsegno.cli.frame import run
from dalsegno.errors import ClientTooOld, JavaMissing, StoreUnavailable
from dalsegno.log import kafka
from dalsegno.log.embedded import java
from dalsegno.storage.object_store import FolderStore

SECRET = "hunter2-not-to-be-seen"
# Nothing listens on the port of discard for years.
NOWHERE = "127.0.0.1:9"


class Usage(NamedTuple):
    total: int
    used: int
    free: int


@pytest.fixture(autouse=True)
def _settings_of_nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("DALSEGNO_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def ask(capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, dict[str, dict[str, Any]], str]]:
    """Exit code, the checks by name, stderr."""

    def asked(*options: str) -> tuple[int, dict[str, dict[str, Any]], str]:
        code = run([*options, "-o", "json", "doctor"])
        out, err = capfd.readouterr()
        return code, {check["name"]: check for check in json.loads(out)["checks"]}, err

    return asked


def test_a_new_folder_is_ready_and_no_broker_is_started(ask: Callable[..., Any], tmp_path: Path) -> None:
    code, checks, _ = ask()
    assert code == 0
    assert [name for name, check in checks.items() if check["ok"]] == [
        "versions", "kafka client", "disk", "file limit", "java",
    ]  # fmt: skip
    assert "dalsegno broker start" in checks["broker"]["detail"]
    assert {checks[name]["ok"] for name in ("broker", "topics", "clock")} == {None}
    assert list(tmp_path.iterdir()) == []


def fail(error: Exception) -> Callable[..., Any]:
    def raising(*_: object, **__: object) -> Any:
        raise error

    return raising


def _old_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.sys, "version_info", (3, 10, 1, "final", 0))


def _old_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka, "check_client", fail(ClientTooOld("confluent-kafka 2.0 is installed")))


def _full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(100, 99, 1))


def _closed_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda _path, mode: mode != os.W_OK)


def _few_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 512))


def _no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "find_java", fail(JavaMissing("no Java of version 17")))


@pytest.mark.parametrize(
    ("provoke", "name", "detail"),
    [
        (_old_python, "versions", "Python 3.10.1"),
        (_old_client, "kafka client", "confluent-kafka 2.0 is installed"),
        (_full_disk, "disk", "0.0 GiB free"),
        (_closed_folder, "disk", "not writable"),
        (_few_files, "file limit", "at most 512; 1024 wanted"),
        (_no_java, "java", "no Java of version 17"),
    ],
)
def test_each_check_fails_by_its_name(
    provoke: Callable[[pytest.MonkeyPatch], None], name: str, detail: str, monkeypatch: pytest.MonkeyPatch,
    ask: Callable[..., Any],
) -> None:  # fmt: skip
    provoke(monkeypatch)
    code, checks, err = ask()
    assert code == 1
    assert [each for each, check in checks.items() if check["ok"] is False] == [name]
    assert detail in checks[name]["detail"]
    assert f"not ready: {name}" in err


def test_a_store_that_is_named_is_looked_at(
    ask: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "store" not in ask()[1]  # it is in the data folder
    monkeypatch.setenv("DALSEGNO_STORE", str(tmp_path / "shared"))
    _, checks, _ = ask()
    assert checks["store"]["ok"]
    assert "not there yet" in checks["store"]["detail"]
    (tmp_path / "shared").mkdir()
    assert ask()[1]["store"]["detail"] == str(tmp_path / "shared")
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path / "shared" and real(path, mode))
    code, checks, _ = ask()
    assert (code, checks["store"]["ok"], checks["disk"]["ok"]) == (1, False, True)
    assert "shared is not writable" in checks["store"]["detail"]


def test_a_store_that_does_not_answer_is_said(ask: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DALSEGNO_STORE", "s3://bucket/prefix")
    monkeypatch.setattr(Context, "store", FolderStore("/dev/null/no folder"))
    monkeypatch.setattr(FolderStore, "info", fail(StoreUnavailable("s3://bucket/prefix does not answer")))
    code, checks, _ = ask()
    assert (code, checks["store"]["ok"]) == (1, False)
    assert "does not answer" in checks["store"]["detail"]


def test_a_package_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch, ask: Callable[..., Any]) -> None:
    real = doctor.version
    monkeypatch.setattr(
        doctor, "version", lambda name: fail(PackageNotFoundError(name))() if name == "jgo" else real(name)
    )
    _, checks, _ = ask()
    assert "jgo not installed" in checks["versions"]["detail"]


def test_a_broker_that_does_not_answer_is_said_soon(ask: Callable[..., Any]) -> None:
    code, checks, _ = ask("--bootstrap-servers", NOWHERE)
    assert code == 1
    assert checks["broker"]["ok"] is False
    assert (checks["topics"]["ok"], checks["clock"]["ok"], checks["java"]["ok"]) == (None, None, None)


def test_settings_stand_beside_their_source(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "dalsegno.toml").write_text("partitions = 4\n[worker]\nemit_interval_seconds = 0.5\n")
    monkeypatch.setenv("DALSEGNO_PREFIX", "blue")
    run(["--log-level", "error", "-o", "json", "doctor"])
    settings = {each["setting"]: each for each in json.loads(capsys.readouterr().out)["settings"]}
    assert {name: (each["value"], each["source"]) for name, each in settings.items()} | {
        "prefix": ("blue", "environment (DALSEGNO_PREFIX)"),
        "partitions": ("4", "profile"),
        "log_level": ("error", "flag"),
        "data": (".dalsegno", "default"),
        "worker.emit_interval_seconds": ("0.5", "profile"),
        "worker.session_timeout_seconds": ("10.0", "default"),
    } == {name: (each["value"], each["source"]) for name, each in settings.items()}


_OPTIONS = {
    "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "user-seen",
    "sasl.password": SECRET, "ssl.key.password": SECRET, "ssl.keystore.password": SECRET,
    "sasl.oauthbearer.client.secret": SECRET, "socket.connection.setup.timeout.ms": "1000",
}  # fmt: skip


@pytest.mark.parametrize(
    "arguments",
    [
        ["doctor"], ["-o", "json", "doctor"], ["topic", "check"], ["session", "list"], ["verify"],
        ["--log-level", "debug", "--log-format", "json", "doctor"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_no_secret_is_ever_shown(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from dalsegno.log import admin

    monkeypatch.setattr(doctor, "_ASK_SECONDS", 1.0)
    for name in ("cluster_facts", "topic_facts", "describe_topics"):
        monkeypatch.setitem(getattr(admin, name).__kwdefaults__, "limit_seconds", 1.0)
    monkeypatch.setenv("DALSEGNO_KAFKA__BOOTSTRAP_SERVERS", NOWHERE)
    monkeypatch.setenv("DALSEGNO_KAFKA__OPTIONS", json.dumps(_OPTIONS))
    assert run(arguments) != 0
    out, err = capfd.readouterr()
    assert SECRET not in out + err
    assert out + err
    if "doctor" in arguments:
        assert "user-seen" in out
        assert out.count("********") == 4


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({"no.such.option": SECRET}, "no.such.option"),
        ({"sasl.mechanism": "PLAIN", "security.protocol": "SASL_PLAINTEXT", "sasl.password": SECRET}, "sasl.username"),
        ({"ssl.key.pem": SECRET, "security.protocol": "SSL"}, "ssl.key.pem"),
    ],
    ids=["unknown", "incomplete", "no key"],
)
def test_a_wrong_option_is_named_without_its_value(
    options: dict[str, str], shown: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DALSEGNO_KAFKA__BOOTSTRAP_SERVERS", NOWHERE)
    monkeypatch.setenv("DALSEGNO_KAFKA__OPTIONS", json.dumps(options))
    run(["topic", "check"])
    out, err = capfd.readouterr()
    assert SECRET not in out + err
    assert shown in err
