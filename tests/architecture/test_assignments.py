"""One target per assignment: values that are packed only to be unpacked hide changes and defeat search."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def _reads(node: ast.expr) -> set[str]:
    """Return the names, attributes and elements that an expression reads."""
    return {ast.unparse(part) for part in ast.walk(node) if isinstance(part, ast.Name | ast.Attribute | ast.Subscript)}


def packed_assignments(tree: ast.AST) -> list[int]:
    """Return the lines of assignments like ``a, b = x, y``, but for swaps: there a value reads a target before it."""
    lines = []
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple)):
            continue
        for target in node.targets:
            if not isinstance(target, ast.Tuple) or len(target.elts) != len(node.value.elts):
                continue
            targets = [ast.unparse(element) for element in target.elts]
            reads = [_reads(value) for value in node.value.elts]
            if not any(targets[i] in read for i in range(len(targets)) for read in reads[i + 1 :]):
                lines.append(node.lineno)
    return lines


@pytest.mark.parametrize("folder", ["src", "tests", "benchmarks", "examples", "tools"])
def test_no_assignment_packs_values(folder: str) -> None:
    packed = {
        str(path.relative_to(ROOT)): lines
        for path in sorted((ROOT / folder).rglob("*.py"))
        if (lines := packed_assignments(ast.parse(path.read_text("utf-8"))))
    }
    assert not packed


def test_packed_assignments_are_recognised_and_swaps_are_not() -> None:
    assert packed_assignments(ast.parse("a, b = 1, 2\na, b = f()\na, b = b, a\nx.a, y[0] = u, v")) == [1, 4]
