"""Code size: `python tools/code_size.py [DIRECTORY]`, and `--walk` for what one row meets on its way.

Per package: files, lines of code without docstrings and comments, top-level classes and functions, and the public
ones of them (no underscore in the name or the module). The walk counts the named functions, files and packages of
panstream that run in `panstream run` on a small CSV file, in one POST to a server from its first byte to the answer,
and in `panstream query` on the file. Compiled kernels count once, where they are called. Modules outside of packages
count as one package, as in the table.
"""

from __future__ import annotations

import ast
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import tokenize
import urllib.request
from collections import Counter
from pathlib import Path

CONFIG = """
[stream]
name = "visits"
user = "user"
time = "at"
[stream.columns]
user = "string"
at = "timestamp"
page = "string"
[[query]]
name = "users"
sql = "SELECT COUNT(DISTINCT user) FROM visits WHERE page = 'home'"
epsilon = 1.0
expected = 1000
[[query]]
name = "hourly"
sql = "SELECT COUNT(*) FROM visits"
epsilon = 1.0
window = "1 hour"
[store]
directory = "state"
"""
SQL = "SELECT COUNT(DISTINCT user), COUNT(*)"
ROWS = "user,at,page\n" + "".join(
    f"u{n},2024-05-06 {n % 24:02}:00:00,{'home' if n % 3 else 'help'}\n" for n in range(500)
)
NOT_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER
}  # fmt: skip

# Runs inside the traced process: notes every function of panstream that is entered, in all threads.
TRACER = """
import json, os, signal, sys, threading
root, out, *command = sys.argv[1:]
seen, marks = set(), []
def note(frame, event, _):
    if event == "call" and frame.f_code.co_flags & 1 and frame.f_code.co_filename.startswith(root):  # no class bodies
        seen.add((frame.f_code.co_filename, frame.f_code.co_qualname, frame.f_code.co_firstlineno))
def mark(*_):
    marks.append(sorted(seen)); seen.clear()
    json.dump(marks, open(out + ".part", "w")); os.replace(out + ".part", out)
signal.signal(signal.SIGUSR1, mark)
sys.argv = ["panstream-walk", *command]
from panstream.cli.main import main
threading.setprofile(note); sys.setprofile(note)
try:
    main()
finally:
    sys.setprofile(None); mark()
"""


def code_lines(text: str, tree: ast.Module) -> int:
    """Count lines that hold code: no docstrings, comments or blank lines."""
    documentation: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                documentation.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NOT_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - documentation)


def measure(root: Path) -> dict[str, Counter[str]]:
    """Return the counts of every package."""
    packages: dict[str, Counter[str]] = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).parts
        package = packages.setdefault(parts[0] if len(parts) > 1 else "(top)", Counter())
        text = path.read_text()
        tree = ast.parse(text)
        inner = any(part.startswith("_") and part != "__init__.py" for part in parts)
        names = [
            node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        ]
        package["files"] += 1
        package["code"] += code_lines(text, tree)
        package["definitions"] += len(names)
        package["public"] += 0 if inner else sum(not name.startswith("_") for name in names)
    return packages


def walk(source: Path, directory: Path, command: list[str], *, post: bool) -> list[list[str]]:
    """Run a command and return the functions it entered; with ``post``, only those of one POST."""
    from panstream.cli.hardening import ENVIRONMENT
    from panstream.primitives.memory.process_hardening import MARK

    out = directory / "walk.json"
    root = source / "panstream"
    environment = {**os.environ, **ENVIRONMENT, MARK: "1", "PYTHONPATH": str(source)}
    line = [sys.executable, "-c", TRACER, str(root), str(out), *command]
    process = subprocess.Popen(line, cwd=directory, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    if not post:
        process.communicate()
        return list(json.loads(out.read_text())[-1])
    match = re.search(r"http://127.0.0.1:(\d+)", process.stdout.readline())
    assert match
    url = f"http://127.0.0.1:{match[1]}/v1/streams/visits/events"
    for _ in range(2):  # the first one meets what happens once
        request = urllib.request.Request(url, ROWS.encode(), {"Content-Type": "text/csv"})
        process.send_signal(10)
        urllib.request.urlopen(request).read()
    process.terminate()
    process.wait(60)
    return list(json.loads(out.read_text())[-1])


def main() -> None:
    """Print the table, and the walks if they are asked for."""
    directories = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    source = Path(directories[0] if directories else Path(__file__).parents[1]).resolve() / "src"
    packages = measure(source / "panstream")
    total: Counter[str] = sum(packages.values(), Counter())
    print(f"{'package':<16}{'files':>7}{'code':>8}{'definitions':>13}{'public':>8}")
    for name, package in [*sorted(packages.items(), key=lambda entry: -entry[1]["code"]), ("all", total)]:
        print(
            f"{name:<16}{package['files']:>7}{package['code']:>8,}{package['definitions']:>13,}{package['public']:>8,}"
        )
    names = subprocess.run(
        [sys.executable, "-c", "import panstream; print(sum(not n.startswith('_') for n in dir(panstream)))"],
        env={**os.environ, "PYTHONPATH": str(source)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    print(f"names in dir(panstream): {names.stdout.strip()}")
    if "--walk" not in sys.argv:
        return
    for title, command, post in (
        ("run", ["run", "panstream.toml", "rows.csv"], False),
        ("a POST", ["serve", "panstream.toml", "--port", "0"], True),
        ("query", ["query", f"{SQL} FROM 'rows.csv'", "--epsilon", "1", "--user", "user"], False),
    ):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "panstream.toml").write_text(CONFIG)
            (Path(folder) / "rows.csv").write_text(ROWS)
            entered = walk(source, Path(folder), command, post=post)
        named = {(file, name) for file, name, _ in entered if not name.endswith(">")}  # no lambdas or comprehensions
        files = {Path(file).relative_to(source / "panstream") for file, _ in named}
        met = {file.parts[0] if len(file.parts) > 1 else "(top)" for file in files}
        print(f"{title}: {len(named)} functions in {len(files)} files of {len(met)} packages")


if __name__ == "__main__":
    main()
