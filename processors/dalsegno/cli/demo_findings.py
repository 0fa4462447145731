"""What the demo measured, its table, and what to try next."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dalsegno.cli.context import Context
from dalsegno.cli.demo_world import DemoWorld
from dalsegno.cli.output import emit
from dalsegno.errors import VerifyDiffers

Say = Callable[[str], None]
_COLUMNS = ("what", "found", "wanted", "good")


@dataclass
class Findings:
    """``acknowledged``: all events that the demo has put into the log, ``published`` those whose rate was measured."""

    acknowledged: int = 0
    published: int = 0
    publish_seconds: float = 0.0
    folded_before: int = 0
    session_id: str = ""
    snapshot_id: str = ""
    take_over_seconds: float = 0.0
    replay_seconds: float = 0.0
    replay_records: int = 0
    verify_seconds: float = 0.0
    verify_records: int = 0
    digests: dict[str, str] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    other_policy: tuple[str, Path] | None = None
    """The workflow's session, and the file of the policy that decides otherwise."""

    def check(self, what: str, found: Any, wanted: Any = "") -> None:
        """A line of the table; with ``wanted`` it is good or not."""
        good = None if wanted == "" else found == wanted
        self.rows.append({"what": what, "found": found, "wanted": wanted if wanted != "" else None, "good": good})


def step(say: Say, number: int, what: str) -> None:
    say("")
    say(f"{number}. {what}")


def tell_end(ctx: Context, world: DemoWorld, found: Findings, seconds: float, say: Say) -> None:
    """The table, and what to try next. Raises VerifyDiffers where a line of it is not good."""
    sessions, events = world.folded()
    folded = events - found.folded_before
    table = Findings()
    table.check("events acknowledged by Kafka", found.acknowledged)
    table.check("events folded", folded, found.acknowledged)
    table.check("events lost", found.acknowledged - folded, 0)
    rows = [*table.rows, *found.rows]
    rates = {
        "published, events/s": found.published / found.publish_seconds if found.publish_seconds else 0,
        "verified, events/s (with start-up)": found.verify_records / found.verify_seconds,
        "take-over after kill -9, s": found.take_over_seconds,
        "replay from the snapshot, s (with start-up)": found.replay_seconds,
    }
    rows += [{"what": name, "found": round(value, 1), "wanted": None, "good": None} for name, value in rates.items()]
    step(say, 12, f"what came of it ({sessions} sessions in the log; {seconds:.0f} s in all)")
    emit(ctx, rows, _COLUMNS)
    name = f"{_program()} --data {shown(world.folder)} --prefix {world.prefix}"
    if not ctx.embedded:
        name += f" --bootstrap-servers {world.kafka.bootstrap_servers}"
    say("")
    say("Broker and data stay as they are. Commands to try:")
    say(f"   {name} session show {found.session_id}")
    say(f"   {name} session list --has approval")
    say(f"   {name} replay plan --from session:{found.session_id}@20")
    if found.other_policy is not None:
        desk, policy = found.other_policy
        say(f"   {name} replay run --mode inference-skipping --session {desk} --policy {shown(policy)}")
    say(f"and to delete all of it: {_program()} demo --clean")
    wrong = [row["what"] for row in rows if row["good"] is False]
    if wrong:
        raise VerifyDiffers(
            f"not as it must be: {', '.join(wrong)}",
            wanted="every line good",
            todo=f"please report it, with the workers' logs in {world.folder}",
        )


def _program() -> str:
    """How the user calls us here: by name where that is found, else by the script of the checkout."""
    return "dalsegno" if shutil.which("dalsegno") else "./run"


def shown(path: Path) -> str:
    """A path as one would type it here."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
