"""What the rows say of real recordings, against what is counted in their events."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from dalsegno.projections.approvals import Approvals
from dalsegno.projections.audit import Audit
from dalsegno.projections.audit_chain import chain
from dalsegno.projections.inferences import Inferences
from dalsegno.projections.outcomes import Outcomes
from dalsegno.projections.tools import Tools
from dalsegno.projections.validations import Validations
from dalsegno.state.reads import ShardReads
from recordings import Recording, each_recording, of_type, recording_of, sessions_of, written_of
from shard_lab import folded, reads

PROJECTIONS = [Approvals(), Audit(), Inferences(), Outcomes(), Tools(), Validations()]
UNKNOWABLE = {"decision", "pack", "inference", "arguments", "receipt"}
"""Links of a chain that recordings of other harnesses may lack."""


def reader_of(recording: Recording) -> ShardReads:
    return reads(folded(written_of(sessions_of(recording)), projections=PROJECTIONS))


def rows_of(reader: ShardReads, name: str) -> list[Any]:
    return [row for _, _, row in reader.all_rows(name)]


@pytest.mark.parametrize("recording", each_recording())
def test_rows_hold_what_the_events_hold(recording: Recording) -> None:
    reader = reader_of(recording)
    for name, type_, field in (
        ("inferences", "InferenceRequested", "inference_id"),
        ("tools", "ToolCallRequested", "tool_call_id"),
        ("approvals", "ApprovalRequested", "approval_id"),
        ("validations", "ValidationRequested", "validation_id"),
    ):
        rows = rows_of(reader, name)
        assert len(rows) == len({(event.session_id, event.body[field]) for event in of_type(recording, type_)})
        assert not any(row.refused or row.status == "ORPHAN" for row in rows)
    calls, receipts = rows_of(reader, "tools"), of_type(recording, "ToolReceiptRecorded")
    assert sum(row.receipts for row in calls) == len(receipts)
    assert Counter(row.exit_code for row in calls if row.receipts) == Counter(e.body["exit_code"] for e in receipts)
    sums = [row for _, row in reader.rollups("outcomes")]
    assert sum(row.sessions for row in sums) == len(sessions_of(recording))
    assert sum(row.inferences for row in sums) == len(of_type(recording, "InferenceCompleted"))


@pytest.mark.parametrize("recording", each_recording())
def test_every_call_that_ran_leads_back_to_its_request(recording: Recording) -> None:
    reader = reader_of(recording)
    chains = [chain(str(call), row) for _, (call,), row in reader.all_rows("audit")]
    assert len(chains) == len(rows_of(reader, "tools"))
    ended = len(of_type(recording, "ToolReceiptRecorded")) + len(of_type(recording, "SubSessionEnded"))
    assert sum(each.outcome == "EXECUTED" for each in chains) == ended
    for each in chains:
        assert {lack.link for lack in each.missing} <= UNKNOWABLE
        assert any(link.type == "ToolCallRequested" for link in each.links)
        unrecorded = any(link.says == "UNRECORDED_IMPORT" for link in each.links)
        assert unrecorded == any("UNRECORDED_IMPORT" in lack.why for lack in each.missing)


@pytest.mark.parametrize(
    ("name", "exit_codes"),
    [("astropy__astropy-12907.traj.json", {0: 19}), ("pallets__flask-5014.traj.json", {0: 17, 1: 2})],
)
def test_a_run_whose_numbers_are_known(name: str, exit_codes: dict[int, int]) -> None:
    reader = reader_of(recording_of("mini-swe-agent", name))
    assert Counter(row.status for row in rows_of(reader, "inferences")) == {"COMPLETED": 20}
    calls = rows_of(reader, "tools")
    assert (len(calls), sum(row.receipts for row in calls)) == (20, 19)
    assert Counter(row.exit_code for row in calls if row.receipts) == exit_codes
    (validation,) = rows_of(reader, "validations")
    assert (validation.status, validation.verdict) == ("DECIDED", "PASS")
    (((_, _, _, status, verdict), outcome),) = reader.rollups("outcomes")
    assert (status, verdict, outcome.sessions, outcome.inferences) == ("COMPLETED", "PASS", 1, 20)
    assert (outcome.tool_calls, outcome.failed_tool_calls) == (20, exit_codes.get(1, 0))
