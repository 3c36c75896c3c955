"""Gather variable-length items of any layout into one run of bytes with Arrow-style offsets.

Compiled, since the same in NumPy or as Python strings would leave copies of every item in memory that is not wiped.
``offsets`` has one entry more than there are rows; row ``i`` is ``data[offsets[i]:offsets[i + 1]]``.
Functions that return a row number return that of the first invalid row, or -1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.kernels.jit import njit
from panstream.primitives.kernels.machine_words import copy_bytes

_INLINE = 12  # Arrow's format: a view of at most this many bytes holds them itself, in place of a buffer and offset


# One pass that stops at each row's last non-zero element; the caller allocates the sum it returns.
@njit(cache=True, nogil=True)
def trimmed_lengths(rows: NDArray[Any], lengths: NDArray[np.int64]) -> int:
    """Write each row's width without its trailing zeros to ``lengths``; return their sum."""
    total = 0
    for i in range(rows.shape[0]):
        width = rows.shape[1]
        while width > 0 and rows[i, width - 1] == 0:
            width -= 1
        lengths[i] = width
        total += width
    return total


# Copies by address: numba would copy slices byte by byte. ``data`` has the size that `trimmed_lengths` returned.
@njit(cache=True, nogil=True)
def compact_rows(
    rows: NDArray[np.uint8], lengths: NDArray[np.int64], offsets: NDArray[np.int64], data: NDArray[np.uint8]
) -> None:
    """Write the first ``lengths[i]`` bytes of every row one after the other."""
    target = np.uint64(data.ctypes.data)
    source = np.uint64(rows.ctypes.data)
    offsets[0] = 0
    for i in range(rows.shape[0]):
        start = source + np.uint64(i * rows.shape[1])
        copy_bytes(target + np.uint64(offsets[i]), start, lengths[i])
        offsets[i + 1] = offsets[i] + lengths[i]


# Fixed-width text holds UTF-32; written straight to the target, so that no Python string is ever made of an item. Not
# by ``text_bytes.write_utf8``: with its tests of validity in between, this loop is twice as fast on ASCII.
@njit(cache=True, nogil=True)
def encode_utf8(
    rows: NDArray[np.uint32], lengths: NDArray[np.int64], offsets: NDArray[np.int64], data: NDArray[np.uint8]
) -> int:
    """Write the first ``lengths[i]`` code points of every row as UTF-8, from ``offsets[0]`` on.

    ``data`` must hold four bytes per code point. Surrogates and numbers beyond Unicode are invalid.
    """
    position = offsets[0]
    for i in range(rows.shape[0]):
        for j in range(lengths[i]):
            c = rows[i, j]
            if c < 0x80:
                data[position] = c
                position += 1
            elif c < 0x800:
                data[position] = 0xC0 | (c >> 6)
                data[position + 1] = 0x80 | (c & 0x3F)
                position += 2
            elif c < 0x10000:
                if 0xD800 <= c < 0xE000:
                    return i
                data[position] = 0xE0 | (c >> 12)
                data[position + 1] = 0x80 | ((c >> 6) & 0x3F)
                data[position + 2] = 0x80 | (c & 0x3F)
                position += 3
            elif c < 0x110000:
                data[position] = 0xF0 | (c >> 18)
                data[position + 1] = 0x80 | ((c >> 12) & 0x3F)
                data[position + 2] = 0x80 | ((c >> 6) & 0x3F)
                data[position + 3] = 0x80 | (c & 0x3F)
                position += 4
            else:
                return i
        offsets[i + 1] = position
    return -1


# Views come from other processes' files: every one is checked here, before `gather_views` reads through an address.
@njit(cache=True, nogil=True)
def view_offsets(views: NDArray[np.int32], sizes: NDArray[np.int64], offsets: NDArray[np.int64]) -> int:
    """Write ``offsets`` from the lengths of Arrow views; a view that points outside its buffer is invalid."""
    offsets[0] = 0
    for i in range(views.shape[0]):
        length = np.int64(views[i, 0])
        if length < 0:
            return i
        if length > _INLINE:
            buffer = views[i, 2]
            start = np.int64(views[i, 3])
            if buffer < 0 or buffer >= sizes.size or start < 0 or start + length > sizes[buffer]:
                return i
        offsets[i + 1] = offsets[i] + length
    return -1


# Addresses are those of Arrow buffers that the caller holds; `view_offsets` has checked every view, so nothing past a
# buffer is read.
@njit(cache=True, nogil=True)
def gather_views(
    views: NDArray[np.int32], addresses: NDArray[np.uint64], offsets: NDArray[np.int64], data: NDArray[np.uint8]
) -> None:
    """Copy the bytes of views that `view_offsets` has checked."""
    target = np.uint64(data.ctypes.data)
    inline = np.uint64(views.ctypes.data + 4)
    for i in range(views.shape[0]):
        length = offsets[i + 1] - offsets[i]
        source = inline + np.uint64(16 * i)
        if length > _INLINE:
            source = addresses[views[i, 2]] + np.uint64(views[i, 3])
        copy_bytes(target + np.uint64(offsets[i]), source, length)


# One pass without branches; pyarrow would check offsets in one pass and narrow them in another.
@njit(cache=True, nogil=True)
def narrow_offsets(offsets: NDArray[np.int64], size: int, narrow: NDArray[np.int32]) -> bool:
    """Write offsets from the first one on in 32 bits; return whether they ascend within ``size`` bytes and fit.

    ``offsets`` and ``narrow`` have one entry at least.
    """
    start = offsets[0]
    last = start
    is_valid = start >= 0
    for i in range(offsets.size):
        offset = offsets[i]
        is_valid &= offset >= last
        last = offset
        narrow[i] = np.int32(offset - start)
    return bool(is_valid and last <= size and last - start < np.int64(1 << 31))
