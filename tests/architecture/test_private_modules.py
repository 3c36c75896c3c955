"""A module or package whose name begins with an underscore is private to its folder, and no module is unused."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "panstream"
TEXTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BY_NAME = ("panstream.cli.commands.", "panstream.papers.", "panstream.algorithms.planning.", "panstream.testing.")


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(SOURCE.rglob("*.py"))}
TREES = {module: ast.parse(path.read_text()) for module, path in MODULES.items()}


def imported_modules(tree: ast.Module) -> Iterator[str]:
    """Yield the modules of panstream that a module imports, at its top or inside a function."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in MODULES else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in MODULES:
            yield node.value  # loaded by name


def folder_of_private_part(module: str) -> str | None:
    """Return the package that a private module belongs to, with a dot behind it; None if no part of it is private."""
    parts = module.split(".")
    first = next((index for index, part in enumerate(parts) if part.startswith("_")), None)
    return None if first is None else ".".join(parts[:first]) + "."


def violations(trees: dict[str, ast.Module]) -> list[str]:
    return [
        f"{module} imports {other}"
        for module, tree in trees.items()
        for other in imported_modules(tree)
        if other.startswith("panstream.")
        and (folder := folder_of_private_part(other)) is not None
        and not f"{module}.".startswith(folder)
    ]


def test_private_modules_are_imported_by_their_own_folder_only() -> None:
    assert not violations(TREES)


def test_an_import_from_outside_is_caught() -> None:
    private = "panstream.engine.sources._tail"
    assert private in MODULES
    for line in (f"import {private}", f"from {private} import x", f"def f():\n    from {private} import x"):
        assert violations({"panstream.engine.storage.disk": ast.parse(line)})
        assert not violations({"panstream.engine.sources.formats.csv": ast.parse(line)})


def test_every_module_is_used() -> None:
    """By another module, by the lazy exports of its package, by readers of the documentation, or as a program."""
    users: dict[str, set[str]] = {module: set() for module in MODULES}
    for module, tree in TREES.items():
        for other in imported_modules(tree):
            users.setdefault(other, set()).add(module)
    documentation = "".join(text.read_text() for text in TEXTS)
    unused = []
    for module, path in MODULES.items():
        if path.stem.startswith("__") or module.startswith(BY_NAME) or "." not in module:
            continue
        parent, _, name = module.rpartition(".")
        exported = f'"{name}"' in MODULES[parent].read_text()
        is_program = '__name__ == "__main__"' in path.read_text()
        if not (users[module] - {module} or exported or is_program or module in documentation):
            unused.append(module)
    assert not unused
