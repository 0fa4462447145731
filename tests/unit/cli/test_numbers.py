"""Numbers on the command line."""

from __future__ import annotations

import pytest

from dalsegno.cli.numbers import seq_in
from dalsegno.model.ids import SEQ_MAX


@pytest.mark.parametrize("seq", [1, 42, SEQ_MAX])
def test_a_seq_is_read(seq: int) -> None:
    assert seq_in(str(seq)) == seq


@pytest.mark.parametrize(
    "text", ["", "0", "-1", "+1", " 1", "1.0", "0x1", "1e3", "\u0663", str(SEQ_MAX + 1), f"{1:020}{'9' * 5000}"]
)
def test_what_is_no_seq_is_none_however_long_it_is(text: str) -> None:
    assert seq_in(text) is None
