"""Memory that is used again: the system clears what it gives, which takes longer than decoding a page into it.

>>> spare = Spare()
>>> place = spare.array(100_000).ctypes.data
>>> spare.array(99_000).ctypes.data == place  # nobody has the first one any more
True
"""

from __future__ import annotations

import sys
import threading
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

_LEAST, _LARGEST = 1 << 14, 1 << 23  # bytes of an array: smaller ones are cheap, larger ones rare
_MOST = 1 << 26  # bytes in all


def _references(blocks: list[NDArray[np.uint8]]) -> list[int]:
    return [sys.getrefcount(block) for block in blocks]


_UNUSED = _references([np.empty(1, np.uint8)])[0]  # of an array without views: how loops and calls count is Python's


class Spare:
    """Arrays in memory of earlier ones that nobody refers to any more, not even by a slice or an Arrow buffer.

    It holds what whoever used it last left there, and for long: only what is overwritten after use may be in it.
    """

    __slots__ = ("_blocks", "_held", "_lock")

    def __init__(self) -> None:
        self._blocks: dict[int, list[NDArray[np.uint8]]] = {}
        self._held = 0
        self._lock = threading.Lock()

    def array(self, size: int, dtype: DTypeLike = np.uint8) -> NDArray[Any]:
        """Return an array with anything at all in it."""
        kind = np.dtype(dtype)
        needed = size * kind.itemsize
        if not _LEAST <= needed <= _LARGEST:
            return np.empty(size, kind)
        step = 1 << (needed.bit_length() - 3)
        capacity = -(-needed // step) * step
        with self._lock:
            free_blocks = self._blocks.setdefault(capacity, [])
            references = _references(free_blocks)
            if _UNUSED in references:
                return free_blocks[references.index(_UNUSED)][:needed].view(kind)
            if self._held + capacity > _MOST:
                self._blocks, self._held, free_blocks = {}, 0, []
                self._blocks[capacity] = free_blocks
            free_blocks.append(np.empty(capacity, np.uint8))
            self._held += capacity
            return free_blocks[-1][:needed].view(kind)
