"""The reference of the Python interface has every public name, and griffe finds what the pages show of each."""

import importlib
import inspect
import runpy
from pathlib import Path
from typing import Any

import griffe
import pytest

from panstream.core.catalogue import ALGORITHMS

ROOT = Path(__file__).parents[2]
EXTENSION = ROOT / "docs" / "reference" / "docstrings.py"
DOCSTRINGS = runpy.run_path(str(EXTENSION))
PACKAGES = {
    "networks": ["panstream.models.networks"],
    "federated": ["panstream.models.federated"],
    "cluster": [
        "panstream.distributed",
        "panstream.distributed.beam",
        "panstream.distributed.sharded",
        "panstream.distributed.spark",
        "panstream.distributed.two_party",
    ],
    "engine": ["panstream.engine"],
    "privacy": ["panstream.privacy"],
    "core": ["panstream.core"],
}


def exported(package: str) -> set[str]:
    """Return the public classes and functions of a package; type aliases are explained where they are used."""
    module = importlib.import_module(package)
    return {
        name for name in module.__all__ if inspect.isclass(thing := getattr(module, name)) or inspect.isroutine(thing)
    }


FRONT = exported("panstream")
EXPORTS = {
    "api": FRONT,
    "algorithms": (set(ALGORITHMS) | exported("panstream.algorithms")) - FRONT,
    **{page: set().union(*map(exported, packages)) for page, packages in PACKAGES.items()},
}
for page in ("privacy", "core"):
    EXPORTS[page] -= FRONT


@pytest.fixture(scope="module")
def package() -> Any:
    """Return panstream as mkdocstrings sees it."""
    extensions = griffe.load_extensions("dataclasses", str(EXTENSION))
    return griffe.load("panstream", search_paths=[ROOT / "src"], docstring_parser="google", extensions=extensions)


def entries(package: Any, page: str) -> list[Any]:
    return [package[path.removeprefix("panstream.")] for path in DOCSTRINGS["entries"](page)]


@pytest.mark.parametrize("page", EXPORTS)
def test_every_public_name_has_an_entry_where_it_is_defined(page: str) -> None:
    paths = DOCSTRINGS["entries"](page)
    names = [path.rpartition(".")[2] for path in paths]
    assert names == sorted(EXPORTS[page], key=lambda name: (name.lower(), name))
    for path in paths:
        module, _, name = path.rpartition(".")
        thing = getattr(importlib.import_module(module), name)
        assert (thing.__module__, thing.__qualname__) == (module, name)


@pytest.mark.slow
@pytest.mark.parametrize("page", EXPORTS)
def test_every_entry_has_a_docstring(package: Any, page: str) -> None:
    assert not [thing.path for thing in entries(package, page) if not thing.has_docstring]


@pytest.mark.parametrize("page", EXPORTS)
def test_every_parameter_is_described(package: Any, page: str) -> None:
    """Base classes may describe them, and an ``Attributes:`` section those of a dataclass."""
    missing = []
    for thing in entries(package, page):
        documented = getattr(importlib.import_module(thing.parent.path), thing.name)
        if inspect.isclass(documented) and (issubclass(documented, Exception) or inspect.isabstract(documented)):
            continue
        taken = {name for name in inspect.signature(documented).parameters if name not in ("args", "kwargs")}
        described = {name.lstrip("*") for name in DOCSTRINGS["described"](thing)}
        missing += [f"{thing.path}({name})" for name in sorted(taken - described - attributes(thing))]
        assert described <= taken, thing.path
    assert not missing


@pytest.mark.parametrize("page", EXPORTS)
def test_every_parameter_of_a_method_is_described(package: Any, page: str) -> None:
    """Under ``Args:``, or by its name in the text; methods of base classes may do so."""
    missing = []
    for thing in entries(package, page):
        for name, method in thing.members.items() if isinstance(thing, griffe.Class) else ():
            if name.startswith("_") or not isinstance(method, griffe.Function) or "property" in method.labels:
                continue
            versions = [method, *DOCSTRINGS["methods"](thing.mro(), name)]
            text = "".join(version.docstring.value for version in versions if version.docstring)
            described = {name.lstrip("*") for version in versions for name in DOCSTRINGS["described"](version)}
            taken = {parameter.name.lstrip("*") for parameter in method.parameters} - {"self", "cls"}
            missing += [f"{method.path}({name})" for name in sorted(taken - described) if f"`{name}" not in text]
    assert not missing


def attributes(thing: Any) -> set[str]:
    """Return the names in the ``Attributes:`` section of an object's docstring."""
    sections = thing.docstring.parse("google", warnings=False) if thing.docstring else []
    listed = [section for section in sections if isinstance(section, griffe.DocstringSectionAttributes)]
    return {attribute.name for section in listed for attribute in section.value}
