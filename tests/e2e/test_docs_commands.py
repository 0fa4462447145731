"""What the documents say can be typed is typed: README's story block by block, and every name in every document."""

from __future__ import annotations

import contextlib
import os
import re
import select
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest
from pydantic import BaseModel

from dalsegno.cli.frame import COMMANDS, cli
from dalsegno.log import embedded
from dalsegno.log.kafka import KafkaConfig
from dalsegno.settings import Settings, load_settings
from dalsegno.state.slot import read_status, slot_folders

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
DOCS = sorted(
    [
        README,
        *(ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md")),
        *(ROOT / folder / "README.md" for folder in ("deploy", "processors", "schemas")),
        *(ROOT / "docs").glob("*.md"),
    ]
)
LINE_SECONDS = 120

# Lines of README that are not run here, and what does run them.
ELSEWHERE = {"./run demo": "tests/e2e/test_demo.py", "./run test": ".ci/run"}


class Block(NamedTuple):
    """A fenced block: its info string (``sh``, ``sh run``, ``python``, ...) and its text."""

    info: str
    text: str


def blocks(document: Path) -> list[Block]:
    return [
        Block(*found) for found in re.findall(r"^```([^\n]*)\n(.*?)^```$", document.read_text("utf-8"), re.M | re.S)
    ]


# --- README from its first block to its last --------------------------------------------------------------------------


class Terminal:
    """One shell that goes on from line to line, with an empty data folder and a broker port of its own."""

    def __init__(self, folder: Path, jars: Path) -> None:
        self.data, self.log = folder / "data", folder / "terminal.log"
        here = self.data / "broker" / "jars"
        here.parent.mkdir(parents=True)
        here.symlink_to(jars)  # fetched once for all tests
        (folder / "dalsegno.toml").write_text("")  # and not one that lies in the checkout
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = str(free.getsockname()[1])
        self._folder = folder
        self._said, told = os.pipe()
        clean = {name: value for name, value in os.environ.items() if not name.startswith("DALSEGNO_")}
        with self.log.open("wb") as log:
            self._bash = subprocess.Popen(
                ["bash"],
                stdin=subprocess.PIPE, stdout=log, stderr=log, text=True, bufsize=1, cwd=ROOT, pass_fds=[told],
                start_new_session=True,
                env={
                    **clean,
                    "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                    "DALSEGNO_DATA": str(self.data),
                    "DALSEGNO_CONFIG": str(folder / "dalsegno.toml"),
                    "DALSEGNO_PARTITIONS": "4",
                    "DALSEGNO_WORKER__SESSION_TIMEOUT_SECONDS": "6",
                    "TOLD": str(told),
                },
            )  # fmt: skip
        os.close(told)

    def type(self, line: str) -> int:
        """Type one line; its exit code (0 at once for one that ends with ``&``)."""
        assert self._bash.stdin is not None
        line = line.replace("9092", self.port)
        self._bash.stdin.write(f"echo '$ '{shlex.quote(line)}\n{line}\necho $? >&$TOLD\n")
        ready, _, _ = select.select([self._said], [], [], LINE_SECONDS)
        assert ready, f"{line!r} did not end within {LINE_SECONDS} s:\n{self.printed()}"
        return int(os.read(self._said, 64))

    def run_python(self, text: str) -> int:
        """Run a Python block as a file."""
        program = self._folder / "block.py"
        program.write_text(text.replace("9092", self.port))
        return self.type(f"python {program}")

    def printed(self) -> str:
        return self.log.read_text("utf-8", "replace")

    def workers(self) -> dict[int, dict[str, Any]]:
        """Slot -> partition -> what its worker says of it."""
        found = {int(folder.name): read_status(folder) or {} for folder in slot_folders(self.data, "dalsegno")}
        return {slot: status.get("partitions", {}) for slot, status in found.items()}

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._bash.pid, signal.SIGKILL)  # the shell, and workers that a failed test left
        self._bash.wait(10)
        os.close(self._said)
        embedded.stop(self.data)


def wait_until(terminal: Terminal, what: str, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"{what}: {terminal.workers()}\n{terminal.printed()}"
        time.sleep(0.1)


def both_workers_are_live(terminal: Terminal) -> None:
    """README tells the reader to look at the states; a program has to wait for them."""

    def live() -> bool:
        parts = terminal.workers()
        return [len(parts.get(slot, {})) for slot in (0, 1)] == [2, 2] and all(map(is_done, each_part(parts)))

    wait_until(terminal, "two workers, two partitions each, all of them live", live)


def the_first_worker_has_all(terminal: Terminal) -> None:
    wait_until(
        terminal,
        "the worker that is left has taken over",
        lambda: (
            len(terminal.workers().get(0, {})) == 4
            and all(is_done(part) for part in terminal.workers()[0].values())
            and sum(part["cursor"] for part in terminal.workers()[0].values()) > 2000
        ),
    )


def each_part(workers: dict[int, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for parts in workers.values():
        yield from parts.values()


def is_done(part: dict[str, Any]) -> bool:
    return part["state"] == "LIVE" and bool(part["outbox_empty"])


# What the story waits for between its lines, where a person would look and try again.
AFTER = {
    "dalsegno worker run --slot 1 &": both_workers_are_live,
    "dalsegno workload --sessions 20 --seed 2": the_first_worker_has_all,
}


def lines_of(block: Block) -> list[str]:
    return [line.strip() for line in block.text.splitlines() if line.strip() and not line.startswith("#")]


@pytest.fixture
def terminal(tmp_path: Path, broker_data: Path) -> Iterator[Terminal]:
    found = Terminal(tmp_path, broker_data / "broker" / "jars")
    yield found
    found.close()


@pytest.mark.broker
@pytest.mark.timeout(600)
def test_readme_is_a_story_that_can_be_typed(terminal: Terminal) -> None:
    waited, left_out = set[str](), set[str]()
    for block in blocks(README):
        if block.info == "python":
            assert terminal.run_python(block.text) == 0, terminal.printed()
        for line in lines_of(block) if block.info == "sh" else []:
            if line in ELSEWHERE:
                left_out.add(line)
                continue
            assert terminal.type(line) == 0, f"{line}\n{terminal.printed()}"
            if line in AFTER:
                AFTER[line](terminal)
                waited.add(line)
    assert (waited, left_out) == (set(AFTER), set(ELSEWHERE))
    printed = terminal.printed()
    assert "Receipt(partition=" in printed
    assert "SessionCreated          hello" in printed
    assert "state    COMPLETED" in printed, "the replay"
    assert "gone" in printed, "the status names the killed worker"
    assert embedded.status(terminal.data).state == "stopped"


@pytest.mark.broker
@pytest.mark.timeout(600)
def test_runnable_blocks_of_the_other_documents(terminal: Terminal) -> None:
    """Those marked ``sh run``, each document's in order, on a broker with topics and a folded session."""
    for line in ("dalsegno topic apply", "dalsegno workload --sessions 5", "dalsegno worker run --slot 0 &"):
        assert terminal.type(line) == 0, terminal.printed()
    wait_until(terminal, "a live worker", lambda: len([*each_part(terminal.workers())]) == 4)
    wait_until(terminal, "a live worker", lambda: all(map(is_done, each_part(terminal.workers()))))
    found = [
        line for document in DOCS for block in blocks(document) if block.info == "sh run" for line in lines_of(block)
    ]
    assert found
    for line in found:
        assert terminal.type(line) == 0, f"{line}\n{terminal.printed()}"


def test_what_is_not_run_here_is_run_elsewhere() -> None:
    for line, where in ELSEWHERE.items():
        assert line.split()[1] in (ROOT / where).read_text("utf-8")
        assert f"{line.split()[1]})" in (ROOT / "run").read_text("utf-8") or line.split()[1] in COMMANDS


# --- every name in every document -------------------------------------------------------------------------------------


def typed(document: Path) -> list[str]:
    """What a document says can be typed: lines of shell blocks, indented lines, and inline code."""
    text = document.read_text("utf-8")
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    found = re.findall(r"`([^`\n]+)`", prose) + re.findall(r"^ {4}(\S.*)$", prose, re.M)
    found += [line for block in blocks(document) if block.info.startswith("sh") for line in block.text.splitlines()]
    return [line.strip() for line in found]


def named_commands() -> Iterator[tuple[str, list[str]]]:
    for document in DOCS:
        for line in typed(document):
            # What stands between quotes separates no commands.
            for part in re.split(r"(?:\|\||&&|[;|&])(?=(?:[^']*'[^']*')*[^']*$)", line.partition(" #")[0]):
                found = re.search(r"(?:^|\s)(?:dalsegno|\./run)\s+(.+)$", part)
                if found and not re.match(r"[<A-Z(]", found[1]):
                    yield f"{document.relative_to(ROOT)}: {part.strip()}", shlex.split(found[1])


SCRIPT_WORDS = {"setup", "check", "test"}  # of ./run itself


def problem_of(words: list[str]) -> str | None:
    """What is wrong with a command line, by the commands and options that there are."""
    context = click.Context(cli, info_name="dalsegno")
    command: click.Command = cli
    options, known_as = options_of(cli), "dalsegno"
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word.startswith("-") and word != "-":
            name, equals, _ = word.partition("=")
            if name not in options:
                return f"{known_as} has no option {name}"
            if not options[name].is_flag and not equals and rest and isinstance(command, click.Group):
                rest.pop(0)
        elif isinstance(command, click.Group):
            if command is cli and word in SCRIPT_WORDS:
                return None
            # "start|stop" names two commands
            below = [command.get_command(context, each) for each in word.split("|")]
            if None in below:
                return f"{known_as} has no command {word}"
            assert below[0] is not None
            command, known_as = below[0], word
            options = {**options, **options_of(command)}
    return None


def options_of(command: click.Command) -> dict[str, click.Option]:
    found = {name: param for param in command.params if isinstance(param, click.Option) for name in param.opts}
    help_ = click.Option(["-h", "--help"], is_flag=True)
    return {**found, "-h": help_, "--help": help_}


def test_every_command_in_a_document_exists() -> None:
    found = list(named_commands())
    assert len(found) > 30
    wrong = [f"{where}: {problem}" for where, words in found if (problem := problem_of(words))]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("session lst", "session has no command lst"),
        ("--data x session show s --detaild", "show has no option --detaild"),
        ("nothing", "dalsegno has no command nothing"),
        ("broker start|stop", None),
        ("topic plan --partitions 64 -o json", None),
    ],
)
def test_a_wrong_command_would_be_found(line: str, problem: str | None) -> None:
    assert problem_of(line.split()) == problem


def test_every_option_named_alone_exists() -> None:
    every = {*options_of(cli), "--long"}  # --long is of ./run test
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        for each in command.commands.values() if isinstance(command, click.Group) else [command]:
            every |= set(options_of(each))
    named = [(doc, line.split()[0].partition("=")[0]) for doc in DOCS for line in typed(doc) if line.startswith("--")]
    assert named
    assert [f"{doc.relative_to(ROOT)}: {name}" for doc, name in named if name not in every] == []


def test_every_setting_in_a_document_exists() -> None:
    of_compose = set(re.findall(r"\$\{(DALSEGNO_[A-Z_]+)", (ROOT / "docker-compose.yml").read_text("utf-8")))
    named = {(doc, name) for doc in DOCS for name in re.findall(r"DALSEGNO_[A-Z_]*[A-Z]", doc.read_text("utf-8"))}
    assert len(named) > 5
    wrong = [
        f"{doc.relative_to(ROOT)}: {name}" for doc, name in named if not is_setting(name) and name not in of_compose
    ]
    assert wrong == []


def is_setting(name: str) -> bool:
    if name in ("DALSEGNO_PROFILE", "DALSEGNO_CONFIG") or name.startswith("DALSEGNO_TEST_"):
        return True
    model: type[BaseModel] | None = Settings
    for part in name.removeprefix("DALSEGNO_").lower().split("__"):
        if model is None or part not in model.model_fields:
            return False
        kind = model.model_fields[part].annotation
        model = kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None
    return True


def test_a_wrong_setting_would_be_found() -> None:
    assert is_setting("DALSEGNO_KAFKA__BOOTSTRAP_SERVERS")
    assert not is_setting("DALSEGNO_KAFKA_BOOTSTRAP_SERVERS")
    assert not is_setting("DALSEGNO_DATA__FOLDER")


@pytest.mark.parametrize("document", DOCS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    prose = re.sub(r"^```.*?^```$", "", document.read_text("utf-8"), flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        path = (document.parent / name).resolve() if name else document
        assert path.exists(), target
        if anchor:
            assert anchor in anchors(path), target


def anchors(document: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", document.read_text("utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_document_is_in_the_index() -> None:
    index = ROOT / "docs" / "README.md"
    linked = set(re.findall(r"\]\(([^)#\s]+)\)", index.read_text("utf-8")))
    assert {path.name for path in (ROOT / "docs").glob("*.md")} - {index.name} <= linked


def test_the_runbook_tells_what_each_step_leaves() -> None:
    sources = [path.read_text("utf-8") for path in (ROOT / "processors").rglob("*.py")]
    steps = {step for text in sources for step in re.findall(r"""fault\("([a-z]+\.\d)"\)""", text)}
    assert len(steps) > 30
    told = set[str]()
    for line in (ROOT / "docs" / "operate.md").read_text("utf-8").splitlines():
        named = re.findall(r"`([a-z]+\.\d)`", line)
        if " to `" in line and len(named) == 2:
            protocol, first, last = named[0][:-1], int(named[0][-1]), int(named[1][-1])
            named = [f"{protocol}{number}" for number in range(first, last + 1)]
        told.update(named)
    assert told == steps


def test_the_settings_file_of_readme_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (text,) = [block.text for block in blocks(README) if block.info == "toml"]
    (options,) = re.findall(r"DALSEGNO_KAFKA__OPTIONS='([^']+)'", README.read_text("utf-8"))
    file = tmp_path / "dalsegno.toml"
    file.write_text(text)
    for name in [name for name in os.environ if name.startswith("DALSEGNO_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("DALSEGNO_KAFKA__OPTIONS", options)
    assert load_settings({}, config=file).prefix == "dalsegno"
    found = load_settings({}, config=file, profile="production")
    assert (found.prefix, str(found.store)) == ("agents-prod", "/mnt/snapshots")
    masked = KafkaConfig(found.kafka.bootstrap_servers, found.kafka.options).masked()
    assert masked["bootstrap.servers"].startswith("kafka-1:9093")
    assert masked["sasl.username"] == "dalsegno"
    assert masked["security.protocol"] == "SASL_SSL"
    assert masked["sasl.password"] == "********"
