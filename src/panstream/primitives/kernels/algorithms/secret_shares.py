"""Loops over secret shares: dense marks of a batch, bits to integers, thermometer codes, 128-bit sums.

Compiled because NumPy would leave temporary arrays of shares behind. Branches depend on a batch in the dealer, on
masked bits, or on one share, which is uniformly random by itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.kernels.jit import njit

__all__ = [
    "add_capped",
    "add_wide",
    "complete_words",
    "count_masked",
    "mark_last",
    "move_up",
    "moves",
    "pack_columns",
    "subtract_wide",
]

Bytes = NDArray[np.uint8]
Words = NDArray[np.uint64]


# In row order, since the last row of a cell wins.
@njit(cache=True, nogil=True)
def mark_last(touched: Bytes, values: Bytes, cells: NDArray[Any], weights: NDArray[Any]) -> None:
    """Mark the cell of every row, with 1 for an insert and 0 for a delete; cells beyond the last are ignored."""
    for i in range(cells.size):
        if cells[i] < touched.size:
            touched[cells[i]] = np.uint8(1)
            values[cells[i]] = np.uint8(weights[i] > 0)


@njit(cache=True, nogil=True)
def add_capped(arrivals: Bytes, cells: NDArray[Any], weights: NDArray[Any], cap: int) -> None:
    """Add the weights of every cell's rows, up to ``cap``; cells beyond the last are ignored."""
    for i in range(cells.size):
        if cells[i] < arrivals.size:
            total = np.int64(arrivals[cells[i]]) + weights[i]  # weights are far below 2**62
            arrivals[cells[i]] = np.uint8(cap if total > cap else total)


@njit(cache=True, nogil=True)
def complete_words(rho: Bytes, rho_share: NDArray[Any], modulus: np.uint64, out: NDArray[Any]) -> None:
    """Write rho - rho_share modulo ``modulus`` for every cell: the other share of the bit rho as an integer."""
    for i in range(rho_share.size):
        bit = np.uint64(rho[i >> 3] >> np.uint8(i & 7)) & np.uint64(1)
        out[i] = (modulus + bit - np.uint64(rho_share[i])) % modulus


@njit(cache=True, nogil=True)
def count_masked(
    opened: Bytes, rho_share: NDArray[Any], width: int, first: bool, modulus: np.uint64, out: Words
) -> None:
    """Sum a share of the cells' bits for every row of ``width`` cells; ``opened`` are the bits masked by rho.

    A bit is m + (1 - 2m)·rho, and ``rho_share`` is a share of rho.
    """
    one = np.uint64(1 if first else 0)
    for row in range(out.size):
        total = np.uint64(0)
        for i in range(row * width, (row + 1) * width):
            share = np.uint64(rho_share[i])
            if (opened[i >> 3] >> np.uint8(i & 7)) & np.uint8(1):
                total += one + modulus - share
            else:
                total += share
        out[row] = total % modulus


@njit(cache=True, nogil=True)
def moves(arrivals: Bytes, mask: NDArray[Any], tau: int, chosen: NDArray[Any], term: NDArray[Any]) -> None:
    """Write every user's number of arrivals as one of tau bits, and the mask's share of the shift; arrivals <= tau."""
    every = (np.uint64(1) << np.uint64(tau)) - np.uint64(1) if tau < 64 else ~np.uint64(0)
    for i in range(arrivals.size):
        k = np.uint64(arrivals[i])
        u = np.uint64(mask[i])
        up = u << k if k < np.uint64(64) else np.uint64(0)
        chosen[i] = np.uint64(1) << (k - np.uint64(1)) if k else np.uint64(0)
        term[i] = (up ^ u) & every if k else np.uint64(0)


@njit(cache=True, nogil=True)
def move_up(share: NDArray[Any], opened: NDArray[Any], chosen: NDArray[Any], tau: int) -> None:
    """Shift every user's thermometer by the moves of ``chosen``, a share of one of tau bits; ones enter below."""
    every = (np.uint64(1) << np.uint64(tau)) - np.uint64(1) if tau < 64 else ~np.uint64(0)
    for i in range(share.size):
        e = np.uint64(opened[i])
        h = np.uint64(chosen[i])
        added = np.uint64(0)
        for k in range(1, tau + 1):
            if (h >> np.uint64(k - 1)) & np.uint64(1):
                up = (e << np.uint64(k)) | ((np.uint64(1) << np.uint64(k)) - np.uint64(1)) if k < 64 else every
                added ^= (up ^ e) & every
        share[i] = np.uint64(share[i]) ^ added


@njit(cache=True, nogil=True)
def pack_columns(rows: NDArray[Any], low: int, high: int, out: Bytes) -> None:
    """Pack the bits from ``low`` to ``high`` of every row, one row after the other."""
    out[:] = np.uint8(0)
    bit_pos = 0
    for i in range(rows.size):
        for j in range(low, high):
            bit = (np.uint64(rows[i]) >> np.uint64(j)) & np.uint64(1)
            out[bit_pos >> 3] |= np.uint8(bit << np.uint64(bit_pos & 7))
            bit_pos += 1


# An unsigned sum is below its operand exactly if it wrapped: that is the carry.
@njit(cache=True, nogil=True)
def add_wide(into: Words, other: Words) -> None:
    """Add numbers of 128 bits, the low word first, in place."""
    for i in range(into.shape[0]):
        low = into[i, 0] + other[i, 0]
        carry = np.uint64(low < other[i, 0])
        into[i, 0] = low
        into[i, 1] = into[i, 1] + other[i, 1] + carry


@njit(cache=True, nogil=True)
def subtract_wide(into: Words, other: Words) -> None:
    """Subtract numbers of 128 bits, the low word first, in place."""
    for i in range(into.shape[0]):
        borrow = np.uint64(into[i, 0] < other[i, 0])
        into[i, 0] = into[i, 0] - other[i, 0]
        into[i, 1] = into[i, 1] - other[i, 1] - borrow
