"""Which changes are tried: one operator, comparison, condition, small constant or statement at a time."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Mutant", "mutants", "parsed"]

# Packages and files of which every line is changed.
WHOLE = ("privacy", "primitives/noise", "primitives/packed_bits.py", "algorithms/randomized_bits.py")
NOISE = (  # elsewhere: the lines with one of these words
    "bernoulli", "discrete_laplace", "uniform_below", "rng.", "kappa", "epsilon", "noise", "law",
    "at_most", "sensitivity", "contributions", "refresh",
)  # fmt: skip
SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Pow: ast.Mult,
    ast.Mod: ast.Mult, ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.Lt: ast.LtE, ast.LtE: ast.Lt,
    ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
NAMES = {"min": "max", "max": "min", "floor": "ceil", "ceil": "floor", "any": "all", "all": "any"}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change; ``function`` is the line where the outermost function around it starts, or None at import time."""

    path: Path
    node: int
    line: int
    change: str
    function: int | None

    def tree(self) -> ast.Module:
        """Return the changed file, with the line numbers of the old one."""
        tree = ast.parse(self.path.read_text())
        node = next(found for number, found in enumerate(ast.walk(tree)) if number == self.node)
        _apply(node)
        return ast.fix_missing_locations(tree)


def parsed(path: Path) -> ast.Module:
    """Return the file as it is."""
    return ast.parse(path.read_text())


def mutants(path: Path, package: str) -> Iterator[Mutant]:
    """Yield every change of the file. What only words errors, types or documents is left alone."""
    tree = parsed(path)
    lines = path.read_text().splitlines()
    skipped = {inner for node in ast.walk(tree) for outer in _words(node) for inner in ast.walk(outer)}
    places = dict(_functions(tree, None))
    for number, node in enumerate(ast.walk(tree)):
        line = getattr(node, "lineno", 0)
        if not line or node in skipped:
            continue
        if package not in WHOLE and not any(word in lines[line - 1] for word in NOISE):
            continue
        before = ast.unparse(node)
        if _apply(node, pretend=True):
            changed = Mutant(path, number, line, "", places.get(node))
            twin = next(found for place, found in enumerate(ast.walk(parsed(path))) if place == number)
            _apply(twin)
            yield Mutant(path, number, line, f"{_short(before)} -> {_short(ast.unparse(twin))}", changed.function)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 90 else line[:89] + "…"


def _words(node: ast.AST) -> Iterator[ast.AST]:
    """Yield parts that say something to people or to the type checker and do nothing."""
    if isinstance(node, (ast.Raise, ast.JoinedStr, ast.Import, ast.ImportFrom)):
        yield node
    if isinstance(node, ast.AnnAssign | ast.arg) and node.annotation is not None:
        yield node.annotation
    if isinstance(node, FUNCTIONS) and node.returns is not None:
        yield node.returns
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id.startswith("Invalid"):
        yield node


def _functions(node: ast.AST, inside: int | None) -> Iterator[tuple[ast.AST, int | None]]:
    """Yield every node with the first line of the outermost function whose body it is in."""
    yield node, inside
    body = set(node.body) if isinstance(node, FUNCTIONS) else set()
    start = min([node.lineno, *(one.lineno for one in node.decorator_list)]) if isinstance(node, FUNCTIONS) else 0
    for child in ast.iter_child_nodes(node):
        yield from _functions(child, inside if inside is not None else start if child in body else None)


def _apply(node: ast.AST, pretend: bool = False) -> bool:
    """Change the node in place; return whether there was something to change."""
    if isinstance(node, ast.BinOp | ast.BoolOp | ast.AugAssign) and type(node.op) in SWAPS:
        node.op = node.op if pretend else SWAPS[type(node.op)]()  # type: ignore[assignment]
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
        node.ops[0] = node.ops[0] if pretend else SWAPS[type(node.ops[0])]()  # type: ignore[call-overload]
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float) and 0 <= node.value < 64:
        node.value = node.value if pretend else node.value + 1
    elif isinstance(node, ast.IfExp | ast.If | ast.While) and not isinstance(node.test, ast.Compare | ast.Constant):
        node.test = node.test if pretend else ast.UnaryOp(ast.Not(), node.test)
    elif isinstance(node, ast.Name | ast.Attribute) and _name(node) in NAMES:
        if not pretend:
            setattr(node, "id" if isinstance(node, ast.Name) else "attr", NAMES[_name(node)])
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        if not pretend:
            node.value = ast.Constant(None)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node.op = node.op if pretend else ast.UAdd()
    else:
        return False
    return True


def _name(node: ast.Name | ast.Attribute) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr
