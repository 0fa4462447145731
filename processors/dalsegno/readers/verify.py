"""Verify: fold the log again beside the state that is read, and compare.

For each partition, at the cursor C of its live shard:

1. journal: every record that the index names is there and hashes to its name, and nothing else is there;
2. rows: the digests that the shard keeps follow from its rows;
3. amendments: each is known to the admin audit, which other rights protect than those of the log;
4. log: a shard folded from the start of the log to C knows the same records and has the same rows;
5. snapshot: the newest good one at or below C, and the log from there to C, give the same too.

A difference is named by projection (or journal, digest, amendment), partition, session, and field or seq. What could
not be compared is said, and is never counted as equal.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dalsegno.errors import SnapshotDamaged, SnapshotIncompatible, StoreDamaged
from dalsegno.log.amend_requests import Requests
from dalsegno.model.amendments import read_amendment
from dalsegno.model.choose import newest_usable
from dalsegno.model.cursor import check, parse_base
from dalsegno.model.ids import EventKey, Seq
from dalsegno.model.records import AMENDMENT_TYPE, CONTROL_SEQ, Event
from dalsegno.projections.base import Projection
from dalsegno.readers.compare import AMENDMENT, Difference, entry_at, indexed, journal_differences
from dalsegno.readers.local import View
from dalsegno.readers.refold import Findings, Log, Progress, Refold
from dalsegno.snapshots.catalog import Catalog, TopicIdentity
from dalsegno.snapshots.folders import RocksFolders
from dalsegno.snapshots.restore import check_state, fetch, read_manifest
from dalsegno.state.history import placed
from dalsegno.storage.object_store import Store


class Report(NamedTuple):
    """What was compared for one partition. ``digests``: projection -> digest as the live shard keeps it."""

    partition: int
    cursor: int
    source: str
    folded: int
    """Records folded from the start of the log; 0 with a remark if that could not be done."""
    snapshot: str | None
    tail: int | None
    """Records folded after the snapshot; None if there was none to begin from."""
    digests: dict[str, str]
    differences: tuple[Difference, ...]
    uncompared: tuple[str, ...]
    remarks: tuple[str, ...]


class Verifier:
    """Compares live shards with the log. ``catalog`` None: no snapshots are looked at. ``scratch``: an existing folder
    on a disk with room for another copy of one partition's state. ``audited``: what the admin audit asks for."""

    def __init__(
        self,
        log: Log,
        prefix: str,
        projections: Sequence[Projection[Any]],
        store: Store,
        catalog: Catalog | None,
        audited: Requests,
        scratch: Path,
        progress: Progress,
    ) -> None:
        self._log = log
        self._prefix = prefix
        self._projections = projections
        self._store = store
        self._catalog = catalog
        self._audited = audited
        self._scratch = scratch
        self._progress = progress

    def verify(self, view: View) -> Report:
        """All comparisons for one partition. Raises OtherHistory and LogHole if the shard is not of this log."""
        facts = self._log.facts(view.partition)
        check(view.cursor, facts)
        found = Findings()
        try:
            self._compare(view, facts.low, found)
        except StoreDamaged as error:
            found.uncompared.append(f"the live state cannot be read: {error.found}")
        return Report(
            view.partition,
            view.cursor.next_offset,
            view.source,
            found.folded or 0,
            found.snapshot,
            found.tail,
            {name: each.digest for name, each in view.reads.digests().items()},
            tuple(found.differences),
            tuple(found.uncompared),
            tuple(found.remarks),
        )

    def _compare(self, view: View, low: int, found: Findings) -> None:
        found.add(journal_differences(view))
        found.add(self._unaudited(view))
        beside = Refold(view, self._log, self._projections, self._progress, found)
        if not beside.specs:
            return
        found.add(beside.kept_digests())
        with tempfile.TemporaryDirectory(prefix="verify-", dir=self._scratch) as scratch:
            start = _log_start(view)
            if start is None:
                found.remarks.append("a hole in the log was accepted behind its base: not folded from the log's start")
            elif low > start:
                found.remarks.append(f"the log begins at offset {low}: not folded from its start")
            else:
                found.folded = beside.fold(Path(scratch) / "log", "the log", start)
            if self._catalog is not None:
                self._after_snapshot(beside, self._catalog, Path(scratch), low)
        if found.folded is None and found.tail is None:
            found.uncompared.append("neither the start of the log nor a good snapshot is there to fold from")

    def _after_snapshot(self, beside: Refold, catalog: Catalog, scratch: Path, low: int) -> None:
        """Fold from the newest good snapshot at or below the cursor; a damaged one gives way to an older one."""
        view, found = beside.view, beside.found
        identity = view.reads.identity()
        log_identity = TopicIdentity(identity.cluster_id, identity.topic_id, identity.partitions)
        # Behind an accepted hole only snapshots from behind it too are of the same state.
        generation = identity.generation if parse_base(identity.base).hole_to is not None else None
        bad: dict[str, str] = {}
        while True:
            newest = newest_usable(
                catalog.entries(log_identity, partition=view.partition, bad=bad),
                generation=generation,
                at_or_below=view.cursor.next_offset,
                log_start=low,
            )
            if newest is None:
                found.remarks.append("no good snapshot to fold from")
                return
            folder = scratch / newest.id
            try:
                manifest = read_manifest(newest.id, self._store, self._prefix, catalog.pointers[newest.id].cursor)
                fetch(newest.id, manifest, self._store, self._prefix, folder)
                check_state(newest.id, manifest, folder, RocksFolders())
            except (SnapshotDamaged, SnapshotIncompatible) as error:
                bad[newest.id] = error.found
                found.remarks.append(error.found)
                continue
            found.snapshot = newest.id
            found.tail = beside.fold(folder, f"snapshot {newest.id[:12]}")
            return

    def _unaudited(self, view: View) -> Iterator[Difference]:
        for session_id, seq, hash_, entry in indexed(view.reads.kv):
            if seq != CONTROL_SEQ:
                continue
            kept = entry_at(view.reads.kv, entry.offset)
            # What the journal lacks, or holds with other bytes, is named by the first comparison.
            event = None if kept is None else placed(view.reads.schemas, kept, EventKey(session_id, Seq(seq), hash_))
            if not isinstance(event, Event) or event.type != AMENDMENT_TYPE:
                continue
            amendment = read_amendment(event.body)
            if self._audited.doubt(session_id, amendment) is not None:
                place, request = f"seq 0, HistoryAmended {hash_.hex()[:12]}", amendment.request_id
                yield Difference(
                    AMENDMENT, view.partition, session_id, place, request, "the same request", "the admin audit"
                )


def _log_start(view: View) -> int | None:
    """Where the fold that gave this shard began in the log; None if it cannot be told from its base."""
    base = parse_base(view.reads.identity().base)
    if base.hole_to is None:
        return 0
    return base.hole_to if base.snapshot is None else None
