"""The frame of the command line: options that every command has, lazy loading, and exit codes."""

from __future__ import annotations

import errno
import importlib
import os
import sys
import traceback
from pathlib import Path
from typing import Any, NamedTuple

import click

from dalsegno import __version__
from dalsegno.cli import note_missing
from dalsegno.cli.bisect_exit import INTERRUPTED, Ending, Judged, exit_code, is_asked
from dalsegno.cli.context import Context
from dalsegno.cli.logs import configure_logging
from dalsegno.cli.output import note
from dalsegno.cli.times import ISO, RAW, RELATIVE
from dalsegno.errors import DalsegnoError, DiskFull, TopicMissing, Usage
from dalsegno.settings import load_settings


class Listed(NamedTuple):
    """Where a command is, in a module below dalsegno.cli that has a click command named ``command``, and the line about
    it in ``--help``, which loads none of them."""

    module: str
    line: str


COMMANDS = {
    "broker": Listed("broker", "Start, stop and look at the embedded Kafka broker."),
    "topic": Listed("topic", "Create the topics of the prefix and find what drifted."),
    "schema": Listed("schema", "List, check and export the Avro schemas."),
    "event": Listed("event", "Publish events, and look at one."),
    "session": Listed("session", "Which sessions there are, and what happened in one."),
    "run": Listed("run", "Run a workflow as a session: decide, append, act, until it ends."),
    "approval": Listed("approval", "Who waits for leave, and giving or refusing it."),
    "input": Listed("input_", "Which sessions wait for an answer, and giving it."),
    "tool": Listed("tool", "Which tool calls run or have an unknown outcome, and handing in a receipt."),
    "projection": Listed("projection", "Which projections there are, and their rows."),
    "snapshot": Listed("snapshot", "Take snapshots of the shards, prove them, remove old ones."),
    "group": Listed("group", "Consumer groups, and the offsets of dalsegno's own one."),
    "replay": Listed("replay", "Build projections anew from a place in the log; make decisions of sessions again."),
    "worker": Listed("worker", "Run a worker, look at this machine's, list and drain those of all machines."),
    "import": Listed("import_", "Import recordings of other harnesses."),
    "policy": Listed("policy", "What a policy would have done to recorded tool calls."),
    "golden": Listed("golden", "Keep what a session decided in a file, and check that it is decided so still."),
    "dataset": Listed("dataset", "Make data sets of recorded sessions for training and evaluation."),
    "workload": Listed("workload", "Publish made-up sessions with the skew of real ones."),
    "bisect": Listed("bisect", "The first event from which on something is otherwise in a session."),
    "verify": Listed("verify", "Fold the log again and compare with the live state."),
    "bench": Listed("bench", "Measure events per second, stage by stage."),
    "demo": Listed("demo", "Show the main job from end to end, on this machine."),
    "doctor": Listed("doctor", "Is this machine ready, and where does each setting come from."),
    "completion": Listed("completion", "Let a shell complete commands, options and ids."),
}

EXIT_BUG = 70
_OUTPUTS = click.Choice(["text", "json", "jsonl", "none"])
_OUTPUT_HELP = "Form of the data on stdout."


def _take_output_behind(command: click.Command) -> None:
    """Let a command, and those below it, take ``-o`` behind their own name as well, where most people write it."""
    if isinstance(command, click.Group):
        for each in command.commands.values():
            _take_output_behind(each)
    elif all(param.name != "output" for param in command.params):
        option = click.Option(
            ["-o", "--output"], type=_OUTPUTS, expose_value=False, callback=_set_output, help=_OUTPUT_HELP
        )
        command.params.append(option)


def _set_output(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    asked = ctx.find_object(Context)
    if value is not None and asked is not None:
        asked.output = value


class LazyGroup(click.Group):
    """A group that imports the module of a command only when that command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        listed = COMMANDS.get(cmd_name)
        if listed is None:
            return None
        command = importlib.import_module(f"dalsegno.cli.{listed.module}").command
        assert isinstance(command, click.Command)
        _take_output_behind(command)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except TopicMissing as error:
            given = ctx.find_object(Context)
            if given is not None and given.embedded:  # another folder has another broker, with other topics
                error.found += f", in the embedded broker of the data folder {given.data.absolute()}"
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, listed.line) for name, listed in COMMANDS.items()])


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
    type=_OUTPUTS,
    default="text",
    show_default=True,
    help=_OUTPUT_HELP,
)
@click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="Colours; auto: on a terminal, unless NO_COLOR is set.",
)
@click.option(
    "--time-format",
    type=click.Choice([ISO, RELATIVE, RAW]),
    default=ISO,
    show_default=True,
    help="Times in texts for people; JSON always holds RFC 3339.",
)
@click.option(
    "--progress",
    type=click.Choice(["auto", "jsonl", "none"]),
    default="auto",
    show_default=True,
    help="Progress on stderr; auto: bars on a terminal, else a line every ten seconds.",
)
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="Least level that is logged."
)
@click.option("--log-format", type=click.Choice(["text", "json"]), help="Form of the log lines on stderr.")
@click.version_option(__version__, "--version", prog_name="dalsegno", message="%(prog)s %(version)s")
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
    time_format: str,
    progress: str,
    log_level: str | None,
    log_format: str | None,
) -> None:
    """Keep the event log of AI-agent sessions in Kafka, fold it, take snapshots of the state, and replay from them."""
    given = {"data": data, "prefix": prefix, "log_level": log_level, "log_format": log_format}
    flags: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if bootstrap_servers is not None:
        flags["kafka"] = {"bootstrap_servers": bootstrap_servers}
    settings = load_settings(flags, config=config, profile=profile)
    # None leaves it to click, which takes colours away where no terminal is.
    ctx.color = {"always": True, "never": False}.get(color, False if os.environ.get("NO_COLOR") else None)
    configure_logging(settings.log_level, settings.log_format, ctx.color)
    ctx.obj = Context(settings=settings, flags=flags, output=output, time_format=time_format, progress=progress)


def run(arguments: list[str]) -> int:
    """Run one command line; return its exit code. Never raises."""
    ending = _ending(arguments)
    return exit_code(ending) if is_asked(arguments) else ending.code


def _ending(arguments: list[str]) -> Ending:
    try:
        ending = _said(arguments)
        if sys.stdout is not None:  # the shell's >&-
            sys.stdout.flush()
    except DalsegnoError as error:
        note(f"error: {error}")
        return Ending(error.exit_code)
    except click.exceptions.Exit as stop:
        return Ending(stop.exit_code)
    except (click.exceptions.Abort, KeyboardInterrupt):
        note("interrupted")
        return Ending(INTERRUPTED)
    except click.ClickException as error:
        error.show()
        return Ending(error.exit_code)
    except ModuleNotFoundError as error:
        if not note_missing(error):
            return _bug()
        return Ending(Usage.exit_code)
    except BrokenPipeError:
        return _enough()
    except SystemExit as stop:
        # click ends the process itself on a broken pipe.
        if isinstance(stop.__context__, BrokenPipeError):
            return _enough()
        return Ending(stop.code if isinstance(stop.code, int) else EXIT_BUG)
    except OSError as error:
        return _no_room() if error.errno in (errno.ENOSPC, errno.EDQUOT) else _bug()
    except Exception:
        return _bug()
    return ending


def _said(arguments: list[str]) -> Ending:
    try:
        result = cli.main(args=arguments, prog_name="dalsegno", standalone_mode=False)
    except Judged as judged:
        return Ending(judged.code, judged.differs)
    return Ending(result if isinstance(result, int) else 0)


def _enough() -> Ending:
    """The reader of our output has seen enough, which is no failure."""
    _drop_output()
    return Ending(0)


def _no_room() -> Ending:
    """Where our own files lie is asked for by the stores; what is left is stdout, such as a file on a full disk."""
    _drop_output()
    note("error: no space left for the output; to do: free space, then look whether the command has to be repeated")
    return Ending(DiskFull.exit_code)


def _drop_output() -> None:
    """Keep the interpreter from trying again, and complaining, at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _bug() -> Ending:
    traceback.print_exc()
    note("error: this is a bug in dalsegno; please report it with the lines above")
    return Ending(EXIT_BUG)
