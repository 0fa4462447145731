"""Tools of a service desk. The world outside is one file, ``outbox.jsonl`` in the folder that the variable
``EXAMPLE_FOLDER`` names: a line for each answer sent, each refund paid and each ticket handed on."""

import json
import os
import threading
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from dalsegno.harness.tools import tool

TICKETS = {each["id"]: each for each in json.loads(Path(__file__).with_name("tickets.json").read_text("utf-8"))}
_one_at_a_time = threading.Lock()


@tool(effect="READ", risk="LOW")
def list_tickets() -> list[str]:
    """The ids of all open tickets."""
    return list(TICKETS)


@tool(effect="READ", risk="LOW")
def read_ticket(ticket: str) -> dict:
    """One ticket: who wrote it, the order, the text."""
    return TICKETS[ticket]


@tool(effect="EXTERNAL", risk="MEDIUM", idempotent=True)
def reply(ticket: str, text: str, idempotency_key: str, signature: str = "") -> str:
    """Sends an answer to whoever wrote the ticket."""
    to = TICKETS[ticket]["from"]
    return _once(idempotency_key, {"do": "reply", "to": to, "text": f"{text}\n{signature}".strip()})


@tool(effect="DESTRUCTIVE", risk="HIGH", idempotent=True)
def refund(ticket: str, cents: Annotated[int, Meta(ge=1)], reason: str, idempotency_key: str) -> str:
    """Pays money back. It cannot be taken back."""
    number = TICKETS[ticket]["order"]["number"]
    return _once(idempotency_key, {"do": "refund", "order": number, "cents": cents, "reason": reason})


@tool(effect="EXTERNAL", risk="LOW", idempotent=True)
def escalate(ticket: str, to: str, idempotency_key: str) -> str:
    """Hands a ticket on to people."""
    return _once(idempotency_key, {"do": "escalate", "ticket": ticket, "to": to})


def _once(key: str, what: dict[str, Any]) -> str:
    """The line that is the effect, once for each key: who asks again is answered as the first time."""
    outbox = Path(os.environ["EXAMPLE_FOLDER"]) / "outbox.jsonl"
    with _one_at_a_time:
        lines = outbox.read_text("utf-8").splitlines() if outbox.exists() else []
        done = [json.loads(line)["key"] for line in lines]
        if key not in done:
            with outbox.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"key": key, **what}) + "\n")
    return f"done, {what['do']}"
