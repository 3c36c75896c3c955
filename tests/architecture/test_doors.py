"""Every room has doors: modules that others use. What is behind them has an underscore, and nobody else goes in."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "panstream"
TEXTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FOR_PEOPLE = {"cli", "papers", "planning", "testing"}  # whose modules are commands, or imported by who needs one


def named(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {named(path): path for path in sorted(SOURCE.rglob("*.py"))}
TREES = {module: ast.parse(path.read_text()) for module, path in MODULES.items()}


def room(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def imported(tree: ast.Module) -> Iterator[str]:
    """Yield the modules of ours that a module imports, wherever it does."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for each in node.names:
                inner = f"{node.module}.{each.name}"
                yield inner if inner in MODULES else node.module
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in MODULES:
            yield node.value  # loaded by name


def intruders(trees: dict[str, ast.Module]) -> list[str]:
    return [
        f"{module} imports {other}"
        for module, tree in trees.items()
        for other in imported(tree)
        if other.startswith("panstream.") and room(other) != room(module)
        # what a room has behind its doors; a private module beside the rooms, such as _kernels, is everybody's
        if any(part.startswith("_") for part in other.split(".")[2:])
    ]


def test_nobody_goes_behind_another_rooms_doors() -> None:
    assert not intruders(TREES)


def test_who_goes_there_is_caught() -> None:
    private = next(module for module in MODULES if module.rpartition(".")[2].startswith("_sql"))
    for line in (f"import {private}", f"from {private} import parse", f"def f():\n    from {private} import parse"):
        assert intruders({"panstream.engine.storage.log": ast.parse(line)})


def test_every_door_is_used() -> None:
    """By another room, by the exports of its own, by readers of the documentation, or as a program."""
    users: dict[str, set[str]] = {module: set() for module in MODULES}
    for module, tree in TREES.items():
        for other in imported(tree):
            users.setdefault(other, set()).add(module)
    told = "".join(text.read_text() for text in TEXTS)
    idle = []
    for module, path in MODULES.items():
        if module.count(".") < 2 or "._" in module or path.stem.startswith("__") or room(module) in FOR_PEOPLE:
            continue
        parent, _, name = module.rpartition(".")
        outside = any(room(other) != room(module) or other == parent for other in users[module])
        exported = f'"{name}"' in MODULES[parent].read_text()  # loaded when it is asked for
        started = '__name__ == "__main__"' in path.read_text()
        if not (outside or exported or started or module in told):
            idle.append(module)
    assert not idle
