"""What is built is what is used: the wheel alone, in an environment of its own, decodes an event."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import fastavro
import pytest
from fastavro.utils import generate_one

from dalsegno.log import codec
from dalsegno.log.schema_set import SchemaSet
from dalsegno.model.ids import EventKey, Seq

ROOT = Path(__file__).parents[2]
LIMIT_SECONDS = 240

# Runs in the empty environment: the wheel, and what it names as its own requirements.
DECODE = """
import sys
from importlib.util import find_spec
import dalsegno
assert dalsegno.__file__.startswith(sys.prefix), dalsegno.__file__
assert all(find_spec(name) is None for name in ("faust", "rocksdict", "click", "pydantic")), "an extra can be imported"
from dalsegno import Blobs, FolderStore, KafkaConfig, Publisher, RowDecoder, Session, events
loaded = {"faust", "rocksdict"} & set(sys.modules)
assert not loaded, loaded
from dalsegno.log.embedded.jars import locked_jars
from dalsegno.log.schema_set import SchemaSet, schema_folder
assert str(schema_folder()).startswith(sys.prefix), schema_folder()
assert len(locked_jars()) == 45
from dalsegno.log import codec
key, value = (bytes.fromhex(text) for text in sys.argv[1:3])
event = codec.place(SchemaSet.load(), key, value, 0, 1)
print(type(event).__name__, event.type, event.session_id, event.seq)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)]
    built = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS)
    assert built.returncode == 0, built.stdout + built.stderr
    (found,) = out.glob("*.whl")
    return found


def test_the_wheel_carries_schemas_and_assets_and_no_tests(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for part in ("events", "types", "topics", "projections"):
        here = {f"dalsegno/_schemas/{part}/{file.name}" for file in (ROOT / "schemas" / part).glob("*.avsc")}
        assert here, f"no schemas in schemas/{part}"
        assert here <= names
    example = {f"dalsegno/_examples/triage/{file.name}" for file in (ROOT / "examples" / "triage").glob("*.*")}
    assert example == {name for name in names if name.startswith("dalsegno/_examples/")} != set()  # of the demo
    assert {"dalsegno/py.typed", "dalsegno/log/embedded/jars.lock"} <= names
    assert any(name.endswith("/licenses/LICENSE") for name in names)
    assert not [name for name in names if name.startswith(("tests/", "schemas/")) or name.endswith("generate.py")]


def test_the_wheel_decodes_an_event_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    home = tmp_path / "empty"
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    own = _pip(python, "--no-deps", "--no-index", str(wheel))
    assert own.returncode == 0, own.stdout + own.stderr
    locked = tmp_path / "locked.txt"
    locked.write_text(_locked_core())
    told = _pip(python, "--no-deps", "--only-binary", ":all:", "--require-hashes", "-r", str(locked))
    if told.returncode != 0 and "after connection broken by" in told.stderr:
        pytest.skip(f"the package registry is not reachable: {told.stderr.strip().splitlines()[-1]}")
    assert told.returncode == 0, told.stdout + told.stderr
    command = [python, "-I", "-c", DECODE, *(part.hex() for part in _an_event("wheel-1"))]
    decoded = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS)
    assert decoded.returncode == 0, decoded.stderr
    assert decoded.stdout.split() == ["Event", "SessionCreated", "wheel-1", "1"]


def _pip(python: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Install with this environment's pip into the one of ``python``."""
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--no-input", "--retries", "1", "--timeout", "15"]
    return subprocess.run([*pip, "install", *words], capture_output=True, text=True, timeout=LIMIT_SECONDS)


def _locked_core() -> str:
    """What requirements/service.txt locks of the packages that the wheel itself requires, with their hashes."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {requirement.split(">=")[0] for requirement in project["dependencies"]}
    entries = re.split(r"\n(?=[a-z])", (ROOT / "requirements" / "service.txt").read_text())
    locked = {entry.split("==")[0]: entry for entry in entries if "==" in entry}
    return "\n".join(locked[name] for name in sorted(names)) + "\n"


def _an_event(session_id: str) -> tuple[bytes, bytes]:
    """Key and value of a first event with any contents, encoded by the checkout."""
    writer = SchemaSet.load().event("SessionCreated")
    record = generate_one(writer.raw)
    record["meta"].update(session_id=session_id, seq=1, prev_hash=None, epoch=0)
    out = io.BytesIO()
    fastavro.schemaless_writer(out, writer.raw, record)
    key = EventKey(session_id, Seq(1), codec.event_hash(writer, out.getvalue()))
    return key.encode(), codec.frame(writer, out.getvalue())
