"""``dalsegno completion``: scripts for shells, and the words that they offer in place of ids."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from itertools import islice
from typing import Any

import click
from click.shell_completion import get_completion_class

from dalsegno.errors import DalsegnoError

PROGRAM = "dalsegno"
# Somebody waits at a prompt: what is not there by then is not offered. The shards of 16 partitions, read by a process
# that has just begun, took 0.75 s on two busy cores.
LIMIT_SECONDS = 2.0
OFFERED_MAX = 50
# Shells put what is offered into the line as it is: an id such as $(rm x), * or --help must not get there.
_HARMLESS = re.compile(r"[\w./:@%+,][\w./:@%+,=~-]*")
_LATER = {
    "bash": 'eval "$(dalsegno completion bash)"',
    "zsh": 'eval "$(dalsegno completion zsh)"',
    "fish": "dalsegno completion fish | source",
}


@click.command(epilog="Example: dalsegno completion bash")
@click.argument("shell", type=click.Choice(sorted(_LATER)))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the script that lets SHELL complete commands, options, and ids of sessions and projections.

    For this and every later shell, put the printed line into its start-up file: eval "$(dalsegno completion bash)",
    eval "$(dalsegno completion zsh)", or dalsegno completion fish | source.
    """
    script = get_completion_class(shell)
    assert script is not None
    click.echo(script(ctx.find_root().command, {}, PROGRAM, "_DALSEGNO_COMPLETE").source())


def complete_projection(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Names of projections."""
    from dalsegno.projections.registry import installed

    return [name for name in sorted(installed()) if name.startswith(incomplete)]


def complete_session(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Ids of sessions on this machine; nothing where they cannot be read in time."""
    return within(LIMIT_SECONDS, lambda: _sessions(ctx.find_root().params, incomplete))


def within(seconds: float, look: Callable[[], list[str]]) -> list[str]:
    """What ``look`` finds within that time; [] after it, or if it fails: a prompt is no place for an error."""
    found: list[str] = []

    def run() -> None:
        try:
            found.extend(look())
        except (DalsegnoError, OSError, ImportError):
            return

    thread = threading.Thread(target=run, name="complete", daemon=True)
    thread.start()
    thread.join(seconds)
    return [] if thread.is_alive() else found


def _sessions(options: dict[str, Any], incomplete: str) -> list[str]:
    from dalsegno.errors import Unavailable
    from dalsegno.log.kafka import KafkaConfig
    from dalsegno.projections.registry import chosen
    from dalsegno.readers.local import LocalReader
    from dalsegno.readers.sessions import SESSIONS, beginning_with
    from dalsegno.settings import load_settings
    from dalsegno.storage.opening import open_store

    def nobody() -> KafkaConfig:
        raise Unavailable("no broker is asked for a completion")

    flags = {name: options[name] for name in ("data", "prefix") if options.get(name) is not None}
    settings = load_settings(flags, config=options.get("config"), profile=options.get("profile"))
    store = open_store(settings.store_location, settings.store_options)
    with LocalReader(settings.data, settings.prefix, store, nobody, chosen([SESSIONS])) as reader:
        ids = (found.session_id for found in beginning_with(reader, incomplete))
        return list(islice(filter(_HARMLESS.fullmatch, ids), OFFERED_MAX))
