"""Whatever stands in the group, on disk and in the store: the choice loses no event and never mixes generations."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dalsegno.errors import NotReconstructable
from dalsegno.model.choose import Action, Choice, LocalShard, ShardSnapshot, choose
from dalsegno.model.cursor import ZERO_BASE, Commit, format_base, format_metadata, parse_base, read_commit

FIRST = "topic0"
NEW = "foreign9"
GENERATIONS = (FIRST, "ga", "gb")
OFFSETS = st.integers(0, 30)
SNAPSHOT_IDS = tuple(f"s{n}" for n in range(6))
GENERATION = st.sampled_from(GENERATIONS)
BASE = st.sampled_from((ZERO_BASE, *SNAPSHOT_IDS))


@st.composite
def snapshot_lists(draw: st.DrawFn) -> list[ShardSnapshot]:
    ids = draw(st.lists(st.sampled_from(SNAPSHOT_IDS), unique=True))
    return [ShardSnapshot(name, 0, draw(GENERATION), draw(BASE), draw(OFFSETS), draw(st.booleans())) for name in ids]


@st.composite
def local_lists(draw: st.DrawFn) -> list[LocalShard]:
    """Folders as a slot holds them: at most one is current."""
    count = draw(st.integers(0, 4))
    current = draw(st.integers(-1, count - 1)) if count else -1
    generations = [draw(GENERATION) for _ in range(count)]
    return [
        LocalShard(f"{generation}.{n}", generation, draw(BASE), draw(OFFSETS), n == current)
        for n, generation in enumerate(generations)
    ]


FOREIGN_COMMITS = st.builds(lambda offset: Commit(offset), OFFSETS)
OUR_COMMITS = st.builds(Commit, OFFSETS, GENERATION, BASE)
COMMITS = st.one_of(
    st.none(),
    FOREIGN_COMMITS,
    OUR_COMMITS,
    st.builds(lambda offset, g, b, hole: Commit(offset, g, f"{b}@{hole}"), OFFSETS, GENERATION, BASE, OFFSETS),
)


def pick(
    commit: Commit | None, locals: list[LocalShard], snapshots: list[ShardSnapshot], max_behind: int, log_start: int = 0
) -> Choice:
    return choose(commit, locals, snapshots, FIRST, NEW, max_behind, log_start)


@given(COMMITS, local_lists(), snapshot_lists(), st.integers(0, 40))
def test_reading_starts_where_the_chosen_state_stands(
    commit: Commit | None, locals: list[LocalShard], snapshots: list[ShardSnapshot], max_behind: int
) -> None:
    choice = pick(commit, locals, snapshots, max_behind)
    if choice.action is Action.KEEP:
        shard = next(shard for shard in locals if shard.folder == choice.folder)
        assert (choice.next_offset, choice.generation) == (shard.next_offset, shard.generation)
    elif choice.action is Action.RESTORE:
        assert choice.snapshot in snapshots
        assert choice.snapshot is not None
        assert choice.snapshot.usable
        assert choice.next_offset == choice.snapshot.next_offset
    else:
        # Every event from the first on is read.
        assert choice.next_offset == 0
        assert choice.base.startswith(ZERO_BASE) or not any(s.usable and s.id == choice.base for s in snapshots)


@given(FOREIGN_COMMITS, local_lists(), snapshot_lists(), st.integers(0, 40))
def test_a_foreign_commit_never_loses_events(
    commit: Commit, locals: list[LocalShard], snapshots: list[ShardSnapshot], max_behind: int
) -> None:
    choice = pick(commit, locals, snapshots, max_behind)
    assert choice.action is not Action.KEEP
    assert choice.generation == NEW
    assert choice.next_offset <= commit.offset
    # The base's cursor is committed with the new generation before anything is built, never the foreign offset.
    assert choice.commit_first == Commit(choice.next_offset, NEW, choice.base)
    usable = [s.next_offset for s in snapshots if s.usable and s.next_offset <= commit.offset]
    assert choice.next_offset == max(usable, default=0)
    # A crash right after that commit finds the same base again, with or without a folder begun.
    again = pick(choice.commit_first, locals, snapshots, max_behind)
    assert (again.action, again.next_offset, again.base) == (choice.action, choice.next_offset, choice.base)
    assert again.commit_first is None


@given(OUR_COMMITS, local_lists(), snapshot_lists(), st.integers(0, 40))
def test_a_folder_is_never_kept_for_another_generation(
    commit: Commit, locals: list[LocalShard], snapshots: list[ShardSnapshot], max_behind: int
) -> None:
    choice = pick(commit, locals, snapshots, max_behind)
    assert choice.generation == commit.generation
    assert choice.base == commit.base
    assert choice.commit_first is None
    own = [shard.next_offset for shard in locals if shard.generation == commit.generation]
    theirs = [s.next_offset for s in snapshots if s.usable and s.generation == commit.generation]
    if own and max(theirs, default=-1) - max(own) <= max_behind:
        assert choice.action is Action.KEEP
        assert choice.next_offset == max(own)
    elif theirs:
        assert choice.action is Action.RESTORE
        assert choice.next_offset == max(theirs)
    else:
        # The generation is nowhere: its base or something older, never something newer.
        base = next((s for s in snapshots if s.id == commit.base), None)
        assert choice.action is not Action.KEEP
        assert choice.next_offset <= (base.next_offset if base else 0)
        if base is not None and base.usable:
            assert choice.next_offset == base.next_offset


@given(local_lists(), snapshot_lists(), st.integers(0, 40))
def test_without_a_commit_the_current_shard_goes_on(
    locals: list[LocalShard], snapshots: list[ShardSnapshot], max_behind: int
) -> None:
    choice = pick(None, locals, snapshots, max_behind)
    current = next((shard for shard in locals if shard.current), None)
    if current is not None:
        assert (choice.action, choice.folder, choice.generation) == (Action.KEEP, current.folder, current.generation)
        assert choice.base == current.base
    else:
        assert choice.generation == FIRST
        if choice.action is Action.RESTORE:
            assert choice.snapshot is not None
            assert choice.base == choice.snapshot.id
            assert choice.next_offset == max(s.next_offset for s in snapshots if s.usable)
    assert choice.commit_first is None


@given(COMMITS, local_lists(), snapshot_lists(), st.integers(0, 40))
def test_only_folders_that_nobody_needs_are_deleted(
    commit: Commit | None, locals: list[LocalShard], snapshots: list[ShardSnapshot], max_behind: int
) -> None:
    choice = pick(commit, locals, snapshots, max_behind)
    by_name = {shard.folder: shard for shard in locals}
    for folder in choice.delete:
        assert not by_name[folder].current
        assert folder != choice.folder
        if choice.action is not Action.KEEP:
            assert by_name[folder].generation != choice.generation
    strangers = {s.folder for s in locals if not s.current and s.generation != choice.generation}
    assert strangers <= set(choice.delete)


@given(COMMITS, local_lists(), snapshot_lists(), st.integers(0, 40), st.integers(1, 30))
def test_nothing_is_built_below_the_log_start_unless_the_hole_was_accepted(
    commit: Commit | None, locals: list[LocalShard], snapshots: list[ShardSnapshot], max_behind: int, log_start: int
) -> None:
    try:
        choice = pick(commit, locals, snapshots, max_behind, log_start)
    except NotReconstructable:
        # Only an empty state was left to choose, which would hide what the log no longer holds.
        assert not any(s.usable and s.next_offset >= log_start and s.generation == FIRST for s in snapshots) or commit
        return
    accepted = choice.hole_to is not None and choice.hole_to >= log_start
    if choice.action is not Action.KEEP:
        assert accepted or choice.next_offset >= log_start


@given(COMMITS, local_lists(), snapshot_lists(), st.integers(0, 40), st.permutations(range(6)))
def test_every_worker_chooses_the_same_from_any_order(
    commit: Commit | None,
    locals: list[LocalShard],
    snapshots: list[ShardSnapshot],
    max_behind: int,
    order: list[int],
) -> None:
    shuffled = [snapshots[i] for i in order if i < len(snapshots)]
    first = pick(commit, locals, snapshots, max_behind)
    second = pick(commit, locals, shuffled, max_behind)
    assert first == second


@given(OUR_COMMITS, snapshot_lists())
def test_choosing_again_after_a_damaged_snapshot_ends(commit: Commit, snapshots: list[ShardSnapshot]) -> None:
    """Each round takes one candidate away; what is chosen next stands no further than what fell away."""
    position = None
    for _ in range(len(snapshots) + 1):
        choice = pick(commit, [], snapshots, 0)
        if choice.action is Action.EMPTY:
            return
        assert choice.snapshot is not None
        same = choice.snapshot.generation == commit.generation
        if position is not None and same:
            assert choice.next_offset <= position
        position = choice.next_offset
        snapshots = [s._replace(usable=False) if s.id == choice.snapshot.id else s for s in snapshots]
    pytest.fail("there is always a next candidate")


@given(GENERATION, BASE, st.one_of(st.none(), OFFSETS), OFFSETS, st.sampled_from([None, "0", "af" * 16]))
def test_a_commit_reads_back_from_its_metadata(
    generation: str, name: str, hole_to: int | None, offset: int, emitter: str | None
) -> None:
    base = format_base(None if name == ZERO_BASE else name, hole_to)
    assert read_commit(offset, format_metadata(generation, base, emitter)) == Commit(offset, generation, base, emitter)
    assert parse_base(base) == (None if name == ZERO_BASE else name, hole_to)


@given(st.text())
def test_a_foreign_text_is_no_commit_of_ours(text: str) -> None:
    assume(not text.startswith("ds1:"))
    assert read_commit(5, text) == Commit(5)
