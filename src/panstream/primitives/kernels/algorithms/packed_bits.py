"""Stored bits, eight cells to a byte, lowest bit first: redraw, toggle, merge and count them.

Bits beyond the last cell are 0. Coins and marks are bytes 0 and 1, one per cell or row. Compiled because rows of one
cell must take effect in order, which NumPy's indexed assignment does not promise, and because it would copy the cells.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.kernels.jit import njit
from panstream.primitives.kernels.machine_words import prefetch

Bytes = NDArray[np.uint8]

_AHEAD = 128
_CACHED = 1 << 18  # bytes of a table that stay in the second-level cache


@njit(cache=True, nogil=True)
def pack(cells: Bytes, bits: Bytes) -> None:
    """Pack cells, bytes 0 and 1, into bits; the rest of the last byte becomes 0."""
    full = cells.size // 8
    for index in range(full):
        byte = np.uint8(0)
        for j in range(8):
            byte |= cells[8 * index + j] << np.uint8(j)
        bits[index] = byte
    if full < bits.size:
        byte = np.uint8(0)
        for j in range(cells.size - 8 * full):
            byte |= cells[8 * full + j] << np.uint8(j)
        bits[full] = byte


@njit(cache=True, nogil=True, forceinline=True)
def _set(bits: Bytes, cell: np.uint64, coin: np.uint8) -> None:
    byte = cell >> np.uint64(3)
    shift = np.uint8(cell & np.uint64(7))
    bits[byte] = (bits[byte] & ~(np.uint8(1) << shift)) | (coin << shift)


@njit(cache=True, nogil=True)
def scatter(bits: Bytes, cells: NDArray[Any], coins: Bytes) -> None:
    """Set the bit of every cell to its coin, row by row; all cells lie within the table.

    In a large table each bit is a cache miss, so its line is prefetched ``_AHEAD`` rows before.
    """
    fetched = max(cells.size - _AHEAD, 0) if bits.size > _CACHED else 0
    ahead = cells[_AHEAD:]
    cells_left = cells[fetched:]
    coins_left = coins[fetched:]
    for i in range(fetched):  # slices indexed from 0: numba proves those not negative and omits a test
        prefetch(bits, np.uint64(ahead[i]) >> np.uint64(3))
        _set(bits, np.uint64(cells[i]), coins[i])
    for i in range(cells_left.size):
        _set(bits, np.uint64(cells_left[i]), coins_left[i])


# Rows of users who are not in the sample are skipped, but have a coin: draws do not depend on the sample.
@njit(cache=True, nogil=True)
def redraw(bits: Bytes, size: int, cells: NDArray[np.int64], coins: Bytes) -> None:
    """Set the bit of every cell to its coin, row by row; cells from ``size`` on are users outside the sample."""
    for i in range(cells.size):
        cell = np.uint64(cells[i])
        if cell < np.uint64(size):
            _set(bits, cell, coins[i])


# Both coins were drawn for every row, so that the number of draws does not depend on the weights.
@njit(cache=True, nogil=True)
def select_coin(coins: Bytes, others: Bytes, weights: NDArray[np.int64]) -> None:
    """Replace a coin by the other one where the weight is negative."""
    for i in range(coins.size):
        if weights[i] < 0:
            coins[i] = others[i]


# Every row has a coin, which is used only where its counter wraps.
@njit(cache=True, nogil=True)
def count_and_redraw(
    counters: NDArray[np.int32], bits: Bytes, cells: NDArray[np.int64], coins: Bytes, crop: int
) -> None:
    """Increment each row's counter modulo ``crop``; where it wraps, set the bit to the row's coin."""
    for i in range(cells.size):
        cell = cells[i]
        if cell < counters.size:
            following = counters[cell] + 1
            if following == crop:
                following = 0
                _set(bits, np.uint64(cell), coins[i])
            counters[cell] = following


# Eight cells at a time: one read and one write per byte of the table.
@njit(cache=True, nogil=True)
def draw_marked(bits: Bytes, marks: Bytes, coins: Bytes) -> None:
    """Set the bit of every marked cell to its coin."""
    for index in range(bits.size):
        touched = np.uint8(0)
        drawn = np.uint8(0)
        for j in range(min(8, marks.size - 8 * index)):
            touched |= marks[8 * index + j] << np.uint8(j)
            drawn |= coins[8 * index + j] << np.uint8(j)
        bits[index] = (bits[index] & ~touched) | (drawn & touched)


@njit(cache=True, nogil=True)
def toggle(bits: Bytes, cells: NDArray[Any]) -> None:
    """Toggle the bit of every cell, row by row."""
    for i in range(cells.size):
        cell = np.uint64(cells[i])
        bits[cell >> np.uint64(3)] ^= np.uint8(1) << np.uint8(cell & np.uint64(7))


# Bitwise on packed bytes: no cell is unpacked.
@njit(cache=True, nogil=True)
def noisy_or(first: Bytes, second: Bytes, only_first: Bytes, only_second: Bytes, both: Bytes, out: Bytes) -> None:
    """Write 0 where both bits are 0, else the coin for the pair of bits; all arrays are packed."""
    for index in range(out.size):
        one = first[index]
        other = second[index]
        out[index] = (
            (one & other & both[index]) | (one & ~other & only_first[index]) | (~one & other & only_second[index])
        )


# Without frozen phases whole bytes are counted, and only the edges of a level bit by bit.
@njit(cache=True, nogil=True)
def count_set_bits(bits: Bytes, frozen: NDArray[np.uint8], buckets: int, ones: NDArray[np.int64]) -> None:
    """Add every bit to ``ones[pattern, level]``; bit j of the pattern is the cell's bit in row j of ``frozen``."""
    for level in range(ones.shape[1]):
        cell = level * buckets
        end = (level + 1) * buckets
        if frozen.shape[0] == 0:
            while cell < end and cell & 7:
                ones[0, level] += (bits[cell >> 3] >> np.uint8(cell & 7)) & np.uint8(1)
                cell += 1
            ones[0, level] += _ones_of_bytes(bits, cell >> 3, max(cell, end) >> 3)
            cell = max(cell, end & ~7)
        while cell < end:
            byte = cell >> 3
            shift = np.uint8(cell & 7)
            pattern = np.int64(0)
            for phase in range(frozen.shape[0]):
                pattern |= np.int64((frozen[phase, byte] >> shift) & np.uint8(1)) << phase
            ones[pattern, level] += (bits[byte] >> shift) & np.uint8(1)
            cell += 1


@njit(cache=True, nogil=True)
def _ones_of_bytes(bits: Bytes, start: int, stop: int) -> np.int64:
    """Count the set bits of whole bytes by pairwise sums, which become vector instructions without popcount."""
    total = np.int64(0)
    for index in range(start, stop):
        byte = bits[index]
        byte = np.uint8(byte - ((byte >> np.uint8(1)) & np.uint8(0x55)))
        byte = np.uint8((byte & np.uint8(0x33)) + ((byte >> np.uint8(2)) & np.uint8(0x33)))
        total += np.int64((byte + (byte >> np.uint8(4))) & np.uint8(0x0F))
    return total
