"""A session judged by its partition of the log."""

from __future__ import annotations

from dalsegno.readers.proving import prove_log
from dalsegno.testing.memory_log import MemoryLog
from history_lab import NO_AUDIT, SESSION, chain


def test_the_reading_of_a_partition_tells_how_far_it_is() -> None:
    log = MemoryLog(partitions=1)
    for record in chain(6).records:
        log.put("t.events", 0, record.key, record.value)
    told: list[tuple[int, int, int]] = []
    proof = prove_log(log.connect(), "t", SESSION, NO_AUDIT, None, lambda *where: told.append(where))
    assert (proof.records, proof.doubts) == (6, ())
    assert told == [(0, 0, 6), (0, 6, 6)]
