"""Decode the pages of a Parquet column: plain items, indices into a dictionary, and levels.

Every function checks what it reads against the end of the page and returns -1 where the page is damaged. Short items
are copied by sixteen bytes whatever their length, and kept or not: a processor guesses lengths and masks wrong, and
that takes longer.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from panstream.primitives.kernels.jit import part, rare_part
from panstream.primitives.kernels.machine_words import load_word

SLACK = 16  # what lies behind the target of a copy must be free for as many bytes
_LENGTH = np.uint64(0xFFFFFFFF)
_LONGEST = (1 << 31) // 8 - 1  # groups of eight in a run


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
def _item(page: NDArray[np.uint8], at: int) -> np.int64:
    """Return how long the item at ``at`` is, -1 if it goes on behind the page."""
    if at + 4 > page.size:
        return np.int64(-1)
    length = np.int64(page[at]) | np.int64(page[at + 1]) << 8 | np.int64(page[at + 2]) << 16
    length |= np.int64(page[at + 3]) << 24
    return length if length <= page.size - at - 4 else np.int64(-1)


@rare_part
def copy_item(page: NDArray[np.uint8], at: int, length: Any, data: NDArray[np.uint8], used: Any) -> None:
    """Copy ``length`` bytes; up to seven more are written, none more is read."""
    source, target = np.uint64(page.ctypes.data + at), np.uint64(data.ctypes.data + used)
    whole = length if at + length + 8 <= page.size else length & ~7
    for j in range(0, whole, 8):
        _copy_eight(target + np.uint64(j), source + np.uint64(j))  # type: ignore[call-arg]
    if whole < length:
        for j in range(whole, length):
            data[used + j] = page[at + j]


@part
def copy_short(page: NDArray[np.uint8], at: int, length: Any, data: NDArray[np.uint8], used: Any) -> None:
    """Copy ``length`` bytes, at once if few; up to ``SLACK`` more are written, none behind the page is read."""
    if length <= SLACK and at + SLACK <= page.size:
        source, target = np.uint64(page.ctypes.data + at), np.uint64(data.ctypes.data + used)
        _copy_eight(target, source)  # type: ignore[call-arg]
        _copy_eight(target + np.uint64(8), source + np.uint64(8))
    else:
        copy_item(page, at, length, data, used)


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

    ``offsets[first]`` is where ``data`` is free; it must have room for the rest of the page and ``SLACK`` bytes more.
    """
    source, target = np.uint64(page.ctypes.data), np.uint64(data.ctypes.data)
    fast = page.size - 4 - SLACK
    used = np.int64(offsets[first])
    for i in range(first + 1, first + count + 1):
        length = np.int64(load_word(page, at) & _LENGTH) if at <= fast else np.int64(SLACK + 1)
        if length <= SLACK:
            to, start = target + np.uint64(used), source + np.uint64(at + 4)
            _copy_eight(to, start)  # type: ignore[call-arg]
            _copy_eight(to + np.uint64(8), start + np.uint64(8))
        else:
            length = _item(page, at)
            if length < 0:
                return -1
            copy_item(page, at + 4, length, data, used)
        at += 4 + int(length)
        used += length
        offsets[i] = used
    return at


@njit(cache=True, nogil=True)
def chosen_items(
    page: NDArray[np.uint8],
    at: int,
    keep: NDArray[np.bool_],
    offsets: NDArray[np.int32],
    first: int,
    data: NDArray[np.uint8],
) -> int:
    """Append those of the items that begin at ``at`` which are to be kept. Return where the last one ends, kept or not.

    ``offsets[first]`` is where ``data`` is free. Return -2 if there is not room enough, for ``SLACK`` bytes more than
    are kept.
    """
    source, target = np.uint64(page.ctypes.data), np.uint64(data.ctypes.data)
    fast, room = page.size - 4 - SLACK, data.size - SLACK
    used, item = np.int64(offsets[first]), np.int64(first)
    for i in range(keep.size):
        if used > room:
            return -2
        length = np.int64(load_word(page, at) & _LENGTH) if at <= fast else np.int64(SLACK + 1)
        if length <= SLACK:
            to, start = target + np.uint64(used), source + np.uint64(at + 4)
            _copy_eight(to, start)  # type: ignore[call-arg]
            _copy_eight(to + np.uint64(8), start + np.uint64(8))
        else:
            length = _item(page, at)
            if length < 0:
                return -1
            if keep[i]:
                if used + length > room:
                    return -2
                copy_item(page, at + 4, length, data, used)
        at += 4 + int(length)
        one = np.int64(keep[i])
        used += length & -one
        item += one
        offsets[item] = used
    if used > room:
        return -2
    data[used : used + SLACK] = 0  # a part of an item that is not kept may be there
    return at


@njit(cache=True, nogil=True)
def end_of_items(page: NDArray[np.uint8], at: int, count: int) -> int:
    """Return where ``count`` items end that begin at ``at``."""
    for _ in range(count):
        length = _item(page, at)
        if length < 0:
            return -1
        at += 4 + int(length)
    return at


@njit(cache=True, nogil=True)
def all_present(page: NDArray[np.uint8], at: int, count: int) -> bool:
    """Return whether levels are written as one run that says of all rows that they have a value; there may be other
    ways to say so.
    """
    header, shift = np.uint64(0), np.uint64(0)
    while at < page.size and shift <= np.uint64(28):
        header |= np.uint64(page[at] & 127) << shift
        shift += np.uint64(7)
        at += 1
        if page[at - 1] < 128:
            repeated = at < page.size and header & np.uint64(1) == 0 and header <= _LENGTH
            return bool(repeated and header >> np.uint64(1) >= count and page[at] == 1)
    return False


@njit(cache=True, nogil=True)
def decode_runs(page: NDArray[np.uint8], at: int, width: int, out: NDArray[Any]) -> int:
    """Decode Parquet's mixture of repeated and bit-packed numbers of ``width`` bits until ``out`` is full. Return
    where it ends.
    """
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
        if run == 0 or header > _LENGTH or (header & np.uint64(1) and run > _LONGEST):
            return -1
        if header & np.uint64(1):
            if run * width > size - at:
                return -1
            values = min(run * 8, count - done)
            fast = min(values, (size - at - 8) * 8 // max(width, 1) + 1) if size - at >= 8 else 0
            eights = fast & ~7 if width <= 8 else 0  # of which every eight are one word
            for i in range(0, eights, 8):
                word = load_word(page, at + (i >> 3) * width)
                low, high = np.uint32(word), np.uint32(word >> np.uint64(4 * width))  # halves suffice for four each
                first_four, last_four = np.uint64(done + i), np.uint64(done + i + 4)
                for j in range(4):
                    out[first_four + np.uint64(j)] = low >> np.uint32(j * width) & np.uint32(mask)
                for j in range(4):
                    out[last_four + np.uint64(j)] = high >> np.uint32(j * width) & np.uint32(mask)
            for i in range(eights, fast):
                bit = i * width
                out[done + i] = load_word(page, at + (bit >> 3)) >> np.uint64(bit & 7) & mask
            for i in range(fast, values):
                first, last = at + (i * width >> 3), at + ((i + 1) * width + 7 >> 3)
                if last > size:
                    return -1
                value = np.uint64(0)
                for j in range(first, last):
                    value |= np.uint64(page[j]) << np.uint64(8 * (j - first))
                out[done + i] = value >> np.uint64(i * width & 7) & mask
            done += values
            at += run * width
        else:
            value, bytes_wide = np.uint64(0), (width + 7) // 8
            if at + bytes_wide > size:
                return -1
            for j in range(bytes_wide):
                value |= np.uint64(page[at + j]) << np.uint64(8 * j)
            at += bytes_wide
            if value > mask:
                return -1
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
    """Append the items with these indices, which were checked. ``words`` and ``data`` have ``SLACK`` bytes more
    than their items.
    """
    source, target = np.uint64(words.ctypes.data), np.uint64(data.ctypes.data)
    used = np.int64(offsets[first])
    for i in range(indices.size):
        start, stop = starts[indices[i]], starts[indices[i] + 1]
        for j in range(0, stop - start, 8):
            _copy_eight(target + np.uint64(used + j), source + np.uint64(start + j))  # type: ignore[call-arg]
        used += stop - start
        offsets[first + i + 1] = used


@njit(cache=True, nogil=True)
def dictionary_page(
    indices: NDArray[np.int32], starts: NDArray[np.int32], words: NDArray[np.uint8], page: NDArray[np.uint8]
) -> int:
    """Write the items with these indices, which were checked, as a page of plain items, ``SLACK`` bytes shorter than
    ``page``.

    Return where they end.
    """
    source, target = np.uint64(words.ctypes.data), np.uint64(page.ctypes.data)
    at = 0
    for index in indices:
        start, length = starts[index], starts[index + 1] - starts[index]
        for j in range(4):
            page[at + j] = length >> (8 * j) & 255
        at += 4
        for j in range(0, length, 8):
            _copy_eight(target + np.uint64(at + j), source + np.uint64(start + j))  # type: ignore[call-arg]
        at += length
    return at


@njit(cache=True, nogil=True)
def spread_offsets(offsets: NDArray[np.int32], first: int, present: NDArray[np.uint8]) -> None:
    """Move the offsets of items that follow ``offsets[first]`` to the rows that have one; the others get no bytes."""
    item = first + np.int64(present.sum())
    for row in range(present.size - 1, -1, -1):
        offsets[first + row + 1] = offsets[item]
        if present[row]:
            item -= 1


@njit(cache=True, nogil=True)
def dictionary_numbers(indices: NDArray[np.int32], words: NDArray[np.int64], out: NDArray[np.int64]) -> int:
    """Write the numbers with these indices; return -1 if one is not in the dictionary."""
    for i in range(indices.size):
        index = indices[i]
        if index < 0 or index >= words.size:
            return -1
        out[i] = words[index]
    return 0


@njit(cache=True, nogil=True)
def dictionary_codes(indices: NDArray[np.int32], words: int, out: NDArray[np.int32]) -> int:
    """Copy indices; return -1 if one is not in the dictionary of so many words."""
    largest = np.uint32(0)
    for i in range(indices.size):
        out[i] = indices[i]
        largest = max(largest, np.uint32(indices[i]))
    return 0 if indices.size == 0 or largest < words else -1


@njit(cache=True, nogil=True)
def spread_numbers(numbers: NDArray[Any], count: int, present: NDArray[np.uint8]) -> None:
    """Move the first ``count`` numbers to the rows that have one, of which there are as many; the others become 0."""
    at = count
    for row in range(present.size - 1, -1, -1):
        if present[row]:
            at -= 1
            numbers[row] = numbers[at]
        else:
            numbers[row] = 0
