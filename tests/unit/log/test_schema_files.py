"""The schema files themselves: the check, the release lock, ``dalsegno schema``, and what importing events loads."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dalsegno import events
from dalsegno.errors import SchemaIncompatible, SchemaUnknown
from dalsegno.log import codec
from dalsegno.log.release import check_folder, release_lock
from dalsegno.log.schema_set import SchemaSet, WriterSchema, closed, schema_folder, shared_types
from dalsegno.model import path
from dalsegno.model.catalogue import CATALOGUE
from dalsegno.projections import rows

SERVICE = {"aiohttp", "avro", "click", "faust", "pydantic", "rich", "rocksdict", "structlog", "confluent_kafka"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the schemas that a test may damage."""
    return Path(shutil.copytree(schema_folder(), tmp_path / "schemas"))


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **changes}), "utf-8")


def found(folder: Path) -> list[str]:
    return [str(problem) for problem in check_folder(folder).problems]


def test_the_shipped_schemas_are_fit() -> None:
    report = check_folder(schema_folder())
    assert report.problems == []
    assert report.released == len(json.loads((schema_folder() / "released.json").read_text("utf-8"))["released"])


def test_catalogue_classes_and_schemas_name_the_same_types() -> None:
    schemas = SchemaSet.load()
    types = {writer.type for writer in schemas if writer.is_event}
    assert types == set(CATALOGUE) == set(events.EVENT_CLASSES)
    assert len(types) == 62
    for type_, info in CATALOGUE.items():
        writer, cls = schemas.event(type_), events.EVENT_CLASSES[type_]
        names = [field["name"] for field in writer.schema["fields"]]
        assert info.fields == set(names)
        assert (info.version, info.cls) == (writer.version, writer.schema["class"]) == (cls.VERSION, cls.CLASS)
        assert list(cls.__struct_fields__) == names[1:]
    assert {info.name for info in CATALOGUE.values() if info.cls == "C"} == {"HistoryAmended"}


def test_rows_have_the_fields_of_their_schemas() -> None:
    for writer in SchemaSet.load():
        if writer.name.startswith("dalsegno.row."):
            row = getattr(rows, writer.name.rpartition(".")[2])
            assert list(row.__struct_fields__) == [field["name"] for field in writer.schema["fields"]]


def test_a_released_file_is_locked(folder: Path) -> None:
    path = folder / "events" / "TimerFired.v1.avsc"
    schema = json.loads(path.read_text("utf-8"))
    writer = WriterSchema(closed(schema, shared_types()))
    entry = {"file": "events/TimerFired.v1.avsc", "release": "1.0", "locks": {writer.name: release_lock(writer)}}
    (folder / "released.json").write_text(json.dumps({"released": [entry]}), "utf-8")
    assert found(folder) == []
    edit(path, doc="Another text.")
    assert found(folder) == [], "docs may be improved"
    schema["fields"][1]["default"] = ""
    edit(path, fields=schema["fields"])
    assert any("has changed" in problem for problem in found(folder)), (
        "a default enters no canonical form, but the lock"
    )
    path.unlink()
    assert any("is gone" in problem for problem in found(folder))


def test_a_new_version_is_compared_with_the_one_before(folder: Path) -> None:
    old = json.loads((folder / "events" / "TimerFired.v1.avsc").read_text("utf-8"))
    meta, timer = {"name": "meta", "type": "dalsegno.event.v1.Meta"}, old["fields"][1]
    added = {"name": "after_ms", "type": ["null", "long"], "default": None}
    path = folder / "events" / "TimerFired.v2.avsc"
    path.write_text("{}", "utf-8")
    new = {**old, "namespace": "dalsegno.event.v2"}
    edit(path, **{**new, "fields": [meta, timer, added]})
    assert found(folder) == []
    edit(path, fields=[meta, added])
    assert any("timer" in problem and "gone" in problem for problem in found(folder))


@pytest.mark.parametrize(
    ("file", "changes", "said"),
    [
        ("events/TimerFired.v1.avsc", {"class": "Z"}, "class"),
        ("events/TimerFired.v1.avsc", {"name": "TimerRang"}, "is named"),
        ("topics/AdminAction.v1.avsc", {"namespace": "dalsegno.topic.v2"}, "does not end with"),
        ("events/TimerFired.v1.avsc", {"fields": [{"name": "timer", "type": "string"}]}, "is meta"),
        ("events/TimerFired.v1.avsc", {"fields": "none"}, "does not parse"),
        ("topics/AdminAction.v1.avsc", {"fields": [{"name": "x", "type": "double"}]}, "float"),
        ("topics/AdminAction.v1.avsc", {"fields": [{"name": "x", "type": ["string", "null"]}]}, "nullable"),
        (
            "topics/AdminAction.v1.avsc",
            {"fields": [{"name": "x", "type": {"type": "map", "values": "string"}}]},
            "map",
        ),
        (
            "topics/AdminAction.v1.avsc",
            {"fields": [{"name": "x", "type": {"type": "enum", "name": "E", "symbols": ["A"], "default": "A"}}]},
            "UNKNOWN",
        ),
    ],
)
def test_the_check_names_what_is_wrong(folder: Path, file: str, changes: dict[str, Any], said: str) -> None:
    edit(folder / file, **changes)
    assert any(said in problem for problem in found(folder)), found(folder)


# --- dalsegno schema --------------------------------------------------------------------------------------------------


def run(*args: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-c", "from dalsegno.cli import main; main()", *args],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, done.stdout, done.stderr


def test_schema_list_check_and_export(folder: Path, tmp_path: Path) -> None:
    code, out, _ = run("-o", "json", "schema", "list")
    listed = {row["name"]: row for row in json.loads(out)}
    assert (code, len(listed)) == (0, len(SchemaSet.load()))
    code, out, err = run("-o", "json", "schema", "check")
    assert (code, json.loads(out)["problems"]) == (0, [])
    assert ("no schema is released yet" in err) == (json.loads(out)["released"] == 0)
    edit(folder / "events" / "TimerFired.v1.avsc", **{"class": "Z"})
    code, out, err = run("schema", "check", "--folder", str(folder))
    assert code == SchemaIncompatible.exit_code
    assert "TimerFired" in err
    code, out, _ = run("schema", "export", "TimerFired")
    assert SchemaSet().add(out).frame_id.hex() == listed["dalsegno.event.v1.TimerFired"]["frame_id"]
    code, _, _ = run("schema", "export", "--to", str(tmp_path / "out"))
    written = sorted((tmp_path / "out").glob("*.avsc"))
    assert {SchemaSet().add(path.read_bytes()).name for path in written} == set(listed)
    assert run("schema", "export", "NoSuchType")[0] == SchemaUnknown.exit_code


def test_names_find_schemas() -> None:
    schemas = SchemaSet.load()
    names = ("Snapshot", "dalsegno.topic.Snapshot", "dalsegno.topic.v1.Snapshot")
    assert len({schemas.named(name) for name in names}) == 1
    with pytest.raises(SchemaUnknown):
        schemas.event("Snapshot")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '"string"', '{"type":"record"}', '{"type":"record","name":"a.B"}', "7"]
)
def test_what_is_no_record_schema_is_refused(text: str) -> None:
    with pytest.raises(SchemaIncompatible):
        SchemaSet().add(text)


@pytest.mark.parametrize("module", ["dalsegno.events", "dalsegno.log.codec", "dalsegno.projections.rows"])
def test_writing_events_loads_no_service_package(module: str) -> None:
    script = f"import sys, {module}; print(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert SERVICE.isdisjoint(done.stdout.split())


# --- the contract -----------------------------------------------------------------------------------------------------


def test_the_contract_lists_every_type_record_and_reason() -> None:
    text = (schema_folder() / "README.md").read_text("utf-8")
    for writer in SchemaSet.load():
        short = writer.name.rpartition(".")[2]
        if writer.is_event:
            assert f"| `{short}` | {writer.schema['class']} | {writer.schema['doc']} |" in text
        elif writer.name.startswith("dalsegno.topic."):
            assert f"| `{short}` |" in text
    reasons = {name for name in dir(codec) if name.isupper() and getattr(codec, name) == name}
    reasons |= {value for name, value in vars(path).items() if name.isupper() and value == name}
    assert {"WRONG_HASH", "UNDECODABLE", "GAP", "PARENT_MISSING"} <= reasons
    for reason in reasons:
        assert f"`{reason}`" in text, reason


def test_which_schemas_are_current_is_worked_out_once_for_all_that_are_shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every publisher, inbox and reader loads them."""
    worked_out: list[int] = []
    note = SchemaSet._note_current
    monkeypatch.setattr(SchemaSet, "_note_current", lambda self: (worked_out.append(len(self)), note(self)))
    found = SchemaSet.load()
    assert worked_out == [len(found)]
    assert {each.name for each in found.current.values()} == {each.name for each in found if each.is_event}
