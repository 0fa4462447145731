"""A workflow run in memory, one step at a time: scripted models, tools in this process, no broker, no thread, no clock.

    simulation = simulate("workflow.yaml", goal="...", script="script.yaml", tools=[look, write])
    assert simulation.outcome == "SUCCESS"

Everything is done in one order, so that equal documents, script and tools give equal events.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final, TypeAlias

from dalsegno.harness.conductor import Conductor
from dalsegno.harness.files import load
from dalsegno.harness.past import end_of, outcome_of
from dalsegno.harness.performing import Ports
from dalsegno.harness.providers.scripted import Scripted, read_script
from dalsegno.harness.sessions import build, start
from dalsegno.harness.tools import PythonTools, Tool
from dalsegno.harness.writers import Recorder
from dalsegno.model.events import Label, SessionCreated
from dalsegno.model.records import Event
from dalsegno.orchestration.configuration import documents
from dalsegno.orchestration.decider import MemoryContents
from dalsegno.orchestration.ports import Provider, Reporter, Retriever
from dalsegno.orchestration.ports import Tools as ToolsPort
from dalsegno.replay.rerun import People, Runner
from dalsegno.replay.serving import Recording
from dalsegno.replay.strategy import Strategy
from dalsegno.storage.blobs import blob

Script: TypeAlias = Sequence[Mapping[str, Any]] | Path | str | Provider
"""Rules as of ``harness.providers.scripted``, a file of them, or any provider."""
START: Final = 1_700_000_000_000_000
"""What the clock of a simulation shows at its start, microseconds since 1970 UTC; each event is a second later."""


class SteppedClock:
    """Fills ``Clock``: a second passes each time that it is looked at."""

    def __init__(self) -> None:
        self._seconds = count()

    def now(self) -> int:
        return START + next(self._seconds) * 1_000_000


@dataclass(frozen=True)
class Simulation:
    """``outcome``: SUCCESS, PARTIAL, GIVEN_UP, FAILED, CANCELLED, or None where it stopped before an end, and
    ``stopped`` says why."""

    events: list[Event]
    outcome: str | None
    stopped: str | None

    def decisions(self, type_: str) -> list[Mapping[str, Any]]:
        """Bodies of the events of one type."""
        return [event.body for event in self.events if event.type == type_]


def simulate(
    workflow: Path | str,
    *,
    goal: str,
    script: Script,
    tools: Iterable[Tool] | ToolsPort = (),
    people: People | None = None,
    reporters: Mapping[str, Reporter] | None = None,
    retriever: Retriever | None = None,
    labels: Mapping[str, str] | None = None,
    execute: bool = True,
) -> Simulation:
    """Run it. ``execute`` False: tools are asked for their simulations. ``people`` answers what persons are asked for;
    None: nobody does, and the simulation stops there. Raises InvalidDocument, Failed."""
    ran: ToolsPort = PythonTools(tools) if isinstance(tools, Iterable) else tools
    loaded = load(workflow, tools=ran.catalog().tools if isinstance(ran, PythonTools) else ())
    clock = SteppedClock()
    conductor = Conductor(Recorder("simulation", clock.now), MemoryContents())
    told = sorted((labels or {}).items())
    created = SessionCreated(
        workflow_name=loaded.workflow.name,
        profile="STRICT",
        goal=blob(goal),
        labels=[Label(key=key, value=value) for key, value in told],
    )
    conductor.append(created)
    # A clock of its own: the session's time begins at START, whatever number of documents is pinned before.
    start(conductor, documents(loaded, build("simulation")), SteppedClock(), seed=0)
    ports = Ports(
        clock=clock,
        sleep=lambda _seconds: None,
        providers={"*": _provider(script)},
        tools=ran,
        reporters=reporters or {},
        retriever=retriever,
    )
    strategy = Strategy(
        mode="simulation", inference="scripted", tools="execute" if execute else "simulate", on_miss="stop"
    )
    result = Runner(conductor, Recording(), strategy, ports, people=people).run()
    recorder = conductor.writer
    assert isinstance(recorder, Recorder)
    end = end_of(recorder.events[-1:])
    return Simulation(recorder.events, None if end is None else outcome_of(end), result.stopped)


def _provider(script: Script) -> Provider:
    if isinstance(script, Path | str):
        return read_script(Path(script))
    return Scripted(script) if isinstance(script, list | tuple) else script  # type: ignore[return-value]
