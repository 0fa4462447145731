"""Python functions as tools: what a model is told of them, and what becomes of a call."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest

from dalsegno.errors import Failed, NotFound
from dalsegno.harness import loading
from dalsegno.harness.tools import PythonTools, Tool, load_tools, tool
from dalsegno.orchestration.ports import ToolFailed, ToolResult, ToolRun


class Place(msgspec.Struct):
    x: int
    y: int


def run(one: Tool, arguments: Any = None, *, result_bytes: int = 1000, **more: Any) -> ToolResult:
    given = arguments if isinstance(arguments, bytes) else json.dumps(arguments or {}).encode()
    call = ToolRun("s", "c0", 1, one.spec.name, given, "key-1", **more)
    return PythonTools([one], result_bytes=result_bytes).run(call)


@tool(effect="WRITE", risk="HIGH", idempotent=True, timeout_seconds=5, version="3")
def move(
    to: Place,
    speed: Annotated[int, msgspec.Meta(description="mm/s", ge=1)] = 10,
    mode: Literal["fast", "slow"] = "slow",
    tags: list[str] = [],  # noqa: B006 - a tool's default is copied for each call
    *,
    idempotency_key: str,
) -> dict[str, Any]:
    """Moves the arm.

    Slowly."""
    tags.append("seen")
    return {"x": to.x, "speed": speed, "mode": mode, "tags": tags, "key": idempotency_key}


def test_the_catalog_tells_what_the_signature_and_the_docstring_say() -> None:
    (spec,) = PythonTools([move]).catalog().tools
    assert (spec.name, spec.description) == ("move", "Moves the arm.\n\nSlowly.")
    assert (spec.effect, spec.risk, spec.idempotent, spec.timeout_seconds, spec.version) == (
        "WRITE",
        "HIGH",
        True,
        5,
        "3",
    )
    parameters = spec.parameters
    assert (parameters["type"], parameters["required"], parameters["additionalProperties"]) == ("object", ["to"], False)
    assert parameters["properties"]["speed"] == {"type": "integer", "description": "mm/s", "minimum": 1, "default": 10}
    assert "idempotency_key" not in parameters["properties"]
    assert parameters["properties"]["to"]["$ref"] == "#/$defs/Place"
    assert parameters["$defs"]["Place"]["required"] == ["x", "y"]


def test_a_call_gets_its_arguments_and_its_key_and_an_own_copy_of_defaults() -> None:
    move(Place(0, 0), idempotency_key="called as the function that it is")
    for _ in range(2):
        result = run(move, {"to": {"x": 1, "y": 2}, "mode": "fast"})
        assert (result.status, result.media_type, result.simulated) == ("OK", "application/json", False)
        assert json.loads(result.result) == {"x": 1, "speed": 10, "mode": "fast", "tags": ["seen"], "key": "key-1"}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (b"{", "truncated"),
        (b"[]", "Expected `object`"),
        (b'{"to": {"x": 1}}', "missing required field `y` - at `$.to`"),
        (b'{"to": {"x": 1, "y": 2}, "speed": 0}', "$.speed"),
        (b'{"to": {"x": 1, "y": 2}, "idempotency_key": "mine"}', "unknown field `idempotency_key`"),
        (b"\xff\xfe", "wrong"),
    ],
)
def test_wrong_arguments_are_an_error_that_the_model_reads(arguments: bytes, says: str) -> None:
    result = run(move, arguments)
    assert (result.status, result.media_type) == ("ERROR", "text/plain")
    assert result.result.startswith(b"move was not run, its arguments are wrong")
    assert says in result.result.decode()


def returning(value: Any) -> Tool:
    def give() -> Any:
        return value

    return tool(effect="READ")(give)


@pytest.mark.parametrize(
    ("value", "result", "media_type"),
    [
        ("grüezi", "grüezi".encode(), "text/plain"),
        ("half \ud800", b"half \\ud800", "text/plain"),
        (None, b"", "text/plain"),
        (b"\x00\xff", b"\x00\xff", "application/octet-stream"),
        ([1, {"a": None}], b'[1,{"a":null}]', "application/json"),
        (Place(1, 2), b'{"x":1,"y":2}', "application/json"),
        (ToolResult(b"r", exit_code=3), b"r", "text/plain"),
    ],
)
def test_what_a_function_returns_becomes_bytes(value: Any, result: bytes, media_type: str) -> None:
    got = run(returning(value))
    assert (got.result, got.media_type, got.status, got.original_bytes) == (result, media_type, "OK", None)


def test_a_value_that_json_cannot_hold_is_an_error_of_a_call_that_ran() -> None:
    endless: list[Any] = []
    endless.append(endless)
    for value in (object(), endless):
        got = run(returning(value))
        assert got.status == "ERROR"
        assert got.result.startswith(b"it ran, but returned a ")


def raising(error: BaseException) -> Tool:
    @tool(effect="WRITE")
    def fail() -> None:
        raise error

    return fail


@pytest.mark.parametrize("timeout", [None, 30.0])
def test_an_exception_is_a_result_and_what_the_tool_knows_goes_through(timeout: float | None) -> None:
    got = run(raising(ValueError("no such file")), timeout_seconds=timeout)
    assert (got.status, got.result) == ("ERROR", b"ValueError: no such file")
    assert run(raising(SystemExit(2)), timeout_seconds=timeout).result == b"SystemExit: 2"
    with pytest.raises(ToolFailed, match="sent, no reply") as known:
        run(raising(ToolFailed("UNKNOWN_OUTCOME", "sent, no reply")), timeout_seconds=timeout)
    assert known.value.reason == "UNKNOWN_OUTCOME"
    with pytest.raises(KeyboardInterrupt):
        run(raising(KeyboardInterrupt()), timeout_seconds=timeout)


def test_a_call_is_given_up_after_its_time_and_says_that_it_may_go_on() -> None:
    release, ended = threading.Event(), threading.Event()

    @tool(effect="WRITE", timeout_seconds=60)
    def hang() -> None:
        release.wait(30)
        ended.set()

    with pytest.raises(ToolFailed, match=r"hang gave no result in 0\.05 s; it may still be at work") as late:
        run(hang, timeout_seconds=0.05)
    assert (late.value.reason, late.value.not_started) == ("TIMEOUT", False)
    release.set()
    assert ended.wait(10), "the thread goes on: that is why the outcome is unknown"


def test_the_time_limit_of_the_declaration_holds_where_the_call_gives_none() -> None:
    names: list[str] = []

    @tool(effect="READ", timeout_seconds=30)
    def where() -> None:
        names.append(threading.current_thread().name)

    run(where)
    assert names == ["tool-c0"], "in a thread of its own, that can be left behind"


def test_what_a_call_does_to_a_default_does_not_show_in_the_next() -> None:
    @tool(effect="READ")
    def grow(rows: list[list[int]] = [[1]]) -> list[list[int]]:  # noqa: B006 - that is the point
        rows[0].append(2)
        return rows

    assert [run(grow).result for _ in range(2)] == [b"[[1,2]]"] * 2


def test_an_async_function_is_awaited() -> None:
    @tool(effect="READ")
    async def later() -> str:
        return "done"

    assert run(later).result == b"done"


@pytest.mark.parametrize(
    ("value", "limit", "kept", "media_type", "original"),
    [
        ("ü" * 10, 5, "üü".encode(), "text/plain", 20),
        (b"\xff" * 10, 5, b"\xff" * 5, "application/octet-stream", 10),
        ([1, 2, 3], 4, b"[1,2", "text/plain", 7),
        (ToolResult(b"123456", original_bytes=99), 4, b"1234", "text/plain", 99),
        ("12345", 5, b"12345", "text/plain", None),
    ],
)
def test_a_long_result_is_cut_and_says_how_long_it_was(
    value: Any, limit: int, kept: bytes, media_type: str, original: int | None
) -> None:
    got = run(returning(value), result_bytes=limit)
    assert (got.result, got.media_type, got.original_bytes) == (kept, media_type, original)


def test_a_simulated_call_never_runs_the_function() -> None:
    ran: list[str] = []

    def pretend(to: str) -> str:
        return f"would send to {to}"

    @tool(effect="EXTERNAL", simulation=pretend)
    def send(to: str, idempotency_key: str) -> str:
        ran.append(idempotency_key)
        return f"sent to {to}"

    @tool(effect="EXTERNAL")
    def bare() -> None:
        ran.append("bare")

    got = run(send, {"to": "ann"}, simulate=True)
    assert (got.result, got.simulated, got.status) == (b"would send to ann", True, "OK")
    neutral = run(bare, simulate=True)
    assert (neutral.simulated, neutral.status) == (True, "OK")
    assert neutral.result == b"bare was not run: this call is simulated, and the tool has no simulation"
    assert run(send, {"to": 1}, simulate=True).simulated
    assert ran == []


def test_a_tool_that_is_not_there_surely_had_no_effect() -> None:
    with pytest.raises(ToolFailed, match="no tool 'gone'") as failed:
        PythonTools([move]).run(ToolRun("s", "c0", 1, "gone", b"{}", "k"))
    assert (failed.value.reason, failed.value.not_started) == ("INFRA", True)


def test_a_declared_function_is_still_a_function() -> None:
    assert move(Place(1, 2), idempotency_key="k")["key"] == "k"


def unannotated(path) -> str:  # type: ignore[no-untyped-def]
    return str(path)


def many(*paths: str) -> str:
    return "".join(paths)


def foreign(check: Callable[[], None]) -> None:
    check()


def unknown(path: Nowhere) -> str:  # type: ignore[name-defined]  # noqa: F821
    return str(path)


def private(_path: str) -> str:
    return _path


@pytest.mark.parametrize("function", [unannotated, many, foreign, unknown, private])
def test_a_signature_that_no_schema_can_say_is_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(Failed, match=f"tool {function.__name__}"):
        tool(effect="READ")(function)


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(Failed, match="two tools 'move'"):
        PythonTools([move, move])


FILE = """
from __future__ import annotations
from dalsegno.harness.tools import tool
from msgspec import Struct

class Where(Struct):
    path: str

@tool(effect="READ")
def look(at: Where) -> str:
    "Looks."
    return at.path

@tool(effect="READ", name="listen")
def hear() -> str:
    return "{name}"

several = [look, hear]
nothing = 3

def make():
    return several
"""


def test_tools_are_loaded_from_a_file_by_name_or_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "tools.py").write_text(FILE.replace("{name}", folder))
    here, there = (str(tmp_path / folder / "tools.py") for folder in ("a", "b"))
    assert [one.spec.name for one in load_tools(here)] == ["look", "listen"]
    assert [load_tools(path)[1]() for path in (here, there)] == ["a", "b"]
    assert [one.spec.name for one in load_tools(f"{here}:look")] == ["look"]
    assert [one.spec.name for one in load_tools(f"{here}:make")] == ["look", "listen"]
    monkeypatch.syspath_prepend(str(tmp_path / "a"))
    sys.modules.pop("tools", None)
    assert [one.spec.name for one in load_tools("tools:several")] == ["look", "listen"]
    sys.modules.pop("tools", None)
    for wrong, says in (("nothing", "gives no tools"), ("missing", "has no 'missing'")):
        with pytest.raises(Failed, match=says):
            load_tools(f"{here}:{wrong}")


@pytest.mark.parametrize("text", ["raise SystemExit('no')", "import nowhere_at_all", "def ("])
def test_a_file_that_does_not_load_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "tools.py"
    path.write_text(text)
    with pytest.raises(Failed, match=r"tools\.py does not load"):
        load_tools(str(path))
    with pytest.raises(Failed, match=r"gone\.py does not load"):
        load_tools(str(tmp_path / "gone.py"))


def made() -> list[Tool]:
    return [move]


def test_tools_of_other_packages_come_by_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [EntryPoint("arm", f"{__name__}:made", "dalsegno.tools"), EntryPoint("m", f"{__name__}:move", "g")]
    monkeypatch.setattr(loading, "entry_points", lambda group: entries if group == "dalsegno.tools" else [])
    assert load_tools("arm") == [move]
    assert load_tools("m") == [move]
    with pytest.raises(NotFound, match="no tools 'leg'; wanted: one of arm, m"):
        load_tools("leg")
    for wrong, says in (("nowhere_at_all:x", "ModuleNotFoundError"), (f"{__name__}:FILE", "gives a str")):
        entries[:] = [EntryPoint("arm", wrong, "dalsegno.tools")]
        with pytest.raises(Failed, match=says):
            load_tools("arm")
    entries[:] = [EntryPoint("arm", f"{__name__}:made", "dalsegno.tools")] * 2
    with pytest.raises(Failed, match="a second 'arm'"):
        load_tools("arm")
