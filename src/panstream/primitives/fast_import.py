"""A quick start for processes of our own: commands, workers, scans."""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import sys

from panstream.errors import PanstreamError


def import_without_gc(*modules: str) -> None:
    """Import numba, then ``modules``, with the collector off, which would look through all of it again and again.

    Numba is kept from importing SciPy for linear algebra that no kernel uses; loops of others may, so this is for
    processes of our own. What cannot be imported is left to whoever needs it, and says why.
    """
    enabled = gc.isenabled()
    hidden = "scipy" not in sys.modules
    gc.disable()
    if hidden:
        sys.modules["scipy"] = None  # type: ignore[assignment]
    try:
        with contextlib.suppress(ImportError):
            importlib.import_module("numba.np.arraymath")
    finally:
        if hidden:
            del sys.modules["scipy"]
    for name in modules:
        with contextlib.suppress(ImportError, PanstreamError):
            importlib.import_module(name)
    gc.freeze()  # what was loaded stays
    atexit.register(_skip_last_collection)
    if enabled:
        gc.enable()


def _skip_last_collection() -> None:
    """Spare an ending process its last collection: the system frees all of its memory.

    Not with DuckDB: its binding, nanobind, reports on standard error every object that was not freed.
    """
    if "_duckdb" not in sys.modules:
        gc.freeze()
