"""``--bisect-exit``: the exit codes by which ``git bisect run`` judges a commit, and nothing else.

0 the same, 1 differs, 125 cannot be judged, 130 interrupted. Only a command that says itself how it came out, by
``Judged``, is 0 or 1: a wrong option, an error of whatever kind, a bug and even a plain end are no verdict on a commit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

OPTION: Final = "--bisect-exit"
SAME: Final = 0
DIFFERS: Final = 1
CANNOT_BE_JUDGED: Final = 125
INTERRUPTED: Final = 130

C = TypeVar("C", bound=Callable[..., Any])


class Judged(Exception):
    """How a command that compares has come out. Raise it as the command's last act, behind all output.

    ``differs`` None: what was looked at is not the whole. ``code``: the exit code without ``--bisect-exit``.
    """

    def __init__(self, *, differs: bool | None, code: int) -> None:
        self.differs, self.code = differs, code
        super().__init__(f"differs: {differs}, exit code {code}")


class Ending(NamedTuple):
    """How a command line ended. ``differs`` None: it did not say."""

    code: int
    differs: bool | None = None


def bisect_exit(command: C) -> C:
    """Give a command the option. It ends by ``Judged``; whether it was asked for is looked at by the frame alone, since
    a command line that cannot be read counts too."""
    import click  # not needed by those who only ask for exit codes

    option: Callable[[C], C] = click.option(
        OPTION,
        is_flag=True,
        expose_value=False,
        help="Exit as git bisect run wants it: 0 the same, 1 differs, 125 cannot be judged.",
    )
    return option(command)


def is_asked(arguments: Sequence[str]) -> bool:
    """Whether a command line has the option, as far as that can be said of one that may be wrong."""
    before_operands = arguments[: list(arguments).index("--")] if "--" in arguments else arguments
    return OPTION in before_operands


def exit_code(ending: Ending) -> int:
    """For ``git bisect run``."""
    if ending.differs is not None:
        return DIFFERS if ending.differs else SAME
    return INTERRUPTED if ending.code == INTERRUPTED else CANNOT_BE_JUDGED
