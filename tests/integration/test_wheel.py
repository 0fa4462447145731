"""What is built is what is used: the wheel alone, in an environment of its own, decodes an event."""

from __future__ import annotations

import io
import subprocess
import sys
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

# Runs with the wheel's code only; the dependencies come from this environment, since nothing is fetched in a test.
DECODE = """
import sys
from importlib.util import find_spec
import dalsegno
assert "site-packages" in dalsegno.__file__ and sys.prefix in dalsegno.__file__, dalsegno.__file__
assert all(find_spec(name) is None for name in ("faust", "rocksdict", "click", "pydantic")), "an extra can be imported"
from dalsegno.log.embedded.jars import locked_jars
from dalsegno.log.schema_set import SchemaSet, schema_folder
assert sys.prefix in str(schema_folder()), schema_folder()
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
    assert {"dalsegno/py.typed", "dalsegno/log/embedded/jars.lock"} <= names
    assert any(name.endswith("/licenses/LICENSE") for name in names)
    assert not [name for name in names if name.startswith(("tests/", "schemas/")) or name.endswith("generate.py")]


def test_the_wheel_decodes_an_event_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    home = tmp_path / "empty"
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    site = next(home.glob("lib/python3*/site-packages"))
    zipfile.ZipFile(wheel).extractall(site)
    for package in ("confluent_kafka", "confluent_kafka.libs", "fastavro", "msgspec", "rfc8785", "uuid_utils"):
        _link(package, site)
    command = [python, "-c", DECODE, *(part.hex() for part in _an_event("wheel-1"))]
    told = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS)
    assert told.returncode == 0, told.stderr
    assert told.stdout.split() == ["Event", "SessionCreated", "wheel-1", "1"]


def _an_event(session_id: str) -> tuple[bytes, bytes]:
    """Key and value of a first event with any contents, encoded by the checkout."""
    writer = SchemaSet.load().event("SessionCreated")
    record = generate_one(writer.raw)
    record["meta"].update(session_id=session_id, seq=1, prev_hash=None, epoch=0)
    out = io.BytesIO()
    fastavro.schemaless_writer(out, writer.raw, record)
    key = EventKey(session_id, Seq(1), codec.event_hash(writer, out.getvalue()))
    return key.encode(), codec.frame(writer, out.getvalue())


def _link(package: str, site: Path) -> None:
    for folder in map(Path, sys.path):
        if folder.name == "site-packages" and (folder / package).exists():
            (site / package).symlink_to(folder / package)
