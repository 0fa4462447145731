"""The path against a slow reference that is obviously right, on random sets of records with rivals, gaps and epochs."""

from __future__ import annotations

import random
from hashlib import sha256

from hypothesis import given
from hypothesis import strategies as st

from dalsegno.model.amendments import (
    NOTHING_AMENDED,
    Amendment,
    Stub,
    amended_links,
    merge_amendments,
)
from dalsegno.model.path import EMPTY_HEAD, Held, choose_path, extends, head_at
from dalsegno.model.records import Link


def name(n: int) -> bytes:
    return sha256(n.to_bytes(8, "big")).digest()


@st.composite
def sets_of_links(draw: st.DrawFn, max_size: int = 14) -> list[Link]:
    """Trees of linked records with rivals, dropped records, and a few that name what nobody knows."""
    links: list[Link] = []
    for n in range(draw(st.integers(0, max_size))):
        parent = draw(st.one_of(st.none(), st.sampled_from(links))) if links else None
        epoch = draw(st.integers(0, 2))
        if parent is None and draw(st.integers(0, 3)):
            links.append(Link(1, name(n), None, epoch))
        elif parent is None:
            links.append(Link(draw(st.integers(2, 5)), name(n), name(1000 + n), epoch))
        else:
            epoch = draw(st.sampled_from([parent.epoch, parent.epoch, parent.epoch + 1, max(0, parent.epoch - 1)]))
            links.append(Link(parent.seq + 1, name(n), parent.hash, epoch))
    kept = draw(st.lists(st.booleans(), min_size=len(links), max_size=len(links)))
    mostly = draw(st.booleans())
    return [link for link, keep in zip(links, kept, strict=True) if keep or mostly]


# --- the reference: every sentence of the rule as a scan over the whole set --------------------------------------


def slow_length(records: list[Link], r: Link) -> int:
    after = [s for s in records if s.seq == r.seq + 1 and s.prev_hash == r.hash and s.epoch >= r.epoch]
    return 1 + max([slow_length(records, s) for s in after], default=0)


def slow_path(records: list[Link], unreadable: list[tuple[int, str]]) -> tuple[list[bytes], set[bytes], Held | None]:
    records = sorted(set(records), key=lambda r: (r.seq, r.hash))
    path: list[Link] = []
    while True:
        if path:
            tip = path[-1]
            options = [r for r in records if r.seq == tip.seq + 1 and r.prev_hash == tip.hash and r.epoch >= tip.epoch]
        else:
            options = [r for r in records if r.seq == 1 and r.prev_hash is None]
        if not options:
            break
        top_epoch = max(r.epoch for r in options)
        options = [r for r in options if r.epoch == top_epoch]
        longest = max(slow_length(records, r) for r in options)
        options = [r for r in options if slow_length(records, r) == longest]
        path.append(min(options, key=lambda r: r.hash))
    off = [r for r in records if r not in path]
    lost = [r for r in off if r.seq <= len(path)]
    while True:
        more = [r for r in off if r not in lost and any(r.seq == s.seq + 1 and r.prev_hash == s.hash for s in lost)]
        if not more:
            break
        lost += more
    waiting = [r for r in off if r not in lost]
    here = len(path) + 1
    reasons = [reason for seq, reason in unreadable if seq == here]
    held = None
    if [r for r in waiting if r.seq == here and r.prev_hash == (path[-1].hash if path else None)]:
        held = Held("EPOCH_BELOW", here)
    elif [r for r in waiting if r.seq == here]:
        held = Held("BROKEN_CHAIN", here)
    elif reasons:
        best = next(x for x in ("UNKNOWN_SCHEMA", "UNKNOWN_SYMBOL", "UNDECODABLE") if x in reasons)
        held = Held(best, here)
    elif waiting or [seq for seq, _ in unreadable if seq > here]:
        held = Held("GAP" if path else "NO_START", here)
    return [r.hash for r in path], {r.hash for r in lost}, held


UNREADABLE = st.lists(
    st.tuples(st.integers(1, 8), st.sampled_from(["UNKNOWN_SCHEMA", "UNKNOWN_SYMBOL", "UNDECODABLE"])), max_size=2
)


@given(sets_of_links(), UNREADABLE)
def test_path_equals_the_slow_reference(links: list[Link], unreadable: list[tuple[int, str]]) -> None:
    path = choose_path(links, unreadable=unreadable)
    hashes, superseded, held = slow_path(links, unreadable)
    assert list(path.hashes) == hashes
    assert path.superseded == superseded
    assert path.held == held


def small_tree(rnd: random.Random) -> list[Link]:
    """Few records and many rivals: branches that differ in one thing only, which a random tree seldom has."""
    links = [Link(1, name(rnd.randrange(1 << 40)), None, 0) for _ in range(rnd.randint(1, 2))]
    for _ in range(rnd.randint(1, 9)):
        parent = rnd.choice(links)
        epoch = max(0, parent.epoch + rnd.choice([0, 0, 0, 1, -1]))
        if parent.seq < 5:
            links.append(Link(parent.seq + 1, name(rnd.randrange(1 << 40)), parent.hash, epoch))
    rnd.shuffle(links)
    return links


def test_the_longest_branch_wins_at_every_depth() -> None:
    rnd = random.Random(7)
    for _ in range(1500):
        links = small_tree(rnd)
        unreadable = [(rnd.randint(1, 6), "UNDECODABLE")] if rnd.random() < 0.3 else []
        path = choose_path(links, unreadable=unreadable)
        assert (list(path.hashes), path.superseded, path.held) == slow_path(links, unreadable)


@given(sets_of_links(), UNREADABLE, st.randoms(use_true_random=False))
def test_order_and_repetition_change_nothing(
    links: list[Link], unreadable: list[tuple[int, str]], rnd: random.Random
) -> None:
    again = links + [rnd.choice(links) for _ in range(rnd.randint(0, 5)) if links]
    rnd.shuffle(again)
    dark = unreadable * 2
    rnd.shuffle(dark)
    assert choose_path(again, unreadable=dark) == choose_path(links, unreadable=unreadable)


@given(sets_of_links(), st.randoms(use_true_random=False))
def test_incremental_equals_full_recomputation(links: list[Link], rnd: random.Random) -> None:
    arrivals = links + links[: rnd.randint(0, len(links))]
    rnd.shuffle(arrivals)
    if rnd.random() < 0.5:
        arrivals.sort(key=lambda link: link.seq)
    head, hashes, superseded, held = EMPTY_HEAD, [], frozenset[bytes](), None
    seen: set[Link] = set()
    for link in arrivals:
        if link in seen:
            continue
        seen.add(link)
        if extends(head, link):
            head = head_at(link)
            hashes.append(link.hash)
            held = None
        else:
            path = choose_path(seen)
            head, hashes, superseded, held = path.head, list(path.hashes), path.superseded, path.held
        full = choose_path(seen)
        assert (tuple(hashes), superseded, held, head) == (full.hashes, full.superseded, full.held, full.head)


@given(st.integers(1, 12), st.randoms(use_true_random=False))
def test_a_plain_session_in_order_is_appended_without_choosing(length: int, rnd: random.Random) -> None:
    head = EMPTY_HEAD
    epoch, before = 0, None
    for seq in range(1, length + 1):
        epoch += rnd.randint(0, 1)
        link = Link(seq, name(seq), before, epoch)
        assert extends(head, link)
        head, before = head_at(link), link.hash
    assert head.seq == length


@given(sets_of_links(), st.data())
def test_unknown_types_take_part_and_stop_the_path(links: list[Link], data: st.DataObject) -> None:
    strange = data.draw(st.sets(st.sampled_from([link.hash for link in links]))) if links else set()
    whole = choose_path(links)
    cut = choose_path(links, unfoldable=dict.fromkeys(strange, "UNKNOWN_TYPE"))
    stop = next((i for i, h in enumerate(whole.hashes) if h in strange), None)
    assert cut.superseded == whole.superseded
    if stop is None:
        assert cut == whole
    else:
        assert cut.hashes == whole.hashes[:stop]
        assert cut.held == Held("UNKNOWN_TYPE", stop + 1)
        assert not extends(cut.head, Link(stop + 1, name(9999), cut.head.hash, 9))


@given(sets_of_links(), st.data(), st.randoms(use_true_random=False))
def test_amended_records_stay_in_place_whether_present_or_gone(
    links: list[Link], data: st.DataObject, rnd: random.Random
) -> None:
    """Erasing is never a gap: with the stub, the path is what it was, and compaction of the target changes nothing."""
    targets = data.draw(st.lists(st.sampled_from(links), unique=True)) if links else []
    amendments = [
        Amendment(f"r{n}", action, (Stub(target, "NoteRecorded", action),), False, 0)
        for n, target in enumerate(targets)
        for action in data.draw(st.lists(st.sampled_from(["ERASED", "SKIPPED", "LOST"]), min_size=1, max_size=2))
    ]
    before = choose_path(links)
    shuffled = amendments * 2
    rnd.shuffle(shuffled)
    amended = merge_amendments(shuffled)
    assert amended == merge_amendments(amendments)
    gone = [link for link in links if link.hash not in amended.stubs or rnd.random() < 0.5]
    assert choose_path(amended_links(gone, amended.stubs)) == before
    if not targets:
        assert amended == NOTHING_AMENDED
