"""Names in prefix tables: update cells, look up counts.

A name is read in symbols of ``bits`` bits. Its prefix of j symbols has a hash, extended from the previous one, and one
signed cell in table j; on the first levels, whose tables have a cell for every prefix, the cell is the prefix itself.
The whole name has one signed cell in every row. A name that fits twice or more into the longest length may have each
symbol several times, on as many levels; its hashes then begin with that number. Compiled because each hash depends on
the one before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.kernels.jit import njit

_A = np.uint64(0x9E3779B97F4A7C15)
_B = np.uint64(0xBF58476D1CE4E5B9)
_C = np.uint64(0x94D049BB133111EB)
_ONE = np.uint64(1)
_TOGETHER = 1 << 12  # names that pass through the levels together
_STRIDE = _TOGETHER + 64  # distance between bytes of a name: a power of two would map all to one cache set


@njit(cache=True, nogil=True, inline="always")
def extend_hash(prefix: np.uint64, symbol: np.uint64) -> np.uint64:
    """Return the hash of a prefix with one more symbol."""
    mixed = (prefix ^ (symbol + _ONE)) * _A
    return mixed ^ (mixed >> np.uint64(29))


@njit(cache=True, nogil=True, inline="always")
def cell_word(name: np.uint64, row: np.uint64) -> np.uint64:
    """Return a word whose upper bits are a name's cell in a row and whose lowest bit is its sign."""
    mixed = (name + row * _C + _ONE) * _B
    mixed = (mixed ^ (mixed >> np.uint64(32))) * _C
    return mixed ^ (mixed >> np.uint64(29))


@njit(cache=True, nogil=True)
def repeats_of(size: int, longest: int, most: int) -> int:
    """Return on how many levels each symbol of a name of ``size`` bytes is: ``most``, half of it, and so on, or 1."""
    repeats = most
    while repeats > 1 and size * repeats > longest:
        repeats //= 2
    return repeats


@njit(cache=True, nogil=True)
def root_hash(seed: np.uint64, repeats: int) -> np.uint64:
    """Return the hash of the empty prefix of names whose symbols are on ``repeats`` levels."""
    return extend_hash(seed, np.uint64(512 + repeats)) if repeats > 1 else seed


@njit(cache=True, nogil=True)
def cut_at(data: NDArray[np.uint8], start: int, stop: int, longest: int) -> int:
    """Return the end of a name truncated to ``longest`` bytes, but not within a character of UTF-8."""
    if stop - start <= longest:
        return stop
    end = start + longest
    for _ in range(3):
        if end > start and data[end] & 0xC0 == 0x80:
            end -= 1
    return end


def scratch_for_update(longest: int, array: Callable[[int, Any], NDArray[Any]]) -> tuple[NDArray[Any], ...]:
    """Allocate the working memory of ``update_cells`` by ``array(size, type)``; the caller wipes it."""
    buffers = (array(_TOGETHER, kind) for kind in (np.uint64, np.int64, np.int32))
    return (*buffers, array(longest + 2, np.int64), array(longest * _STRIDE, np.uint8))


@njit(cache=True, nogil=True)
def update_cells(
    offsets: NDArray[Any],
    data: NDArray[np.uint8],
    firsts: NDArray[np.int32],
    counts: NDArray[np.int32],
    levels: NDArray[np.int32],
    rows: NDArray[np.int32],
    starts: NDArray[np.int64],
    numbers: NDArray[np.int64],
    bits: int,
    most: int,
    seed: np.uint64,
    mixed: NDArray[np.uint64],
    order: NDArray[np.int64],
    weights: NDArray[np.int32],
    ends: NDArray[np.int64],
    text: NDArray[np.uint8],
) -> None:
    """Add every name's count to its cells, with the cells' signs; cells wrap around at 2**31.

    The tables may be those of one shard: ``starts`` has the local level at which each byte's levels begin, or -1 if
    another shard has them, and ``numbers`` the rows that are local.

    Thousands of names pass through the levels together, so that a table stays in the cache and hashes do not wait for
    each other. They are sorted by length, longest first, and their bytes are transposed in ``text``, so that each step
    reads memory in order. The last five arrays are those of ``scratch_for_update``.
    """
    longest = starts.size
    last_local = -1
    for pos in range(longest):
        if starts[pos] >= 0:
            last_local = pos
    if numbers.size:
        last_local = longest - 1  # rows are indexed by the hash of the whole name
    row_shift = np.uint64(64 - _log2(rows.shape[1]))
    for start in range(0, firsts.size, mixed.size):
        stop = min(start + mixed.size, firsts.size)
        ends[:] = 0
        for i in range(start, stop):
            begin = offsets[firsts[i]]
            size = cut_at(data, begin, offsets[firsts[i] + 1], longest) - begin
            ends[longest - size * repeats_of(size, longest, most) + 1] += 1
        for shorter in range(1, ends.size):
            ends[shorter] += ends[shorter - 1]
        for i in range(start, stop):
            begin = offsets[firsts[i]]
            size = cut_at(data, begin, offsets[firsts[i] + 1], longest) - begin
            repeats = repeats_of(size, longest, most)
            index = ends[longest - size * repeats]
            ends[longest - size * repeats] += 1  # after the loop: the end of the names of this length
            mixed[index] = root_hash(seed, repeats)
            order[index] = firsts[i]
            weights[index] = counts[i]
            if repeats == 1 or bits == 8:
                for pos in range(size * repeats):
                    text[pos * _STRIDE + index] = data[begin + pos // repeats]
            else:
                for pos in range(size * repeats):
                    byte = data[begin + pos // repeats]
                    half = byte >> 4 if pos % repeats < repeats // 2 else byte & 15
                    text[pos * _STRIDE + index] = half * 17
        for pos in range(last_local + 1):
            if ends[longest - pos - 1]:
                some = mixed[: ends[longest - pos - 1]]
                if starts[pos] >= 0:
                    _update_byte(text, weights, levels[starts[pos] : starts[pos] + 8 // bits], bits, pos, some)
                else:
                    _skip_byte(text, bits, pos, some)
        for i in range(stop - start if numbers.size else 0):
            begin = offsets[order[i]]
            end = offsets[order[i] + 1]
            last = mixed[i]
            weight = weights[i]
            if cut_at(data, begin, end, longest) < end:
                last = extend_hash(last, np.uint64(256))
            for row in range(numbers.size):
                word = cell_word(last, np.uint64(numbers[row]))
                rows[row, word >> row_shift] += weight if word & _ONE else -weight


@njit(cache=True, nogil=True)
def _skip_byte(text: NDArray[np.uint8], bits: int, pos: int, mixed: NDArray[np.uint64]) -> None:
    """Extend the hashes by a byte whose levels belong to another shard."""
    mask = np.uint64((1 << bits) - 1)
    for i in range(mixed.size):
        byte = np.uint64(text[pos * _STRIDE + i])
        for part in range(8 // bits):
            mixed[i] = extend_hash(mixed[i], (byte >> np.uint64(8 - bits * (part + 1))) & mask)


@njit(cache=True, nogil=True)
def _update_byte(
    text: NDArray[np.uint8],
    weights: NDArray[np.int32],
    levels: NDArray[np.int32],
    bits: int,
    pos: int,
    mixed: NDArray[np.uint64],
) -> None:
    """Update the cells of the prefixes that end in the byte at ``pos``; ``levels`` are those of this byte."""
    per = 8 // bits
    power = _log2(levels.shape[1])
    shift = np.uint64(64 - power)
    mask = np.uint64((1 << bits) - 1)
    direct = power // bits - pos * per  # levels of this byte with a cell for every prefix
    if per == 2 and direct <= 0:
        letters = text[pos * _STRIDE : pos * _STRIDE + mixed.size]
        _update_nibbles(letters, weights, levels[0], levels[1], shift, mixed)
        return
    for part in range(per):
        table = levels[part]
        down = np.uint64(8 - bits * (part + 1))
        for i in range(mixed.size):
            byte = np.uint64(text[pos * _STRIDE + i])
            weight = weights[i]
            now = extend_hash(mixed[i], (byte >> down) & mask)
            mixed[i] = now
            if part < direct:
                code = np.uint64(0)
                for earlier_pos in range(pos):
                    code = (code << np.uint64(8)) | np.uint64(text[earlier_pos * _STRIDE + i])
                table[(code << np.uint64(bits * (part + 1))) | (byte >> down)] += weight
            else:
                word = now * _B
                table[word >> shift] += weight if (word >> np.uint64(7)) & _ONE else -weight


@njit(cache=True, nogil=True)
def _update_nibbles(
    letters: NDArray[np.uint8],
    weights: NDArray[np.int32],
    upper: NDArray[np.int32],
    lower: NDArray[np.int32],
    shift: np.uint64,
    mixed: NDArray[np.uint64],
) -> None:
    """Update two levels of four bits at once, where all cells are hashed: nearly all time is spent here."""
    for i in range(mixed.size):
        byte = np.uint64(letters[i])
        weight = weights[i]
        now = extend_hash(mixed[i], byte >> np.uint64(4))
        word = now * _B
        upper[word >> shift] += weight if (word >> np.uint64(7)) & _ONE else -weight
        now = extend_hash(now, byte & np.uint64(15))
        word = now * _B
        lower[word >> shift] += weight if (word >> np.uint64(7)) & _ONE else -weight
        mixed[i] = now


@njit(cache=True, nogil=True)
def _log2(size: int) -> int:
    power = 0
    while 1 << power < size:
        power += 1
    return power


@njit(cache=True, nogil=True)
def hash_names(
    offsets: NDArray[Any],
    data: NDArray[np.uint8],
    longest: int,
    bits: int,
    most: int,
    seed: np.uint64,
    out: NDArray[np.uint64],
) -> None:
    """Write the hash of every whole name, which selects its cells in the rows."""
    mask = np.uint64((1 << bits) - 1)
    for i in range(out.size):
        stop = cut_at(data, offsets[i], offsets[i + 1], longest)
        repeats = repeats_of(stop - offsets[i], longest, most)
        mixed = root_hash(seed, repeats)
        for pos in range(offsets[i], stop):
            for part in range(8 // bits):
                for _ in range(repeats):
                    mixed = extend_hash(mixed, (np.uint64(data[pos]) >> np.uint64(8 - bits * (part + 1))) & mask)
        out[i] = extend_hash(mixed, np.uint64(256)) if stop < offsets[i + 1] else mixed


@njit(cache=True, nogil=True)
def extend_hashes(hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the hashes of truncated names from the hashes of their first bytes."""
    out = np.empty_like(hashes)
    for i in range(hashes.size):
        out[i] = extend_hash(hashes[i], np.uint64(256))
    return out


# Insertion sort, since there are few rows.
@njit(cache=True, nogil=True)
def look_up(
    hashes: NDArray[np.uint64],
    rows: NDArray[np.int32],
    salt: int,
    scale: float,
    values: NDArray[np.float64],
    agreeing: NDArray[np.int32],
) -> None:
    """Write, for every name, the mean of the rows within 4 scales of their median, and the number of those rows.

    With a salt other than 0 the cells belong to no name: the values are distributed like those of absent names.
    """
    count = rows.shape[0]
    shift = np.uint64(64 - _log2(rows.shape[1]))
    ordered = np.empty(count, np.float64)
    for i in range(hashes.size):
        for row in range(count):
            word = cell_word(hashes[i], np.uint64(row + count * salt))
            cell = float(rows[row, word >> shift])
            value = cell if word & _ONE else -cell
            index = row
            while index > 0 and ordered[index - 1] > value:
                ordered[index] = ordered[index - 1]
                index -= 1
            ordered[index] = value
        middle = 0.5 * (ordered[(count - 1) // 2] + ordered[count // 2])
        total = 0.0
        near = 0
        for row in range(count):
            if abs(ordered[row] - middle) <= 4.0 * scale:
                total += ordered[row]
                near += 1
        values[i] = total / max(near, 1)
        agreeing[i] = near
