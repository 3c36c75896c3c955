"""Reports that kernels are being compiled: the first start of an installation takes seconds longer than later ones."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_EVENT = "numba:compile"  # once per function that is compiled, never for one that is loaded from the cache


@contextmanager
def compile_notice(tell: Callable[[str], None]) -> Iterator[None]:
    """Tell of the first compilation in the block, and at its end how long all of them took; imports numba."""
    event: Any = importlib.import_module("numba.core.event")
    depth = 0  # functions that are compiled for others
    started = spent = 0.0

    class _Listener(event.Listener):  # type: ignore[misc]
        def on_start(self, event: Any) -> None:
            nonlocal depth, started
            if depth == 0:
                started = time.perf_counter()
                if not spent:
                    tell("compiling once for this machine ...")
            depth += 1

        def on_end(self, event: Any) -> None:
            nonlocal depth, spent
            depth -= 1
            if depth == 0:
                spent += time.perf_counter() - started

    listener = _Listener()
    event.register(_EVENT, listener)
    try:
        yield
    finally:
        event.unregister(_EVENT, listener)
        if spent:
            tell(f"compiled in {spent:.0f} s; later starts load the result")
