"""Search a buffer for very many byte patterns at every alignment, in one pass.

Only every ``stride``-th position is tested: the windows of ``window`` bytes at a pattern's first ``stride`` offsets are
marked, so that one of them is hit at any alignment. Each filter is finer and slower than the one before:

1. the window's first two pairs of bytes, in tables that fit the first-level cache;
2. the window, in a Bloom filter;
3. the first 8 or 16, then 32 bytes from the position on, in another Bloom filter;
4. each length that occurs, by a hash table with one running hash, and then byte for byte.

So patterns with a long common prefix cost no more than others. Compiled because every position takes a different path.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.kernels.jit import njit

PADDING = 64  # readable bytes that must follow the data of ``buffer`` and ``blob``; sizes are multiples of 8

_START = np.uint64(0xCBF29CE484222325)
_STEP = np.uint64(0x100000001B3)
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_ONE = np.uint64(1)
_SIX_BITS = np.uint64(63)
_ENDLESS = 1 << 62


class NeedleIndex(NamedTuple):
    """The patterns and their filters; pattern i is ``blob[starts[i]:starts[i + 1]]``.

    ``window`` is 6 to 8, and no pattern shorter than ``window + stride - 1``. ``lengths`` holds in rising order the
    lengths that occur. The other arrays start as zeros: ``sieve`` and ``gate`` of any size, ``pairs`` of 16384
    elements, ``hashes`` of one a pattern, ``slots`` of a power of two. A slot will hold a pattern's number plus one.
    ``zeros`` has one element: the longest run of zeros that a marked window begins with and its pattern ends.
    """

    blob: NDArray[np.uint8]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    window: int
    stride: int
    zeros: NDArray[np.int64]
    pairs: NDArray[np.uint8]
    sieve: NDArray[np.uint64]
    gate: NDArray[np.uint64]
    hashes: NDArray[np.uint64]
    slots: NDArray[np.int32]


@njit(cache=True, nogil=True)
def _word_index(table: NDArray[np.uint64], spread: np.uint64) -> np.uint64:
    """Return the index of the word of ``table`` that the upper half of a hash selects."""
    return np.uint64(((spread >> np.uint64(32)) * np.uint64(table.size)) >> np.uint64(32))


@njit(cache=True, nogil=True)
def _spread(value: np.uint64) -> np.uint64:
    product = np.uint64(value * _SPREAD)
    return np.uint64(product ^ (product >> np.uint64(32)))


@njit(cache=True, nogil=True)
def _bits(spread: np.uint64) -> np.uint64:
    """Return the three bits that represent a hash, all in one word: one cache line and one branch per lookup."""
    low = spread & _SIX_BITS
    middle = (spread >> np.uint64(6)) & _SIX_BITS
    high = (spread >> np.uint64(12)) & _SIX_BITS
    return np.uint64((_ONE << low) | (_ONE << middle) | (_ONE << high))


@njit(cache=True, nogil=True)
def _load(words: NDArray[np.uint64], pos: int) -> np.uint64:
    """Return the eight bytes from byte ``pos`` on, the first one lowest."""
    shift = np.uint64((pos & 7) << 3)
    return np.uint64((words[pos >> 3] >> shift) | ((words[(pos >> 3) + 1] << _ONE) << (np.uint64(63) - shift)))


@njit(cache=True, nogil=True)
def _pair(window: np.uint64, number: int) -> np.uint64:
    """Return the bit number that represents pair ``number``, 0 or 1, of a window in the tables of pairs."""
    return np.uint64(np.uint64(number << 16) | ((window >> np.uint64(16 * number)) & np.uint64(0xFFFF)))


@njit(cache=True, nogil=True)
def _has_pair(pairs: NDArray[np.uint8], bit: np.uint64) -> bool:
    return bool((pairs[bit >> np.uint64(3)] >> (bit & np.uint64(7))) & 1)


@njit(cache=True, nogil=True)
def _fold(words: NDArray[np.uint64], pos: int, size: int, seed: np.uint64) -> np.uint64:
    """Return ``seed`` mixed with the ``size`` bytes from ``pos`` on, 8 or 16."""
    mixed = _spread(seed ^ _load(words, pos))
    return mixed if size == 8 else _spread(mixed ^ _load(words, pos + 8))


@njit(cache=True, nogil=True)
def _first_gate(lengths: NDArray[np.int64]) -> int:
    """Return how many bytes of a candidate the first lookup covers: 16, 8 or none."""
    return 16 if lengths[0] >= 16 else 8 if lengths[0] >= 8 else 0


@njit(cache=True, nogil=True)
def _passes(table: NDArray[np.uint64], spread: np.uint64) -> bool:
    """Return whether a hash may be in a Bloom filter; false positives are possible."""
    bits = _bits(spread)
    return bool(table[_word_index(table, spread)] & bits == bits)


@njit(cache=True, nogil=True)
def _zeros(blob: NDArray[np.uint8], pos: int, end: int) -> int:
    """Count the zeros from ``pos`` on; ``_ENDLESS`` if they reach the pattern's end."""
    run = pos
    while run < end and blob[run] == 0:
        run += 1
    return run - pos if run < end else _ENDLESS


@njit(cache=True, nogil=True)
def build_index(index: NeedleIndex) -> None:
    """Enter every pattern into the filters and the hash table."""
    blob = index.blob
    starts = index.starts
    slots = index.slots
    pairs = index.pairs
    sieve = index.sieve
    gate = index.gate
    keep = ~np.uint64(0) >> np.uint64(8 * (8 - index.window))
    first = _first_gate(index.lengths)
    words = blob.view(np.uint64)
    for pattern in range(starts.size - 1):
        begin = starts[pattern]
        length = starts[pattern + 1] - starts[pattern]
        for offset in range(index.stride):
            here = _load(words, begin + offset) & keep
            index.zeros[0] = max(index.zeros[0], _zeros(blob, begin + offset, begin + length))
            for number in range(2):
                bit = _pair(here, number)
                pairs[bit >> np.uint64(3)] |= np.uint8(_ONE << (bit & np.uint64(7)))
            spread = _spread(here)
            sieve[_word_index(sieve, spread)] |= _bits(spread)
        if first == 8:
            folded = _fold(words, begin, 8, _START)
            gate[_word_index(gate, folded)] |= _bits(folded)
        folded = _START
        for passed in range(0, min(length - 15, 32), 16):
            folded = _fold(words, begin + passed, 16, folded)
            gate[_word_index(gate, folded)] |= _bits(folded)
        running = _START
        for i in range(length):
            running = np.uint64((running ^ np.uint64(blob[begin + i])) * _STEP)
        digest = _spread(running ^ np.uint64(length))
        index.hashes[pattern] = digest
        slot = np.int64(digest & np.uint64(slots.size - 1))
        while slots[slot] != 0:
            slot = (slot + 1) & (slots.size - 1)
        slots[slot] = pattern + 1


@njit(cache=True, nogil=True)
def _matches_at(
    buffer: NDArray[np.uint8],
    words: NDArray[np.uint64],
    size: int,
    pos: int,
    index: NeedleIndex,
    positions: NDArray[np.int64],
    patterns: NDArray[np.int32],
    match_count: int,
) -> int:
    """Append the patterns that begin at ``pos`` to the matches; return their number, or -1 if the outputs are full."""
    blob = index.blob
    starts = index.starts
    slots = index.slots
    running = _START
    folded = _START
    done = 0
    passed = 0
    for length in index.lengths:
        if pos + length > size:
            break
        while passed < 32 and length >= passed + 16:
            folded = _fold(words, pos + passed, 16, folded)
            if not _passes(index.gate, folded):
                return match_count
            passed += 16
        while done < length:
            running = np.uint64((running ^ np.uint64(buffer[pos + done])) * _STEP)
            done += 1
        digest = _spread(running ^ np.uint64(length))
        slot = np.int64(digest & np.uint64(slots.size - 1))
        while slots[slot] != 0:
            pattern = slots[slot] - 1
            slot = (slot + 1) & (slots.size - 1)
            begin = starts[pattern]
            if index.hashes[pattern] != digest or starts[pattern + 1] - begin != length:
                continue
            same = True
            for i in range(length):
                if blob[begin + i] != buffer[pos + i]:
                    same = False
                    break
            if same:
                if match_count == positions.size:
                    return -1
                positions[match_count] = pos
                patterns[match_count] = pattern
                match_count += 1
    return match_count


@njit(cache=True, nogil=True)
def search(
    buffer: NDArray[np.uint8],
    size: int,
    begin: int,
    end: int,
    index: NeedleIndex,
    positions: NDArray[np.int64],
    patterns: NDArray[np.int32],
) -> tuple[int, int]:
    """Find all patterns that begin in ``buffer[begin:end]`` and end within ``buffer[:size]``.

    Matches go to ``positions`` and ``patterns``. Returns (where to go on, number of matches): call again until the
    first is ``end``, since the outputs may be full.
    """
    pairs = index.pairs
    sieve = index.sieve
    gate = index.gate
    first = _first_gate(index.lengths)
    stride = index.stride
    keep = ~np.uint64(0) >> np.uint64(8 * (8 - index.window))
    longest = index.zeros[0]
    words = buffer.view(np.uint64)
    match_count = measured = 0
    pos = begin
    while pos < end + stride - 1:
        if pos >= measured and words[pos >> 3] | words[(pos >> 3) + 1] == np.uint64(0):
            word = (pos >> 3) + 2
            while word < words.size and words[word] == np.uint64(0):
                word += 1
            measured = word << 3
            if measured - pos > longest:  # go on at the grid's first position with no more zeros than a pattern has
                pos += (measured - longest - pos + stride - 1) // stride * stride
                continue
        here = _load(words, pos) & keep
        likely = _has_pair(pairs, _pair(here, 0)) and _has_pair(pairs, _pair(here, 1))
        if likely and _passes(sieve, _spread(here)):
            for start in range(max(begin, pos - stride + 1), min(end, pos + 1)):
                # Tested before the call, which is expensive since it passes every table.
                if first and not _passes(gate, _fold(words, start, first, _START)):
                    continue
                more = _matches_at(buffer, words, size, start, index, positions, patterns, match_count)
                if more < 0:
                    return start, match_count
                match_count = more
        pos += stride
    return end, match_count
