"""Writes docs/fidelity.md from the reports of importing every shared recording.

With ``--check`` it only says whether the page is as it must be. The recordings are no part of the repository:
``tests/recordings.py`` says where they are looked for.
"""

from __future__ import annotations

import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

TARGET = Path(__file__).with_name("fidelity.md")
sys.path.insert(0, str(TARGET.parents[1] / "tests"))

from dalsegno.importers.registry import IMPORTERS  # noqa: E402
from dalsegno.replay.observed import Observed, check_observed  # noqa: E402
from recordings import MISSING, Recording, events_of, recordings, records_of, report_of, sessions_of  # noqa: E402

HEAD = """# How faithful imports are

What `dalsegno import` makes of recordings of other harnesses, written by `docs/make_fidelity.py` from the reports that
every import gives (`-o json`, under `report`). What a recording does not say is left out, never invented.

- **records**: native records read, each of which is one of the next five: **mapped** to events of their own kind, kept
  whole as **notes** (`NoteRecorded`), **repeats** of a record that was there already, **left out** because they say
  nothing of the session, **waiting** for what follows in a file that may still grow.
- **events**: made of them, and how many of these were *concluded*: the recording does not hold them, but they follow
  from what it holds (a call that has a result was started). They carry `origin.synthesized`.
- **not carried**: fields or parts of the file that no event holds. **Unknown**: what no event can say, since the
  recording does not.
- **replay**: projection-only is always possible. *Inference-skipping* takes the recorded answers; *full* would ask the
  models again and needs context packs; *simulation* would decide again, but workflow and policies of the recording are
  another harness's.

"""
_COLUMNS = (
    "file", "sessions", "records", "mapped", "notes", "repeats", "left out", "waiting", "events (concluded)",
    "not carried", "unknown", "replay",
)  # fmt: skip
_NOTHING = "-"

DECISIONS = """
## Decisions

What a check of each file's decisions by `dalsegno replay run --mode inference-skipping` comes to. **Equal** and
**different**: the call that a harness recorded, and the one in the model's answer that it recorded beside it.
**Derived**: the importer made both of one native record, so there is no second one to compare with. **Not comparable**:
the decision rests on a document of another harness, or on what was not recorded.

"""
_DECIDED = ("file", "decisions", "compared", "equal", "different", "derived", "not comparable", "because")


def page() -> str:
    found = [recording for recording in recordings() if recording.format in IMPORTERS]
    lines = [_row(_COLUMNS), _row(["---"] * len(_COLUMNS))]
    lines += [_row(_summary(recording)) for recording in found]
    lines += DECISIONS.splitlines()
    lines += [_row(_DECIDED), _row(["---"] * len(_DECIDED))]
    lines += [_row(_decided(recording)) for recording in found]
    for name in sorted({recording.format for recording in found}):
        lines += ["", f"## {name}", "", f"{IMPORTERS[name].about} · mapping version {IMPORTERS[name].mapping_version}"]
        for recording in found:
            if recording.format == name:
                lines += ["", f"**{recording.name}**", "", *_details(report_of(recording)), _bytes(recording)]
    return HEAD + "\n".join(lines) + "\n"


def _summary(recording: Recording) -> list[str]:
    report = report_of(recording)
    parts = ("read", "mapped", "kept_as_notes", "repeated", "skipped", "waiting")
    modes = [mode for mode, said in report["replay_modes"].items() if said == "yes" or said.startswith("yes:")]
    return [
        recording.name,
        str(len(sessions_of(recording))),
        *(str(report[f"records_{part}"]) for part in parts),
        f"{report['events_made']} ({sum(report['events_concluded'].values())})",
        str(sum(report["not_carried"].values())),
        str(len(report["lacks"])),
        ", ".join(modes),
    ]


def _decided(recording: Recording) -> list[str]:
    result = Observed()
    for events in events_of(recording):
        check_observed(events, result)
    return [
        recording.name,
        *(str(n) for n in (result.decisions, result.compared, result.equal, result.different, result.derived)),
        str(sum(result.not_comparable.values())),
        _counted(dict(sorted(result.not_comparable.items()))),
    ]


def _details(report: dict[str, Any]) -> list[str]:
    told = [
        ("records", _counted(report["records"])),
        ("events", _counted(report["events"])),
        ("concluded", _counted(report["events_concluded"])),
        ("notes", _counted(report["notes"])),
        ("of types that are not known", _counted(report["unknown_types"])),
        ("left out", _counted(report["skipped"])),
        ("waiting", _counted(report["waiting"])),
        ("not carried", _counted(report["not_carried"])),
        ("unknown", _counted(report["lacks"])),
        ("warnings", "; ".join(report["warnings"])),
        *((f"{mode} replay", report["replay_modes"][mode]) for mode in ("inference-skipping", "full")),
    ]
    return [f"- {name}: {_safe(text)}" for name, text in told if text]


def _bytes(recording: Recording) -> str:
    """Names every byte that the import makes: another mapping of the same file shows here."""
    records = records_of(sessions_of(recording))
    digest = sha256(b"".join(record.key.encode() + b"\0" + record.value for record in records))
    return f"- keys and values: SHA-256 {digest.hexdigest()[:16]}"


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())


def _safe(text: str) -> str:
    return text.replace("<", "&lt;").replace("|", "\\|")


def _row(cells: Any) -> str:
    return "| " + " | ".join(_safe(str(cell)) or _NOTHING for cell in cells) + " |"


def main() -> int:
    if not recordings():
        print(MISSING, file=sys.stderr)
        return 1
    text = page()
    if "--check" in sys.argv[1:]:
        if not TARGET.exists() or TARGET.read_text("utf-8") != text:
            print(f"{TARGET.name} is not what the imports say; run: python docs/make_fidelity.py", file=sys.stderr)
            return 1
        return 0
    TARGET.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
