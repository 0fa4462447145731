"""A writer resumes from the state that a worker left: it reads the tail of the log, not the log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dalsegno import Publisher, events
from dalsegno.errors import OtherHistory
from dalsegno.log import topics
from dalsegno.log.admin import describe_topics
from dalsegno.log.kafka import shared_admin
from dalsegno.log.topics import EVENTS, topic_name
from dalsegno.model.ids import partition_of
from dalsegno.readers.source import ShardSource
from dalsegno.storage.object_store import FolderStore
from harness_worker import World, wait_for

pytestmark = pytest.mark.broker


@pytest.fixture
def world(kafka: Any, tmp_path: Path) -> Any:
    kafka.topics(partitions=2)
    made = World(kafka.config, kafka.prefix, tmp_path, partitions=2)
    yield made
    made.close()


def test_resume_reads_the_tail_and_refuses_the_state_of_another_log(world: World, kafka: Any, tmp_path: Path) -> None:
    source = ShardSource(tmp_path / "a", kafka.prefix, FolderStore(tmp_path / "store"), kafka.config)
    with Publisher(kafka.config, prefix=kafka.prefix) as publisher:
        writer = publisher.session("mine")
        writer.append(events.SessionCreated(workflow_name="w", profile="OBSERVED"))
        writer.append(events.SessionStarted()).result(30)
        world.produce(events=400, sessions=10)
        worker = world.start("a", wait=True)
        world.settle()
        worker.stop()
        # What comes now is the tail: the state does not know it.
        before = world.ends()[partition_of("mine", 2)]
        last = writer.append(events.NoteRecorded(kind="late", data=None)).result(30)
    with Publisher(kafka.config, prefix=kafka.prefix) as publisher:
        again = publisher.resume("mine", source=source)
        assert again.seq == last.seq + 1
        assert again.last_resume is not None
        assert again.last_resume.records_read == last.offset + 1 - before == 1
        again.append(events.SessionCompleted(outcome="SUCCESS")).result(30)
        plain = publisher.resume("mine")
        assert plain.last_resume is not None
        assert plain.last_resume.records_read > 100
        assert plain.seq == again.seq + 1


def test_the_state_of_another_log_is_refused(world: World, kafka: Any, tmp_path: Path) -> None:
    world.produce(events=50, sessions=4)
    world.start("a", wait=True)
    world.settle()
    world.close()
    topic = topic_name(kafka.prefix, EVENTS)
    client = shared_admin(kafka.config)
    client.delete_topics([topic])[topic].result(30)
    wait_for(lambda: topic not in describe_topics(client, [topic]), "the topic to be gone")
    topics.apply(kafka.config, kafka.prefix, partitions=2)
    source = ShardSource(tmp_path / "a", kafka.prefix, FolderStore(tmp_path / "store"), kafka.config)
    with Publisher(kafka.config, prefix=kafka.prefix) as publisher, pytest.raises(OtherHistory, match="topic id"):
        publisher.resume("mine", source=source)
