"""A data folder that this user may not write in is named, and is no bug."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

_CHILD = """
import os, sys
from pathlib import Path
from dalsegno.errors import DalsegnoError
from dalsegno.log.embedded import broker
if os.getuid() == 0:
    # root ignores modes; after the imports, for the interpreter may lie where only root can read
    os.setgid(65534); os.setuid(65534)
try:
    getattr(broker, sys.argv[1])(Path(sys.argv[2]))
except DalsegnoError as error:
    print(type(error).__name__, error.found)
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    # Not pytest's own folder: other users cannot enter it.
    made = Path(tempfile.mkdtemp(prefix="dalsegno-closed-"))
    made.chmod(0o755)
    yield made
    for path in (made, *made.iterdir()):
        path.chmod(0o755)
    shutil.rmtree(made)


@pytest.mark.parametrize("what", ["start", "stop", "status"])
def test_a_closed_data_folder_is_not_permitted(folder: Path, what: str) -> None:
    inside = folder / "broker"
    inside.mkdir()
    (inside / "broker.json").write_text("{}")
    (inside / "broker.json").chmod(0o000)
    inside.chmod(0o555)
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, what, str(folder)], capture_output=True, text=True, timeout=60,
        env={**os.environ, "HOME": "/"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("NotPermitted could not "), done.stdout
    assert str(inside) in done.stdout
