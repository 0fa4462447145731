"""How rows are shown to people and programs."""

from __future__ import annotations

from dalsegno.cli.answers import row_values
from dalsegno.cli.output import dumps
from dalsegno.projections.rows import AuditLink, AuditRow, SessionRow


def test_the_times_of_a_row_and_of_the_rows_in_it_are_times() -> None:
    assert row_values(SessionRow(last_event_at=0, turns=3))["last_event_at"] == "1970-01-01T00:00:00.000000Z"
    assert row_values(SessionRow())["last_event_at"] is None
    (link,) = row_values(AuditRow(links=[AuditLink(seq=7, at=1_000_000)]))["links"]
    assert (link["seq"], link["at"]) == (7, "1970-01-01T00:00:01.000000Z")
    assert '"at": "1970-01-01T00:00:01.000000Z"' in dumps(link)
