"""Data sets as folders: which sessions, splits and bytes; pairs, redaction, cards; and that others can read them."""

from __future__ import annotations

import gc
import json
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dalsegno.errors import Conflict, Failed, NegativeVerdict, NotFound, Usage
from dalsegno.log.redaction import RedactionRule, Redactor
from dalsegno.readers.datasets import build as building
from dalsegno.readers.datasets.build import SESSION, Form, build
from dalsegno.readers.datasets.choosing import Wanted
from dalsegno.readers.datasets.folder import CARD_JSON, CARD_MD, JSONL, PARQUET, read_folder
from dalsegno.readers.datasets.left_out import REASONS
from dalsegno.readers.datasets.splits import NAMES, Splits, parse_shares
from dalsegno.storage.blobs import Blobs
from dalsegno.testing.builder import Written, blob
from dataset_lab import Chat
from reader_lab import House
from recordings import recording_of, sessions_of, written_of

EVERYTHING = Wanted()
ALL_TRAIN = Splits((100, 0, 0))
Build = Callable[..., dict[str, Any]]


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with House(tmp_path / "house") as found:
        yield found


@pytest.fixture
def make(house: House, tmp_path: Path) -> Build:
    """Builds a data set of the house's sessions; all is in 'train' unless ``splits`` says otherwise."""

    def made(name: str = "set", wanted: Wanted = EVERYTHING, **form: Any) -> dict[str, Any]:
        form = {"splits": ALL_TRAIN, **form}
        return build(house.reader(), Blobs(house.store), wanted, Form(**form), tmp_path / name, lambda _: None)

    return made


def lines(folder: Path, split: str = "train") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / f"{split}.jsonl").read_text("utf-8").split("\n")[:-1]]


def chat(session_id: str, text: str = "go", answer: str = "a", verdict: str | None = None, **created: Any) -> Chat:
    made = Chat(session_id, **created).user(text).ask().answer(answer)
    return made if verdict is None else made.judge(verdict, "i1")


def records(*chats: Chat) -> list[Written]:
    return [record for each in chats for record in each.records]


def facts(data: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = data["provenance"]
    return found


# --- choosing and splitting -------------------------------------------------------------------------------------------


def test_sessions_are_chosen_by_what_they_are(house: House, make: Build, tmp_path: Path) -> None:
    label = [{"key": "team", "value": "data"}]
    done = chat("s-3", verdict="PASS", labels=label)
    done.add("SessionCompleted", outcome="SUCCESS")
    house.shard(records(chat("s-1", verdict="REJECT"), chat("s-2", workflow_name="other", labels=label), done))

    def of(name: str, **wanted: Any) -> list[str]:
        make(name, Wanted(**wanted))
        return [facts(row)["session"] for row in lines(tmp_path / name)]

    assert of("all") == ["s-1", "s-2", "s-3"]
    assert of("verdict", verdict="REJECT") == ["s-1"]
    assert of("status", status="COMPLETED") == ["s-3"]
    assert of("workflow", workflow="other") == ["s-2"]
    assert of("label", labels=(("team", "data"),)) == ["s-2", "s-3"]
    assert of("ids", ids=("s-3", "s-1", "s-3")) == ["s-1", "s-3"]
    assert of("limit", limit=2) == ["s-1", "s-3"], "those with the last events"
    with pytest.raises(NotFound, match="no session is chosen"):
        make("none", Wanted(labels=(("team", "data"), ("x", "y"))))
    with pytest.raises(NotFound, match="no session 's-9'"):
        make("none", Wanted(ids=("s-9",)))
    assert not (tmp_path / "none").exists()


def test_a_fork_is_in_the_split_of_its_parent_whatever_the_seed() -> None:
    for seed in range(50):
        splits = Splits((34, 33, 33), seed)
        for n in range(20):
            assert splits.of(f"s-{n}~fork") == splits.of(f"s-{n}")
    found = [Splits((50, 25, 25), 7).of(f"s-{n}") for n in range(2_000)]
    assert [round(found.count(name) / 2_000, 1) for name in NAMES] == [0.5, 0.2, 0.2]
    assert {Splits((100, 0, 0), seed).of("s") for seed in range(50)} == {"train"}


@pytest.mark.parametrize("text", ["80/20", "80/10/11", "80/-10/30", "a/b/c", "80/10/10/0", "", "1000/0/0", "²/0/98"])
def test_shares_that_are_none(text: str) -> None:
    with pytest.raises(Usage, match="--split"):
        parse_shares(text)


# --- the folder -------------------------------------------------------------------------------------------------------


def test_the_same_sessions_and_options_give_the_same_bytes(house: House, make: Build, tmp_path: Path) -> None:
    house.shard(records(*(chat(f"s-{n}", answer=f"a{n}") for n in range(12))))
    splits = Splits((50, 25, 25), 3)
    first, second = make("one", splits=splits), make("two", splits=splits)
    names = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert names == sorted([CARD_JSON, CARD_MD, *(f"{name}.jsonl" for name in NAMES)])
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    assert first == second == read_folder(tmp_path / "one")
    assert sum(split["rows"] for split in first["splits"].values()) == 12
    assert make("three", splits=Splits((50, 25, 25), 4))["digest"] != first["digest"]


def test_a_place_that_is_taken_stays_as_it_is(house: House, make: Build, tmp_path: Path) -> None:
    house.shard(records(chat("s-1")))
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "mine").write_text("x")
    (tmp_path / "file").write_text("x")
    for name in ("set", "file"):
        with pytest.raises(Conflict, match=r"not empty|a file"):
            make(name)
    assert (tmp_path / "set" / "mine").read_text() == "x"
    (tmp_path / "empty").mkdir()
    make("empty")
    assert lines(tmp_path / "empty")


def test_what_is_interrupted_leaves_nothing(
    house: House, make: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.shard(records(chat("s-1"), chat("s-2")))
    real, calls = building.rows_of, []

    def stopped(*arguments: Any, **options: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*arguments, **options)

    monkeypatch.setattr(building, "rows_of", stopped)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(KeyboardInterrupt):
        make("set")
    assert sorted(tmp_path.iterdir()) == before


def test_a_changed_file_is_found(house: House, make: Build, tmp_path: Path) -> None:
    house.shard(records(chat("s-1")))
    make("set")
    file = tmp_path / "set" / "train.jsonl"
    file.write_bytes(file.read_bytes() + b"{}\n")
    with pytest.raises(NegativeVerdict, match="is not what the card says"):
        read_folder(tmp_path / "set")
    file.unlink()
    with pytest.raises(NegativeVerdict, match="is missing"):
        read_folder(tmp_path / "set")
    for text in ("{}", "[", '{"dataset": 1, "splits": {"train": {"file": 1, "file_sha256": ""}}}'):
        (tmp_path / "set" / CARD_JSON).write_text(text)
        with pytest.raises(Failed, match="no card"):
            read_folder(tmp_path / "set")
    with pytest.raises(NotFound, match="holds no"):
        read_folder(tmp_path)


def test_the_card_says_what_was_left_out(house: House, make: Build, tmp_path: Path) -> None:
    house.shard(records(chat("s-1"), Chat("s-2").user("go").ask(), chat("s-3")))
    card = make("set", dedupe=True)
    assert (card["sessions"], card["left_out"]) == ({"chosen": 3, "with_rows": 2}, {"no-answer": 1, "duplicate": 1})
    text = (tmp_path / "set" / CARD_MD).read_text("utf-8")
    for reason in card["left_out"]:
        assert f"- 1 `{reason}`: {REASONS[reason]}" in text
    assert card["digest"] in text
    with pytest.raises(NotFound, match="left out: 1 no-answer"):
        make("none", Wanted(ids=("s-2",)))


def test_memory_does_not_grow_with_the_number_of_sessions(house: House, make: Build) -> None:
    house.shard(records(*(chat(f"s-{n:03}", text="x" * 10_000, verdict="PASS") for n in range(120))))

    def peak(name: str, count: int) -> int:
        gc.collect()
        tracemalloc.start()
        make(name, Wanted(limit=count), dedupe=True)
        _, found = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return found

    make("warm")
    few, many = peak("few", 10), peak("many", 120)
    assert many - few < 110 * 10_000 / 4, "less than a quarter of the texts of the sessions that there are more"


# --- redaction --------------------------------------------------------------------------------------------------------


def test_rules_are_applied_and_no_digest_of_what_was_taken_out_is_told(
    house: House, make: Build, tmp_path: Path
) -> None:
    secret = "sk-1234567890"
    label = [{"key": "owner", "value": secret}]
    told = Chat("s-1", labels=label).user(f"my key is {secret}").ask(request_digest=b"r" * 32)
    told.answer(f"thanks for {secret}", "i1", [("c0", "use", json.dumps({"key": secret}))]).result("c0", secret)
    house.shard(records(told, Chat("s-2").user("go").ask(request_digest=b"r" * 32).answer("a")))
    rules = Redactor([RedactionRule(name="key", pattern=r"sk-[0-9]+")])
    card = make("set", redact=rules)
    written = b"".join(path.read_bytes() for path in (tmp_path / "set").iterdir())
    assert secret.encode() not in written
    assert b"my key is [redacted:key]" in written
    first, second = lines(tmp_path / "set")
    assert [(facts(row)["redacted"], facts(row)["request_digest"]) for row in (first, second)] == [
        (True, None), (False, (b"r" * 32).hex()),
    ]  # fmt: skip
    assert (facts(first)["output_digest"], facts(second)["output_digest"] is None) == (None, False)
    assert card["redaction"]["rules"] == ["key"]
    assert "rules key (document" in (tmp_path / "set" / CARD_MD).read_text("utf-8")


def test_a_secret_that_cannot_be_taken_out_leaves_the_row_out(house: House, make: Build, tmp_path: Path) -> None:
    secret = "sk-1234567890"
    bad = Chat("s-1").user("go").ask().answer("", "i1", [(secret, "use", json.dumps({"key": secret}))])
    house.shard(records(bad.result(secret, "done").ask("i2").answer("b", "i2"), chat("s-2")))
    card = make("set", redact=Redactor([RedactionRule(name="key", pattern=r"sk-[0-9]+")]))
    assert card["left_out"] == {"not-redactable": 2}
    assert secret.encode() not in (tmp_path / "set" / "train.jsonl").read_bytes()


def test_contents_in_the_store_are_fetched_and_a_missing_one_leaves_the_row_out(
    house: House, make: Build, tmp_path: Path
) -> None:
    text = "y" * 70_000
    kept = Blobs(house.store).put(text)
    large = {name: getattr(kept, name) for name in kept.__struct_fields__}
    gone = {**blob(b"nowhere"), "inline": None, "uri": f"blob:{blob(b'nowhere')['digest'].hex()}"}
    one, two = Chat("s-1"), Chat("s-2")
    for each, content in ((one, large), (two, gone)):
        parts = [{"kind": "TEXT", "call_id": None, "name": None, "text": None, "blob": content}]
        each.add("MessageReceived", message_id="m", role="USER", parts=parts)
        each.ask().answer("a")
    house.shard(records(one, two))
    assert make("set", redact=Redactor([RedactionRule(name="key", pattern="zz")]))["left_out"] == {"content-missing": 1}
    assert lines(tmp_path / "set")[0]["messages"][0]["content"] == text


# --- pairs ------------------------------------------------------------------------------------------------------------


def sides(pair: dict[str, Any]) -> tuple[str, str]:
    return pair["chosen"][0]["content"], pair["rejected"][0]["content"]


def test_pairs_of_accepted_and_rejected_answers_to_one_context(house: House, make: Build, tmp_path: Path) -> None:
    house.shard(records(
        chat("s-1", answer="bad", verdict="REJECT"), chat("s-2", answer="good", verdict="PASS"),
        chat("s-3", answer="good", verdict="REJECT"), chat("s-4", "other", "good", "PASS"), chat("s-5"),
    ))  # fmt: skip
    card = make("set", pairs="verdict")
    (pair,) = lines(tmp_path / "set")
    assert sides(pair) == ("good", "bad")
    assert pair["prompt"] == [{"role": "user", "content": "go"}]
    assert (facts(pair)["pair"], facts(pair)["preferred_by"]) == ("verdict", "verdict")
    assert [facts(pair)[side]["session"] for side in ("chosen", "rejected")] == ["s-2", "s-1"]
    assert card["left_out"] == {"equal-answers": 1, "no-counterpart": 1, "no-verdict": 1}


def test_pairs_are_never_made_of_two_splits(house: House, make: Build) -> None:
    """One context, accepted here and rejected there: their splits differ, and what one learns the other tests."""
    splits = Splits((50, 50, 0))
    ids = [next(f"s-{n}" for n in range(99) if splits.of(f"s-{n}") == name) for name in NAMES[:2]]
    house.shard(records(chat(ids[0], verdict="PASS"), chat(ids[1], answer="b", verdict="REJECT")))
    with pytest.raises(NotFound, match="left out: 2 no-counterpart"):
        make("set", pairs="verdict", splits=splits)


def test_a_stage_that_was_tried_again_is_a_pair(house: House, make: Build, tmp_path: Path) -> None:
    told = Chat("s-1").user("go")
    for n, (verdict, text) in enumerate([("REJECT", "bad"), ("REJECT", "worse"), ("PASS", "good")], 1):
        meta = {"stage_id": f"plan.{n}", "turn_id": f"plan.{n}/t1"}
        told.ask(f"i{n}").answer(text, f"i{n}", meta=meta).judge(verdict, f"plan.{n}", f"v{n}").user("again", f"m{n}x")
    house.shard(told.records)
    card = make("set", pairs="verdict")
    found = lines(tmp_path / "set")
    assert [sides(pair) for pair in found] == [("good", "bad"), ("good", "worse")]
    assert [len(pair["prompt"]) for pair in found] == [1, 3]
    assert ({facts(pair)["pair"] for pair in found}, card["left_out"]) == ({"retry"}, {})


@pytest.mark.parametrize(
    ("recorded", "rerun", "expected"),
    [(None, None, ("old", "new", "recorded")), ("REJECT", "PASS", ("new", "old", "verdict")),
     ("PASS", "REJECT", ("old", "new", "verdict")), ("PASS", "PASS", ("old", "new", "recorded"))],
)  # fmt: skip
def test_pairs_of_recorded_and_rerun_answers(
    house: House, make: Build, tmp_path: Path, recorded: str | None, rerun: str | None, expected: tuple[str, ...]
) -> None:
    parent = Chat("s-1").user("go")
    fork = parent.fork("f").ask().answer("new")
    grandchild = parent.fork("g").user("else", "m2").ask().answer("newer")
    parent.ask().answer("old")
    for each, verdict in ((parent, recorded), (fork, rerun)):
        if verdict is not None:
            each.judge(verdict, "i1")
    house.shard(records(parent, fork, grandchild))
    card = make("set", pairs="rerun")
    (pair,) = lines(tmp_path / "set")
    assert (*sides(pair), facts(pair)["preferred_by"]) == expected
    assert card["left_out"] == {"no-counterpart": 1}, "the other fork's model saw something else"


# --- real recordings, and other readers -------------------------------------------------------------------------------


def imported(house: House, folder: str, name: str) -> None:
    house.shard(list(written_of(sessions_of(recording_of(folder, name)))))


def test_a_recorded_evaluation_is_a_row_a_sample(house: House, make: Build, tmp_path: Path) -> None:
    imported(house, "inspect-ai", "theory-of-mind.eval")
    card = make("set", Wanted(verdict="REJECT"))
    assert (card["sessions"], card["splits"]["train"]["rows"]) == ({"chosen": 17, "with_rows": 17}, 17)
    assert {facts(row)["verdict_of"] for row in lines(tmp_path / "set")} == {"answer"}


def test_a_recorded_agent_is_rows_with_tools_and_whole_pairs(house: House, make: Build, tmp_path: Path) -> None:
    imported(house, "inspect-ai", "browser.json")
    make("set")
    found = lines(tmp_path / "set")
    assert [len(row["messages"]) for row in found] == [2, 4, 6, 8, 10]
    assert [len(row["tools"]) for row in found] == [8] * 5
    assert [message["role"] for message in found[1]["messages"]] == ["user", "assistant", "tool", "assistant"]
    make("whole", unit=SESSION)
    assert lines(tmp_path / "whole") == found[-1:]


def test_both_forms_hold_the_same_rows(house: House, make: Build, tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    with_tools = Chat("s-1", labels=[{"key": "k", "value": "v"}]).user("go").ask()
    with_tools.answer("", "i1", [("c0", "ls", "{}")]).result("c0", "r").ask("i2").answer("b", "i2")
    house.shard(records(with_tools, *(chat(f"t-{n:03}") for n in range(300))))
    one, two = make("lines"), make("columns", format=PARQUET)
    assert one["digest"] == two["digest"]
    found = arrow.read_table(tmp_path / "columns" / "train.parquet").to_pylist()
    assert [{**_present(row), "tools": json.loads(row["tools"])} for row in found] == [
        _present(row) for row in lines(tmp_path / "lines")
    ]


def _present(data: Any) -> Any:
    """Without what is null: a column is there in every row."""
    if isinstance(data, dict):
        return {name: _present(value) for name, value in data.items() if value is not None}
    return [_present(each) for each in data] if isinstance(data, list) else data


@pytest.mark.parametrize("form", [JSONL, PARQUET])
def test_the_library_datasets_loads_them(
    house: House, make: Build, tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    datasets = pytest.importorskip("datasets", reason="the library datasets is not installed")
    imported(house, "inspect-ai", "browser.json")
    make("set", format=form)
    loaded = datasets.load_dataset(str(tmp_path / "set"), cache_dir=str(tmp_path / "cache"))["train"]
    assert len(loaded) == 5
    last = loaded[4]["messages"][-1]
    assert (last["role"], last["content"][:11]) == ("assistant", "The AI Secu")
    assert loaded[1]["messages"][1]["tool_calls"][0]["function"]["name"] == "web_browser_go"
    make("pairless", format=form, splits=Splits((0, 0, 100)))
    assert "test" in datasets.load_dataset(str(tmp_path / "pairless"), cache_dir=str(tmp_path / "cache"))
