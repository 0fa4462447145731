"""One tool that moves money and knows no idempotency key, as many banks do not: asked twice, it pays twice."""

import json
import os
from pathlib import Path

from dalsegno.harness.tools import tool


@tool(effect="EXTERNAL", risk="HIGH")
def send_wire(to: str, cents: int) -> str:
    """Sends money."""
    with (Path(os.environ["EXAMPLE_FOLDER"]) / "wires.jsonl").open("a", encoding="utf-8") as wires:
        wires.write(json.dumps({"to": to, "cents": cents}) + "\n")
    return f"sent {cents} to {to}"
