"""Overwrite the memory of Arrow arrays that are no longer used.

A conversion may return memory of its source (a cast that only changes the type, a slice, a filter that selects all
rows), and pyarrow decides which ones do. So addresses are compared before anything is overwritten: memory that another
array uses, or that belongs to the caller, stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from panstream.engine.arrow import pa
from panstream.primitives.memory.scratch import wipe, wipe_at

_OFFSETS = {pa.string(): 4, pa.binary(): 4, pa.large_string(): 8, pa.large_binary(): 8}  # bytes per offset
_UNWIPED = {kind.id for kind in (pa.string_view(), pa.binary_view(), pa.null())}


class BorrowedMemory:
    """Address ranges that must not be overwritten.

    >>> table = pa.table({"n": [1, 2, 3]})
    >>> wipe_array(table["n"], BorrowedMemory.of(table.columns))
    >>> table["n"].to_pylist()
    [1, 2, 3]
    """

    __slots__ = ("_ranges",)

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._ranges = tuple(ranges)

    @classmethod
    def of(cls, arrays: Iterable[Any]) -> BorrowedMemory:
        """Return the address ranges of arrays, including their dictionaries."""
        return cls([(buffer.address, buffer.address + buffer.size) for array in arrays for buffer in _buffers(array)])

    def __or__(self, other: BorrowedMemory) -> BorrowedMemory:
        return BorrowedMemory((*self._ranges, *other._ranges)) if other._ranges else self

    def contains(self, buffer: Any) -> bool:
        """Return whether a buffer overlaps one of the ranges."""
        if not self._ranges:
            return False
        first = buffer.address
        last = buffer.address + buffer.size
        # A list is faster than a generator here.
        return any([start < last and first < stop for start, stop in self._ranges])


NOTHING_BORROWED = BorrowedMemory()


def shares(one: Any, other: Any) -> bool:
    """Return whether two arrays have memory in common."""
    borrowed = BorrowedMemory.of([one])
    return any(borrowed.contains(buffer) for buffer in _buffers(other))


def wipe_unused(old: Iterable[Any], new: Iterable[Any], borrowed: BorrowedMemory = NOTHING_BORROWED) -> None:
    """Overwrite the memory of ``old`` arrays, except what ``new`` arrays share with them and what is borrowed."""
    retained = borrowed | BorrowedMemory.of(new)
    for array in old:
        wipe_array(array, retained)


def wipe_array(array: Any, borrowed: BorrowedMemory = NOTHING_BORROWED) -> None:
    """Overwrite the rows of an array, except in borrowed buffers.

    Slices of one block can be wiped one by one. Not overwritten are dictionaries, which batches share, up to seven bits
    at either end of a bitmap, which neighbouring slices share, and nested types and views, which no batch has.
    """
    if isinstance(array, np.ndarray):
        if array.dtype != object:
            wipe(array)
        return
    if isinstance(array, pa.ChunkedArray):
        for chunk in array.chunks:
            wipe_array(chunk, borrowed)
        return
    width = _OFFSETS.get(array.type)
    if width is None:
        array = getattr(array, "storage", array)
        if pa.types.is_dictionary(array.type):
            array = array.indices
        if pa.types.is_nested(array.type) or array.type.id in _UNWIPED:
            return
        width = _OFFSETS.get(array.type)
    start = array.offset
    stop = array.offset + len(array)
    if start == stop:
        return
    held = array.buffers()
    buffers = [None if buffer is None or borrowed.contains(buffer) else buffer for buffer in held]
    if buffers[0] is not None:
        _wipe_bits(buffers[0], start, stop)
    if width is not None:
        kind = np.int32 if width == 4 else np.int64
        offsets = np.frombuffer(held[1], kind, stop + 1 - start, start * width)
        first = int(offsets[0])
        last = int(offsets[-1])
        _wipe_bytes(buffers[2], first, last)
        # Neighbouring slices share the offsets at both ends; the last slice of a block has no neighbour after it.
        is_last = (stop + 1) * width >= held[1].size
        _wipe_bytes(buffers[1], (start + 1) * width, (stop + is_last) * width)
    elif pa.types.is_boolean(array.type):
        _wipe_bits(buffers[1], start, stop)
    else:
        size = array.type.bit_width // 8
        _wipe_bytes(buffers[1], start * size, stop * size)


def _buffers(array: Any) -> list[Any]:
    if isinstance(array, pa.ChunkedArray):
        return [buffer for chunk in array.chunks for buffer in _buffers(chunk)]
    buffers = [buffer for buffer in array.buffers() if buffer is not None]
    if array.type not in _OFFSETS:
        array = getattr(array, "storage", array)
        if pa.types.is_dictionary(array.type):
            buffers += _buffers(array.dictionary)
    return buffers


def _wipe_bits(buffer: Any, start: int, stop: int) -> None:
    _wipe_bytes(buffer, -(-start // 8), stop // 8)


def _wipe_bytes(buffer: Any, start: int, stop: int) -> None:
    if buffer is not None and stop > start:
        wipe_at(buffer.address + start, min(stop, buffer.size) - start)


def grow_buffer(data: bytearray, used: int, size: int) -> bytearray:
    """Copy the first ``used`` bytes to a new buffer of ``size`` bytes, and overwrite the old one."""
    larger = bytearray(size)
    larger[:used] = memoryview(data)[:used]
    wipe(data)
    return larger
