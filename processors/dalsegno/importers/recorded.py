"""What the log already holds of the sessions of a file; each partition is read once for all of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import NamedTuple

from dalsegno.log.history import SCHEMA_TIMEOUT_SECONDS, STALL_SECONDS, place_values
from dalsegno.log.publisher import Publisher
from dalsegno.model.history import gather
from dalsegno.model.ids import EventKey, parse_key
from dalsegno.model.path import Held


class Recorded(NamedTuple):
    """One session as the log has it: the hashes of its path from seq 1, every key that it holds, and what holds it."""

    path: tuple[bytes, ...]
    keys: frozenset[EventKey]
    erased: bool
    held: Held | None


def read_recorded(publisher: Publisher, session_ids: Collection[str]) -> dict[str, Recorded]:
    """The sessions of these ids that the log holds anything of. Raises BrokerUnavailable, TopicMissing, WaitTimeout."""
    wanted: dict[int, set[str]] = defaultdict(set)
    for session_id in session_ids:
        wanted[publisher.partition_of(session_id)].add(session_id)
    found: dict[str, Recorded] = {}
    for partition in sorted(wanted):
        for session_id, values in _read_partition(publisher, partition, wanted[partition]).items():
            found[session_id] = _understand(publisher, partition, values)
    return found


def _read_partition(
    publisher: Publisher, partition: int, session_ids: Collection[str]
) -> dict[str, dict[EventKey, bytes]]:
    """Session id -> the last value under each of its keys, tombstoned ones left out."""
    sessions: dict[str, dict[EventKey, bytes]] = {}
    end = publisher.transport.bounds(publisher.topic, partition).high
    for batch in publisher.transport.read(publisher.topic, partition, None, end, STALL_SECONDS):
        for record in batch.records:
            key = None if record.key is None else parse_key(record.key)
            if key is None or key.session_id not in session_ids:
                continue
            values = sessions.setdefault(key.session_id, {})
            if record.value is None:
                values.pop(key, None)
            else:
                values[key] = record.value
    return sessions


def _understand(publisher: Publisher, partition: int, values: Mapping[EventKey, bytes]) -> Recorded:
    def learn() -> None:
        publisher.transport.refresh_schemas(publisher.prefix, publisher.schemas, SCHEMA_TIMEOUT_SECONDS)

    placed = place_values(values, partition, publisher.partitions, publisher.schemas, learn)
    # What this build cannot fold was recorded all the same, and hashes are all that is compared.
    known = gather(placed.values()).known._replace(unfoldable={})
    path = known.choose()
    return Recorded(path.hashes, frozenset(placed), known.amended.whole_session, path.held)
