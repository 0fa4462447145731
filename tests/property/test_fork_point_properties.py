"""Where a fork may begin, against the rules' own verdict on a fork that begins at each turn."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from dalsegno.model.forking import fork_point
from dalsegno.model.history import gather, whole_history
from dalsegno.testing.builder import SessionBuilder
from dalsegno.testing.strategies import PROFILES
from examples import examples

STEPS = st.lists(
    st.sampled_from(["turn", "turn", "ask", "answer", "answer", "note", "pause", "end"]), min_size=5, max_size=14
)


def walk(builder: SessionBuilder, steps: list[str]) -> SessionBuilder:
    """Turns that begin and end whatever else is open, questions that stay open for a while, and now and then an end
    behind which turns begin that the rules refuse."""
    asked: list[str] = []
    for step in steps:
        name = f"{builder.session_id}.{len(builder.records)}"
        if step == "turn":
            if builder.session.turn:
                builder.append("TurnCompleted", turn_id=builder.session.turn)
            builder.append("TurnStarted", turn_id=name)
        elif step == "ask":
            builder.append("InputRequested", request_id=name)
            asked.append(name)
        elif step == "answer" and asked:
            builder.append("InputProvided", request_id=asked.pop())
        elif step == "note":
            builder.append("NoteRecorded", kind="n")
        elif step == "pause":
            builder.append("SessionPaused")
            builder.append("SessionResumed")
        elif step == "end" and len(builder.records) % 3 == 0:
            builder.append("SessionCompleted", outcome="PARTIAL", open_ops=builder.open_ids())
    return builder


@st.composite
def lines(draw: st.DrawFn) -> dict[str, SessionBuilder]:
    """A session, maybe a fork of it, maybe a fork of that: each goes on, left anywhere."""
    session = walk(SessionBuilder("s", profile=draw(st.sampled_from(PROFILES))).begin(), draw(STEPS))
    line = {session.session_id: session}
    for name in draw(st.sampled_from([(), ("a",), ("a", "b")])):
        left = draw(st.integers(len(session.records) // 2, len(session.records)))
        session = walk(session.fork(max(1, left), name, profile=draw(st.sampled_from(PROFILES))), draw(STEPS))
        line[session.session_id] = session
    return line


@settings(max_examples=examples(150))
@given(lines(), st.data())
def test_it_is_the_last_turn_at_which_the_rules_let_a_fork_begin(
    line: dict[str, SessionBuilder], data: st.DataObject
) -> None:
    asked = list(line.values())[-1]
    at = len(asked.records) - data.draw(st.integers(0, min(8, len(asked.records) - 1)))
    history = list(whole_history(asked.events, lambda name: gather(line[name].events)))
    history = history[: len(history) - len(asked.records) + at]
    good = [
        place
        for place, event in enumerate(history)
        if event.type == "TurnStarted"
        and not line[event.session_id].verdicts[event.seq - 1].violations
        and not line[event.session_id].fork(event.seq - 1, "x").verdicts[1].violations
    ]
    found = fork_point(history, asked.session_id, at)
    if isinstance(found, str):
        assert good == []
        return
    before = history[good[-1] - 1]
    assert (found.session_id, *found.at) == (before.session_id, before.seq, before.hash)
    assert found.snapped_back == len(history) - 1 - good[-1]
    assert fork_point(history, asked.session_id, None) == found
