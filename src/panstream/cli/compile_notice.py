"""Reports that kernels are being compiled: the first start of an installation takes seconds longer than later ones."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_PAUSE = 3.0  # seconds between two lines of progress
_EVENT = "numba:compile"  # once per function that is compiled, never for one that is loaded from the cache


@contextmanager
def compile_notice(tell: Callable[[str], None]) -> Iterator[None]:
    """Announce the first compilation in the block, its progress, and at the end how long it took; imports numba."""
    event: Any = importlib.import_module("numba.core.event")
    depth = 0  # functions that are compiled for others
    count = 0
    started = spent = reported = 0.0

    class _Listener(event.Listener):  # type: ignore[misc]
        def on_start(self, event: Any) -> None:
            nonlocal count, depth, started, reported
            if depth == 0:
                started = time.perf_counter()
                if not count:
                    tell("compiling once for this machine ...")
                    reported = started
                elif started > reported + _PAUSE:
                    tell(f"compiled {count} functions in {spent:.0f} s, and compiling more ...")
                    reported = started
            count += 1
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
            tell(f"compiled {count} functions in {spent:.0f} s; later starts load them")
