"""The tree of errors. Every error says what was found, what was wanted and what to do, and carries data.

Exit codes are those of the command line: 1 failed, 2 usage, 3 negative verdict, 4 not found, 5 conflict, 6 unavailable
or time-out, 7 forbidden, 70 a bug. ``slug`` names the error in logs, in documents (``docs/errors.md``) and over HTTP.
Foreign errors (librdkafka, RocksDB, the file system) are translated where they enter, never further in.
"""

from __future__ import annotations

from typing import Any, ClassVar


class DalsegnoError(Exception):
    """Base of all errors that dalsegno raises on purpose."""

    slug: ClassVar[str] = "internal-error"
    exit_code: ClassVar[int] = 70
    retryable: ClassVar[bool] = False

    def __init__(self, found: str, *, wanted: str = "", todo: str = "", **data: Any) -> None:
        self.found = found
        self.wanted = wanted
        self.todo = todo
        self.data = data
        super().__init__(found)

    def __str__(self) -> str:
        parts = [self.found]
        if self.wanted:
            parts.append(f"wanted: {self.wanted}")
        if self.todo:
            parts.append(f"to do: {self.todo}")
        return "; ".join(parts)


class Failed(DalsegnoError):
    slug = "failed"
    exit_code = 1


class Usage(DalsegnoError):
    slug = "usage"
    exit_code = 2


class NegativeVerdict(DalsegnoError):
    slug = "negative-verdict"
    exit_code = 3


class NotFound(DalsegnoError):
    slug = "not-found"
    exit_code = 4


class Conflict(DalsegnoError):
    slug = "conflict"
    exit_code = 5


class Unavailable(DalsegnoError):
    slug = "unavailable"
    exit_code = 6
    retryable = True


class Forbidden(DalsegnoError):
    slug = "forbidden"
    exit_code = 7


# --- what a producer or an importer can do wrong ---------------------------------------------------------------------


class InvalidEvent(Failed):
    """An event was refused by ``append`` before anything left the process. ``data['field']`` is its path."""

    slug = "invalid-event"


class EventTooLarge(InvalidEvent):
    slug = "event-too-large"


class InvalidSessionId(InvalidEvent):
    slug = "invalid-session-id"


class SessionBroken(Conflict):
    """An append failed or its outcome is unknown: the session must be resumed before it appends again."""

    slug = "session-broken"


class SessionSuperseded(Conflict):
    """Another writer recovered this session with the same or a higher epoch."""

    slug = "session-superseded"


class SessionOpen(Conflict):
    """This process has the session open already."""

    slug = "session-open"


class SessionMissing(NotFound):
    """The log holds no record of this session."""

    slug = "session-missing"


class SessionHeld(Conflict):
    """A session cannot be read to its end here; ``data['reason']`` and ``data['seq']`` say why and where."""

    slug = "session-held"


class NoForkPoint(Conflict):
    """A session cannot be forked at that event: no turn begins at or below it where nothing is open."""

    slug = "no-fork-point"


class SnapshotAheadOfLog(Conflict):
    """The state knows events of a session that the log no longer holds."""

    slug = "snapshot-ahead-of-log"


class Unsent(Failed):
    """Events were still without a delivery report when their session or the publisher closed; ``data['keys']`` lists
    them."""

    slug = "unsent-events"


class BadInputFile(Failed):
    """A file to import is torn, foreign, empty or damaged; nothing of it was imported."""

    slug = "bad-input-file"


class InvalidDocument(Failed):
    """A document of a session's configuration is not one; ``data``: where it stands (file, line, column, key)."""

    slug = "invalid-document"


class BadLine(Failed):
    """A line of a file of events was refused. ``data``: file, line, field, and what was acknowledged before it."""

    slug = "bad-line"


class ImportConflict(Conflict):
    """The log already holds this session with another prefix."""

    slug = "import-conflict"


# --- schemas -------------------------------------------------------------------------------------------------------


class SchemaIncompatible(Failed):
    slug = "schema-incompatible"


class SchemaUnknown(NotFound):
    slug = "schema-unknown"


class RecordDamaged(Failed):
    """A record of a topic of ours (other than the events) has no framing of ours, or does not decode exactly."""

    slug = "record-damaged"


# --- broker, topics, groups ----------------------------------------------------------------------------------------


class BrokerUnavailable(Unavailable):
    slug = "broker-unavailable"


class KafkaRefused(Failed):
    """Kafka refused a request for a reason that a retry does not change."""

    slug = "kafka-refused"


class KafkaForbidden(Forbidden):
    """Kafka did not accept the credentials, or they lack a right."""

    slug = "kafka-forbidden"


class WaitTimeout(Unavailable):
    """A wait reached its limit."""

    slug = "wait-timeout"


class ClientTooOld(Failed):
    slug = "client-too-old"


class TopicDrift(Conflict):
    """A topic's partitions or settings differ from those of this release."""

    slug = "topic-drift"


class TopicMissing(NotFound):
    slug = "topic-missing"


class GroupNotEmpty(Conflict):
    slug = "group-not-empty"


class PlanStale(Conflict):
    slug = "plan-stale"


class BrokerStartFailed(Failed):
    """The embedded broker ended while it started; the message holds the last lines of its log."""

    slug = "broker-start-failed"


class PortTaken(Conflict):
    slug = "port-taken"


class JavaMissing(Failed):
    """No Java of a version that runs the embedded broker."""

    slug = "java-missing"


class JarsUnavailable(Unavailable):
    """The embedded broker's jars are not here yet and cannot be fetched."""

    slug = "jars-unavailable"


class JarDamaged(Failed):
    """A fetched jar has another digest than the one that this release was built with."""

    slug = "jar-damaged"


# --- cursors, shards, snapshots ------------------------------------------------------------------------------------


class OtherHistory(Conflict):
    """A cursor belongs to another cluster, topic, partition count or log content; ``data`` names the difference."""

    slug = "other-history"


class LogHole(Conflict):
    """Records between the cursor and the start of the log are gone."""

    slug = "log-hole"


class BatchOutOfPlace(Failed):
    """A batch does not begin at the shard's cursor: a lost or repeated batch must stop its partition."""

    slug = "batch-out-of-place"


class StoreLocked(Conflict):
    slug = "store-locked"


class StoreDamaged(Failed):
    slug = "store-damaged"


class StoreUnavailable(Unavailable):
    """The object store of snapshots and contents does not answer, or has no such bucket."""

    slug = "store-unavailable"


class DiskFull(Unavailable):
    slug = "disk-full"


class NotPermitted(Forbidden):
    """The operating system refused access to a file of ours."""

    slug = "not-permitted"


class BlobMissing(NotFound):
    """The store does not hold a content that an event names."""

    slug = "blob-missing"


class BlobDamaged(Failed):
    """A content's bytes do not have the digest that the event names."""

    slug = "blob-damaged"


class SnapshotDamaged(Failed):
    slug = "snapshot-damaged"


class SnapshotIncompatible(Conflict):
    slug = "snapshot-incompatible"


class NotReconstructable(Failed):
    """Something cannot be rebuilt from the log; ``data['seq']`` says from where on."""

    slug = "not-reconstructable"


class VerifyDiffers(NegativeVerdict):
    """The live state differs from the log; ``data`` names projection or journal, partition, session, field or seq."""

    slug = "verify-differs"


class CommandRefused(NegativeVerdict):
    """A session's writer did not do what a command asked for; a note in the session says why."""

    slug = "command-refused"


class HistoryRefuted(NegativeVerdict):
    """A session's records are not its whole, untouched history; ``data['doubts']`` says what and where."""

    slug = "history-refuted"
