"""Which state a worker goes on from when a partition is given to it. Pure.

``choose`` sees the group's commit for the partition, every local folder of it with its own cursor, and the catalogue of
shard snapshots. A committed offset is never where reading starts: reading starts at the chosen state's own cursor. So a
forward reset loses nothing, and the worst that a foreign commit can do is a needless rebuild.

How a caller uses it, at assignment:

1. read the commit (default isolation: a pending transaction must end first), list folders and snapshots;
2. ``choice = choose(...)``;
3. if ``choice.commit_first`` is set, commit it synchronously before anything is built, so that a crash finds the same
   base;
4. keep, restore or create as ``choice.action`` says, giving the shard ``choice.generation`` and ``choice.base``;
5. a snapshot that turns out damaged: mark it unusable and choose again (``commit_first``, once done, is the commit);
6. where ``choice.hole_to`` is above the shard's cursor, an operator accepted the loss of what lies between: move the
   cursor there by an empty batch;
7. delete ``choice.delete``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

from dalsegno.errors import NotReconstructable
from dalsegno.model.cursor import ZERO_BASE, Commit, format_base, parse_base


class LocalShard(NamedTuple):
    """One folder of a partition on this machine. ``current`` is the one that readers see."""

    folder: str
    generation: str
    base: str
    next_offset: int
    current: bool


class ShardSnapshot(NamedTuple):
    """One entry of the snapshot catalogue; ``reason`` says why it is not usable."""

    id: str
    partition: int
    generation: str
    base: str
    next_offset: int
    usable: bool = True
    reason: str = ""


class Action(StrEnum):
    KEEP = "KEEP"
    RESTORE = "RESTORE"
    EMPTY = "EMPTY"


class Choice(NamedTuple):
    """What to go on from.

    ``folder`` is set for KEEP, ``snapshot`` for RESTORE. ``next_offset`` is where the chosen state stands.
    ``commit_first`` is to be committed before building. ``hole_to`` see the module. ``because`` is for the log line.
    """

    action: Action
    folder: str | None
    snapshot: ShardSnapshot | None
    generation: str
    base: str
    next_offset: int
    commit_first: Commit | None
    hole_to: int | None
    delete: tuple[str, ...]
    because: str


def choose(
    commit: Commit | None,
    locals: Sequence[LocalShard],
    snapshots: Sequence[ShardSnapshot],
    first_generation: str,
    new_generation: str,
    max_behind: int,
    log_start: int = 0,
) -> Choice:
    """The state to go on from.

    ``max_behind``: a folder that is more than this many offsets behind a good snapshot of its generation gives way to
    it.
    ``log_start``: what lies below it is gone; a snapshot below it is not usable, and an empty shard is refused.
    Raises NotReconstructable when nothing usable reaches the log's start: an empty state is never served for a full
    one.
    """
    if commit is None:
        return _without_commit(locals, snapshots, first_generation, max_behind, log_start)
    if commit.generation is None:
        return _after_foreign_commit(commit, locals, snapshots, new_generation, log_start)
    return _in_generation(commit.generation, commit.base, locals, snapshots, max_behind, log_start)


def _without_commit(
    locals: Sequence[LocalShard],
    snapshots: Sequence[ShardSnapshot],
    first_generation: str,
    max_behind: int,
    log_start: int,
) -> Choice:
    """Rule 1, no commit (a new group, or one whose offsets expired): the current shard, else the first generation."""
    current = _furthest(shard for shard in locals if shard.current)
    if current is not None:
        return _keep(current, current.base, locals, "no commit: the current shard goes on at its own cursor")
    begun = _furthest(shard for shard in locals if shard.generation == first_generation)
    newest = newest_usable(snapshots, log_start=log_start)
    if begun is not None and (newest is None or newest.next_offset - begun.next_offset <= max_behind):
        return _keep(begun, begun.base, locals, "no commit: the first generation's unfinished build goes on")
    if newest is not None:
        base = format_base(newest.id)
        return _restore(newest, first_generation, base, locals, "no commit and no current shard: the newest snapshot")
    return _empty(first_generation, ZERO_BASE, locals, log_start, "no commit, no current shard and no usable snapshot")


def _in_generation(
    generation: str,
    base: str,
    locals: Sequence[LocalShard],
    snapshots: Sequence[ShardSnapshot],
    max_behind: int,
    log_start: int,
) -> Choice:
    """Rules 1 and 2: the generation's folder here, else its newest good snapshot, else its base, else zero."""
    began = parse_base(base)
    reach = log_start if began.hole_to is None or began.hole_to < log_start else 0
    newest = newest_usable(snapshots, generation=generation, log_start=reach)
    here = _furthest(shard for shard in locals if shard.generation == generation)
    if here is not None and (newest is None or newest.next_offset - here.next_offset <= max_behind):
        return _keep(here, base, locals, "the committed generation is here: it goes on at its own cursor")
    if newest is not None:
        why = "is not here" if here is None else f"is here, but {newest.next_offset - here.next_offset} offsets behind"
        return _restore(newest, generation, base, locals, f"the committed generation {why}: its newest snapshot")
    if began.snapshot is not None:
        named = next((entry for entry in snapshots if entry.id == began.snapshot), None)
        limit = -1 if named is None else named.next_offset
        older = newest_usable(snapshots, at_or_below=limit, log_start=reach, prefer=began.snapshot)
        if older is not None:
            why = "its base" if older.id == began.snapshot else "a good one below its base, which is not usable"
            return _restore(older, generation, base, locals, f"the committed generation is not here: {why}")
    return _empty(generation, base, locals, log_start, "the committed generation began from an empty shard")


def _after_foreign_commit(
    commit: Commit,
    locals: Sequence[LocalShard],
    snapshots: Sequence[ShardSnapshot],
    new_generation: str,
    log_start: int,
) -> Choice:
    """Rule 3, somebody reset the group without our metadata: a new generation from a snapshot at or below that
    offset."""
    because = f"the commit at {commit.offset} has no metadata of ours: somebody's reset"
    newest = newest_usable(snapshots, at_or_below=commit.offset, log_start=log_start)
    if newest is not None:
        choice = _restore(newest, new_generation, format_base(newest.id), locals, because)
    else:
        choice = _empty(new_generation, ZERO_BASE, locals, log_start, because)
    return choice._replace(commit_first=Commit(choice.next_offset, new_generation, choice.base))


def newest_usable(
    snapshots: Iterable[ShardSnapshot],
    *,
    generation: str | None = None,
    at_or_below: int | None = None,
    log_start: int = 0,
    prefer: str | None = None,
) -> ShardSnapshot | None:
    """The usable snapshot that stands furthest; among equals ``prefer``, then the greatest id (so every worker
    agrees)."""
    fitting = (
        entry
        for entry in snapshots
        if entry.usable
        and (generation is None or entry.generation == generation)
        and (at_or_below is None or entry.next_offset <= at_or_below)
        and entry.next_offset >= log_start
    )
    return max(fitting, key=lambda entry: (entry.next_offset, entry.id == prefer, entry.id), default=None)


def _furthest(shards: Iterable[LocalShard]) -> LocalShard | None:
    return max(shards, key=lambda shard: (shard.next_offset, shard.current, shard.folder), default=None)


def _keep(shard: LocalShard, base: str, locals: Sequence[LocalShard], because: str) -> Choice:
    delete = tuple(other.folder for other in locals if not other.current and other.folder != shard.folder)
    hole_to = parse_base(base).hole_to
    return Choice(
        Action.KEEP, shard.folder, None, shard.generation, base, shard.next_offset, None, hole_to, delete, because
    )


def _restore(snapshot: ShardSnapshot, generation: str, base: str, locals: Sequence[LocalShard], because: str) -> Choice:
    hole_to = parse_base(base).hole_to
    return Choice(
        Action.RESTORE,
        None,
        snapshot,
        generation,
        base,
        snapshot.next_offset,
        None,
        hole_to,
        _strangers(locals, generation),
        because,
    )


def _empty(generation: str, base: str, locals: Sequence[LocalShard], log_start: int, because: str) -> Choice:
    hole_to = parse_base(base).hole_to
    if log_start > (hole_to or 0):
        raise NotReconstructable(
            f"no usable snapshot reaches the start of the log, which is offset {log_start} ({because})",
            wanted="a good snapshot at or above the log's start: an empty state would hide what came before",
            todo="put a good snapshot back, or run 'dalsegno replay run --from earliest --accept-hole "
            f"P=0..{log_start}' to begin at the log's start and record the loss",
            log_start=log_start,
        )
    return Choice(Action.EMPTY, None, None, generation, base, 0, None, hole_to, _strangers(locals, generation), because)


def _strangers(locals: Sequence[LocalShard], generation: str) -> tuple[str, ...]:
    """Folders that are neither current nor of the generation gone on with."""
    return tuple(shard.folder for shard in locals if not shard.current and shard.generation != generation)
