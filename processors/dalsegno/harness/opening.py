"""From names and files, as a command line gives them, to documents and ports."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from dalsegno import __version__
from dalsegno.errors import Usage
from dalsegno.harness.clock import SystemClock
from dalsegno.harness.files import load
from dalsegno.harness.performing import PROVIDER_DEFAULT, Ports
from dalsegno.harness.providers import open_provider
from dalsegno.harness.reporters import open_reporter
from dalsegno.harness.retrieval import FileRetriever
from dalsegno.harness.sessions import build
from dalsegno.harness.tools import PythonTools, Tool, load_tools
from dalsegno.orchestration.configuration import PinnedDocument, documents
from dalsegno.orchestration.documents import Configuration
from dalsegno.orchestration.ports import Provider, Reporter

_T = TypeVar("_T")
_FILES: Final = (".yaml", ".yml", ".json")


@dataclass(frozen=True)
class Options:
    """``tools``: as of ``load_tools``. ``providers``: ``[NAME=]KIND[:VALUE]``, of which VALUE is a script, a URL or a
    file of settings; without a name for every agent. ``reporters``: ``NAME=CODE``, ``NAME=program:COMMAND`` or
    ``NAME=KIND:FILE``. ``files``: where stages fetch from. ``workflows``: ``NAME=FILE``, of sub-sessions."""

    tools: Sequence[str] = ()
    providers: Sequence[str] = ()
    reporters: Sequence[str] = ()
    files: Path | None = None
    workflows: Sequence[str] = ()


@dataclass(frozen=True)
class Opened:
    """The ports that were asked for, and the documents of sub-sessions by name."""

    ports: Ports
    tools: list[Tool]
    workflows: dict[str, list[PinnedDocument]] = field(default_factory=dict)


def open_ports(options: Options) -> Opened:
    """Raises Usage, Failed, NotFound, InvalidDocument."""
    tools = [tool for reference in options.tools for tool in load_tools(reference)]
    ports = Ports(
        clock=SystemClock(),
        providers=_named(options.providers, "--provider", _provider, default=PROVIDER_DEFAULT),
        tools=PythonTools(tools),
        reporters=_named(options.reporters, "--reporter", _reporter),
        retriever=None if options.files is None else FileRetriever(options.files),
    )
    files = _named(options.workflows, "--workflow", Path)
    return Opened(ports, tools, {name: open_documents(path, tools) for name, path in files.items()})


def open_documents(path: Path, tools: Sequence[Tool]) -> list[PinnedDocument]:
    """What is pinned of a workflow's file. Raises InvalidDocument."""
    return documents(load(path, tools=[tool.spec for tool in tools]), build(f"dalsegno/{__version__}"))


def missing(configuration: Configuration, opened: Opened) -> list[str]:
    """What the stages of a workflow use and nobody fills here, as options that would."""
    ports, workflow = opened.ports, configuration.workflow
    used = {name for stage in workflow.stages for name in stage.tools}
    code = {tool.spec.name for tool in opened.tools}
    wanted: list[str] = []
    for tool in configuration.tools.tools:
        if tool.name in used and tool.workflow is not None and tool.workflow not in opened.workflows:
            wanted.append(f"--workflow {tool.workflow}=FILE")
        elif tool.name in used and tool.workflow is None and tool.name not in code:
            wanted.append(f"--tools with {tool.name}")
    for name in sorted({agent.provider for agent in workflow.agents.values()}):
        if name not in ports.providers and PROVIDER_DEFAULT not in ports.providers:
            wanted.append(f"--provider {name}=KIND:VALUE")
    judged = {name for stage in workflow.stages for name in stage.validators}
    for spec in configuration.validators.validators:
        if spec.name in judged and spec.reporter is not None and spec.reporter not in ports.reporters:
            wanted.append(f"--reporter {spec.reporter}=CODE")
    if ports.retriever is None and any(stage.retrieve for stage in workflow.stages):
        wanted.append("--files FOLDER")
    return wanted


def _named(given: Sequence[str], option: str, make: Callable[[str], _T], default: str | None = None) -> dict[str, _T]:
    found: dict[str, _T] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if default is not None and (not equals or ":" in name):  # the sign is the value's own, as in a URL
            name, value = default, each
        elif not equals or not name:
            raise Usage(f"{option} {each}", wanted=f"{option} NAME=VALUE", todo="correct it")
        if name in found:
            raise Usage(f"{option} {each}, a second one for {name}", wanted="each name once", todo="leave one out")
        found[name] = make(value)
    return found


def _provider(text: str) -> Provider:
    kind, _, value = text.partition(":")
    if kind == "scripted":
        return open_provider(kind, {"file": value})
    if kind == "openai" and not value.endswith(_FILES):
        return open_provider(kind, {"base_url": value})
    return open_provider(kind, _settings(value))


def _reporter(text: str) -> Reporter:
    kind, _, value = text.partition(":")
    if kind == "program" and not value.endswith(_FILES):
        return open_reporter(kind, {"command": shlex.split(value)})
    if value.endswith(_FILES) or not value:
        return open_reporter(kind, _settings(value))
    return open_reporter(text, {})


def _settings(file: str) -> Mapping[str, Any]:
    if not file:
        return {}
    try:
        found = msgspec.yaml.decode(Path(file).read_bytes())
    except (OSError, msgspec.DecodeError) as error:
        raise Usage(f"{file}: {error}", wanted="a file of settings, in YAML or JSON", todo="correct the name") from None
    if not isinstance(found, dict):
        raise Usage(f"{file} holds a {type(found).__name__}", wanted="a mapping of settings", todo="correct it")
    return found
