"""The door to Kafka: options, secrets, the floor of the client, and every error translated."""

from __future__ import annotations

import ast
import logging
import re
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException

import dalsegno
from dalsegno import errors
from dalsegno.log import kafka as door
from dalsegno.log import reader
from dalsegno.log.kafka import KafkaConfig, kafka_errors, translate

CODES = sorted({value for value in vars(KafkaError).values() if isinstance(value, int)})
NOBODY = KafkaConfig("127.0.0.1:1", {"socket.connection.setup.timeout.ms": "1000"})


@pytest.mark.parametrize("code", CODES)
def test_no_code_of_kafka_slips_past_the_door(code: int) -> None:
    with pytest.raises(errors.DalsegnoError) as caught, kafka_errors("try it", topic="t"):
        raise KafkaException(KafkaError(code))
    assert caught.value.found.startswith("could not try it: ")
    assert caught.value.data["topic"] == "t"
    assert caught.value.data["code"] == KafkaError(code).name()
    assert caught.value.todo


def test_an_exception_without_a_code_and_a_full_queue_are_translated() -> None:
    with pytest.raises(errors.KafkaRefused), kafka_errors("try it"):
        raise KafkaException("no code at all")
    with pytest.raises(errors.Unavailable), kafka_errors("try it"):
        raise BufferError("Local: Queue full")
    with pytest.raises(errors.WaitTimeout), kafka_errors("try it"):
        raise TimeoutError


@pytest.mark.parametrize(
    ("code", "wanted"),
    [
        (KafkaError._ALL_BROKERS_DOWN, errors.BrokerUnavailable),
        (KafkaError.NOT_ENOUGH_REPLICAS, errors.BrokerUnavailable),
        (KafkaError._TIMED_OUT, errors.WaitTimeout),
        (KafkaError._MSG_TIMED_OUT, errors.WaitTimeout),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, errors.TopicMissing),
        (KafkaError.MSG_SIZE_TOO_LARGE, errors.EventTooLarge),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, errors.KafkaForbidden),
        (KafkaError._AUTHENTICATION, errors.KafkaForbidden),
        (KafkaError._AUTO_OFFSET_RESET, errors.LogHole),
        (KafkaError.NON_EMPTY_GROUP, errors.GroupNotEmpty),
        (KafkaError._FENCED, errors.Conflict),
        (KafkaError.INVALID_RECORD, errors.KafkaRefused),
    ],
)
def test_each_kind_of_error_has_its_class(code: int, wanted: type[errors.DalsegnoError]) -> None:
    assert type(translate(KafkaError(code), "try it")) is wanted


def test_a_module_that_speaks_to_kafka_uses_the_door() -> None:
    """What never sees the client cannot let its exceptions through; what sees it translates them."""
    source = Path(dalsegno.__file__).parent
    for path in source.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        speaks = any((node.module or "").split(".")[0] == "confluent_kafka" for node in imports)
        door_names = {a.name for node in imports if node.module == "dalsegno.log.kafka" for a in node.names}
        if speaks and path != Path(door.__file__):
            keeps_them = "except KafkaException" in path.read_text(encoding="utf-8")
            assert keeps_them or door_names & {"kafka_errors", "translate"}, f"{path} speaks to Kafka past the door"


def test_a_broker_that_is_not_there_is_an_error_of_ours_with_a_limit() -> None:
    for call in (
        lambda: reader.bounds(NOBODY, "t", [0], timeout=1.0),
        lambda: reader.stable_offset(NOBODY, "t", 0, timeout=1.0),
        lambda: reader.partitions_of(NOBODY, "t", timeout=1.0),
        lambda: reader.read_compacted(NOBODY, "t", timeout=1.0),
    ):
        with pytest.raises(errors.Unavailable) as caught:
            call()
        assert re.search(
            r"could not .*; (?:asked|this process asks) at .*127\.0\.0\.1:1\b.* for [12]\.\d s", caught.value.found
        )
        assert "dalsegno broker start" in caught.value.todo


def test_a_wrong_option_is_the_callers_mistake() -> None:
    wrong = KafkaConfig("127.0.0.1:1", {"no.such.option": "1"})
    for make in (door.consumer, door.producer, door.admin):
        with pytest.raises(errors.Usage, match=r"no\.such\.option"):
            make(wrong, {"group.id": "g"} if make is door.consumer else {})


def test_every_client_gets_the_options_and_what_it_needs_wins() -> None:
    cfg = KafkaConfig("b:1", {"security.protocol": "SASL_SSL", "group.id": "theirs"})
    conf = cfg.client({"group.id": "mine"}, client_id="c")
    assert conf["security.protocol"] == "SASL_SSL"
    assert conf["group.id"] == "mine"
    assert conf["client.id"] == "c"
    assert conf["bootstrap.servers"] == "b:1"


def test_secrets_are_never_shown() -> None:
    options = {
        "sasl.username": "ann", "sasl.password": "hunter2", "ssl.key.password": "hunter2", "ssl.key.pem": "hunter2",
        "sasl.oauthbearer.client.secret": "hunter2", "ssl.ca.location": "/ca.pem", "ssl.keystore.password": "hunter2",
        "sasl.oauthbearer.config": "hunter2",
    }  # fmt: skip
    cfg = KafkaConfig("b:1", options)
    assert "hunter2" not in repr(cfg)
    assert "hunter2" not in str(cfg.masked())
    assert cfg.masked()["sasl.username"] == "ann"
    assert cfg.masked()["ssl.ca.location"] == "/ca.pem"


@pytest.mark.parametrize(("version", "fits"), [("2.14.1", False), ("2.12.2", False), ("2.14.2", True), ("3.0.0", True)])
def test_a_client_below_the_floor_is_refused(monkeypatch: pytest.MonkeyPatch, version: str, fits: bool) -> None:
    monkeypatch.setattr(confluent_kafka, "version", lambda: version)
    door.check_client.cache_clear()
    try:
        if fits:
            door.check_client()
        else:
            with pytest.raises(errors.ClientTooOld, match=version):
                KafkaConfig("b:1").client()
    finally:
        door.check_client.cache_clear()


@pytest.mark.parametrize(
    ("line", "logged"),
    [
        ("GETPID [x] Failed to acquire idempotence PID: Broker: Coordinator load in progress: retrying", False),
        ("GETPID [x] Failed to acquire transactional PID: Broker: Not coordinator: retrying", False),
        ("TXNERR [x] Current transaction failed in state InTransaction: (ILLEGAL_GENERATION)", False),
        ("TXNERR [x] Current transaction failed in state InTransaction: (_TIMED_OUT)", True),
        ("FAIL [x] Connect to ipv4#127.0.0.1:9092 failed: Connection refused", True),
    ],
)
def test_lines_of_the_client_that_are_no_news_are_dropped(
    line: str, logged: bool, caplog: pytest.LogCaptureFixture
) -> None:
    door.client_log.warning(line)
    assert (line in caplog.text) == logged


def test_what_the_client_says_again_and_again_is_logged_once_a_minute(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(door.time, "monotonic", lambda: now[0])
    for again in range(3):
        for server in ("b:1", "b:2"):
            door.client_log.warning(f"FAIL {server}: Connection refused (after {again}ms in state CONNECT)")
            door.client_log.warning("producer_error", extra={"reason": f"{server}: refused (after {again}ms)"})
        now[0] += 1
    assert [record.getMessage()[:10] for record in caplog.records] == [
        "FAIL b:1: ", "producer_e", "FAIL b:2: ", "producer_e",
    ]  # fmt: skip
    now[0] += door.REPEAT_SECONDS
    door.client_log.warning("FAIL b:1: Connection refused (after 0ms in state CONNECT)")
    assert len(caplog.records) == 5
    assert "(said 2 times more since it was last logged)" in caplog.records[-1].getMessage()
    now[0] += door.REPEAT_SECONDS
    door.client_log.warning("FAIL b:1: Connection refused (after 0ms in state CONNECT)")
    assert "said" not in caplog.records[-1].getMessage()


def test_clients_that_are_made_anew_say_nothing_new(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [2000.0]
    monkeypatch.setattr(door, "_said", {})
    monkeypatch.setattr(door.time, "monotonic", lambda: now[0])

    def say(level: int, number: int, text: str) -> None:
        door.client_log.log(level, "%s [%s] %s", "FAIL", f"w#producer-{number}", f"[thrd:c:1/1]: c:1/1: {text}")

    for number in range(800):
        say(logging.ERROR, number, f"Connection refused (after {number}ms in state CONNECT)")
        now[0] += 0.05
    assert len(caplog.records) == 1
    say(logging.ERROR, 801, "SSL handshake failed")
    say(logging.CRITICAL, 802, "Connection refused (after 0ms in state CONNECT)")
    assert len(caplog.records) == 3, "another trouble, and a graver one, are news"
    now[0] += door.REPEAT_SECONDS
    say(logging.ERROR, 803, "Connection refused (after 1ms in state CONNECT)")
    assert "said 799 times more" in caplog.records[-1].getMessage()
    now[0] += 20 * door.REPEAT_SECONDS
    say(logging.ERROR, 804, "another line")
    assert len(door._said) == 1, "what was said long ago is forgotten"
