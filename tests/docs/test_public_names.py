"""Documentation and examples import public names only, and every public name exists."""

import ast
import importlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.public_names import MODULES, PACKAGES, public_names

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```py(?:thon)?\n(.*?)^```", re.DOTALL | re.MULTILINE)
INTERNAL = {  # examples that do what no user should
    "examples/site_demo.py": "sets the clock of a store back",
    "examples/shared/site_traffic.py": "makes the rows that beacons would become",
    "examples/two_machines/demo.py": "reads the files of a machine as a thief would",
}


def code_blocks() -> Iterator[tuple[str, str]]:
    for path in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]):
        yield from ((str(path.relative_to(ROOT)), block) for block in BLOCK.findall(path.read_text()))
    for path in sorted((ROOT / "examples").rglob("*.py")):
        yield str(path.relative_to(ROOT)), path.read_text()
    for path in sorted((ROOT / "examples").rglob("*.ipynb")):
        cells = json.loads(path.read_text())["cells"]
        yield str(path.relative_to(ROOT)), "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "code")


def internal_imports(code: str) -> list[str]:
    """Return the imports of panstream that are not public."""
    internal = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names if alias.name.partition(".")[0] == "panstream"]
            internal += [module for module in modules if module not in (*PACKAGES, *MODULES)]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "panstream":
            module = str(node.module)
            submodules = {name.rpartition(".")[2] for name in MODULES if name.rpartition(".")[0] == module}
            allowed = public_names(module) | submodules
            internal += [f"{module}.{alias.name}" for alias in node.names if alias.name not in allowed]
    return internal


def test_documentation_and_examples_import_public_names_only() -> None:
    found = [(path, name) for path, code in code_blocks() for name in internal_imports(code)]
    assert not [(path, name) for path, name in found if path not in INTERNAL]
    assert {path for path, _ in found} == set(INTERNAL)  # no longer than needed


@pytest.mark.parametrize("line", ["import panstream.primitives", "from panstream.core.monitor import Monitor"])
def test_an_internal_import_is_noticed(line: str) -> None:
    assert internal_imports(line)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_exists(package: str) -> None:
    module = importlib.import_module(package)
    assert all(getattr(module, name) is not None for name in module.__all__)


@pytest.mark.parametrize("package", PACKAGES)
def test_type_checkers_see_what_is_loaded_lazily(package: str) -> None:
    module = importlib.import_module(package)
    tree = ast.parse(Path(str(module.__file__)).read_text())
    imports = [
        statement
        for node in tree.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for statement in node.body
        if isinstance(statement, ast.ImportFrom)
    ]
    seen = {
        name
        for statement in imports
        for alias in statement.names
        for name in (importlib.import_module(str(statement.module)).__all__ if alias.name == "*" else [alias.name])
    }
    if imports:
        assert seen == set(module.__all__)


def test_lazy_names_are_completed() -> None:
    assert dir(importlib.import_module("panstream.core")) == sorted(public_names("panstream.core"))


def test_a_package_does_not_load_what_it_exports() -> None:
    script = (
        "import sys, panstream.algorithms.planning, panstream.audit.product.fork_server_client, panstream.core, "
        "panstream.engine, panstream.papers, panstream.distributed.two_party; "
        "loaded = {'numpy', 'numba', 'panstream.audit.claims', 'panstream.engine.config'} & set(sys.modules); "
        "assert not loaded, loaded"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
