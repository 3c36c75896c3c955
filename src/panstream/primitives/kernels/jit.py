"""Decorators for functions that only kernels call.

Numba counts references to an array on every call that passes one, which takes longer than most of these functions.
They do not count (``_nrt=False``), which is safe because the caller of a kernel holds its arrays until it returns.
Arguments must have one type everywhere: called with 0 and with ``np.int64(0)``, a function is compiled twice.
"""

from __future__ import annotations

from typing import Any

from numba import njit

_OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "_nrt": False}  # _nrt is missing from numba's type stubs
part: Any = njit(**_OPTIONS, forceinline=True)
rare_part: Any = njit(**_OPTIONS)  # not inlined: code that seldom runs would make its callers too large to inline
