"""The door to Kafka: one configuration for every client, the floor of the client library, the translation of errors.

Every Kafka client of dalsegno is made here, with the caller's TLS and SASL options; every ``KafkaException`` becomes
one of our own errors in ``kafka_errors`` or ``translate``, so that nothing further in knows librdkafka's codes.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from weakref import WeakSet

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from dalsegno.errors import (
    BrokerUnavailable,
    ClientTooOld,
    Conflict,
    DalsegnoError,
    EventTooLarge,
    GroupNotEmpty,
    KafkaForbidden,
    KafkaRefused,
    LogHole,
    TopicMissing,
    Unavailable,
    Usage,
    WaitTimeout,
)

# librdkafka's own lines (lost connections and the like) go through logging, where they can be rendered or dropped.
client_log = logging.getLogger("dalsegno.log.client")
REPEAT_SECONDS = 60.0
_FORGET_SECONDS = 10 * REPEAT_SECONDS
# What clients say: when it was last logged, and how often it was said again within the time above.
_said: dict[str, tuple[float, int]] = {}
# Clients are made anew while a broker is away, each with another number, and say the same.
_NUMBER = re.compile(r"#(producer|consumer)-\d+")


def _is_news(record: logging.LogRecord) -> bool:
    """False for what is no news: that the guarantee is marked experimental, that a fresh broker's coordinator is still
    loading, that a transaction met a rebalance (whoever runs it sends again, and logs it as what it is), and what was
    said a moment ago (while no broker answers, the client says so several times a second)."""
    text = record.getMessage()
    if (
        "enable.gapless.guarantee is experimental" in text
        or ("Failed to acquire" in text and "oordinator" in text and text.endswith("retrying"))
        or ("TXNERR" in text and "ILLEGAL_GENERATION" in text)
    ):
        return False
    # The tail says how often and for how long, which differs from line to line.
    said = f"{text} {getattr(record, 'reason', '')}".partition(" (after ")[0]
    said = f"{record.levelname} {_NUMBER.sub('', said)}"
    now = time.monotonic()
    for old in [key for key, (at, _) in tuple(_said.items()) if now - at >= _FORGET_SECONDS]:
        _said.pop(old, None)
    at, again = _said.get(said, (-REPEAT_SECONDS, 0))
    if now - at < REPEAT_SECONDS:
        _said[said] = (at, again + 1)
        return False
    _said[said] = (now, 0)
    if again:
        record.msg, record.args = f"{text} (said {again} times more since it was last logged)", None
    return True


client_log.addFilter(_is_news)

# Below 2.14 `consume()` with `enable.partition.eof` loses a record after pause and resume without a word
# (librdkafka issue 4844); 2.14.2 is the first release of the client that is whole in what we use.
CLIENT_FLOOR = (2, 14, 2)

# Where clients of this process ask, for messages: Kafka's errors do not say it. As good as always it is one address.
_asked: dict[str, None] = {}
# What a broker last refused a client for, and when. A client that is refused goes on trying and ends with a time-out.
_refused: list[tuple[float, str]] = []
_REFUSALS = {"_AUTHENTICATION", "_SSL"}
# Admin clients that may be refused: they hear of it only when they are polled.
_with_credentials: WeakSet[AdminClient] = WeakSet()


def _note_refusal(error: KafkaError) -> None:
    if error.name() in _REFUSALS:
        _refused[:] = [(time.monotonic(), error.str())]


_SECRET = re.compile(r"password|secret|token|sasl\.jaas|ssl\.key\.pem|oauthbearer\.config", re.IGNORECASE)
_MASK = "********"


@dataclass(frozen=True)
class KafkaConfig:
    """Where Kafka is and how to get in. ``options`` are librdkafka's own names (TLS, SASL, ...), for every client."""

    bootstrap_servers: str
    options: Mapping[str, str] = field(default_factory=dict)

    def client(self, extra: Mapping[str, Any] | None = None, /, **more: Any) -> dict[str, Any]:
        """The configuration of one client: the options, then what this client needs (which wins).

        Keyword names may have ``_`` where librdkafka has ``.``: ``client(group_id="g")``. Raises ClientTooOld.
        """
        check_client()
        _asked[self.bootstrap_servers] = None
        named = {name.replace("_", "."): value for name, value in more.items()}
        return {
            **self.options,
            "bootstrap.servers": self.bootstrap_servers,
            "logger": client_log,
            "error_cb": _note_refusal,
            **(extra or {}),
            **named,
        }

    def masked(self) -> dict[str, str]:
        """For logs and for people: the same without secrets."""
        shown = {name: _MASK if _SECRET.search(name) else str(value) for name, value in self.options.items()}
        return {"bootstrap.servers": self.bootstrap_servers, **shown}

    def __repr__(self) -> str:
        return f"KafkaConfig({self.masked()})"

    def __reduce__(self) -> tuple[Any, ...]:
        # Without the shared client, which belongs to this process.
        return (KafkaConfig, (self.bootstrap_servers, dict(self.options)))


@cache
def check_client() -> None:
    """Refuse a client library that is known to lose records. Raises ClientTooOld."""
    found = confluent_kafka.version()
    text = found if isinstance(found, str) else str(found[0])
    parts = tuple(int(number) for number in re.findall(r"\d+", text)[:3])
    if parts < CLIENT_FLOOR:
        wanted = ".".join(map(str, CLIENT_FLOOR))
        raise ClientTooOld(
            f"confluent-kafka {text} is installed",
            wanted=f"confluent-kafka >= {wanted}: older ones lose a record after pause and resume",
            todo=f"pip install 'confluent-kafka>={wanted}'",
            version=text,
        )


def consumer(cfg: KafkaConfig, extra: Mapping[str, Any] | None = None, /, **more: Any) -> Consumer:
    """A consumer that commits nothing on its own and that never jumps: out of range is an error."""
    safe = {"enable.auto.commit": False, "enable.auto.offset.store": False, "auto.offset.reset": "error"}
    with _bad_option_is_usage(), kafka_errors("make a Kafka consumer"):
        return Consumer(cfg.client({**safe, **(extra or {})}, **more))


def producer(cfg: KafkaConfig, extra: Mapping[str, Any] | None = None, /, **more: Any) -> Producer:
    with _bad_option_is_usage(), kafka_errors("make a Kafka producer"):
        return Producer(cfg.client(extra, **more))


def admin(cfg: KafkaConfig, extra: Mapping[str, Any] | None = None, /, **more: Any) -> AdminClient:
    """An admin client. Keep it in a variable while its futures run: a collected client never answers them."""
    with _bad_option_is_usage(), kafka_errors("make a Kafka admin client"):
        made = AdminClient(cfg.client(extra, **more))
    if "security.protocol" in cfg.options:
        _with_credentials.add(made)
    return made


def shared_admin(cfg: KafkaConfig) -> AdminClient:
    """One admin client for all questions about this configuration: a new one costs a thread and connections each."""
    found = cfg.__dict__.get("_admin")
    if found is None:
        found = cfg.__dict__.setdefault("_admin", admin(cfg))
    return found  # type: ignore[no-any-return]


def forget_shared_admin(cfg: KafkaConfig) -> None:
    """Let the next question make a new client: one that learned an old leader epoch goes on asking with it for as long
    as it keeps what it knows of the topic, which is a quarter of an hour."""
    cfg.__dict__.pop("_admin", None)


@contextmanager
def kafka_errors(doing: str, **data: Any) -> Iterator[None]:
    """The one door for Kafka's errors: what the client raises inside leaves as an error of ours that says ``doing``."""
    begun = time.monotonic()
    try:
        yield
    except KafkaException as error:
        cause = error.args[0] if error.args else None
        if isinstance(cause, KafkaError):
            raise translate(cause, doing, time.monotonic() - begun, **data) from error
        raise KafkaRefused(f"could not {doing}: {error}", todo="see the log of the broker", **data) from error
    except TimeoutError as error:
        asked = _where(time.monotonic() - begun)
        raise WaitTimeout(f"could not {doing} in time{asked}", wanted=_ANSWER, todo=_START, **data) from error
    except BufferError as error:
        raise Unavailable(f"could not {doing}: the client's queue is full", todo="try again later", **data) from error


@contextmanager
def _bad_option_is_usage() -> Iterator[None]:
    """A client that cannot be made has a wrong option: that is the caller's, not the broker's."""
    try:
        yield
    except KafkaRefused as error:
        if error.data.get("code") not in {"_INVALID_ARG", "_CONFLICT", "_SSL", "_NOT_CONFIGURED"}:
            raise
        raise Usage(error.found, todo="correct this Kafka option", **error.data) from error
    except (TypeError, ValueError) as error:
        raise Usage(f"Kafka options: {error}", todo="correct this Kafka option") from error


_AWAY = {
    "_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE", "_NODE_UPDATE", "_DESTROY_BROKER", "_WAIT_COORD",
    "_UNKNOWN_BROKER", "_ISR_INSUFF", "LEADER_NOT_AVAILABLE", "NOT_LEADER_FOR_PARTITION", "BROKER_NOT_AVAILABLE",
    "REPLICA_NOT_AVAILABLE", "NETWORK_EXCEPTION", "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE",
    "NOT_COORDINATOR", "NOT_CONTROLLER", "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    "KAFKA_STORAGE_ERROR", "PREFERRED_LEADER_NOT_AVAILABLE", "OFFSET_NOT_AVAILABLE", "ELIGIBLE_LEADERS_NOT_AVAILABLE",
    "FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH", "REBOOTSTRAP_REQUIRED", "STALE_CTRL_EPOCH", "STALE_BROKER_EPOCH",
    "THROTTLING_QUOTA_EXCEEDED",
}  # fmt: skip
_LATE = {"_TIMED_OUT", "_TIMED_OUT_QUEUE", "_MSG_TIMED_OUT", "REQUEST_TIMED_OUT", "UNSTABLE_OFFSET_COMMIT"}
_NO_TOPIC = {
    "UNKNOWN_TOPIC_OR_PART", "UNKNOWN_TOPIC_ID", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "INCONSISTENT_TOPIC_ID",
    "_NOENT",
}  # fmt: skip
_TOO_LARGE = {"MSG_SIZE_TOO_LARGE", "INVALID_MSG_SIZE", "RECORD_LIST_TOO_LARGE"}
_NO_RIGHT = {"_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED", "SECURITY_DISABLED", "UNACCEPTABLE_CREDENTIAL"}
_OUT_OF_RANGE = {"OFFSET_OUT_OF_RANGE", "_AUTO_OFFSET_RESET", "_LOG_TRUNCATION"}
_MEMBERS = {"NON_EMPTY_GROUP", "UNKNOWN_MEMBER_ID", "GROUP_SUBSCRIBED_TO_TOPIC"}
_FENCED = {
    "_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "FENCED_INSTANCE_ID", "TRANSACTION_COORDINATOR_FENCED",
    "FENCED_MEMBER_EPOCH", "STALE_MEMBER_EPOCH", "ILLEGAL_GENERATION",
}  # fmt: skip


# A client tries again at least so often, so an older refusal is none of the try at hand.
_REFUSAL_COUNTS_SECONDS = 10.0
_ANSWER = "a broker that answers there"
_START = "check the address, and that the broker is up ('dalsegno broker start' starts one here), then try again"


def _where(seconds: float | None) -> str:
    """The addresses that this process asks, and for how long it did. Kafka's errors do not say which it was."""
    addresses = tuple(_asked)
    if not addresses:
        return ""
    asked = ("; asked at " if len(addresses) == 1 else "; this process asks at ") + ", ".join(addresses)
    return asked if seconds is None else f"{asked} for {seconds:.1f} s"


def _refusal_within(seconds: float | None) -> str | None:
    """What a client of this process was refused for in the last ``seconds``."""
    for each in tuple(_with_credentials):
        each.poll(0)
    since = time.monotonic() - (_REFUSAL_COUNTS_SECONDS if seconds is None else max(seconds, _REFUSAL_COUNTS_SECONDS))
    return next((text for at, text in tuple(_refused) if at >= since), None)


def translate(error: KafkaError, doing: str, seconds: float | None = None, /, **data: Any) -> DalsegnoError:
    """Our error for one of Kafka's. ``data`` keeps its code and what it says about going on (fatal, abort, retry).
    ``seconds``: how long it was tried."""
    code = error.name()
    facts = {
        **data, "code": code, "fatal": error.fatal(), "abort": error.txn_requires_abort(), "retry": error.retriable(),
    }  # fmt: skip
    found = f"could not {doing}: {error.str()} ({code})"
    if code in _AWAY | _LATE and (refusal := _refusal_within(seconds)) is not None:
        return KafkaForbidden(
            f"could not {doing}: {refusal}", wanted="a broker that lets this client in",
            todo="check the TLS and SASL options (kafka.options)", **facts,
        )  # fmt: skip
    if code in _AWAY:
        return BrokerUnavailable(found + _where(seconds), wanted=_ANSWER, todo=_START, **facts)
    if code in _LATE:
        return WaitTimeout(found + _where(seconds), wanted=_ANSWER, todo=_START, **facts)
    if code in _NO_TOPIC:
        return TopicMissing(found, wanted="an existing topic and partition", todo="dalsegno topic apply", **facts)
    if code in _TOO_LARGE:
        return EventTooLarge(found, todo="put large contents into blobs", **facts)
    if code in _NO_RIGHT or code.endswith("AUTHORIZATION_FAILED"):
        return KafkaForbidden(
            found, wanted="valid credentials with the rights for this", todo="check user and rights", **facts
        )
    if code in _OUT_OF_RANGE:
        return LogHole(found, wanted="an offset that the log still holds", todo="restore a newer snapshot", **facts)
    if code in _MEMBERS:
        return GroupNotEmpty(found, wanted="a group without members", todo="stop its workers first", **facts)
    if code in _FENCED:
        return Conflict(found, wanted="to be the only one with this id", todo="let the newer one go on", **facts)
    if code == "_QUEUE_FULL":
        return Unavailable(found, todo="try again later", **facts)
    return KafkaRefused(found, todo="see the log of the broker", **facts)
