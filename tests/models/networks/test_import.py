"""Importing the room is quick: no compiler, no Arrow, no data frames until they are needed."""

import subprocess
import sys

import panstream.models.networks

HEAVY = ("numba", "pyarrow", "pandas", "polars", "scipy", "matplotlib", "networkx")


def test_nothing_heavy_is_imported() -> None:
    code = f"import sys, panstream.models.networks; print([each for each in {HEAVY} if each in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_what_is_offered_is_there() -> None:
    assert panstream.models.networks.__all__ == sorted(set(panstream.models.networks.__all__))
    assert all(hasattr(panstream.models.networks, name) for name in panstream.models.networks.__all__)
