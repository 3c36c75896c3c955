"""Fast start for processes that run only panstream: commands, workers, scans."""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import os
import sys

from panstream.errors import PanstreamError


def import_without_gc(*modules: str) -> None:
    """Import numba, then ``modules``, with the garbage collector off, which would scan all of it again and again.

    Numba is prevented from importing SciPy and cffi for calls that no kernel here contains, and YAML unless there is a
    configuration file of numba's; other numba code may use them, so this is for processes that run only panstream.
    Failed imports are ignored: a later import raises the error.
    """
    enabled = gc.isenabled()
    unused = {"cffi", "scipy"} if os.path.exists(".numba_config.yaml") else {"cffi", "scipy", "yaml"}
    hidden = unused - sys.modules.keys()
    gc.disable()
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        with contextlib.suppress(ImportError):
            for name in ("numba.np.arraymath", "numba.core.typing.cffi_utils"):
                importlib.import_module(name)
    finally:
        for name in hidden:
            del sys.modules[name]
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
