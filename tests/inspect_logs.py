"""Inspect logs for tests: the shared recordings, and small ones made to measure."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dalsegno.importers.base import ImportedSession, ImportReport
from dalsegno.importers.inspect_ai import InspectImporter
from dalsegno.importers.inspect_ai.file import Limits

TRACES = Path(__file__).resolve().parents[2] / "shared" / "traces" / "inspect-ai"
THEORY = TRACES / "theory-of-mind.eval"
BROWSER = TRACES / "browser.json"
INPUT_TASK = TRACES / "input-task.2024-11.json"

needs_traces = pytest.mark.skipif(not TRACES.is_dir(), reason=f"the shared recordings are not at {TRACES}")

CREATED = "2025-01-01T00:00:00Z"
HEADER: dict[str, Any] = {
    "version": 2,
    "status": "success",
    "eval": {"eval_id": "E1", "run_id": "R1", "task_id": "T1", "task": "made", "model": "mock/m", "created": CREATED},
    "plan": {"steps": []},
}


def sessions_of(path: Path, limits: Limits | None = None) -> tuple[ImportedSession, ...]:
    return sessions_and_report(path, limits)[0]


def sessions_and_report(path: Path, limits: Limits | None = None) -> tuple[tuple[ImportedSession, ...], ImportReport]:
    """All that a file gives, at once."""
    importer = InspectImporter(limits=limits)
    report = importer.report()
    return tuple(importer.read(path, report)), report


NativeCall = tuple[str, str, dict[str, Any]]
"""A call that a model asks for: native id, function, arguments."""


def clock(seconds: float) -> str:
    return f"2025-01-01T10:{int(seconds // 60):02d}:{seconds % 60:09.6f}+00:00"


def model_event(at: float, *, calls: Sequence[NativeCall] = (), took: float = 1.0, **rest: Any) -> dict[str, Any]:
    """A model event whose answer asks for these calls."""
    message: dict[str, Any] = {"role": "assistant", "content": f"answer at {at}", "id": f"a{at}"}
    if calls:
        message["tool_calls"] = [{"id": i, "function": f, "arguments": a} for i, f, a in calls]
    output = {
        "model": "m-1",
        "choices": [{"message": message, "stop_reason": "stop"}],
        "usage": {"input_tokens": 10, "output_tokens": 5},
    }
    return {
        "event": "model",
        "model": "mock/m",
        "timestamp": clock(at),
        "completed": clock(at + took),
        "input": [],
        "tools": [],
        "tool_choice": "auto",
        "config": {},
        "output": output,
        **rest,
    }


def tool_event(at: float, call: NativeCall, *, took: float = 1.0, **rest: Any) -> dict[str, Any]:
    native_id, function, arguments = call
    return {
        "event": "tool",
        "type": "function",
        "timestamp": clock(at),
        "completed": clock(at + took),
        "id": native_id,
        "function": function,
        "arguments": arguments,
        "result": f"result at {at}",
        **rest,
    }


def approval_event(at: float, call: NativeCall, decision: str, approver: str, **rest: Any) -> dict[str, Any]:
    native_id, function, arguments = call
    target = {"id": native_id, "function": function, "arguments": arguments}
    return {
        "event": "approval",
        "timestamp": clock(at),
        "message": "",
        "call": target,
        "approver": approver,
        "decision": decision,
        **rest,
    }


def sample(events: list[dict[str, Any]], **rest: Any) -> dict[str, Any]:
    return {"id": 1, "epoch": 1, "input": "do it", "target": "", "events": events, **rest}


def write_json(path: Path, *samples: dict[str, Any], header: dict[str, Any] | None = None) -> Path:
    path.write_text(json.dumps({**(header or HEADER), "samples": list(samples)}))
    return path


def write_eval(path: Path, *samples: dict[str, Any], header: dict[str, Any] | None = None) -> Path:
    """A zip as the harness writes it; without ``header`` it is that of an evaluation which has not ended."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("_journal/start.json", json.dumps(HEADER))
        for data in samples:
            archive.writestr(f"samples/{data['id']}_epoch_{data['epoch']}.json", json.dumps(data))
        if header is not None:
            archive.writestr("header.json", json.dumps(header))
    return path
