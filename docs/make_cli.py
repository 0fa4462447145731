"""Writes docs/cli.md from the help of every command; with ``--check`` only says whether it is as it must be."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

os.environ.pop("DALSEGNO_CONFIG", None)
os.environ.pop("DALSEGNO_PROFILE", None)

import click

from dalsegno.cli.frame import COMMANDS, cli

TARGET = Path(__file__).with_name("cli.md")
WIDTH = 110
HEAD = """# The command line

Every command with its help, written by `docs/make_cli.py`. Exit codes: 0 ok · 1 failed · 2 usage · 3 negative verdict ·
4 not found · 5 conflict, stale plan or group not empty · 6 unavailable or time-out · 7 forbidden · 70 bug ·
130 interrupted. Data goes to stdout, all else to stderr.
"""


def reference() -> str:
    return HEAD + "".join(_sections(cli, "dalsegno"))


def _sections(command: click.Command, path: str, above: click.Context | None = None) -> Iterator[str]:
    settings = {**command.context_settings, "terminal_width": WIDTH, "max_content_width": WIDTH}
    context = click.Context(command, info_name=path.rpartition(" ")[2], parent=above, **settings)
    text = "\n".join(line.rstrip() for line in command.get_help(context).splitlines())
    yield f"\n## {path}\n\n```text\n{text}\n```\n"
    if isinstance(command, click.Group):
        for name in list(COMMANDS) if command is cli else command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None, name
            yield from _sections(below, f"{path} {name}", context)


def main() -> int:
    text = reference()
    if "--check" in sys.argv[1:]:
        if not TARGET.exists() or TARGET.read_text("utf-8") != text:
            print(f"{TARGET.name} is not what the commands say; run: python docs/make_cli.py", file=sys.stderr)
            return 1
        return 0
    TARGET.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
