"""The page on replays says of each mode what the program says."""

from __future__ import annotations

from pathlib import Path

from dalsegno.replay.modes import MODES

PAGE = Path(__file__).parents[3] / "docs" / "replay.md"


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def test_the_table_of_modes_is_the_program_s() -> None:
    section = PAGE.read_text("utf-8").partition("## The modes")[2].partition("\n## ")[0]
    head, _, *rows = [line for line in section.splitlines() if line.startswith("|")]
    modes = cells(head)[1:]
    found = {mode: {cells(row)[0]: cells(row)[place] for row in rows} for place, mode in enumerate(modes, 1)}
    assert found == {mode: dict(actions) for mode, actions in MODES.items()}
