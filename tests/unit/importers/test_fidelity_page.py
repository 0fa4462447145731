"""docs/fidelity.md says what imports of the shared recordings say today."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from recordings import MISSING, recordings

MAKER = Path(__file__).parents[3] / "docs" / "make_fidelity.py"


def maker() -> Any:
    spec = importlib.util.spec_from_file_location("make_fidelity", MAKER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif(not recordings(), reason=MISSING)
def test_the_page_is_what_the_imports_say() -> None:
    module = maker()
    assert module.TARGET.read_text("utf-8") == module.page(), "run: python docs/make_fidelity.py"
