"""What an application sees of our log lines that has set up no logging, and what one that has."""

from __future__ import annotations

import subprocess
import sys

SAY = """
import logging
from dalsegno import Publisher
logging.getLogger("dalsegno.streams").info("partitions_assigned", extra={"partitions": [1]})
logging.getLogger("dalsegno.log").warning("event_breaks_rules", extra={"session_id": "s-1", "rules": ["S2"]})
try:
    raise ValueError("why")
except ValueError:
    logging.getLogger("dalsegno").error("worker_failed", exc_info=True)
"""


def said(before: str) -> str:
    command = [sys.executable, "-c", before + SAY]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stderr


def test_without_any_logging_set_up_warnings_come_with_their_facts_and_nothing_below() -> None:
    lines = said("").splitlines()
    assert lines[0] == "dalsegno: WARNING: event_breaks_rules session_id='s-1' rules=['S2']"
    assert lines[1] == "dalsegno: ERROR: worker_failed"
    assert lines[-1] == "ValueError: why"
    assert len(lines) == 5


def test_a_handler_of_the_application_alone_counts() -> None:
    for name in ("", "'dalsegno'", "'dalsegno.log'"):
        own = f"import logging, sys\nlogging.getLogger({name}).addHandler(logging.StreamHandler(sys.stderr))\n"
        lines = said(own).splitlines()
        assert lines[0] == "event_breaks_rules"
        assert not any("session_id" in line for line in lines)
