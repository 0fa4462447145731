"""Options of ``dalsegno replay plan|run`` for sessions: which ones, from where, and where facts come from."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from dalsegno.cli.completion import complete_session
from dalsegno.cli.numbers import seq_in
from dalsegno.cli.session_fork import parse_label
from dalsegno.errors import Usage
from dalsegno.model.ids import SEQ_MAX
from dalsegno.model.records import FIRST_SEQ
from dalsegno.readers.datasets.choosing import Wanted
from dalsegno.replay.modes import COMPRESSION
from dalsegno.replay.strategy import Strategy

SESSION_MODES: Final = ("full", "inference-skipping", "simulation")

_OPTIONS: Final = (
    click.option(
        "--session",
        "sessions",
        multiple=True,
        metavar="ID",
        shell_complete=complete_session,
        help="Of sessions: which.",
    ),
    click.option("--workflow", metavar="NAME", help="Sessions of this workflow."),
    click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="Of sessions: those with this label."),
    click.option("--all", "everything", is_flag=True, help="All sessions."),
    click.option(
        "--forks",
        "with_forks",
        is_flag=True,
        help="Of --workflow, --label and --all: also forks made for what-if, data sets or debugging, as replays write.",
    ),
    click.option(
        "--until", type=click.IntRange(FIRST_SEQ, SEQ_MAX), metavar="SEQ", help="Look at nothing behind this event."
    ),
    click.option(
        "--inference",
        type=click.Choice(["recorded", "rerun", "recorded-else-rerun", "scripted"]),
        default="recorded",
        help="Where answers of models come from.",
    ),
    click.option(
        "--tools",
        type=click.Choice(["receipts", "simulate", "execute"]),
        default="receipts",
        help="Where results of tools come from; code runs in a simulation alone.",
    ),
    click.option("--tools-from", multiple=True, metavar="CODE", help="The tools: a Python file, or module:name."),
    click.option(
        "--approvals",
        type=click.Choice(["recorded", "deny", "script"]),
        default="recorded",
        help="Whether leave of then counts; script: a file says what people answer, and no leave of then counts.",
    ),
    click.option(
        "--approvals-from",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Of --approvals script: rules of what people answer.",
    ),
    click.option(
        "--compression",
        type=click.Choice(["recorded", "recompute"]),
        help="Whether what was compressed then is taken where rule and items are the same, or compressed again "
        "(default: recorded in mode full, else recompute).",
    ),
    click.option(
        "--on-miss",
        type=click.Choice(["fail", "stop", "simulate"]),
        default="fail",
        help="What follows where the record has no such fact.",
    ),
    click.option("--provider", "providers", multiple=True, metavar="[NAME=]KIND:VALUE", help="As of 'dalsegno run'."),
    click.option("--model", metavar="NAME", help="Ask this model instead of the agents' own."),
    click.option("--policy", type=click.Path(path_type=Path), metavar="FILE", help="What if this were the policy?"),
    click.option(
        "--workflow-file", type=click.Path(path_type=Path), metavar="FILE", help="What if this were the workflow?"
    ),
)


class Chosen(NamedTuple):
    """What the options say of a replay of sessions; without any, what they say where none is given."""

    sessions: tuple[str, ...] = ()
    workflow: str | None = None
    labels: tuple[str, ...] = ()
    everything: bool = False
    with_forks: bool = False
    until: int | None = None
    inference: Any = "recorded"
    tools: Any = "receipts"
    tools_from: tuple[str, ...] = ()
    approvals: Any = "recorded"
    approvals_from: Path | None = None
    compression: Any = None
    on_miss: Any = "fail"
    providers: tuple[str, ...] = ()
    model: str | None = None
    policy: Path | None = None
    workflow_file: Path | None = None

    @property
    def named(self) -> bool:
        """Whether any session is meant."""
        return bool(self.sessions or self.workflow or self.labels or self.everything)

    def strategy(self, mode: str) -> Strategy:
        return Strategy(
            mode=mode,
            inference=self.inference,
            tools=self.tools,
            approvals=self.approvals,
            compression=self.compression or COMPRESSION[mode],
            on_miss=self.on_miss,
        )

    @property
    def what_if(self) -> bool:
        """Whether other documents decide."""
        return not (self.policy is None and self.workflow_file is None and self.model is None)

    def forks(self, mode: str) -> bool:
        """Whether forks are written: where a full replay asks anybody again, or decides by other documents."""
        return mode == "full" and (self.inference != "recorded" or self.what_if)

    @property
    def wanted(self) -> Wanted:
        pairs = tuple((label.key, label.value) for label in map(parse_label, self.labels))
        return Wanted(ids=self.sessions, workflow=self.workflow, labels=pairs)


def of_sessions(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options; the command is given one ``chosen_sessions`` for all of them."""

    @wraps(command)
    def with_chosen(*arguments: Any, **options: Any) -> Any:
        given = Chosen(**{name: options.pop(name) for name in Chosen._fields})
        return command(*arguments, chosen_sessions=given, **options)

    made: Callable[..., Any] = with_chosen
    for option in reversed(_OPTIONS):
        made = option(made)
    return made


def check_chosen(mode: str, given: Chosen) -> None:
    """Raises Usage for what a mode does not do, and for what no plan could hold."""
    for value in given:
        for text in value if isinstance(value, tuple) else (value,):
            if isinstance(text, str | Path) and not _is_utf8(str(text)):
                raise Usage(f"an option {str(text)!r}", wanted="text and names of files in UTF-8", todo="correct it")
    if not given.named:
        raise Usage("no session is named", wanted="--session ID, --workflow NAME, --label KEY=VALUE or --all")
    if given.tools != "receipts" and mode != "simulation":
        raise Usage(
            f"--tools {given.tools} with --mode {mode}", wanted="--mode simulation", todo="tool code runs nowhere else"
        )
    if given.tools == "execute" and not given.tools_from:
        raise Usage("--tools execute without tools", wanted="--tools-from CODE", todo="name the tools that may run")
    asks = given.inference != "recorded"
    if asks and not given.providers:
        raise Usage(f"--inference {given.inference} without a model", wanted="--provider [NAME=]KIND:VALUE")
    if (given.approvals == "script") != (given.approvals_from is not None):
        raise Usage(
            "one of --approvals script and --approvals-from", wanted="both, or neither", todo="add the other one"
        )
    if mode == "inference-skipping" and (asks or given.approvals != "recorded"):
        raise Usage("--mode inference-skipping takes everything from the record", wanted="--mode full or simulation")


def _is_utf8(text: str) -> bool:
    """Whether it is what a shell hands over of bytes that are UTF-8."""
    try:
        return text.encode() is not None
    except UnicodeEncodeError:
        return False


def start_of(start: str | None, session_id: str) -> int:
    """``SEQ`` or ``session:ID@SEQ``."""
    if start is None or start == "earliest":
        return 1
    seq = seq_in(start.removeprefix(f"session:{session_id}@"))
    if seq is None:
        raise Usage(f"--from {start}", wanted="a SEQ, or session:ID@SEQ of the session", todo="correct it")
    return seq
