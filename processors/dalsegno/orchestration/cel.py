"""Conditions: CEL, of which only what has one outcome is taken. Pure.

The engine walks maps in an order that differs from process to process, so a macro may stand only over an input that
is a list; whatever could hide one is refused. So is any function but those of FUNCTIONS: none of them knows the time.
The engine shows no tree, only the names that an expression uses; the text is therefore read here as tokens, and what
was found is held against what the engine found.

The engine recurses, and overruns a small stack instead of raising: hence the limits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from typing import Any, Literal, TypeAlias

from cel import cel as engine

from dalsegno.errors import InvalidDocument
from dalsegno.model.naming import likely
from dalsegno.orchestration.canonical import INT64, fits_int64

ENGINE = f"common-expression-language/{version('common-expression-language')}"

Kind: TypeAlias = Literal["value", "list"]
Inputs: TypeAlias = Mapping[str, Kind]
"""The names that an expression may use. A list may be a field of another input: ``stage.verdicts``."""

FUNCTIONS = frozenset(
    {"size", "contains", "startsWith", "endsWith", "matches", "int", "uint", "double", "string", "has"}
)
MACROS = frozenset({"all", "exists", "exists_one", "map", "filter"})
MAX_TOKENS = 400
MAX_NESTING = 24
MAX_MACROS = 2
"""Within each other: each multiplies the work by the length of a list."""
_WORDS = frozenset({"true", "false", "null", "in"})
_TOKEN = re.compile(
    r"""
      (?P<blank> \s+ | //[^\n]* )
    | (?P<triple> [rRbB]{0,2} (?: \"{3} | '{3} ) )
    | (?P<text> [bB]?[rR] (?: "[^"\r\n]*" | '[^'\r\n]*' ) | [bB]? (?: "(?:[^"\\\r\n]|\\.)*" | '(?:[^'\\\r\n]|\\.)*' ) )
    | (?P<number> 0x[0-9a-fA-F]+u? | [0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?[uU]? | \.[0-9]+ )
    | (?P<name> [A-Za-z_][A-Za-z0-9_]* )
    | (?P<sign> && | \|\| | [=!<>]= | [-+*/%!<>?:.,()\[\]{}] )
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True)
class Outcome:
    """Of one evaluation. ``error``: what kind of error, in words that do not depend on the engine's; ``detail`` is
    the engine's own text, for people and never recorded."""

    value: Any = None
    error: str | None = None
    detail: str = ""


@dataclass(frozen=True)
class Expression:
    text: str
    inputs: Inputs
    _program: Any

    def evaluate(self, values: Mapping[str, Any]) -> Outcome:
        """Never raises. Every input must have a value; lists must be lists."""
        for name, kind in self.inputs.items():
            try:
                value = _at(values, name)
            except (KeyError, TypeError):
                return Outcome(error="an input is missing", detail=name)
            if kind == "list" and not isinstance(value, list | tuple):
                return Outcome(error="an input is no list", detail=name)
            if not fits_int64(value):
                return Outcome(error="an input does not fit", detail=name)
        return _run(self._program, dict(values))

    def holds(self, values: Mapping[str, Any]) -> Outcome:
        """The same, where a condition is meant: anything but a bool is an error."""
        outcome = self.evaluate(values)
        if outcome.error is None and not isinstance(outcome.value, bool):
            return Outcome(error="not a bool", detail=f"it gives {type(outcome.value).__name__}")
        return outcome


def compile(text: str, inputs: Inputs, *, where: str) -> Expression:
    """Raises InvalidDocument, which begins with ``where``: the place in a document."""
    try:
        return _compiled(text, tuple(sorted(inputs.items())))
    except _Refused as refused:
        found, wanted = refused.args
        todo = f"correct the expression: {text}"
        raise InvalidDocument(f"{where}: {found}", wanted=wanted, todo=todo, where=where, expression=text) from None


class _Refused(Exception):
    """What was found, what was wanted."""


@lru_cache(maxsize=4096)
def _compiled(text: str, sorted_inputs: tuple[tuple[str, Kind], ...]) -> Expression:
    inputs = dict(sorted_inputs)
    read = _Reading(text, inputs)
    try:
        program = engine.compile(text)
        uses = program.references()
    except BaseException as error:
        told = _first_line(_passed(error)).rpartition("ERROR: <input>:")[2].partition(" expecting ")[0]
        raise _Refused(f"the expression is no CEL ({told})", "an expression of CEL") from None
    functions = {name for name in uses["functions"] if name[0].isalpha()}  # operators are _&&_, @in, -_
    unknown = sorted((functions - FUNCTIONS) | (set(uses["variables"]) - read.bound - set(inputs)))
    if unknown:
        raise _Refused(f"the expression uses {unknown[0]!r}", likely(unknown[0], {*inputs, *FUNCTIONS}))
    if not uses["variables"]:
        outcome = _run(program, {})
        if outcome.error or not isinstance(outcome.value, bool):
            raise _Refused(f"the expression gives {outcome.error or outcome.value!r} whatever its inputs", "a bool")
    return Expression(text, inputs, program)


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str


_END = _Token("end", "")


class _Reading:
    """What the tokens of an expression tell: that its macros stand over lists, and its names are known where they
    stand. ``bound``: the variables of its macros."""

    def __init__(self, text: str, inputs: Inputs) -> None:
        self.inputs = inputs
        self.names = {name.split(".")[0] for name in inputs}
        self.bound: set[str] = set()
        self.tokens = list(self._tokens(text))
        if len(self.tokens) > MAX_TOKENS:
            raise _Refused(f"the expression has {len(self.tokens)} parts", f"at most {MAX_TOKENS}")
        self._walk()

    def _tokens(self, text: str) -> Iterator[_Token]:
        at = 0
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise _Refused(f"the expression has {text[at : at + 8]!r} at character {at + 1}", "CEL")
            at = match.end()
            if match.lastgroup == "triple":
                raise _Refused("the expression has a text in three quotes", "a text in one pair of quotes")
            if match.lastgroup != "blank":
                yield _Token(str(match.lastgroup), match.group())

    def _at(self, index: int) -> _Token:
        return self.tokens[index] if 0 <= index < len(self.tokens) else _END

    def _walk(self) -> None:
        scopes: list[set[str]] = []  # what each open bracket binds
        for index, token in enumerate(self.tokens):
            if token.text in ("(", "[", "{") and token.kind == "sign":
                before = self._at(index - 1)
                if token.text == "{" and before.kind == "name" and before.text not in _WORDS:
                    raise _Refused(f"the expression builds a {before.text}", "maps, lists and values")
                scopes.append({self._macro(index)} - {""})
                if sum(map(len, scopes)) > MAX_MACROS:
                    raise _Refused("macros stand within macros", f"at most {MAX_MACROS} within each other")
                if len(scopes) > MAX_NESTING:
                    raise _Refused("the expression is nested too deep", f"at most {MAX_NESTING} brackets")
            elif token.text in (")", "]", "}") and token.kind == "sign" and scopes:
                scopes.pop()
            elif token.kind == "name":
                self._name(index, scopes)

    def _name(self, index: int, scopes: list[set[str]]) -> None:
        name, called = self._at(index).text, self._at(index + 1).text == "("
        after_dot = self._at(index - 1).text == "."
        if called:
            if name not in FUNCTIONS | MACROS:
                raise _Refused(f"the expression calls {name!r}", likely(name, FUNCTIONS | MACROS))
            if name in MACROS and not after_dot:
                raise _Refused(f"{name!r} stands over nothing", f"list.{name}(each, ...)")
        elif not after_dot and name not in _WORDS | self.names and not any(name in scope for scope in scopes):
            raise _Refused(f"the expression uses {name!r}", likely(name, self.names))

    def _macro(self, bracket: int) -> str:
        """The variable that the macro whose arguments begin at this bracket binds; empty: it is no macro's."""
        macro = self._at(bracket - 1)
        if self._at(bracket).text != "(" or macro.kind != "name" or macro.text not in MACROS:
            return ""
        receiver = self._receiver(bracket - 2)
        if self.inputs.get(receiver) != "list":
            lists = ", ".join(sorted(name for name, kind in self.inputs.items() if kind == "list"))
            found = f"{macro.text!r} stands over {receiver or 'something that has no name'!r}, whose order is not fixed"
            raise _Refused(found, f"a list by its name: {lists or 'there is none here'}")
        variable = self._at(bracket + 1)
        if variable.kind != "name" or self._at(bracket + 2).text != ",":
            raise _Refused(f"{macro.text!r} names no variable", f"{receiver}.{macro.text}(each, ...)")
        if variable.text in self.names | _WORDS:
            raise _Refused(f"{macro.text!r} binds {variable.text!r}, which is an input", "another name")
        self.bound.add(variable.text)
        return variable.text

    def _receiver(self, dot: int) -> str:
        """The dotted name that ends before this dot; empty where it is anything but a name."""
        names: list[str] = []
        while self._at(dot).text == "." and self._at(dot - 1).kind == "name":
            names.insert(0, self._at(dot - 1).text)
            dot -= 2
        return "" if self._at(dot).text == "." else ".".join(names)


def _run(program: Any, values: dict[str, Any]) -> Outcome:
    try:
        value = program.execute(values)
    except BaseException as error:  # a panic of the engine is no Exception
        _passed(error)
        kind = next((words for type_, words in _KINDS if isinstance(error, type_)), "it cannot be evaluated")
        return Outcome(error=kind, detail=_first_line(error))
    if isinstance(value, int) and value not in INT64:
        return Outcome(error="overflow")
    return Outcome(value)


_KINDS = (
    (KeyError, "no such key"),
    (IndexError, "no such index"),
    (ZeroDivisionError, "division by zero"),
    (OverflowError, "overflow"),
    (TypeError, "types that do not go together"),
)


def _passed(error: BaseException) -> BaseException:
    """The error, unless it is a wish to end."""
    if isinstance(error, KeyboardInterrupt | SystemExit):
        raise error
    return error


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:300]


def _at(values: Mapping[str, Any], name: str) -> Any:
    value: Any = values
    for part in name.split("."):
        value = value[part]
    return value
