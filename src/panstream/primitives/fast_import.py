"""Fast start for processes that run only panstream: commands, workers, scans."""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import sys

from panstream.errors import PanstreamError


def import_without_gc(*modules: str) -> None:
    """Import numba, then ``modules``, with the garbage collector off, which would scan all of it again and again.

    Numba is prevented from importing SciPy for linear algebra that no kernel here uses; other numba code may use it, so
    this is for processes that run only panstream. Failed imports are ignored: a later import raises the error.
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
    gc.freeze()  # modules are never garbage
    atexit.register(_skip_last_collection)
    if enabled:
        gc.enable()


def _skip_last_collection() -> None:
    """Skip the last garbage collection of an ending process: the system frees all of its memory.

    Not with DuckDB: its binding, nanobind, reports on standard error every object that was not freed.
    """
    if "_duckdb" not in sys.modules:
        gc.freeze()
