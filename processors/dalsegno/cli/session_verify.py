"""``dalsegno session verify``: are a session's records its whole, untouched history?"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any

import click

from dalsegno.cli.common import audited_requests, lines_of, open_reader, whole_id
from dalsegno.cli.completion import complete_session
from dalsegno.cli.context import Context, pass_context
from dalsegno.cli.output import emit, note
from dalsegno.cli.progress import Watch, bars
from dalsegno.errors import DalsegnoError, Failed, HistoryRefuted
from dalsegno.log.transport import KafkaTransport
from dalsegno.readers.local import LocalReader, View
from dalsegno.readers.proof import AdminAudit, Proof
from dalsegno.readers.proving import is_of_log, needs_audit, prove_export, prove_log, section_of

PROVEN, REFUTED, UNPROVEN = "proven", "refuted", "unproven"
_SHOWN = 20


@click.command(epilog="Example: dalsegno session verify s-1 --records s-1.jsonl")
@click.argument("session", shell_complete=complete_session)
@click.option("--records", metavar="FILE", help="Judge an export instead of the log; '-' is stdin.")
@pass_context
def verify(ctx: Context, session: str, records: str | None) -> None:
    """Prove a session (its whole id) by its hash chain: nothing was cut out, swapped, forged, stripped of its hash, or
    amended without a request in the admin audit.

    That the end is missing shows only beside the end that this machine's shard, or the newest snapshot, knows. Exit
    code 0: proven; 3: refuted, and each doubt is named; 1: not everything could be looked into.
    """
    whole_id(session)
    with open_reader(ctx) as reader:
        view = _view(reader, session)
        if records is None:
            proof, end = _of_log(ctx, session, view), "knows no later end"
        else:
            proof, view, end = _of_file(ctx, session, records, view)
        report = _report(proof, view)
        # For people the list is on stderr, a line each.
        counts = {"doubts": len(proof.doubts), "unproven": len(proof.unproven)}
        emit(ctx, report | counts if ctx.output == "text" else report)
    _judge(proof, view, end)


def _view(reader: LocalReader, session: str) -> View | None:
    """What here knows the session's end, if anything does."""
    try:
        return reader.of_session(session)
    except DalsegnoError as error:
        note(f"no shard and no snapshot here knows the session's end, so a cut tail cannot be seen: {error.found}")
        return None


def _of_log(ctx: Context, session: str, view: View | None) -> Proof:
    audit = AdminAudit(audited_requests(ctx))
    with closing(KafkaTransport(ctx.kafka)) as transport, bars("verify") as show:
        return prove_log(transport, ctx.prefix, session, audit, view, Watch(show).progress)


def _of_file(ctx: Context, session: str, file: str, view: View | None) -> tuple[Proof, View | None, str]:
    """The proof, the view if it could say anything about the file, and what it says."""
    with lines_of(file) as lines:
        section = section_of(lines, session)
    audit = AdminAudit()
    if needs_audit(section):  # only it can vouch for amendments, and only a broker has it
        audit = AdminAudit(audited_requests(ctx))
    if view is not None and not is_of_log(section, view):
        note(f"{view.source} is of another log than the export, so a cut tail cannot be seen")
        view = None
    end = "" if section.facts is None else f"knows no other end below offset {section.facts.next_offset}"
    return prove_export(section, session, audit, view), view, end


def _report(proof: Proof, view: View | None) -> dict[str, Any]:
    path = proof.path
    return {
        "session": proof.session_id,
        "verdict": REFUTED if proof.doubts else UNPROVEN if proof.unproven else PROVEN,
        "records": proof.records,
        "path": path.head.seq,
        "head": path.head.hash,
        "held": None if path.held is None else f"{path.held.reason} at {path.held.seq}",
        "superseded": len(path.superseded),
        "amendments": proof.amendments,
        "end_known_by": None if view is None else f"{view.source}, {view.position}",
        "doubts": [doubt._asdict() for doubt in proof.doubts],
        "unproven": list(proof.unproven),
    }


def _judge(proof: Proof, view: View | None, end: str) -> None:
    _tell([f"not proven: {text}" for text in proof.unproven])
    _tell([f"{each.kind}: {'' if each.seq is None else f'seq {each.seq}: '}{each.text}" for each in proof.doubts])
    if proof.doubts:
        kinds = sorted({doubt.kind for doubt in proof.doubts})
        raise HistoryRefuted(
            f"session {proof.session_id}: {', '.join(kinds)}",
            wanted="every record, unchanged and in its place",
            todo="compare with an export or a snapshot of before; 'dalsegno session amend' accepts a loss",
            session=proof.session_id,
            kinds=kinds,
            doubts=[doubt._asdict() for doubt in proof.doubts],
        )
    if proof.unproven:
        raise Failed(
            f"session {proof.session_id}: not everything could be looked into: {proof.unproven[0]}",
            wanted="records that this build can read",
            todo="publish the missing schema, or use a build that knows it",
            session=proof.session_id,
        )
    note(f"proven up to seq {proof.path.head.seq}" + ("" if view is None else f"; {view.source} {end}"))


def _tell(lines: Sequence[str]) -> None:
    for line in lines[:_SHOWN]:
        note(line)
    if len(lines) > _SHOWN:
        note(f"... and {len(lines) - _SHOWN} more: -o json has them all")
