"""Decode the pages of a Parquet column of strings: plain items, indices into a dictionary, and levels.

Every function checks what it reads against the end of the page and returns -1 where the page is damaged.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

__all__ = ["decode_runs", "dictionary_bytes", "dictionary_items", "plain_items", "spread_offsets"]

_SLACK = 8  # items are copied by eight bytes: what lies behind the target must be free for as many


@intrinsic
def _copy_eight(typing_context, target, source):  # type: ignore[no-untyped-def]
    """Copy eight bytes between two addresses, whatever their alignment."""

    def build(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        pointer = context.get_value_type(types.CPointer(types.uint8))  # type: ignore[no-untyped-call]
        to, start = (builder.inttoptr(address, pointer) for address in arguments)
        size = context.get_constant(types.int64, 8)
        cgutils.raw_memcpy(builder, to, start, size, 1)  # type: ignore[no-untyped-call]
        return context.get_dummy_value()

    return types.void(types.uint64, types.uint64), build


@njit(cache=True, nogil=True)
def plain_items(
    page: NDArray[np.uint8],
    at: int,
    count: int,
    offsets: NDArray[np.int32],
    first: int,
    data: NDArray[np.uint8],
) -> int:
    """Append ``count`` items that begin at ``at``: four bytes of length, then the bytes. Return where they end.

    ``offsets[first]`` is where ``data`` is free; it must have room for the rest of the page and eight bytes more.
    """
    source, target, size = np.uint64(page.ctypes.data), np.uint64(data.ctypes.data), page.size
    used = np.int64(offsets[first])
    for i in range(first + 1, first + count + 1):
        if at + 4 > size:
            return -1
        length = np.int64(page[at]) | np.int64(page[at + 1]) << 8 | np.int64(page[at + 2]) << 16
        length |= np.int64(page[at + 3]) << 24
        at += 4
        if length > size - at:
            return -1
        if at + length + _SLACK <= size:
            for j in range(0, length, 8):
                _copy_eight(target + np.uint64(used + j), source + np.uint64(at + j))  # type: ignore[call-arg]
        else:
            for j in range(length):
                data[used + j] = page[at + j]
        at += int(length)
        used += length
        offsets[i] = used
    return at


@njit(cache=True, nogil=True)
def decode_runs(page: NDArray[np.uint8], at: int, width: int, out: NDArray[Any]) -> int:
    """Decode Parquet's mixture of repeated and bit-packed numbers of ``width`` bits until ``out`` is full. Return where it ends."""
    size, done, count = page.size, 0, out.size
    mask = np.uint64((1 << width) - 1)
    while done < count:
        header, shift = np.uint64(0), np.uint64(0)
        while True:
            if at >= size or shift > np.uint64(28):
                return -1
            header |= np.uint64(page[at] & 127) << shift
            shift += np.uint64(7)
            at += 1
            if page[at - 1] < 128:
                break
        run = int(header >> np.uint64(1))
        if run == 0:
            return -1
        if header & np.uint64(1):
            bits, held = np.uint64(0), 0
            end = min(at + run * width, size)
            for _ in range(min(run * 8, count - done)):
                while held < width:
                    if at >= end:
                        return -1
                    bits |= np.uint64(page[at]) << np.uint64(held)
                    held += 8
                    at += 1
                out[done] = bits & mask
                bits >>= np.uint64(width)
                held -= width
                done += 1
            at = end
        else:
            value, bytes_wide = np.uint64(0), (width + 7) // 8
            if at + bytes_wide > size:
                return -1
            for j in range(bytes_wide):
                value |= np.uint64(page[at + j]) << np.uint64(8 * j)
            at += bytes_wide
            for _ in range(min(run, count - done)):
                out[done] = value
                done += 1
    return at


@njit(cache=True, nogil=True)
def dictionary_bytes(indices: NDArray[np.int32], starts: NDArray[np.int32]) -> int:
    """Return how many bytes the items with these indices have, -1 if one is not in the dictionary."""
    total = 0
    for index in indices:
        if index < 0 or index >= starts.size - 1:
            return -1
        total += starts[index + 1] - starts[index]
    return total


@njit(cache=True, nogil=True)
def dictionary_items(
    indices: NDArray[np.int32],
    starts: NDArray[np.int32],
    words: NDArray[np.uint8],
    offsets: NDArray[np.int32],
    first: int,
    data: NDArray[np.uint8],
) -> None:
    """Append the items with these indices, which were checked. ``words`` and ``data`` have eight bytes more than their items."""
    source, target = np.uint64(words.ctypes.data), np.uint64(data.ctypes.data)
    used = np.int64(offsets[first])
    for i in range(indices.size):
        start, stop = starts[indices[i]], starts[indices[i] + 1]
        for j in range(0, stop - start, 8):
            _copy_eight(target + np.uint64(used + j), source + np.uint64(start + j))  # type: ignore[call-arg]
        used += stop - start
        offsets[first + i + 1] = used


@njit(cache=True, nogil=True)
def spread_offsets(offsets: NDArray[np.int32], first: int, present: NDArray[np.uint8]) -> None:
    """Move the offsets of items that follow ``offsets[first]`` to the rows that have one; the others get no bytes."""
    item = first + np.int64(present.sum())
    for row in range(present.size - 1, -1, -1):
        offsets[first + row + 1] = offsets[item]
        if present[row]:
            item -= 1
