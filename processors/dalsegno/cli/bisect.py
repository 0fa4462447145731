"""``dalsegno bisect``: the first event of a session from which on something is otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import click

from dalsegno.cli.answers import say_position
from dalsegno.cli.bisect_exit import Judged, bisect_exit
from dalsegno.cli.bisect_view import Question, Told, say_hints, tell
from dalsegno.cli.common import open_reader
from dalsegno.cli.completion import complete_projection, complete_session
from dalsegno.cli.context import Context, pass_context
from dalsegno.errors import Failed, NegativeVerdict, NotFound, Usage
from dalsegno.harness.files import load_policy
from dalsegno.model.records import FIRST_SEQ
from dalsegno.readers.bisecting import Answer, Bisecting, Range, refuse_tainted
from dalsegno.readers.breakpoints import parse_breakpoint
from dalsegno.readers.conditions import Rejects, of_breakpoint, output_of_stage, read_validator, row_of
from dalsegno.readers.sessions import Found, find_session
from dalsegno.readers.versions import fields_of_one, version_of
from dalsegno.storage.blobs import Blobs

_QUESTIONS = ("--when", "--policy", "--validator", "--projection", "--decider", "--against")


class Given(NamedTuple):
    """The options that say what is asked."""

    when: str | None
    policy: Path | None
    validator: str | None
    row: str | None
    stage: str | None
    projection: str | None
    versions: tuple[str, str] | None
    decider: bool
    against: str | None
    good: int | None
    bad: int | None
    verify: bool
    allow_tainted: bool


@click.command(epilog="Example: dalsegno bisect last --when 'state.tool_calls > 3'")
@click.argument("session", shell_complete=complete_session)
@click.option("--when", metavar="CEL", help="A condition over event and state, as the breakpoints of session step.")
@click.option("--policy", metavar="FILE", type=click.Path(path_type=Path), help="A call is decided otherwise by FILE.")
@click.option(
    "--validator", metavar="FILE|TEXT", help="It rejects: a JSON Schema, or a condition (CEL) over output, json."
)
@click.option("--stage", metavar="NAME", help="With --validator: judge the outputs of this stage alone.")
@click.option("--row", metavar="'PROJECTION [ID]...'", help="With --validator: judge this row, not a stage's output.")
@click.option(
    "--projection", metavar="NAME", shell_complete=complete_projection, help="Two versions of it have other rows."
)
@click.option("--versions", nargs=2, metavar="A B", help="The installed number, or module:Class, or file.py:Class.")
@click.option("--decider", is_flag=True, help="This build's decider decides otherwise than the recorded one did.")
@click.option("--against", metavar="GOLDEN", shell_complete=complete_session, help="It is not as this session.")
@click.option("--good", type=click.IntRange(FIRST_SEQ), metavar="SEQ", help="Search from here (default: seq 1).")
@click.option("--bad", type=click.IntRange(FIRST_SEQ), metavar="SEQ", help="Search up to here (default: the end).")
@click.option("--verify", is_flag=True, help="Judge places around the flip as well, whether there is another one.")
@click.option("--allow-tainted", is_flag=True, help="Also a replay in which results were served that do not fit.")
@bisect_exit
@pass_context
def command(ctx: Context, /, session: str, **options: object) -> None:
    """Find the first event of SESSION from which on something is otherwise. SESSION is an id, the beginning of one, or
    'last'. Exactly one of --when, --policy, --validator, --projection, --decider and --against says what.

    A condition on the state, and a validator, are searched by halving: about log2 of the events are looked at, each by
    folding 256 events at most. It must flip once between the two ends. The others are answered in one pass.

    Exit code 0: found · 3: it never flips, or nothing differs · 1: it cannot be judged at one of the ends. With
    --bisect-exit what is found is 1, what never flips is 0.
    """
    given = Given(**options)  # type: ignore[arg-type]
    _check(given)
    with open_reader(ctx) as reader:
        found = find_session(reader, session)
        golden = None if given.against is None else find_session(reader, given.against)
        both = [each for each in (found, golden) if each is not None]
        for each in () if given.allow_tainted else both:
            refuse_tainted(reader, each)
        question, answer = _ask(ctx, given, Bisecting(reader, found, _range(found, given)), golden)
        told = Told(found, question, answer)
        tell(ctx, reader, told)
        say_hints(told)
        say_position(reader, *both)
    is_whole = all(each.row.held_reason is None for each in both)
    if answer.flips is None:
        raise Judged(differs=None, code=Failed.exit_code)
    if answer.flips:
        raise Judged(differs=True, code=0)
    raise Judged(differs=False if is_whole else None, code=NegativeVerdict.exit_code)


def _check(given: Given) -> None:
    """Raises Usage."""
    decider = given.decider or None
    questions = (given.when, given.policy, given.validator, given.projection, decider, given.against)
    named = [name for name, value in zip(_QUESTIONS, questions, strict=True) if value is not None]
    if len(named) != 1:
        raise Usage(
            f"{' and '.join(named)} together" if named else "nothing is asked",
            wanted=f"exactly one of {', '.join(_QUESTIONS)}",
            todo="such as: dalsegno bisect last --when 'state.tool_calls > 3'",
        )
    if (given.projection is None) != (given.versions is None):
        raise Usage("one of --projection and --versions", wanted="both: --projection NAME --versions A B")
    if given.validator is None and (given.row is not None or given.stage is not None):
        raise Usage("--row or --stage without --validator", wanted="--validator", todo="say what judges")
    if given.row is not None and given.stage is not None:
        raise Usage("--row and --stage together", wanted="one of them: what is judged")
    if given.against is not None and (given.good is not None or given.bad is not None):
        raise Usage("--against with --good or --bad", wanted="whole sessions", todo="leave out the ends")


def _range(found: Found, given: Given) -> Range:
    """Raises Usage, NotFound."""
    end = found.row.last_seq
    if not end:
        raise NotFound(f"session {found.session_id} has no event that can be read", session=found.session_id)
    good, bad = given.good or FIRST_SEQ, given.bad or end
    if good > bad or bad > end:
        raise Usage(
            f"from seq {good} to seq {bad} of a session that ends at {end}",
            wanted="--good below --bad, both on its path",
            todo="correct them",
        )
    return Range(good, bad)


def _ask(ctx: Context, given: Given, bisecting: Bisecting, golden: Found | None) -> tuple[Question, Answer]:
    if golden is not None:
        return Question(f"against {golden.session_id}", "other", "the same"), bisecting.against(golden)
    blobs = Blobs(ctx.store)
    if given.policy is not None:
        question = Question(f"policy {given.policy}", "decided otherwise", "as recorded")
        return question, bisecting.policy(load_policy(given.policy), blobs)
    if given.projection is not None and given.versions is not None:
        a, b = (version_of(given.projection, each) for each in given.versions)
        text = f"versions {' and '.join(given.versions)} of projection {given.projection}"
        return Question(text, "apart", "equal", fields_of_one(a, b)), bisecting.versions(a, b)
    if given.decider:
        return Question("this build's decider", "decided otherwise", "as recorded"), bisecting.decider(blobs)
    if given.validator is not None:
        content = row_of(given.row) if given.row is not None else output_of_stage(blobs, given.stage)
        rejects = Rejects(read_validator(given.validator), content)
        over = f"row {given.row}" if given.row else f"outputs of stage {given.stage}" if given.stage else "outputs"
        question = Question(f"validator {given.validator} over {over}", "rejected", "not rejected")
        return question, bisecting.validator(rejects, verify=given.verify)
    condition = parse_breakpoint(f"when {given.when}")
    question = Question(str(given.when), "true", "false")
    if not condition.needs_state:
        return question, bisecting.first_event(condition)
    return question, bisecting.halve(of_breakpoint(condition), condition.errors, verify=given.verify)
