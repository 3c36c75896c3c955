"""Importing panstream is cheap, and the catalogue lists every algorithm there is."""

import importlib
import inspect
import pkgutil
import subprocess
import sys

import pytest

import panstream
from panstream.core.algorithm import Algorithm
from panstream.core.catalogue import ALGORITHMS

PACKAGES = ("algorithms", "models.networks", "papers")
SMALL = {"CalibratedSketch"}  # a paper's algorithm over a group that is enumerated: for tens of users


def test_import_needs_neither_compiler_nor_arrow() -> None:
    script = (
        "import sys, panstream; assert not {'numba', 'pyarrow', 'numpy'} & set(sys.modules), sorted(sys.modules); "
        "panstream.Monitor; assert not {'numba', 'pyarrow', 'pandas'} & set(sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


@pytest.mark.parametrize("name", panstream.__all__)
def test_every_exported_name_exists(name: str) -> None:
    assert getattr(panstream, name) is not None


def test_unknown_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        panstream.nothing  # noqa: B018


def test_every_algorithm_is_in_the_catalogue() -> None:
    found = {}
    for parent in PACKAGES:
        package = importlib.import_module(f"panstream.{parent}")
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            module = importlib.import_module(info.name)
            for name, kind in inspect.getmembers(module, inspect.isclass):
                concrete = kind.__module__ == module.__name__ and Algorithm in kind.__mro__
                literal = name.startswith(("Published", "_")) or name in SMALL  # never for data
                if concrete and not literal and not inspect.isabstract(kind):
                    found[name] = module.__name__
    assert found == ALGORITHMS
