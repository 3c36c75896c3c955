"""Whose memory Arrow arrays are in, and overwriting what is ours and no longer used.

A conversion may return memory of its source (a cast that only changes the type, a slice, a filter that keeps all rows),
and which do is up to pyarrow. So nothing is overwritten by rule: memory is compared, and what somebody still uses, or
has only lent, is left alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from panstream.engine.arrow import pa
from panstream.primitives.memory.scratch import wipe, wipe_at

_OFFSETS = {pa.string(): 4, pa.binary(): 4, pa.large_string(): 8, pa.large_binary(): 8}  # bytes each
_UNWIPED = {kind.id for kind in (pa.string_view(), pa.binary_view(), pa.null())}


class BorrowedMemory:
    """Stretches of memory that are not ours to write on.

    >>> table = pa.table({"n": [1, 2, 3]})
    >>> wipe_array(table["n"], BorrowedMemory.of(table.columns))
    >>> table["n"].to_pylist()
    [1, 2, 3]
    """

    __slots__ = ("_stretches",)

    def __init__(self, stretches: Iterable[tuple[int, int]] = ()) -> None:
        self._stretches = tuple(stretches)

    @classmethod
    def of(cls, arrays: Iterable[Any]) -> BorrowedMemory:
        """Return the memory of some arrays, dictionaries included."""
        return cls([(buffer.address, buffer.address + buffer.size) for array in arrays for buffer in _buffers(array)])

    def __or__(self, other: BorrowedMemory) -> BorrowedMemory:
        return BorrowedMemory((*self._stretches, *other._stretches)) if other._stretches else self

    def contains(self, buffer: Any) -> bool:
        """Return whether any byte of a buffer is among them."""
        if not self._stretches:
            return False
        first = buffer.address
        last = buffer.address + buffer.size
        return True in [start < last and first < stop for start, stop in self._stretches]  # any() calls for each


NONE_LENT = BorrowedMemory()


def shares(one: Any, other: Any) -> bool:
    """Return whether two arrays have memory in common."""
    lent = BorrowedMemory.of([one])
    return any(lent.contains(buffer) for buffer in _buffers(other))


def wipe_unused(old: Iterable[Any], new: Iterable[Any], lent: BorrowedMemory = NONE_LENT) -> None:
    """Overwrite the memory of ``old`` arrays of ours, but for what ``new`` ones made from them still use."""
    retained = lent | BorrowedMemory.of(new)
    for array in old:
        wipe_array(array, retained)


def wipe_array(array: Any, lent: BorrowedMemory = NONE_LENT) -> None:
    """Overwrite the memory of an array of ours, but for buffers that were lent.

    Only the array's own rows are overwritten, so slices of one block can be wiped one by one. Left alone: dictionaries,
    which batches share, up to seven bits at either end of a bitmap, which belong to neighbours too, and nested types
    and views, which no batch of the engine has.
    """
    if isinstance(array, np.ndarray):
        if array.dtype != object:
            wipe(array)
        return
    if isinstance(array, pa.ChunkedArray):
        for chunk in array.chunks:
            wipe_array(chunk, lent)
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
    buffers = [None if buffer is None or lent.contains(buffer) else buffer for buffer in held]
    if buffers[0] is not None:
        _wipe_bits(buffers[0], start, stop)
    if width is not None:
        kind = np.int32 if width == 4 else np.int64
        offsets = np.frombuffer(held[1], kind, stop + 1 - start, start * width)
        first = int(offsets[0])
        last = int(offsets[-1])
        _wipe_bytes(buffers[2], first, last)
        # Where a slice begins or ends, its neighbour needs the offset; behind the last row there is no neighbour.
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
    """Return a larger buffer with the bytes that are used of another, which is overwritten."""
    larger = bytearray(size)
    larger[:used] = memoryview(data)[:used]
    wipe(data)
    return larger
