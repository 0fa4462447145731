"""Families of forks: of any branch of any parent, also of one that is not its path, in any order of arrival."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dalsegno.model import history as model
from dalsegno.state import folding
from dalsegno.testing.builder import SessionBuilder, Written, tombstone
from shard_lab import Lab, apply, apply_in_batches, folded, paths

pytestmark = pytest.mark.usefixtures("small_windows")
RELAXED = settings(deadline=None, suppress_health_check=list(HealthCheck))
SHORT = 3


def fork_of(parent: SessionBuilder, seq: int, name: str, origin: SessionBuilder | None = None) -> SessionBuilder:
    """A session that says it goes on from the parent's record. ``origin``: a rival of that session, which says at the
    same seq that it goes on from somewhere else."""
    at = next(record.event for record in parent.records if record.event is not None and record.event.seq == seq)
    if origin is None:
        child = SessionBuilder(name, profile="OBSERVED")
        child.append("SessionCreated", profile="OBSERVED", workflow_name="w", relation="FORK")
    else:
        child = origin.branch(1, writer=f"{name}/{len(origin.records)}/{seq}")
    child.append("SessionForked", parent_session=parent.session_id, parent_at={"seq": seq, "hash": at.hash})
    child.append("NoteRecorded")
    return child


@st.composite
def families(draw: st.DrawFn) -> list[SessionBuilder]:
    members = [SessionBuilder("r", profile="OBSERVED").begin()]
    for n in range(draw(st.integers(1, 7))):
        parent = draw(st.sampled_from(members))
        seq = draw(st.integers(1, min(SHORT, len(parent.records))))
        forks = [each for each in members if "~" in each.session_id and each.session_id != parent.session_id]
        origin = draw(st.sampled_from(forks)) if forks and draw(st.booleans()) else None
        members.append(fork_of(parent, seq, f"r~{n}" if origin is None else origin.session_id, origin))
    return members


@RELAXED
@given(families(), st.randoms(use_true_random=False), st.data())
def test_a_family_is_the_same_however_it_arrives(
    members: list[SessionBuilder], rnd: Random, data: st.DataObject
) -> None:
    records = list({record.key: record for member in members for record in member.records}.values())
    arrived = list(records)
    rnd.shuffle(arrived)
    taken = data.draw(st.lists(st.sampled_from(records), max_size=3, unique_by=lambda record: record.key))
    stones: list[Written] = [tombstone(record) for record in taken]
    kept = [record for record in records if record not in taken]
    amended = [
        member.amend(data.draw(st.lists(st.sampled_from(member.records), max_size=2, unique_by=lambda r: r.key)))
        for member in data.draw(st.lists(st.sampled_from(members), max_size=1))
    ]
    lab = Lab()
    shard = apply_in_batches(lab, lab.open(), [*arrived, *stones, *amended], rnd)
    straight = folded([*kept, *amended])
    assert paths(shard) == paths(straight)
    assert shard.digests() == straight.digests()
    assert shard.counts.forks == straight.counts.forks
    if not amended:
        apply(shard, taken)
        assert shard.digests() == folded(records).digests(), "what was sent again is there again"


@pytest.fixture
def folds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for every time that ancestors were folded."""
    done: list[int] = []

    def count(prefixes: tuple[model.Prefix, ...]) -> object:
        done.append(len(prefixes))
        return model.state_after(prefixes)

    monkeypatch.setattr(folding, "state_after", count)
    return done


def test_many_forks_of_a_session_cost_as_much_as_one(folds: list[int]) -> None:
    parent = SessionBuilder("r", profile="OBSERVED").begin().start()
    children = [fork_of(parent, len(parent.records), f"r~{n}") for n in range(20)]
    shard = folded(parent.records)
    apply(shard, [record for child in children for record in child.records])
    assert folds == [1], "they all begin in one place"
    folds.clear()
    rival = parent.branch(3, writer="other/1/1")
    rival.append("NoteRecorded")
    apply(shard, rival.records[-1:])
    parent.append("NoteRecorded")
    apply(shard, parent.records[-1:])
    assert folds == [], "what came changes nothing below the place where they begin"
    amendment = parent.amend(parent.records[2:3])
    apply(shard, [amendment])
    assert folds == [1]
    everything = [*parent.records, *(record for child in children for record in child.records), rival.records[-1]]
    assert shard.digests() == folded([*everything, amendment]).digests()


@given(st.permutations(range(7)))
def test_a_fork_of_a_branch_that_lost_depends_on_that_branchs_ancestors(order: list[int]) -> None:
    """Two writers made one session a fork of two others; each branch was forked again. One branch lost: what its
    parent holds concerns nobody on the path, and still the fork that went on from it."""
    parents = [SessionBuilder(f"r~{name}", profile="OBSERVED") for name in "ab"]
    for parent in parents:
        parent.append("SessionCreated", profile="OBSERVED", workflow_name="w")
        parent.append("NoteRecorded")
    first = fork_of(parents[0], 2, "r~p")
    second = fork_of(parents[1], 2, "r~p", first)
    children = [fork_of(branch, 3, f"r~c{n}") for n, branch in enumerate([first, second])]
    pieces = [parents[0].records[:1], parents[0].records[1:], parents[1].records[:1], parents[1].records[1:]]
    pieces += [first.records, second.records[1:], [record for child in children for record in child.records]]
    shard = Lab().open()
    for place in order:
        apply(shard, pieces[place])
    straight = folded([record for piece in pieces for record in piece])
    assert paths(shard) == paths(straight)
    assert {head.held_reason for head, _ in paths(shard).values()} == {None}
