"""Copy short text sixteen bytes at a time, at any length: a mispredicted branch on the length takes longer.

The copies write up to ``SLACK`` bytes too many, of the same input; kernels that use them zero the end of the target.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.kernels.jit import part, rare_part
from panstream.primitives.kernels.machine_words import copy_bytes

SLACK = 16  # bytes after the target of a copy that may be overwritten


@rare_part
def _copy_long(page: NDArray[np.uint8], pos: int, length: Any, data: NDArray[np.uint8], used: Any) -> None:
    """Copy ``length`` bytes; up to seven more are written, none past the page is read."""
    source = np.uint64(page.ctypes.data + pos)
    target = np.uint64(data.ctypes.data + used)
    by_words = length if pos + length + 8 <= page.size else length & ~7
    for j in range(0, by_words, 8):
        copy_bytes(target + np.uint64(j), source + np.uint64(j), 8)
    if by_words < length:
        for j in range(by_words, length):
            data[used + j] = page[pos + j]


@part
def copy_short(page: NDArray[np.uint8], pos: int, length: Any, data: NDArray[np.uint8], used: Any) -> None:
    """Copy ``length`` bytes, at once if few; up to ``SLACK`` more are written, none past the page is read."""
    if length <= SLACK and pos + SLACK <= page.size:
        source = np.uint64(page.ctypes.data + pos)
        target = np.uint64(data.ctypes.data + used)
        copy_bytes(target, source, SLACK)
    else:
        _copy_long(page, pos, length, data, used)
