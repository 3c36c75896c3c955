"""Fast start for processes that run only panstream: commands, workers, scans."""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

from panstream.errors import PanstreamError


@contextlib.contextmanager
def without_gc() -> Iterator[None]:
    """Do not collect garbage: while much is loaded, all of it would be scanned again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def import_numba() -> Any:
    """Return numba, imported without SciPy's linear algebra.

    Numba imports that to learn whether it is installed, and a function that uses it does so again.
    """
    with without_gc():
        linear_algebra: Any = importlib.import_module("numba.np.linalg")
        ensure_blas = linear_algebra.ensure_blas
        linear_algebra.ensure_blas = _find_scipy
        try:
            importlib.import_module("numba.np.arraymath")
        finally:
            linear_algebra.ensure_blas = ensure_blas
        return importlib.import_module("numba")


def _find_scipy() -> None:
    if find_spec("scipy") is None:
        raise ImportError("SciPy is not installed")


def import_without_gc(*modules: str) -> None:
    """Import numba, then ``modules``, without collecting garbage.

    Numba is prevented from importing SciPy and cffi for calls that no kernel here contains, and YAML unless there is a
    configuration file of numba's; other numba code may use them, so this is for processes that run only panstream.
    Failed imports are ignored: a later import raises the error.
    """
    unused = {"cffi", "scipy"} if os.path.exists(".numba_config.yaml") else {"cffi", "scipy", "yaml"}
    hidden = unused - sys.modules.keys()
    with without_gc():
        sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
        try:
            with contextlib.suppress(ImportError):
                import_numba()
                importlib.import_module("numba.core.typing.cffi_utils")
        finally:
            for name in hidden:
                del sys.modules[name]
        for name in modules:
            with contextlib.suppress(ImportError, PanstreamError):
                importlib.import_module(name)
        gc.freeze()  # modules are never garbage
    atexit.register(_skip_last_collection)


def _skip_last_collection() -> None:
    """Skip the last garbage collection of an ending process: the system frees all of its memory.

    Not with DuckDB: its binding, nanobind, reports on standard error every object that was not freed.
    """
    if "_duckdb" not in sys.modules:
        gc.freeze()
