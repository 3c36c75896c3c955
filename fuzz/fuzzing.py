"""What every fuzzer shares: it is driven by Atheris, and can be called without it, as tests do.

    python fuzz/fuzz_sql.py fuzz/corpus/sql -max_total_time=300

The layout is that of OSS-Fuzz: a file ``fuzz_NAME.py`` for each parser, with seeds in ``corpus/NAME``.
"""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any


def instrumented() -> AbstractContextManager[Any]:
    """Return a block whose imports of panstream count as covered or not, if Atheris is installed."""
    try:
        import atheris
    except ImportError:
        return contextlib.nullcontext()
    from panstream.primitives import kernels

    # numba reads bytecode: it must be as written
    for module in pkgutil.walk_packages(kernels.__path__, f"{kernels.__name__}."):
        importlib.import_module(module.name)
    return atheris.instrument_imports(include=["panstream"])


def run(target: Callable[[bytes], None]) -> None:
    """Fuzz until told to stop, with libFuzzer's options from the command line."""
    import atheris

    atheris.Setup(sys.argv, target)
    atheris.Fuzz()
