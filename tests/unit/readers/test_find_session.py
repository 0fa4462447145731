"""A session that is not found: the answer names the ids that may have been meant, and where a new one is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dalsegno.errors import NotFound
from dalsegno.readers.sessions import find_session
from dalsegno.testing.builder import SessionBuilder
from reader_lab import House


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with House(tmp_path) as found:
        ids = ("codex/1:abc-1", "codex/1:abc-2", "other")
        found.shard([record for each in ids for record in SessionBuilder(each).begin().records])
        yield found


def test_a_piece_of_an_id_names_the_ids_that_hold_it(house: House) -> None:
    with house.reader() as reader, pytest.raises(NotFound) as caught:
        find_session(reader, "abc")
    assert "codex/1:abc-1, codex/1:abc-2" in caught.value.wanted
    assert "other" not in caught.value.wanted


@pytest.mark.parametrize("name", ["new", ""])
def test_a_session_that_is_not_folded_yet_is_where_a_worker_says(house: House, name: str) -> None:
    with house.reader() as reader, pytest.raises(NotFound) as caught:
        find_session(reader, name)
    assert caught.value.wanted == "a session of prefix p"
    assert "when a worker has folded it ('dalsegno worker status')" in caught.value.todo
