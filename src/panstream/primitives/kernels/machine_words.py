"""64-bit machine words: unaligned little-endian loads, copies, wide products, bit counts, prefetching."""

from __future__ import annotations

from typing import Any

import numpy as np

from panstream.primitives.kernels.jit import instruction, njit

_CODE = "panstream.primitives.kernels.machine_word_instructions"

byte_at: Any = instruction(_CODE, "byte_at")
copy_bytes: Any = instruction(_CODE, "copy_bytes")
load_word: Any = instruction(_CODE, "load_word")
ones: Any = instruction(_CODE, "ones")
prefetch: Any = instruction(_CODE, "prefetch")
product: Any = instruction(_CODE, "product")
product_high: Any = instruction(_CODE, "product_high")
trailing_zeros: Any = instruction(_CODE, "trailing_zeros")


# Two loops: the first, without an exit, becomes vector instructions, and the second runs only to report an error.
@njit(cache=True, nogil=True)
def first_at_least(values: np.ndarray[Any, np.dtype[np.uint64]], limit: np.uint64) -> int:
    """Return the index of the first value that is at least ``limit``, or -1."""
    largest = np.uint64(0)
    for i in range(values.size):
        largest = max(largest, values[i])
    if largest >= limit:
        for i in range(values.size):
            if values[i] >= limit:
                return i
    return -1
