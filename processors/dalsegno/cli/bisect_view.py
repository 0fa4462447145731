"""The answer of ``dalsegno bisect``: the event, what it changed, what led to it, and what the answer cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import click
from msgspec import structs

from dalsegno.cli.context import Context
from dalsegno.cli.divergence_text import ancestor_lines, divergence_lines, field_lines
from dalsegno.cli.output import cell, emit, note, visible
from dalsegno.cli.step_views import View, moved_view
from dalsegno.readers.bisecting import Answer, causes_of
from dalsegno.readers.local import LocalReader
from dalsegno.readers.sessions import Found
from dalsegno.readers.stepping import open_stepper
from dalsegno.replay.divergence import Ancestor, plain

ROWS_SHOWN: Final = 20
_SEQS_SHOWN: Final = 8
_QUESTION_CHARACTERS: Final = 200


class Question(NamedTuple):
    """What was asked, in words; what it is where it holds, and where it does not. ``uncompared``: fields that only one
    version of a projection has."""

    text: str
    yes: str
    no: str
    uncompared: Sequence[str] = ()

    def word(self, told: bool | None) -> str:
        return "cannot be judged" if told is None else self.yes if told else self.no


class Told(NamedTuple):
    found: Found
    question: Question
    answer: Answer


def tell(ctx: Context, reader: LocalReader, told: Told) -> None:
    """Print it."""
    flip = told.answer.flip
    view: View | None = None
    causes: tuple[Ancestor, ...] = ()
    if flip is not None:
        view = moved_view(open_stepper(reader, told.found, flip.first_after).step, moved=True)
        causes = causes_of(told.found.view.reads.walk(told.found.session_id), flip.first_after)
    if ctx.output == "text":
        for line in _lines(told, view, causes):
            click.echo(line)
    else:
        emit(ctx, _data(told, view, causes))


def say_hints(told: Told) -> None:
    """On stderr: what the reader of the answer has to know about how far it goes."""
    found, question, answer = told
    for why, count in answer.untold.items():
        note(f"could not be told at {count} events: {why}")
    if answer.flip is not None and answer.flip.against:
        note(f"it flips more than once: see also seq {_seqs(answer.flip.against)}; what is shown is one of its flips")
    if answer.way == "halving" and answer.flips is False:
        note(
            "it was asked at the two ends alone; a condition that holds only at single events is found by session step"
        )
    if question.uncompared:
        note(f"not compared, for only one of the versions has it: {', '.join(question.uncompared)}")
    if found.row.held_reason is not None:
        note(f"{found.session_id} is held at {found.row.held_seq}: {found.row.held_reason}; searched up to there")


# --- for people -------------------------------------------------------------------------------------------------------


def _lines(told: Told, view: View | None, causes: tuple[Ancestor, ...]) -> Iterator[str]:
    found, question, answer = told
    yield visible(f"{found.session_id}  {found.row.last_seq} events  {cell(question.text, _QUESTION_CHARACTERS)}")
    yield _headline(question, answer)
    yield from _details(answer)
    yield from view.lines if view is not None else ()
    yield from ancestor_lines(causes)
    yield _cost(answer)


def _headline(question: Question, answer: Answer) -> str:
    flip = answer.flip
    if answer.flips is None:
        return f"good end: {question.word(answer.good)}; bad end: {question.word(answer.bad)}"
    if not answer.flips:
        found = question.word(answer.good)
        return f"never flips: {found} at both ends" if answer.way == "halving" else f"nowhere: {found}"
    if flip is None:
        return f"{question.yes}, at no event of its own"
    after, before = question.word(not flip.before), question.word(flip.before)
    if not flip.is_exact:
        between = f"seq {flip.last_before + 1} to {flip.first_after}"
        return f"becomes {after} somewhere in {between}: what lies between could not be judged"
    last = f", last {before} at seq {flip.last_before}" if flip.last_before else ""
    return f"first {after} at seq {flip.first_after}{last}"


def _details(answer: Answer) -> Iterator[str]:
    if answer.call is not None:
        call, decision, why = answer.call
        yield f"  call     {cell(call.call_id)}  {cell(call.facts.tool)}"
        yield f"  decided  {call.decision or '(not recorded)'} -> {decision}: {cell(why, 200)}"
    if answer.divergence is not None:
        yield from (f"  {line}" for line in divergence_lines(answer.divergence._replace(causes=())))
    for each in answer.findings:
        location = "" if each.location is None else f"  {cell(each.location)}"
        yield f"  finding  {cell(each.code)}{location}  {cell(each.message, 200)}"
    for row in answer.rows[:ROWS_SHOWN]:
        yield f"  row      {cell(' '.join(map(str, row.id))) or '-'}  {', '.join(_fields(row.a, row.b))}"
    if answer.change is not None:
        change = answer.change
        sides = [f"{visible(at.session)}@{at.seq}" for at in (change.a, change.b) if at is not None]
        yield f"  {change.kind}  {' '.join(sides)}  {visible(change.identity.type)}  about {change.cause.name.lower()}"
        yield from field_lines(change.fields)


def _fields(a: dict[str, Any] | None, b: dict[str, Any] | None) -> Iterator[str]:
    if a is None or b is None:
        yield "only the first version has it" if b is None else "only the second version has it"
        return
    for name in a:
        if a[name] != b[name]:
            yield f"{name} {cell(a[name])} / {cell(b[name])}"


def _cost(answer: Answer) -> str:
    if answer.way == "halving":
        return (
            f"asked at {answer.evaluations} seqs, {answer.folded} events folded, at most {answer.most_folded} for one"
        )
    how = "steps aligned" if answer.way == "alignment" else "one pass"
    return f"{how}, {answer.read} events read"


def _seqs(seqs: Sequence[int]) -> str:
    more = f" and {len(seqs) - _SEQS_SHOWN} more" if len(seqs) > _SEQS_SHOWN else ""
    return ", ".join(map(str, seqs[:_SEQS_SHOWN])) + more


# --- for programs -----------------------------------------------------------------------------------------------------


def _data(told: Told, view: View | None, causes: tuple[Ancestor, ...]) -> dict[str, Any]:
    found, question, answer = told
    flip = answer.flip
    at: Mapping[str, Any] = {} if view is None else view.data
    return {
        "session": found.session_id,
        "end": found.row.last_seq,
        "position": found.view.position,
        "asked": question.text,
        "way": answer.way,
        "flips": answer.flips,
        "good": answer.good,
        "bad": answer.bad,
        "seq": None if flip is None else flip.first_after,
        "last_before": None if flip is None else flip.last_before,
        "exact": None if flip is None else flip.is_exact,
        "contradicted_by": [] if flip is None else list(flip.against),
        "unjudged": list(answer.unjudged),
        "untold": dict(answer.untold),
        "evaluations": answer.evaluations,
        "folded": answer.folded,
        "most_folded": answer.most_folded,
        "read": answer.read,
        "event": at.get("event"),
        "open": at.get("open", []),
        "changes": at.get("changes", []),
        "causes": [each._asdict() for each in causes],
        "call": _call(answer),
        "divergence": None if answer.divergence is None else answer.divergence.to_json(),
        "findings": [structs.asdict(each) for each in answer.findings],
        "rows": [{"id": list(row.id), "a": plain(row.a), "b": plain(row.b)} for row in answer.rows],
        "uncompared": list(question.uncompared),
        "change": None if answer.change is None else answer.change.to_json(),
    }


def _call(answer: Answer) -> dict[str, Any] | None:
    if answer.call is None:
        return None
    call, decision, why = answer.call
    return {
        "tool_call_id": call.call_id, "tool": call.facts.tool, "recorded": call.decision, "decision": decision,
        "explanation": why,
    }  # fmt: skip
