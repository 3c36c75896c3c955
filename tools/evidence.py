"""Figures about the code's shape: `python tools/evidence.py [DIRECTORY] [--pages SEED] [--wheel] [--start]`.

DIRECTORY is a checkout, so two commits are compared by running this file on a worktree of each. Prints entries at the
top level, packages, files, code lines, definitions, class names used more than once, bindings of words that do not name
a thing, docstrings as griffe reads them, and comments per code line. `--pages` prints two pages of code, chosen by the
seed; `--wheel` builds the wheel and lists what must not be in it; `--start` measures the import of `panstream.Monitor`.
"""

from __future__ import annotations

import argparse
import ast
import io
import os
import random
import re
import subprocess
import sys
import tempfile
import tokenize
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from code_size import code_lines, measure

WORDS = ("found", "each", "place", "at")
PAGE = 50  # lines
FORBIDDEN = re.compile("fault_injection|leaks|secret_recorder")
START = """
import sys, time
start = time.process_time()
import panstream
panstream.Monitor
print((time.process_time() - start) * 1000)
"""


def bound_names(function: ast.AST) -> set[str]:
    """Return the names that a function binds: arguments and targets."""
    names = set()
    for node in ast.walk(function):
        if isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


def modules(root: Path) -> Iterator[tuple[Path, str, ast.Module]]:
    """Yield path, text and tree of every module."""
    for path in sorted(root.rglob("*.py")):
        text = path.read_text("utf-8")
        yield path, text, ast.parse(text)


def comments(text: str) -> int:
    """Count the lines with a comment that is not addressed to a tool."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    texts = [token.string for token in tokens if token.type == tokenize.COMMENT]
    return sum(not re.match(r"#!|# (fmt|type|noqa|pragma|pyright)\b", comment) for comment in texts)


def docstrings(source: Path) -> str:
    """Return how many public objects have a docstring, and how many public functions with arguments describe them."""
    import griffe

    package = griffe.load("panstream", search_paths=[source], docstring_parser="google")
    counts: Counter[str] = Counter()

    def visit(parent: griffe.Object) -> None:
        for member in parent.members.values():
            if member.is_alias or member.name.startswith("_"):
                continue
            if member.is_module or member.is_class or member.is_function:
                counts["objects"] += 1
                counts["documented"] += member.docstring is not None
                visit(member)
            if member.is_function and [name for name in member.parameters if name.name not in ("self", "cls")]:
                counts["functions"] += 1
                sections = member.docstring.parsed if member.docstring else []
                counts["described"] += any(section.kind.value == "parameters" for section in sections)

    visit(package)
    share = counts["documented"] / counts["objects"]
    return (
        f"{counts['documented']:,} of {counts['objects']:,} public objects ({share:.1%}); "
        f"Args: in {counts['described']:,} of {counts['functions']:,} public functions with arguments"
    )


def shape(directory: Path) -> None:
    """Print the table."""
    source = directory / "src" / "panstream"
    packages = measure(source)
    total: Counter[str] = sum(packages.values(), Counter())
    tests: Counter[str] = sum(measure(directory / "tests").values(), Counter())
    classes: Counter[str] = Counter()
    bound: Counter[str] = Counter()
    statements = 0
    remarks = 0
    for _, text, tree in modules(source):
        remarks += comments(text)
        for node in ast.walk(tree):
            statements += isinstance(node, ast.stmt)
            if isinstance(node, ast.ClassDef):
                classes[node.name] += 1
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                bound.update(bound_names(node) & set(WORDS))
    duplicates = sorted(name for name, count in classes.items() if count > 1)
    entries = [path for path in source.iterdir() if not path.name.startswith(("__pycache__", "."))]
    rows = {
        "entries at the top level": len(entries),
        "packages at the top level": sum(path.is_dir() for path in entries),
        "packages in all": len({path.parent for path in source.rglob("*.py")}),
        "files": total["files"],
        "code lines of src": f"{total['code']:,}",
        "statements of src": f"{statements:,}",
        "code lines of tests": f"{tests['code']:,}",
        "definitions (public)": f"{total['definitions']:,} ({total['public']:,})",
        "class names used more than once": f"{len(duplicates)} ({', '.join(duplicates)})",
        "functions that bind " + "/".join(WORDS): "/".join(str(bound[word]) for word in WORDS),
        "docstrings": docstrings(directory / "src"),
        "comments per code line": f"{remarks / total['code']:.1%}",
    }
    for name, value in rows.items():
        print(f"{name:<42}{value}")


def pages(directory: Path, seed: int) -> None:
    """Print two pages; every line of code is as likely as any other to be on one."""
    generator = random.Random(seed)
    paths = [(path, code_lines(text, tree)) for path, text, tree in modules(directory / "src" / "panstream")]
    for path, _ in generator.choices(paths, [size for _, size in paths], k=2):
        lines = path.read_text("utf-8").splitlines()
        first = generator.randrange(max(1, len(lines) - PAGE))
        print(f"\n{path.relative_to(directory)}, lines {first + 1} to {min(first + PAGE, len(lines))}")
        print("\n".join(lines[first : first + PAGE]))


def wheel(directory: Path) -> None:
    """Build the wheel and count its members by package."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, str(directory)]
        subprocess.run(command, check=True)
        [path] = Path(folder).glob("*.whl")
        names = zipfile.ZipFile(path).namelist()
        kinds = Counter(Path(name).suffix or "(none)" for name in names)
        print(f"wheel: {len(names)} members, {path.stat().st_size:,} bytes: {dict(kinds.most_common())}")
        print(f"members that match {FORBIDDEN.pattern}: {[name for name in names if FORBIDDEN.search(name)] or 'none'}")


def start(directory: Path) -> None:
    """Print the processor time of the import, the least of nine processes."""
    environment = {**os.environ, "PYTHONPATH": str(directory / "src")}
    command = [sys.executable, "-c", START]
    times = [float(subprocess.check_output(command, env=environment, text=True)) for _ in range(9)]
    print(f"import of panstream.Monitor: {min(times):.0f} ms of processor time")


def main() -> None:
    """Print what is asked for."""
    parser = argparse.ArgumentParser(description="Figures about the code's shape.")
    parser.add_argument("directory", nargs="?", type=Path, default=Path(__file__).parents[1])
    parser.add_argument("--pages", type=int, metavar="SEED", help="print two random pages of code")
    parser.add_argument("--wheel", action="store_true", help="build the wheel and list its members")
    parser.add_argument("--start", action="store_true", help="measure the import of panstream.Monitor")
    arguments = parser.parse_args()
    directory = arguments.directory.resolve()
    shape(directory)
    if arguments.start:
        start(directory)
    if arguments.wheel:
        wheel(directory)
    if arguments.pages is not None:
        pages(directory, arguments.pages)


if __name__ == "__main__":
    main()
