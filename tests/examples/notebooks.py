"""Runs the code cells of a notebook in one namespace, as a kernel does; the value of a last expression is shown."""

import ast
import contextlib
import io
import json
from pathlib import Path
from typing import Any


def execute(path: Path) -> list[str]:
    """Return what every code cell shows: what it prints, and its last expression."""
    shown: list[str] = []
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(json.loads(path.read_text("utf-8"))["cells"]):
        if cell["cell_type"] != "code":
            continue
        tree = ast.parse("".join(cell["source"]), f"{path.name}, cell {number}")
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(tree, f"{path.name}, cell {number}", "exec"), names)
            if isinstance(last, ast.Expr):
                value = eval(compile(ast.Expression(last.value), f"{path.name}, cell {number}", "eval"), names)
                if value is not None:
                    print(value)
        shown.append(printed.getvalue())
    return shown
