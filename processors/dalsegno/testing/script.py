"""One made-up session as a generator of events: what it is doing, what is open, what it has counted.

A script yields writer events; the driver numbers, links and encodes them and keeps ``tip`` up to date, so a script can
name its own hashes (recoveries, child sessions). It yields a ``Child`` to run a child session before it goes on.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from random import Random
from typing import ClassVar, NamedTuple, TypeAlias

from dalsegno.model.events import (
    Blob,
    ConfigPinned,
    InFlight,
    Label,
    NewEvent,
    Ref,
    SessionCreated,
    SessionRecovered,
    SessionStarted,
)
from dalsegno.model.lifecycle import config_set_digest
from dalsegno.testing.tally import Tally
from dalsegno.testing.texts import Texts, blob_of


class Child(NamedTuple):
    """Run this session now; it is over when the generator goes on."""

    script: Script


Steps: TypeAlias = Generator["NewEvent | Child", None, None]

PINS = (
    "WORKFLOW",
    "POLICY",
    "COMPRESSION_RULES",
    "TOOL_CATALOG",
    "HARNESS_BUILD",
    "PROMPT_TEMPLATE",
    "TOKENIZER",
    "VALIDATORS",
)
_CONTENTS = {kind: blob_of(f'{{"kind":"{kind}","rules":[]}}'.encode(), "application/json") for kind in PINS}
_CONFIG_DIGEST = config_set_digest([f"{kind}:main:{content.digest.hex()}" for kind, content in _CONTENTS.items()])
POLICY_DIGEST = _CONTENTS["POLICY"].digest
RULES_DIGEST = _CONTENTS["COMPRESSION_RULES"].digest
TEMPLATE_DIGEST = _CONTENTS["PROMPT_TEMPLATE"].digest
TOOLS_DIGEST = _CONTENTS["TOOL_CATALOG"].digest
VALIDATORS_DIGEST = _CONTENTS["VALIDATORS"].digest


class Script:
    """What all sessions have. ``now`` is the session's clock in microseconds since 1970 UTC."""

    actors: ClassVar[Mapping[str, tuple[str, str]]] = {}
    """Who does what, where it is not who does it in every session: event type -> (kind, id)."""

    def __init__(self, session_id: str, rng: Random, *, profile: str, start: int) -> None:
        self.session_id = session_id
        self.profile = profile
        self.rng = rng
        self.chance = rng.random
        self.texts = Texts(rng)
        self.tally = Tally()
        self.tally.sessions = 1
        self.now = start
        self.epoch = 0
        self.seq = 0
        self.number = 0
        self.tip: bytes | None = None
        self.turn_id: str | None = None
        self.stage_id: str | None = None
        self.open: dict[tuple[str, str], str] = {}
        """Open operations by kind and id, with how a recovery would resolve each."""

    def steps(self) -> Steps:
        raise NotImplementedError

    @property
    def strict(self) -> bool:
        return self.profile == "STRICT"

    def digest(self) -> bytes | None:
        """A digest that only STRICT sessions must have."""
        return self.texts.digest() if self.strict else None

    def create(self, workflow: str, parent: Script | None = None) -> Steps:
        """SessionCreated, in STRICT sessions all pins, SessionStarted."""
        labels = [Label(key="team", value=f"team-{int(self.chance() * 12)}")]
        goal = self.texts.blob(160)
        if parent is None:
            yield SessionCreated(profile=self.profile, workflow_name=workflow, labels=labels, goal=goal)  # type: ignore[arg-type]
        else:
            at = Ref(seq=parent.seq, hash=parent.tip)
            yield SessionCreated(
                profile=self.profile,  # type: ignore[arg-type]
                relation="CHILD",
                workflow_name=workflow,
                parent_session=parent.session_id,
                parent_at=at,
                labels=labels,
                goal=goal,
            )
        yield from self.start()

    def start(self) -> Steps:
        if self.strict:
            for kind, content in _CONTENTS.items():
                yield pin(kind, content)
            yield SessionStarted(config_set_digest=_CONFIG_DIGEST, clock_start=self.now, seed=self.seed())
        else:
            yield SessionStarted(clock_start=self.now)

    def seed(self) -> int:
        return int(self.chance() * 2**53)

    def recover(self) -> Steps:
        """The writer died and another run of it took over: the epoch rises, all that is open is resolved."""
        in_flight = [
            InFlight(kind=kind, id=id_, resolution=resolution)  # type: ignore[arg-type]
            for (kind, id_), resolution in self.open.items()
        ]
        last_good = Ref(seq=self.seq, hash=self.tip)
        self.epoch += 1
        yield SessionRecovered(last_good=last_good, crashed_instance=f"run-{self.epoch - 1}", in_flight=in_flight)


def pin(kind: str, content: Blob) -> ConfigPinned:
    return ConfigPinned(kind=kind, name="main", version="1", digest=content.digest, content=content)  # type: ignore[arg-type]
