"""Decorators for the functions that kernels are made of.

Numba counts how many hold an array whenever a function is given one, which takes longer than most of these functions
do. They do not count: whoever calls a kernel holds its arrays until it returns. Given 0 and not ``np.int64(0)``, they
would be compiled once more.
"""

from __future__ import annotations

from typing import Any

from numba import njit

_OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "_nrt": False}  # the last is not among numba's types
part: Any = njit(**_OPTIONS, forceinline=True)
rare_part: Any = njit(**_OPTIONS)  # is called, so that those who use it stay small
