"""Tools of a coding agent. They work in the folder that the variable ``EXAMPLE_FOLDER`` names, and nowhere else."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from dalsegno.harness.tools import tool
from dalsegno.orchestration.ports import ToolResult

JOURNAL = ".writes"
"""A line of JSON for each write that was done: its idempotency key and its path."""


@tool(effect="READ", risk="LOW")
def list_files() -> str:
    """Names the files of the program, a line each."""
    folder = _folder()
    found = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return "\n".join(sorted(str(path) for path in found if path.name != JOURNAL))


@tool(effect="READ", risk="LOW")
def read_file(path: str) -> str:
    """Reads one file of the program."""
    return _inside(path).read_text("utf-8")


@tool(effect="WRITE", risk="MEDIUM", idempotent=True)
def write_file(path: str, content: str, idempotency_key: str) -> str:
    """Writes one file of the program, whole."""
    target, journal = _inside(path), _folder() / JOURNAL
    done = journal.read_text("utf-8").splitlines() if journal.exists() else []
    # Who asks again with the same key must change nothing: another call may have written the file since.
    if idempotency_key not in [json.loads(line)["key"] for line in done]:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content, "utf-8")
        with journal.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps({"key": idempotency_key, "path": path}) + "\n")
    return f"{path}: {len(content.encode())} bytes"


@tool(effect="READ", risk="LOW", timeout_seconds=60)
def run_tests() -> ToolResult:
    """Runs the program's tests and shows what they say."""
    # In a copy that is thrown away, so that it only reads. It is no sandbox: tests may do whatever you may.
    with tempfile.TemporaryDirectory() as copy:
        shutil.copytree(_folder(), copy, dirs_exist_ok=True)
        ran = subprocess.run([sys.executable, "-m", "unittest"], cwd=copy, capture_output=True, timeout=50, check=False)
    said = ran.stderr.decode("utf-8", "replace").replace(copy, ".")
    said = re.sub(r" in [0-9.]+s$", "", said, flags=re.MULTILINE)  # an equal program says the same each time
    return ToolResult(said[-4000:].encode(), exit_code=ran.returncode)


def _folder() -> Path:
    return Path(os.environ["EXAMPLE_FOLDER"]).resolve()


def _inside(path: str) -> Path:
    """Neither ``..`` nor a link leads out of the folder."""
    found = (_folder() / path).resolve()
    if _folder() not in found.parents or found.name == JOURNAL:
        raise PermissionError(f"{path} is not a file of the program")
    return found
