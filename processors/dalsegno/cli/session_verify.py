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
from dalsegno.readers.proving import is_of_log, needs_audit, prove_export, prove_line, section_of

PROVEN, REFUTED, UNPROVEN = "proven", "refuted", "unproven"
_SHOWN = 20


@click.command(epilog="Example: dalsegno session verify s-1 --records s-1.jsonl")
@click.argument("session", shell_complete=complete_session)
@click.option("--records", metavar="FILE", help="Judge an export instead of the log; '-' is stdin.")
@pass_context
def verify(ctx: Context, session: str, records: str | None) -> None:
    """Prove a session (its whole id) by its hash chain: nothing was cut out, swapped, forged, stripped of its hash, or
    amended without a request in the admin audit; of a fork also what it takes over from its ancestors.

    That the end is missing shows only beside the end that this machine's shard, or the newest snapshot, knows. Exit
    code 0: proven; 3: refuted, and each doubt is named; 1: not everything could be looked into.
    """
    whole_id(session)
    with open_reader(ctx) as reader:
        view = _view(reader, session)
        if records is None:
            proofs, end = _of_log(ctx, session, view), "knows no later end"
        else:
            proof, view, end = _of_file(ctx, session, records, view)
            proofs = [proof]
        report = _report(proofs, view)
        # For people the lists are on stderr, a line each.
        counts = {name: len(report[name]) for name in ("doubts", "unproven")}
        emit(ctx, report | counts if ctx.output == "text" else report)
    _judge(proofs, view, end)


def _view(reader: LocalReader, session: str) -> View | None:
    """What here knows the session's end, if anything does."""
    try:
        return reader.of_session(session)
    except DalsegnoError as error:
        note(f"no shard and no snapshot here knows the session's end, so a cut tail cannot be seen: {error.found}")
        return None


def _of_log(ctx: Context, session: str, view: View | None) -> list[Proof]:
    audit = AdminAudit(audited_requests(ctx))
    with closing(KafkaTransport(ctx.kafka)) as transport, bars("verify") as show:
        return prove_line(transport, ctx.prefix, session, audit, view, Watch(show).progress)


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


def _report(proofs: Sequence[Proof], view: View | None) -> dict[str, Any]:
    """What the session's own records show, and the doubts about them and about what a fork takes over."""
    proof, *prefixes = proofs
    path = proof.path
    doubts = [{"session": each.session_id, **doubt._asdict()} for each in proofs for doubt in each.doubts]
    unproven = [_placed(proof, each, text) for each in proofs for text in each.unproven]
    return {
        "session": proof.session_id,
        "verdict": REFUTED if doubts else UNPROVEN if unproven else PROVEN,
        "records": proof.records,
        "path": path.head.seq,
        "head": path.head.hash,
        "held": None if path.held is None else f"{path.held.reason} at {path.held.seq}",
        "superseded": len(path.superseded),
        "amendments": proof.amendments,
        "goes_on_from": [each.session_id for each in prefixes],
        "end_known_by": None if view is None else f"{view.source}, {view.position}",
        "doubts": doubts,
        "unproven": unproven,
    }


def _placed(own: Proof, proof: Proof, text: str) -> str:
    """The text, with the session that it is about where that is not the one asked for."""
    return text if proof is own else f"{proof.session_id}: {text}"


def _judge(proofs: Sequence[Proof], view: View | None, end: str) -> None:
    own, *prefixes = proofs
    unproven = [_placed(own, proof, text) for proof in proofs for text in proof.unproven]
    doubts = [(proof, doubt) for proof in proofs for doubt in proof.doubts]
    _tell([f"not proven: {text}" for text in unproven])
    _tell(
        [
            f"{doubt.kind}: {_placed(own, proof, ('' if doubt.seq is None else f'seq {doubt.seq}: ') + doubt.text)}"
            for proof, doubt in doubts
        ]
    )
    if doubts:
        kinds = sorted({doubt.kind for _, doubt in doubts})
        raise HistoryRefuted(
            f"session {own.session_id}: {', '.join(kinds)}",
            wanted="every record, unchanged and in its place",
            todo="compare with an export or a snapshot of before; 'dalsegno session amend' accepts a loss",
            session=own.session_id,
            kinds=kinds,
            doubts=[doubt._asdict() for _, doubt in doubts],
        )
    if unproven:
        raise Failed(
            f"session {own.session_id}: not everything could be looked into: {unproven[0]}",
            wanted="records that this build can read",
            todo="publish the missing schema, or use a build that knows it",
            session=own.session_id,
        )
    if own.goes_on_from is not None and not prefixes:
        note(f"what it takes over from {own.goes_on_from[0]} is not in the file: prove that by its own id")
    also = f", with what it takes over from {', '.join(each.session_id for each in prefixes)}" if prefixes else ""
    note(f"proven up to seq {own.path.head.seq}{also}" + ("" if view is None else f"; {view.source} {end}"))


def _tell(lines: Sequence[str]) -> None:
    for line in lines[:_SHOWN]:
        note(line)
    if len(lines) > _SHOWN:
        note(f"... and {len(lines) - _SHOWN} more: -o json has them all")
