"""Small changes of a module's source, one at a time: what a careless hand might do to it.

Changed are comparisons, boolean and arithmetic operators, conditions, numbers, names in tables and comparisons, what
is returned, and whether a statement is there at all. Left alone: docs, types, the words of error messages.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

_COMPARE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitOr, ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}  # fmt: skip
_WORDS = {"wanted", "todo"}
"""Keywords of errors; what stands in a call with one of them is told to people."""


class Mutant(NamedTuple):
    """One change. ``function`` is the qualified name of the outermost function it lies in; "" for the module itself."""

    path: str
    line: int
    function: str
    change: str
    source: str


class _Site(NamedTuple):
    node: ast.AST
    parents: tuple[ast.AST, ...]


def mutants_of(path: str, text: str) -> Iterator[Mutant]:
    """All mutants of a module, in the order of its lines."""
    tree = ast.parse(text)
    for site in list(_sites(tree, ())):
        for kind in range(_kinds(site)):
            touched = [site.node, *site.parents[-1:]]
            before = [(each, {name: _kept(value) for name, value in vars(each).items()}) for each in touched]
            function = _function(site)
            said = _apply(site, kind)
            if said is not None:
                source = ast.unparse(ast.fix_missing_locations(tree))
                yield Mutant(path, _line(site), function, said, source)
            for each, fields in before:
                vars(each).update(fields)


def _line(site: _Site) -> int:
    return next(each.lineno for each in (site.node, *site.parents[::-1]) if hasattr(each, "lineno"))


def _kept(value: object) -> object:
    return list(value) if isinstance(value, list) else value


def _sites(node: ast.AST, parents: tuple[ast.AST, ...]) -> Iterator[_Site]:
    if _is_told_to_people(node):
        if isinstance(node, ast.Raise):
            yield _Site(node, parents)
        return
    yield _Site(node, parents)
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "type_params", "decorator_list"):
            continue
        if name == "keywords" and isinstance(node, ast.ClassDef):
            continue  # how a struct behaves, not what the kernel decides
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _sites(child, (*parents, node))


def _is_told_to_people(node: ast.AST) -> bool:
    if isinstance(node, ast.Raise | ast.JoinedStr | ast.Import | ast.ImportFrom | ast.Assert):
        return True
    return isinstance(node, ast.Call) and any(keyword.arg in _WORDS for keyword in node.keywords)


def _function(site: _Site) -> str:
    """The outermost function around the site, with its class; default values belong to the module."""
    names: list[str] = []
    chain = (*site.parents, site.node)
    for parent, child in zip(chain, (*chain[1:], None), strict=True):
        if isinstance(parent, ast.ClassDef):
            names.append(parent.name)
        elif isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef):
            return "" if child is parent.args or child is None else ".".join([*names, parent.name])
    return ""


def _kinds(site: _Site) -> int:
    ordered = isinstance(site.node, ast.Compare) and isinstance(site.node.ops[0], ast.Lt | ast.Gt | ast.LtE | ast.GtE)
    return 2 if ordered else 1


def _apply(site: _Site, kind: int) -> str | None:
    """Change the node in place; None where there is nothing to change."""
    node, parent = site.node, site.parents[-1] if site.parents else None
    match node:
        case ast.Compare():
            return _compare(node, kind)
        case ast.BoolOp():
            node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            return "and <-> or"
        case ast.BinOp() if type(node.op) in _ARITHMETIC:
            before = ast.unparse(node)
            node.op = _ARITHMETIC[type(node.op)]()
            return f"{before} -> {ast.unparse(node)}"
        case ast.UnaryOp(op=ast.Not()) | ast.UnaryOp(op=ast.USub()):
            assert parent is not None
            _replace(parent, node, node.operand)
            return f"without '{'not' if isinstance(node.op, ast.Not) else '-'}'"
        case ast.Constant():
            return _constant(node, site)
        case ast.Return(value=ast.Name(id="NONE") as value):
            node.value = ast.Tuple([ast.Constant("?")], ast.Load())  # no broken rule; callers ask only if it is empty
            return f"return {_short(value)} -> return ('?',)"
        case ast.Return(value=value) if value is not None and not _is_false(value):
            node.value = ast.Constant(None)
            return f"return {_short(value)} -> return None"
        case ast.If() | ast.IfExp() | ast.While():
            if isinstance(node.test, ast.Compare | ast.UnaryOp):
                return None  # those are changed themselves
            node.test = ast.UnaryOp(ast.Not(), node.test)
            return f"if not {_short(node.test.operand)}"
        case ast.comprehension() if node.ifs:
            node.ifs = node.ifs[1:]
            return "without the comprehension's first condition"
        case ast.Call(func=ast.Name(id="min" | "max" as name)):
            node.func = ast.Name("max" if name == "min" else "min", ast.Load())
            return f"{name} -> {node.func.id}"
        case ast.Expr() | ast.AugAssign() | ast.Raise() | ast.Continue() | ast.Break():
            return _removed(node, parent)
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            return _removed(node, parent)
    return None


def _compare(node: ast.Compare, kind: int) -> str | None:
    before = ast.unparse(node)
    op = _COMPARE.get(type(node.ops[0]))
    if op is None:
        return None
    node.ops[0] = op()
    if kind == 1:
        opposite = {ast.LtE: ast.Gt, ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE}
        node.ops[0] = opposite[op]()  # type: ignore[index]
    return f"{_cut(before)} -> {_cut(ast.unparse(node))}"


def _constant(node: ast.Constant, site: _Site) -> str | None:
    parent = site.parents[-1]
    if isinstance(parent, ast.Expr):
        return None  # a docstring
    if isinstance(parent, ast.Assign | ast.AnnAssign) and _names_a_version(parent):
        return None  # a name for a state of the code; any other would do
    before = node.value
    if isinstance(before, bool):
        node.value = not before
    elif isinstance(before, int):
        node.value = before + 1
    elif isinstance(before, str) and isinstance(parent, ast.Compare | ast.Set | ast.Tuple | ast.List | ast.Dict):
        if any(isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == "__all__" for each in site.parents):
            return None
        node.value = before + "?"
    else:
        return None
    return f"{before!r} -> {node.value!r}"


def _names_a_version(node: ast.AST) -> bool:
    return any(word in ast.unparse(node).split("=")[0] for word in ("VERSION", "FORMAT"))


def _removed(node: ast.stmt, parent: ast.AST | None) -> str | None:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return None
    for name in ("body", "orelse", "finalbody"):
        body = getattr(parent, name, None)
        if isinstance(body, list) and node in body:
            body[body.index(node)] = ast.Pass()
            return f"without: {_short(node)}"
    return None


def _replace(parent: ast.AST, old: ast.AST, new: ast.AST) -> None:
    for name, value in ast.iter_fields(parent):
        if value is old:
            setattr(parent, name, new)
        elif isinstance(value, list) and old in value:
            value[value.index(old)] = new


def _is_false(node: ast.AST) -> bool:
    """None is as good there; the constant itself is changed too."""
    return isinstance(node, ast.Constant) and not node.value


def _short(node: ast.AST) -> str:
    return _cut(ast.unparse(node))


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 60 else line[:57] + "..."
