"""Rows folded again from the journal, digests summed again from the rows, a shard handed to another generation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Final, NamedTuple

from dalsegno.errors import Failed, StoreDamaged
from dalsegno.model.catalogue import CATALOGUE
from dalsegno.state.digest import MODULUS, ProjectionDigest, to_hex
from dalsegno.state.keys import (
    CONTRIBUTION,
    HEAD,
    LADDER,
    OUTBOX,
    PRIVATE,
    ROW,
    TOTAL,
    family_prefix,
    outbox_key,
    take_text,
)
from dalsegno.state.kv import STATE, KeyReader, KeyValue, WriteBatch, after_prefix, scan_prefix
from dalsegno.state.layout import (
    BUILDING,
    COPY_KEY,
    IDENTITY_KEY,
    POSITION_KEY,
    Position,
    ShardIdentity,
    StoredDigest,
    decode_identity,
    decode_position,
    encode_meta,
)
from dalsegno.state.settling import settle_all
from dalsegno.state.tables import LIFECYCLE, TableSpec
from dalsegno.state.work import ShardWork

_SESSIONS_PER_WRITE: Final = 256
_EVENTS_PER_WRITE: Final = 5_000
_ROW_KINDS: Final = (ROW, PRIVATE, TOTAL, CONTRIBUTION)


class Outdated(NamedTuple):
    """Projections whose rows are of another version, and those that this build does not have."""

    stale: frozenset[str]
    surplus: frozenset[str]


UP_TO_DATE: Final = Outdated(frozenset(), frozenset())


def outdated(stored: Mapping[str, StoredDigest], wanted: Mapping[str, int]) -> Outdated:
    stale = {name for name, version in wanted.items() if name not in stored or stored[name].version != version}
    return Outdated(frozenset(stale), frozenset(name for name in stored if name not in wanted))


def catalogue_name() -> str:
    """Changes whenever this build knows other event types, or other versions of them, than another build."""
    lines = sorted(f"{each.name}.v{each.version}:{','.join(sorted(each.fields))}" for each in CATALOGUE.values())
    return sha256("\n".join(lines).encode("utf-8")).hexdigest()


def recompute_digests(kv: KeyReader, specs: Iterable[TableSpec]) -> dict[str, ProjectionDigest]:
    """Digests from all rows in the store."""
    sums: dict[str, int] = {}
    versions: dict[str, int] = {}
    for spec in specs:
        total = sums.get(spec.projection, 0)
        for prefix in spec.prefixes():
            for key, raw in scan_prefix(kv, STATE, prefix):
                total += spec.summand(key, raw)
        sums[spec.projection] = total % MODULUS
        versions[spec.projection] = spec.version
    return {name: ProjectionDigest(versions[name], to_hex(total)) for name, total in sorted(sums.items())}


def refold(work: ShardWork, names: frozenset[str], versions: Mapping[str, int], specs: Iterable[TableSpec]) -> None:
    """Steps:

    1. the rows are gone and the projections are marked as being built, in one write;
    2. every session is folded from its first event, in writes of bounded size;
    3. the digests are summed from the rows, and the marks taken away.

    A crash before 3 leaves the marks: the shard refuses batches, and begins again at 1 when it is opened. What other
    projections hold is folded again too, comes out the same, and is not written.
    """
    unknown = names - set(versions)
    if unknown:
        raise Failed(f"no projection {', '.join(sorted(unknown))}", wanted=f"one of {', '.join(sorted(versions))}")
    position, batch = work.position, work.kv.batch()
    public = {tables.name for tables in work.tables if tables.projection.public}
    for name in names:
        before = position.digests.get(name)
        same_topic = before is not None and before.version == versions[name]
        _delete_rows(work.kv, batch, name, keep_outbox=same_topic and name in public)
        position.digests[name] = StoredDigest(BUILDING, bytes(32))
    batch.put(STATE, POSITION_KEY, encode_meta(position))
    work.kv.write(batch)
    work.forget()
    _fold_all(work)
    sums = recompute_digests(work.kv, [spec for spec in specs if spec.projection in names])
    for name in names:
        position.digests[name] = StoredDigest(versions[name], bytes.fromhex(sums[name].digest))
    work.write()


def _fold_all(work: ShardWork) -> None:
    events = 0
    for key, _ in scan_prefix(work.kv, STATE, HEAD):
        session = work.load(take_text(key, 1)[0])
        session.settle = session.forced = True
        work.touch(session)
        events += session.head.seq
        if len(work.touched) >= _SESSIONS_PER_WRITE or events >= _EVENTS_PER_WRITE:
            settle_all(work)
            work.write()
            events = 0
    settle_all(work)
    work.write()


def drop(work: ShardWork, name: str) -> None:
    """Forget a projection. Raises Failed for ``lifecycle``, without which nothing can be folded."""
    if name == LIFECYCLE:
        raise Failed(f"{LIFECYCLE} cannot be dropped", wanted="the name of a projection")
    batch = work.kv.batch()
    _delete_rows(work.kv, batch, name, keep_outbox=False)
    work.position.digests.pop(name, None)
    batch.put(STATE, POSITION_KEY, encode_meta(work.position))
    work.kv.write(batch)


def _delete_rows(kv: KeyReader, batch: WriteBatch, name: str, *, keep_outbox: bool) -> None:
    """All rows of a projection, and its ladder. ``keep_outbox``: they stay announced, since some may not come again."""
    if not keep_outbox:
        prefix = family_prefix(OUTBOX, name)
        batch.delete_range(STATE, prefix, after_prefix(prefix))
    for kind in _ROW_KINDS:
        prefix = family_prefix(kind, name)
        if keep_outbox and kind in (ROW, TOTAL):
            for key, _ in scan_prefix(kv, STATE, prefix):
                batch.put(STATE, outbox_key(key), b"\xff" * 8)
        for each in (prefix, LADDER + prefix):
            batch.delete_range(STATE, each, after_prefix(each))
    if name == LIFECYCLE:
        batch.delete_range(STATE, LADDER + HEAD, after_prefix(LADDER + HEAD))


class Marks(NamedTuple):
    """What a stored shard says of itself."""

    identity: ShardIdentity
    position: Position


def read_marks(kv: KeyReader, path: str) -> Marks:
    """Identity and position without opening the shard. Raises StoreDamaged."""
    identity, position = kv.get(STATE, IDENTITY_KEY), kv.get(STATE, POSITION_KEY)
    if identity is None or position is None:
        raise StoreDamaged(f"no shard in {path}", wanted="identity and position of a shard", path=path)
    return Marks(decode_identity(identity, path), decode_position(position, path))


def adopt(kv: KeyValue, path: str, generation: str, base: str) -> None:
    """Make the shard in ``kv`` one of another generation, and a copy of its own."""
    before = read_marks(kv, path).identity
    batch = kv.batch()
    batch.delete(STATE, COPY_KEY)
    batch.put(
        STATE,
        IDENTITY_KEY,
        encode_meta(
            ShardIdentity(
                topic=before.topic,
                cluster_id=before.cluster_id,
                topic_id=before.topic_id,
                partition=before.partition,
                partitions=before.partitions,
                generation=generation,
                base=base,
            )
        ),
    )
    kv.write(batch)
    kv.flush()
