"""What a broker that ended at once wants to say, from the end of its log."""

from __future__ import annotations

from pathlib import Path

from dalsegno.errors import BrokerStartFailed, DalsegnoError, DiskFull, PortTaken

_LINES_SHOWN = 15
_TAIL_BYTES = 16 * 1024


def last_lines(log_file: Path, lines: int = _LINES_SHOWN) -> str:
    try:
        with log_file.open("rb") as file:
            file.seek(max(0, log_file.stat().st_size - _TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return "    (no log)"
    return "\n".join("    " + line for line in text.splitlines()[-lines:]) or "    (empty)"


def explain(log_file: Path, port: int) -> DalsegnoError:
    """The error that fits the end of the log, with the log's last lines in it."""
    tail = last_lines(log_file, lines=200)
    shown = last_lines(log_file)
    if "No space left on device" in tail or "Disk quota exceeded" in tail:
        return DiskFull(
            f"the broker found no space left on the disk of {log_file.parent}:\n{shown}",
            todo="free some space and start again: what was acknowledged is kept",
            folder=str(log_file.parent),
        )
    if "Address already in use" in tail:
        return PortTaken(
            f"port {port} was taken by another program while the broker started:\n{shown}",
            todo="start again, or name another port",
            port=port,
        )
    return BrokerStartFailed(
        f"the broker ended while it started; its log ends with:\n{shown}",
        todo=f"see {log_file}",
        log_file=str(log_file),
    )
