"""Importing the room is quick: no compiler, no Arrow, no data frames until they are needed."""

import subprocess
import sys

import panstream.networks

HEAVY = ("numba", "pyarrow", "pandas", "polars", "scipy", "matplotlib", "networkx")


def test_nothing_heavy_is_imported() -> None:
    code = f"import sys, panstream.networks; print([each for each in {HEAVY} if each in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_what_is_offered_is_there() -> None:
    assert panstream.networks.__all__ == sorted(set(panstream.networks.__all__))
    assert all(hasattr(panstream.networks, name) for name in panstream.networks.__all__)
