"""The frame of the command line: options that every command has, lazy loading, and exit codes."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from importlib.metadata import version as package_version
from pathlib import Path
from typing import Any

import click

from dalsegno.cli.context import Context
from dalsegno.cli.logs import configure_logging
from dalsegno.errors import DalsegnoError
from dalsegno.settings import load_settings

# Command -> module below dalsegno.cli. Each module has a click command named `command`.
COMMANDS = {
    "broker": "broker",
    "topic": "topic",
    "schema": "schema",
    "session": "session",
    "snapshot": "snapshot",
    "group": "group",
    "replay": "replay",
    "worker": "worker",
    "import": "import_",
    "workload": "workload",
    "verify": "verify",
    "bench": "bench",
    "demo": "demo",
    "doctor": "doctor",
}

EXIT_INTERRUPTED = 130
EXIT_BUG = 70


class LazyGroup(click.Group):
    """A group that imports the module of a command only when that command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        module = COMMANDS.get(cmd_name)
        if module is None:
            return None
        command = importlib.import_module(f"dalsegno.cli.{module}").command
        assert isinstance(command, click.Command)
        return command


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Example: dalsegno session list -o json",
)
@click.option("--data", type=click.Path(path_type=Path, file_okay=False), help="Data folder (default ./.dalsegno).")
@click.option("--prefix", help="Prefix of topics and groups, one per environment or tenant (default dalsegno).")
@click.option("--bootstrap-servers", help="Kafka to use; without it the embedded broker of the data folder.")
@click.option(
    "--config", type=click.Path(path_type=Path, dir_okay=False), envvar="DALSEGNO_CONFIG", help="Settings file."
)
@click.option("--profile", envvar="DALSEGNO_PROFILE", help="Profile in the settings file.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json", "jsonl", "none"]),
    default="text",
    show_default=True,
    help="Form of the data on stdout.",
)
@click.option("--color", type=click.Choice(["auto", "always", "never"]), default="auto", show_default=True)
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="Least level that is logged."
)
@click.option("--log-format", type=click.Choice(["text", "json"]), help="Form of the log lines on stderr.")
@click.version_option(package_version("dalsegno"), "--version", prog_name="dalsegno", message="%(prog)s %(version)s")
@click.pass_context
def cli(
    ctx: click.Context,
    data: Path | None,
    prefix: str | None,
    bootstrap_servers: str | None,
    config: Path | None,
    profile: str | None,
    output: str,
    color: str,
    log_level: str | None,
    log_format: str | None,
) -> None:
    """Keep the event log of AI-agent sessions in Kafka, fold it, take snapshots of the state, and replay from them."""
    given = {"data": data, "prefix": prefix, "log_level": log_level, "log_format": log_format}
    flags: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if bootstrap_servers is not None:
        flags["kafka"] = {"bootstrap_servers": bootstrap_servers}
    settings = load_settings(flags, config=config, profile=profile)
    configure_logging(settings.log_level, settings.log_format)
    ctx.obj = Context(settings=settings, flags=flags, output=output, color=color)


def run(arguments: list[str]) -> int:
    """Run one command line; return its exit code. Never raises."""
    try:
        result = cli.main(args=arguments, prog_name="dalsegno", standalone_mode=False)
        sys.stdout.flush()
    except DalsegnoError as error:
        click.echo(f"error: {error}", err=True)
        return error.exit_code
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.exceptions.Abort:
        click.echo("interrupted", err=True)
        return EXIT_INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has seen enough, which is no failure; keep the interpreter from complaining at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception:
        traceback.print_exc()
        click.echo("error: this is a bug in dalsegno; please report it with the lines above", err=True)
        return EXIT_BUG
    return result if isinstance(result, int) else 0
