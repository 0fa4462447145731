"""`dalsegno dataset build|show`: what they print, refuse and end with."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dalsegno.readers.datasets import parquet
from dataset_lab import Chat
from reader_lab import House

Say = Callable[..., tuple[str, str]]


@pytest.fixture(autouse=True)
def _session(house: House) -> None:
    house.shard(Chat("s-1").user("my key is sk-123456").ask().answer("a").judge("PASS", "i1").records)


def test_a_data_set_is_built_and_shown(say: Say, tmp_path: Path) -> None:
    target = tmp_path / "set"
    rules = tmp_path / "rules.json"
    rules.write_text(json.dumps({"redaction": 1, "rules": [{"name": "key", "pattern": "sk-[0-9]+"}]}))
    arguments = ["--verdict", "PASS", "--split", "100/0/0", "--redact", str(rules), "--output", str(target)]
    out, err = say("-o", "json", "dataset", "build", "s-", *arguments)
    assert "true at p.events:0@" in err
    assert json.loads(out) == json.loads((target / "card.json").read_text("utf-8"))
    assert json.loads(say("-o", "json", "dataset", "show", str(target))[0]) == json.loads(out)
    assert "[redacted:key]" in (target / "train.jsonl").read_text("utf-8")
    _, err = say("dataset", "build", *arguments, code=5)
    assert "is not empty" in err
    (target / "train.jsonl").write_text("")
    assert "is not what the card says" in say("dataset", "show", str(target), code=3)[1]


def test_people_read_lines(say: Say, tmp_path: Path) -> None:
    target = tmp_path / "set"
    out, _ = say("dataset", "build", "--split", "100/0/0", "--output", str(target))
    assert out == (target / "card.md").read_text("utf-8") == say("dataset", "show", str(target))[0]
    assert "1 rows from 1 of 1 chosen sessions" in out
    assert "{" not in out


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--label", "team"], 2, "KEY=VALUE"),
        (["--split", "80/10"], 2, "100 together"),
        (["--pairs", "verdict", "--unit", "session"], 2, "one of them"),
        (["--redact", "missing.json"], 4, "there is no file missing.json"),
        (["--verdict", "REJECT"], 4, "no session is chosen"),
        (["s-9"], 4, "no session 's-9'"),
        (["--pairs", "rerun"], 4, "no answer of theirs was asked for again"),
        (["--pairs", "rerun"], 4, "choose the forks too"),
    ],
)
def test_what_cannot_be_built_says_why_and_leaves_nothing(
    say: Say, tmp_path: Path, arguments: list[str], code: int, said: str
) -> None:
    before = sorted(tmp_path.iterdir())
    assert said in say("dataset", "build", *arguments, "--output", str(tmp_path / "set"), code=code)[1]
    assert sorted(tmp_path.iterdir()) == before


def test_a_missing_folder_above_is_told(say: Say, tmp_path: Path) -> None:
    assert "could not write" in say("dataset", "build", "--output", str(tmp_path / "no" / "set"), code=1)[1]


def test_without_the_extra_parquet_says_which_one_to_install(
    say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(parquet, "import_module", missing)
    _, err = say("dataset", "build", "--format", "parquet", "--output", str(tmp_path / "set"), code=2)
    assert "pip install 'dalsegno[service,dataset]'" in err
    assert not (tmp_path / "set").exists()
