"""Python functions as tools: what the catalog says of them, and running their calls.

A function declares its effect with ``@tool``; the JSON Schema of its arguments comes from its annotations. A parameter
``idempotency_key`` is not the model's to give: it gets the key of the call, which is the same for every attempt.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, get_type_hints

import msgspec

from dalsegno.errors import Failed
from dalsegno.harness import loading
from dalsegno.orchestration.documents import Effect, Risk, ToolCatalog, ToolSpec
from dalsegno.orchestration.ports import ToolFailed, ToolResult, ToolRun

GROUP: Final = "dalsegno.tools"
RESULT_BYTES: Final = 1 << 20
"""Kept of a result unless told otherwise: far more than a model reads, far less than a record holds."""
_KEY: Final = "idempotency_key"


@dataclass(frozen=True)
class Tool:
    """A function, what is said of it, and the shape of its arguments. Calling it calls the function."""

    spec: ToolSpec
    function: Callable[..., Any]
    arguments: type[msgspec.Struct]
    takes_key: bool
    simulation: Callable[..., Any] | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


def tool(
    *,
    effect: Effect,
    risk: Risk = "UNKNOWN",
    idempotent: bool = False,
    timeout_seconds: int | None = None,
    name: str | None = None,
    version: str = "1",
    simulation: Callable[..., Any] | None = None,
) -> Callable[[Callable[..., Any]], Tool]:
    """Makes a function a tool; its docstring is what models are told. ``idempotent``: a call that is repeated with the
    same idempotency key has its effect once. ``simulation``: a function of the same arguments that answers without any
    effect. Raises Failed where a parameter has no annotation, or cannot be given by name."""

    def declare(function: Callable[..., Any]) -> Tool:
        arguments, takes_key = _arguments(function)
        spec = ToolSpec(
            name=name or function.__name__,
            description=inspect.getdoc(function) or "",
            parameters=_schema(arguments),
            effect=effect,
            risk=risk,
            version=version,
            idempotent=idempotent,
            timeout_seconds=timeout_seconds,
        )
        return Tool(spec, function, arguments, takes_key, simulation)

    return declare


class PythonTools:
    """Fills ``Tools`` with these. ``result_bytes``: what is kept of a longer result."""

    def __init__(self, tools: Iterable[Tool], *, name: str = "python", result_bytes: int = RESULT_BYTES) -> None:
        self.name = name
        self._result_bytes = result_bytes
        self._tools: dict[str, Tool] = {}
        for one in tools:
            if one.spec.name in self._tools:
                raise Failed(f"two tools {one.spec.name!r}", wanted="a name each", todo="rename one with @tool(name=…)")
            self._tools[one.spec.name] = one

    def catalog(self) -> ToolCatalog:
        return ToolCatalog(tools=[one.spec for one in self._tools.values()])

    def run(self, call: ToolRun) -> ToolResult:
        """An exception of the function is a result that says so: it ran, and failed. A function that knows better
        raises ToolFailed itself. After its time-out a call is given up, but a thread cannot be killed: the function may
        go on, and have its effect, behind the ToolFailed TIMEOUT that is raised."""
        one = self._tools.get(call.name)
        if one is None:
            raise ToolFailed("INFRA", f"{self.name} has no tool {call.name!r}", not_started=True)
        try:
            arguments = msgspec.structs.asdict(msgspec.json.decode(call.arguments or b"{}", type=one.arguments))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return replace(
                _error(f"{call.name} was not run, its arguments are wrong: {error}"), simulated=call.simulate
            )
        if call.simulate and one.simulation is None:
            neutral = f"{call.name} was not run: this call is simulated, and the tool has no simulation"
            return ToolResult(neutral.encode(), simulated=True)
        if one.takes_key and not call.simulate:
            arguments[_KEY] = call.idempotency_key
        function = one.simulation if call.simulate and one.simulation else one.function
        limit = one.spec.timeout_seconds if call.timeout_seconds is None else call.timeout_seconds
        result = _limited(lambda: _outcome(function, arguments), limit, call)
        return self._cut(replace(result, simulated=True) if call.simulate else result)

    def _cut(self, result: ToolResult) -> ToolResult:
        size = len(result.result)
        if size <= self._result_bytes:
            return result
        kept = result.result[: self._result_bytes]
        if result.media_type != "application/octet-stream":
            kept = kept.decode("utf-8", "ignore").encode()  # no half character
        media_type = "text/plain" if result.media_type == "application/json" else result.media_type
        original = max(size, result.original_bytes or 0)
        return replace(result, result=kept, media_type=media_type, original_bytes=original)


def load_tools(reference: str) -> list[Tool]:
    """``tools.py``: all tools of that file; ``module:name`` or ``file.py:name``: a tool, several, or a function that
    makes them; any other name: an entry point of the group ``dalsegno.tools``, of the same. Raises Failed, NotFound."""
    if reference.endswith(".py"):
        given: Any = [value for value in vars(loading.module(reference)).values() if isinstance(value, Tool)]
    elif loading.is_code(reference):
        given = loading.attribute(reference)
    else:
        given = loading.one_of(loading.installed(GROUP, {}), reference, GROUP, "tools")
    if callable(given) and not isinstance(given, Tool):
        given = given()
    tools = [given] if isinstance(given, Tool) else list(given) if isinstance(given, Iterable) else []
    if not tools or not all(isinstance(one, Tool) for one in tools):
        raise Failed(
            f"{reference} gives no tools",
            wanted="functions declared with @tool",
            todo="declare them as docs/harness.md shows",
            reference=reference,
        )
    return tools


def _arguments(function: Callable[..., Any]) -> tuple[type[msgspec.Struct], bool]:
    """The parameters as a struct that refuses others, and whether there is one for the idempotency key."""
    try:
        hints = get_type_hints(function, include_extras=True)
    except (NameError, TypeError) as error:
        raise Failed(
            f"tool {function.__name__}: its annotations cannot be read: {error}",
            wanted="types that can be named where the function is declared, outside of any function",
            todo="correct its annotations",
        ) from error
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    parameters = inspect.signature(function).parameters
    for one in parameters.values():
        by_name = one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY) and not one.name.startswith("_")
        if not by_name or one.name not in hints:
            raise Failed(
                f"tool {function.__name__}: its parameter {one} has no annotation or cannot be given by name",
                wanted="named parameters with annotations, none of them private",
                todo="annotate or rename it",
            )
        if one.name == _KEY:
            continue
        hint = hints[one.name]
        required = one.default is one.empty
        fields.append((one.name, hint) if required else (one.name, hint, _default(one.default)))
    shape = msgspec.defstruct(function.__name__, fields, kw_only=True, forbid_unknown_fields=True)
    return shape, _KEY in parameters


def _default(value: Any) -> Any:
    """What a call does to a mutable default must not show in the next call: each gets an own copy, of what it was when
    the tool was declared; who calls the function itself changes its default, as Python does."""
    if isinstance(value, list | dict | set):
        return msgspec.field(default_factory=partial(deepcopy, deepcopy(value)))
    return value


def _schema(arguments: type[msgspec.Struct]) -> dict[str, Any]:
    """The struct's schema, itself at the root; shapes that it uses stay below ``$defs``."""
    try:
        schema = msgspec.json.schema(arguments)
    except TypeError as error:
        raise Failed(
            f"tool {arguments.__name__}: {str(error).splitlines()[-1]}",
            wanted="parameters that JSON can hold",
            todo="change its annotations",
        ) from error
    shapes: dict[str, Any] = schema["$defs"]
    root: dict[str, Any] = shapes.pop(schema["$ref"].rpartition("/")[2])
    del root["title"]
    return {**root, "$defs": shapes} if shapes else root


def _limited(run: Callable[[], ToolResult], limit_seconds: float | None, call: ToolRun) -> ToolResult:
    if limit_seconds is None:
        return run()
    results: list[ToolResult] = []
    raised: list[BaseException] = []

    def work() -> None:
        try:
            results.append(run())
        except BaseException as error:  # carried over to who waits
            raised.append(error)

    thread = threading.Thread(target=work, name=f"tool-{call.tool_call_id}", daemon=True)
    thread.start()
    thread.join(limit_seconds)
    if raised:
        raise raised[0]
    if not results:
        raise ToolFailed("TIMEOUT", f"{call.name} gave no result in {limit_seconds:g} s; it may still be at work")
    return results[0]


def _outcome(function: Callable[..., Any], arguments: dict[str, Any]) -> ToolResult:
    try:
        value = function(**arguments)
        if inspect.iscoroutine(value):
            value = asyncio.run(value)
    except ToolFailed:
        raise
    except (Exception, SystemExit) as error:
        return _error(f"{type(error).__name__}: {error}")
    if isinstance(value, ToolResult):
        return value
    if value is None or isinstance(value, str):
        return ToolResult(_text(value or ""))
    if isinstance(value, bytes | bytearray | memoryview):
        return ToolResult(bytes(value), media_type="application/octet-stream")
    try:
        return ToolResult(msgspec.json.encode(value), media_type="application/json")
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        return _error(f"it ran, but returned a {type(value).__name__} that is no text, bytes or JSON: {error}")


def _error(message: str) -> ToolResult:
    return ToolResult(_text(message), "ERROR")


def _text(value: str) -> bytes:
    """UTF-8; what UTF-8 cannot hold (half of a surrogate pair) stays readable."""
    return value.encode("utf-8", "backslashreplace")
