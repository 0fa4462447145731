"""A Kafka that asks for TLS and a password: every client gets in by the settings alone, and no secret is ever shown."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from dalsegno.log import embedded
from dalsegno.log.embedded.config import JVM_OPTIONS, LOOPBACK, free_ports
from dalsegno.log.embedded.jars import class_path
from dalsegno.log.embedded.java import find_java
from dalsegno.log.kafka import KafkaConfig
from harness_cli import Cli
from harness_worker import World

pytestmark = pytest.mark.broker
LIMIT_SECONDS = 60.0
JAVA = os.environ.get("DALSEGNO_JAVA")
SECRET = "a-password-that-nobody-may-see"
STORE_SECRET = "secret-of-the-key-store"
_KEYTOOL = ("-m", "java.base/sun.security.tools.keytool.Main")


class Secured(NamedTuple):
    """A broker whose only door for clients is SASL over TLS."""

    config: KafkaConfig
    options: dict[str, str]


def certificate(folder: Path, java: Path) -> Path:
    """A key store of the broker in ``folder``; the path of its certificate in PEM."""
    store = ("-keystore", "keys.p12", "-storetype", "PKCS12", "-storepass", STORE_SECRET, "-alias", "broker")
    make = ("-genkeypair", "-keyalg", "RSA", "-keysize", "2048", "-dname", "CN=localhost", "-validity", "2")
    names = ("-ext", f"SAN=dns:localhost,ip:{LOOPBACK}")
    for words in ((*make, *names), ("-exportcert", "-rfc", "-file", "broker.pem")):
        command = [str(java), *_KEYTOOL, *words, *store]
        subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=LIMIT_SECONDS)
    return folder / "broker.pem"


def properties_of(text: str, port: int) -> str:
    """The embedded broker's own settings with one more listener."""
    found = dict(line.split("=", 1) for line in text.splitlines())
    door = f"SECURED://{LOOPBACK}:{port}"
    user = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="{SECRET}";'
    found |= {
        "listeners": f"{found['listeners']},{door}",
        "advertised.listeners": f"{found['advertised.listeners']},{door}",
        "listener.security.protocol.map": f"{found['listener.security.protocol.map']},SECURED:SASL_SSL",
        "listener.name.secured.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.secured.plain.sasl.jaas.config": user,
        "listener.name.secured.ssl.keystore.location": "keys.p12",
        "listener.name.secured.ssl.keystore.password": STORE_SECRET,
        "listener.name.secured.ssl.key.password": STORE_SECRET,
    }
    return "".join(f"{name}={value}\n" for name, value in found.items())


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Secured]:
    data = tmp_path / "secured"
    embedded.start(data, java=JAVA)  # jars, format, settings
    embedded.stop(data)
    folder, java = data / "broker", find_java(JAVA)
    (port,) = free_ports(1)
    authority = certificate(folder, java)
    settings = folder / "server.properties"
    settings.write_text(properties_of(settings.read_text("utf-8"), port), "utf-8")
    options = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": SECRET,
        "ssl.ca.location": str(authority),
    }
    command = [str(java), *JVM_OPTIONS, "-cp", class_path("jars"), "kafka.Kafka", "server.properties"]
    with (folder / "secured.log").open("wb") as log:
        broker = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        config = KafkaConfig(f"{LOOPBACK}:{port}", options)
        wait_ready(config, broker, folder / "secured.log")
        yield Secured(config, options)
    finally:
        broker.kill()
        broker.wait(LIMIT_SECONDS)


def wait_ready(config: KafkaConfig, broker: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < deadline:
        assert broker.poll() is None, log.read_text("utf-8")[-3000:]
        try:
            AdminClient(config.client({"log_level": 0})).list_topics(timeout=2)
        except KafkaException:
            continue
        return
    raise AssertionError(log.read_text("utf-8")[-3000:])


def test_every_client_gets_in_and_no_secret_is_shown(
    secured: Secured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    world = World(secured.config, "tls", tmp_path)
    cli = Cli(world, monkeypatch, capsys)
    monkeypatch.setenv("DALSEGNO_KAFKA__OPTIONS", json.dumps(secured.options))
    monkeypatch.setenv("DALSEGNO_PARTITIONS", "2")
    said = [
        cli("topic", "apply"),
        cli("workload", "--sessions", "4", "--mean-events", "30"),
        # Producer, transactions, group, offsets, consumer: a replay works as a worker of the group to its end.
        cli("replay", "run", "--from", "earliest", "--yes"),
        cli("snapshot", "take"),
        cli("group", "describe"),
        cli("verify"),
        cli("session", "list"),
        cli("--log-level", "debug", "doctor"),
    ]
    assert len(said[-2].json) == 4
    checks = {check["name"]: check["ok"] for check in said[-1].json["checks"]}
    assert checks["broker"] is True
    assert checks["topics"] is True

    monkeypatch.setenv("DALSEGNO_KAFKA__OPTIONS", json.dumps({**secured.options, "sasl.password": f"wrong-{SECRET}"}))
    refused = cli("topic", "check", code=7)
    assert "uthentication" in refused.err
    said.append(refused)
    monkeypatch.setenv(
        "DALSEGNO_KAFKA__OPTIONS", json.dumps({"security.protocol": "NONSENSE", "sasl.password": SECRET})
    )
    said.append(cli("topic", "check", code=2))
    for one in said:
        assert SECRET not in one.out + one.err
    kept = [path for path in tmp_path.rglob("*") if path.is_file() and "secured" not in path.parts]
    assert len(kept) > 20
    assert not [path for path in kept if SECRET.encode() in path.read_bytes()]
