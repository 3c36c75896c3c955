"""Compiled loops over arrays: no policy, no validation, no randomness of their own.

Every function here expects contiguous arrays whose bounds the caller has checked.
"""

from __future__ import annotations

import contextlib
import importlib
import sys


def leave_out_scipy() -> None:
    """Have numba load without SciPy, whose linear algebra no loop here uses: a quarter of the time to the first one.

    For processes of our own: loops of others, in one that has imported this package, may be faster with it.
    """
    if "scipy" in sys.modules:
        return
    sys.modules["scipy"] = None  # type: ignore[assignment]
    try:
        with contextlib.suppress(ImportError):
            importlib.import_module("numba.np.arraymath")
    finally:
        del sys.modules["scipy"]
