"""Publisher and session on a real broker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from dalsegno import events, inline_blob
from dalsegno.cli.inbox_sending import taken_up
from dalsegno.errors import InvalidEvent, SessionSuperseded, TopicMissing, Unavailable
from dalsegno.log import embedded
from dalsegno.log.codec import place
from dalsegno.log.follow import Follower
from dalsegno.log.inbox import Inbox, take_up
from dalsegno.log.kafka import KafkaConfig, producer, shared_admin
from dalsegno.log.publisher import Publisher
from dalsegno.log.reader import partitions_of, read_range
from dalsegno.log.record import LogRecord
from dalsegno.log.schema_set import SchemaSet
from dalsegno.log.session import Session
from dalsegno.log.topics import apply
from dalsegno.model.ids import parse_key, partition_of
from dalsegno.model.inbox import Asked, Fate, InboxState
from dalsegno.model.path import Path as SessionPath
from dalsegno.model.path import choose_path
from dalsegno.model.records import Event, SetAside

if TYPE_CHECKING:
    from conftest import KafkaForTest

pytestmark = pytest.mark.broker

ROOT = Path(__file__).parents[2]
PARTITIONS = 6


@pytest.fixture
def publisher(kafka: KafkaForTest) -> Iterator[Publisher]:
    kafka.topics(partitions=PARTITIONS, projections=())
    with Publisher(kafka.config, prefix=kafka.prefix) as found:
        yield found


def begin(publisher: Publisher, session_id: str = "s-1") -> Session:
    session = publisher.session(session_id)
    session.append(events.SessionCreated(workflow_name="w", profile="OBSERVED"))
    session.append(events.SessionStarted())
    return session


def note(text: str = "n") -> events.NoteRecorded:
    return events.NoteRecorded(kind=text)


def log_of(config: KafkaConfig, topic: str) -> Iterator[tuple[int, LogRecord]]:
    for partition in range(partitions_of(config, topic)):
        for part in read_range(config, topic, partition):
            yield from ((partition, record) for record in part.records)


def events_of(publisher: Publisher, kafka: KafkaForTest, session_id: str = "s-1") -> list[Event]:
    found = []
    for partition, record in log_of(kafka.config, publisher.topic):
        event = place(publisher.schemas, record.key, record.value, partition, PARTITIONS)
        if isinstance(event, Event) and event.session_id == session_id:
            found.append(event)
    return found


def path_of(publisher: Publisher, kafka: KafkaForTest, session_id: str = "s-1") -> SessionPath:
    return choose_path([event.link for event in events_of(publisher, kafka, session_id)])


def compact(kafka: KafkaForTest, topic: str, records_at_most: int) -> None:
    """Make the broker compact the topic, and wait until it holds so few records (fillers not counted)."""
    client = shared_admin(kafka.config)
    names = {"segment.ms": "100", "min.cleanable.dirty.ratio": "0.001", "max.compaction.lag.ms": "100"}
    entries = [ConfigEntry(n, v, incremental_operation=AlterConfigOpType.SET) for n, v in names.items()]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    for done in client.incremental_alter_configs([resource]).values():
        done.result(30)
    filler = producer(kafka.config)
    deadline = time.monotonic() + 90
    while True:
        # The active segment is never cleaned: a record behind it closes it, once it is old enough.
        for partition in range(PARTITIONS):
            filler.produce(topic, key=b"filler", value=b"", partition=partition)
        filler.flush(30)
        held = [record for _, record in log_of(kafka.config, topic) if record.key != b"filler"]
        if len(held) <= records_at_most:
            return
        assert time.monotonic() < deadline, f"{len(held)} records are still there"


def test_what_the_broker_would_refuse_for_good_never_leaves_the_process(
    publisher: Publisher, kafka: KafkaForTest
) -> None:
    # case C1
    session = begin(publisher)
    good = [session.append(note()), session.append(note())]
    begun = time.monotonic()
    for key in (None, b""):
        with pytest.raises(InvalidEvent) as caught:
            publisher.send(key, good[0].value)
        assert not caught.value.retryable
    assert time.monotonic() - begun < 1
    assert [pending.result(30).seq for pending in good] == [3, 4]
    records = [record for _, record in log_of(kafka.config, publisher.topic)]
    assert len(records) == 4
    assert all(record.key for record in records)
    # And the broker does refuse it: that is what is being kept from it.
    refused: list[object] = []
    raw = producer(kafka.config)
    raw.produce(publisher.topic, value=good[0].value, on_delivery=lambda error, _: refused.append(error))
    raw.flush(30)
    assert refused[0] is not None


def test_a_repeat_counts_once_before_and_after_cleaning(publisher: Publisher, kafka: KafkaForTest) -> None:
    # case C7
    session = begin(publisher)
    sent = [session.append(note(str(n))) for n in range(18)]
    for _ in range(2):
        publisher.send(sent[4].key, sent[4].value).result(30)
    before = events_of(publisher, kafka)
    assert [e.seq for e in before].count(7) == 3
    assert len(before) == 22
    path = path_of(publisher, kafka)
    assert (len(path.hashes), path.held) == (20, None)
    compact(kafka, publisher.topic, 20)
    assert len(events_of(publisher, kafka)) == 20
    assert path_of(publisher, kafka) == path
    assert publisher.resume("s-1").seq == 21


def test_the_partition_is_the_sessions_whatever_a_clients_default_is(publisher: Publisher, kafka: KafkaForTest) -> None:
    # case C8
    session = begin(publisher)
    sent = [session.append(note(str(n))) for n in range(200)]
    assert publisher.flush(30) == 0
    # The same records from clients that were made with other partitioners, and with our explicit partition.
    for partitioner in ("consistent_random", "murmur2_random"):
        other = producer(kafka.config, {"partitioner": partitioner, "acks": "all"})
        for pending in sent:
            other.produce(
                publisher.topic, key=pending.key.encode(), value=pending.value, partition=publisher.partition_of("s-1")
            )
        assert other.flush(30) == 0
    where = {partition for partition, _ in log_of(kafka.config, publisher.topic)}
    assert where == {partition_of("s-1", PARTITIONS)}
    # One that trusted its default put the record elsewhere: it is told apart, and is no part of the session.
    wrong = (partition_of("s-1", PARTITIONS) + 1) % PARTITIONS
    stray = producer(kafka.config)
    stray.produce(publisher.topic, key=sent[0].key.encode(), value=sent[0].value, partition=wrong)
    assert stray.flush(30) == 0
    (strays,) = [r for p, r in log_of(kafka.config, publisher.topic) if p == wrong]
    placed = place(publisher.schemas, strays.key, strays.value, wrong, PARTITIONS)
    assert placed == SetAside("WRONG_PARTITION")
    assert len(path_of(publisher, kafka).hashes) == 202


def test_of_two_writers_one_is_on_the_path_before_and_after_compaction(
    publisher: Publisher, kafka: KafkaForTest
) -> None:
    # case C49
    old = begin(publisher)
    first = old.append(note()).result(30)
    publisher.send(*_stored(publisher, kafka, first.hash)).result(30)  # (1) the same bytes twice
    with Publisher(kafka.config, prefix=kafka.prefix, writer="test/1/other") as second:
        new = second.resume("s-1")
        theirs, mine = old.append(note("old")).result(30), new.append(note("new")).result(30)
        assert theirs.hash != mine.hash
    before = path_of(publisher, kafka)
    assert before.superseded == {theirs.hash}
    assert mine.hash in before.hashes
    assert len([e for e in events_of(publisher, kafka) if e.hash == first.hash]) == 2
    compact(kafka, publisher.topic, 6)
    assert path_of(publisher, kafka) == before
    assert len([e for e in events_of(publisher, kafka) if e.hash == first.hash]) == 1
    with pytest.raises(SessionSuperseded):
        old.read_back()


def _stored(publisher: Publisher, kafka: KafkaForTest, hash_: bytes) -> tuple[bytes, bytes]:
    for _, record in log_of(kafka.config, publisher.topic):
        key = parse_key(record.key) if record.key else None
        if key is not None and key.hash == hash_ and record.key and record.value:
            return record.key, record.value
    raise AssertionError("not stored")


def test_resuming_behind_an_open_transaction_of_somebody_waits_and_says_so(
    publisher: Publisher, kafka: KafkaForTest
) -> None:
    # case C10
    session = begin(publisher)
    session.append(note()).result(30)
    hanging = producer(kafka.config, {"transactional.id": kafka.prefix})
    hanging.init_transactions(30)
    hanging.begin_transaction()
    hanging.produce(publisher.topic, key=b"x", value=b"x", partition=publisher.partition_of("s-1"))
    assert hanging.flush(30) == 0
    session.append(note()).result(30)
    hanging.abort_transaction(30)
    assert publisher.resume("s-1").seq == 5


def test_a_log_explains_itself_to_one_who_knows_no_schema(publisher: Publisher, kafka: KafkaForTest) -> None:
    begin(publisher).append(note()).result(30)
    nobody = SchemaSet()
    publisher.transport.refresh_schemas(kafka.prefix, nobody, 30)
    placed = [
        place(nobody, record.key, record.value, partition, PARTITIONS)
        for partition, record in log_of(kafka.config, publisher.topic)
    ]
    assert [event.type for event in placed if isinstance(event, Event)] == [
        "SessionCreated", "SessionStarted", "NoteRecorded",
    ]  # fmt: skip


def test_a_block_ends_with_everything_stored_and_a_trace_beside_it(publisher: Publisher, kafka: KafkaForTest) -> None:
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    with publisher.session("s-1", traceparent=trace) as session:
        session.append(events.SessionCreated(workflow_name="w", profile="OBSERVED"))
        last = session.append(note())
    assert last.done()
    consumer = Consumer(kafka.config.client({"group.id": f"{kafka.prefix}.look", "enable.auto.commit": False}))
    consumer.assign([TopicPartition(publisher.topic, last.partition, last.result(0).offset)])
    message = consumer.poll(30)
    consumer.close()
    assert message is not None
    assert message.key() == last.key.encode()
    assert dict(message.headers()) == {
        "ce_type": b"dalsegno.event.v1.NoteRecorded", "content-type": b"application/avro",
        "dalsegno-hash": last.hash.hex().encode(), "traceparent": trace.encode(),
    }  # fmt: skip


def test_a_fatal_error_breaks_its_sessions_and_the_publisher_goes_on(publisher: Publisher, kafka: KafkaForTest) -> None:
    """The topic takes less than the client thinks: the broker refuses a record for good."""
    session, other = begin(publisher, "s-1"), begin(publisher, "s-2")
    assert publisher.flush(30) == 0
    _set_topic(kafka, publisher.topic, "max.message.bytes", "20000")
    try:
        big = session.append(events.NoteRecorded(kind="big", data=inline_blob(os.urandom(60_000))))
        assert big.error() is None
        with pytest.raises(Exception, match="MSG_SIZE_TOO_LARGE"):
            big.result(30)
        assert session.broken is not None
        assert other.broken is None
        assert other.append(note()).result(30).seq == 3
        session.resume()
        assert session.append(note()).result(30).seq == 4
    finally:
        _set_topic(kafka, publisher.topic, "max.message.bytes", "1048576")
    publisher.send(big.key, big.value).result(30)  # so that nothing stays unsent


def _set_topic(kafka: KafkaForTest, topic: str, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    for done in shared_admin(kafka.config).incremental_alter_configs([resource]).values():
        done.result(30)


def test_without_topics_the_first_append_names_what_is_missing(kafka: KafkaForTest) -> None:
    publisher = Publisher(kafka.config, prefix=kafka.prefix)
    with pytest.raises(TopicMissing, match=kafka.prefix):
        begin(publisher)
    publisher.close()


def test_the_example_writes_a_session(kafka: KafkaForTest) -> None:
    kafka.topics(partitions=2, projections=())
    example = ROOT / "examples" / "producer.py"
    command = [sys.executable, str(example), kafka.config.bootstrap_servers, kafka.prefix]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "4 events" in done.stdout
    assert done.stderr == ""
    assert len(list(log_of(kafka.config, f"{kafka.prefix}.events"))) == 4
    assert len(example.read_text().splitlines()) <= 24


# --- the broker goes away ---------------------------------------------------------------------------------------------

CHILD = """
import signal, sys, time
from dalsegno import KafkaConfig, Publisher, errors, events

def stop(*_):
    raise SystemExit(0)

signal.signal(signal.SIGTERM, stop)
publisher = Publisher(KafkaConfig(sys.argv[1]), prefix="down")
pendings = []
try:
    session = publisher.session("s-1")
    session.append(events.SessionCreated(workflow_name="w", profile="OBSERVED")).result(60)
    print("ready", flush=True)
    sys.stdin.readline()
    session.append(events.SessionStarted())
    pendings = [session.append(events.NoteRecorded(kind=str(n))) for n in range(19)]
    print("appended", flush=True)
    time.sleep(600)
except SystemExit:
    try:
        publisher.close(timeout=5)
    except errors.Unsent as error:
        stored = sum(1 for p in pendings if p.done() and p.error() is None)
        print("stored", stored, flush=True)
        print(*error.data["keys"], sep="\\n", flush=True)
        for p in error.data["pending"]:
            print("bytes", p.key.encode().decode(), p.value.hex(), flush=True)
        sys.exit(error.exit_code)
"""


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    data = tmp_path / "broker"
    embedded.start(data, java=os.environ.get("DALSEGNO_JAVA"))
    bootstrap = embedded.status(data).bootstrap
    assert bootstrap is not None
    yield data, bootstrap
    embedded.stop(data)


def test_with_the_broker_down_the_exit_says_what_was_not_sent(own_broker: tuple[Path, str]) -> None:
    # case C58
    data, bootstrap = own_broker
    config = KafkaConfig(bootstrap)
    apply(config, "down", partitions=2, projections=())
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, bootstrap],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        assert child.stdout.readline() == "ready\n"
        embedded.stop(data)
        child.stdin.write("go\n")
        child.stdin.flush()
        assert child.stdout.readline() == "appended\n"
        child.send_signal(signal.SIGTERM)
        begun = time.monotonic()
        out, _ = child.communicate(timeout=60)
        assert time.monotonic() - begun < 20
    finally:
        child.kill()
    assert child.returncode == 1
    stored, *lines = out.splitlines()
    assert stored == "stored 0"
    keys = [line for line in lines if not line.startswith("bytes ")]
    assert [int(key.split(":")[1]) for key in sorted(keys, key=lambda k: int(k.split(":")[1]))] == list(range(2, 22))

    # Sending them again, twice, doubles none.
    embedded.start(data, java=os.environ.get("DALSEGNO_JAVA"))
    config = KafkaConfig(embedded.status(data).bootstrap or "")
    again = [line.split()[1:] for line in lines if line.startswith("bytes ")]
    assert len(again) == 20
    with Publisher(config, prefix="down") as publisher:
        for _ in range(2):
            for key, value in again:
                publisher.send(key.encode(), bytes.fromhex(value)).result(60)
        links = []
        for partition, record in log_of(config, "down.events"):
            event = place(publisher.schemas, record.key, record.value, partition, 2)
            assert isinstance(event, Event)
            links.append(event.link)
        path = choose_path(links)
        assert (len(path.hashes), path.held, path.superseded) == (21, None, frozenset())


def test_with_no_broker_at_all_appending_is_refused_with_a_limit() -> None:
    # case C58
    publisher = Publisher(KafkaConfig("127.0.0.1:1", {"socket.timeout.ms": "1000"}), prefix="t")
    with pytest.raises(Unavailable):
        publisher.acknowledge_schemas([publisher.schemas.event("NoteRecorded")], timeout=2)
    publisher.close()


def test_a_command_goes_through_the_inbox_and_back(kafka: KafkaForTest, publisher: Publisher) -> None:
    with begin(publisher, "s:1") as session:
        session.append(events.ApprovalRequested(approval_id="a", subject="TOOL_CALL", subject_id="c")).result()
        inbox = Inbox(publisher.transport, prefix=kafka.prefix)
        number = publisher.partition_of("s:1")
        start = publisher.high("s:1")
        before = session.now // 1000
        sent = inbox.send("s:1", events.ApprovalGranted(approval_id="a"), actor=("USER", "maria"))
        commands = inbox.commands_of(["s:1"])
        (command,) = commands.new()
        assert (command.command_id, sent.partition) == (sent.command_id, number)
        assert before <= command.stored_at // 1000 <= session.now // 1000
        state = InboxState(session.status, session.operation, lambda *_: Asked(0), lambda _: False)
        assert take_up(session, inbox, command, state, lambda *_: None).fate is Fate.TAKEN
        assert inbox.commands_of(["s:1"]).new() == commands.new() == []
        with Follower(kafka.config, publisher.topic, {number: start}) as follower:
            taken = taken_up(follower.poll, "s:1", sent.command_id, PARTITIONS, 30)
        assert (taken.seq, taken.type, taken.why) == (4, "ApprovalGranted", None)
