"""Mutants of the lines that privacy depends on: how many does the audit, with the tests of the room, notice?

One operator, comparison or small constant is changed at a time, in memory only, in privacy/, randomness/laws.py and the noise lines of the
algorithms; each mutant runs in a process of its own. A mutant that is not noticed is listed with its line. Needs [audit,dev].

    python benchmarks/mutants.py --limit 200 [--seed S] [FILE ...]
"""

from __future__ import annotations

import argparse
import ast
import copy
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "panstream"
TARGET = 0.95
WHOLE = ("privacy", "randomness")  # rooms of which every line is mutated
NOISE = ("bernoulli", "discrete_laplace", "kappa", "epsilon", "noise", "law", "at_most", "sensitivity")
SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Lt: ast.LtE, ast.LtE: ast.Lt,
    ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.FloorDiv: ast.Mult, ast.Pow: ast.Mult,
}  # fmt: skip
TESTS = {  # what is run against a mutant of a file, quickest first
    "privacy": ["tests/privacy", "tests/audit/test_cases.py"],
    "randomness": ["tests/randomness", "tests/audit/test_cases.py"],
    "density": ["tests/audit/test_cases.py", "tests/density"],
    "distinct": ["tests/audit/test_cases.py", "tests/distinct"],
    "turnstile": ["tests/audit/test_cases.py", "tests/turnstile"],
    "continual": ["tests/audit/test_cases.py", "tests/continual"],
}


def mutants(path: Path) -> Iterator[tuple[int, str, str]]:
    """Yield (line, what was changed, new text of the file)."""
    text = path.read_text()
    tree, lines = ast.parse(text), text.splitlines()
    every = path.relative_to(SOURCE).parts[0] in WHOLE
    for number, node in enumerate(ast.walk(tree)):
        line = getattr(node, "lineno", 0)
        if not line or (not every and not any(word in lines[line - 1] for word in NOISE)):
            continue
        changed = copy.deepcopy(tree)
        twin = next(found for place, found in enumerate(ast.walk(changed)) if place == number)
        if isinstance(twin, ast.BinOp) and type(twin.op) in SWAPS:
            twin.op = SWAPS[type(twin.op)]()  # type: ignore[assignment]
        elif isinstance(twin, ast.Compare) and type(twin.ops[0]) in SWAPS:
            twin.ops[0] = SWAPS[type(twin.ops[0])]()  # type: ignore[call-overload]
        elif isinstance(twin, ast.Constant) and type(twin.value) in (int, float) and 0 <= twin.value < 64:
            twin.value = twin.value + 1
        else:
            continue
        yield line, f"{ast.unparse(node)} -> {ast.unparse(twin)}", ast.unparse(ast.fix_missing_locations(changed))


CHILD = """
import importlib.machinery, importlib.util, pathlib, sys, pytest
name, path, text, *arguments = sys.argv[1:]

class Mutant(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname):
        return compile(pathlib.Path(text).read_text(), path, "exec")

class Finder:
    @staticmethod
    def find_spec(fullname, _path=None, _target=None):
        if fullname == name:
            return importlib.util.spec_from_file_location(name, path, loader=Mutant(name, path))

sys.meta_path.insert(0, Finder)
sys.exit(pytest.main(arguments))
"""


def noticed(path: Path, text: str) -> bool:
    """Return whether some test fails in a process in which the module is the mutant."""
    parts = path.relative_to(SOURCE)
    module = ".".join(("panstream", *parts.with_suffix("").parts))
    options = ["-q", "-x", "-m", "not slow", "-p", "no:cacheprovider", "--no-header"]
    with tempfile.NamedTemporaryFile("w", suffix=".py") as changed:
        changed.write(text)
        changed.flush()
        command = [sys.executable, "-c", CHILD, module, str(path), changed.name, *options, *TESTS[parts.parts[0]]]
        try:
            return subprocess.run(command, cwd=ROOT, capture_output=True, timeout=600, check=False).returncode != 0
        except subprocess.TimeoutExpired:
            return True


def main() -> int:
    """Draw mutants, try them, list the survivors."""
    options = argparse.ArgumentParser()
    options.add_argument("files", nargs="*", type=Path)
    options.add_argument("--limit", type=int, help="mutants drawn at random; 0 for all")
    options.add_argument("--seed", type=int, default=1)
    given = options.parse_args()
    files = [file.resolve() for file in given.files] or [
        file for room in TESTS for file in sorted((SOURCE / room).glob("*.py")) if file.name != "__init__.py"
    ]
    found = [(file, *mutant) for file in files for mutant in mutants(file)]
    if given.limit is None:
        print(f"{len(found)} mutants; each takes up to two minutes: choose with --limit N, or --limit 0 for all")
        return 0
    if given.limit and given.limit < len(found):
        found = random.Random(given.seed).sample(found, given.limit)
    for file in {file for file, *_ in found}:
        if noticed(file, ast.unparse(ast.parse(file.read_text()))):
            print(f"{file.relative_to(ROOT)} fails its tests as it is: nothing can be said about its mutants")
            return 1
    survivors = []
    for file, line, change, text in found:
        if not noticed(file, text):
            survivors.append(f"{file.relative_to(ROOT)}:{line}: {change}")
            print("survives", survivors[-1], flush=True)
    share = 1 - len(survivors) / max(1, len(found))
    print(
        f"{'mutants noticed':<20} {len(found) - len(survivors)} of {len(found)} = {share:.1%}  target {TARGET:.0%}  ",
        end="",
    )
    print("pass" if share >= TARGET else "fail")
    return share < TARGET


if __name__ == "__main__":
    sys.exit(main())
