"""Noise from a fixed number of candidates, of which the first accepted is taken, in constant time.

The same instructions run and the same addresses are read whatever is drawn: the time a draw takes must not depend on
it. Hence no branch, no division and no table lookup by a secret index. Fractions have 128 bits, in two words; products
and sums of them are rounded down.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.kernels.jit import njit
from panstream.primitives.kernels.machine_words import product, product_high

WORDS = 4
"""Words of a candidate: block and sign; offset in the block and tail bits; two for the test of acceptance."""

TAIL_BITS = 32
TAIL_SHIFT = 31
"""A candidate is in the tail if the bits of its block are all 1 and so are these bits of its second word."""

_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_LAST = _ALL >> np.uint64(1)
_NEAR = np.uint64(1 << 32)  # in units of 2^-128: closer to a probability than this, the caller decides exactly
_TERMS = 16
_SQUARINGS = 6
_ONE = np.uint64(1)


def _inverse_factorials() -> NDArray[np.uint64]:
    chances = []
    factorial = 1
    for k in range(_TERMS + 1):
        factorial *= max(k, 1)
        inverse = min((1 << 128) // factorial, (1 << 128) - 1)
        chances.append((inverse >> 64, inverse & ((1 << 64) - 1)))
    return np.array(chances, np.uint64)


_INVERSE_FACTORIALS = _inverse_factorials()


@njit(cache=True, nogil=True, forceinline=True)
def _times(high: Any, low: Any, other_high: Any, other_low: Any) -> Any:
    """Multiply two fractions; the result is at most three units of 2^-128 too small."""
    below, above = product(high, other_high)
    first = product_high(high, other_low)
    second = product_high(low, other_high)
    below += first
    above += np.uint64(below < first)
    below += second
    return above + np.uint64(below < second), below


@njit(cache=True, nogil=True, forceinline=True)
def _exponential(exponent: Any) -> Any:
    """Return exp(-exponent / 2**52) for an exponent below 2**53, with an error below 2**9 units of 2^-128.

    Sixteen terms of the series at a 64th of the exponent, squared six times. The error is far below ``_NEAR``.
    """
    part = exponent << np.uint64(12 - _SQUARINGS)
    high = _INVERSE_FACTORIALS[_TERMS, 0]
    low = _INVERSE_FACTORIALS[_TERMS, 1]
    for k in range(_TERMS - 1, -1, -1):
        carried = product_high(low, part)
        below, above = product(high, part)
        below += carried
        above += np.uint64(below < carried)
        first = _INVERSE_FACTORIALS[k, 0]
        second = _INVERSE_FACTORIALS[k, 1]
        low = second - below
        high = first - above - np.uint64(second < below)
    for _ in range(_SQUARINGS):
        high, low = _times(high, low, high, low)
    return high, low


# All candidates and all blocks are visited; the accepted one is selected by a product with 0 or 1. The only branch on
# a draw is the one on undecided draws, of probability below 2^-64.
@njit(cache=True, nogil=True)
def add_from_candidates(
    values: NDArray[Any],
    words: NDArray[np.uint64],
    starts: NDArray[np.uint64],
    high: NDArray[np.uint64],
    low: NDArray[np.uint64],
    curvature: np.uint64,
    block_bits: np.uint64,
    candidates: int,
    open_draws: NDArray[np.int64],
) -> int:
    """Add one draw to every value; return how many stay undecided: unchanged, with their indices in ``open_draws``.

    Block j begins at ``starts[j]``, below 2^63. The probability of accepting its first number is the sum of ``high``,
    ``low`` up to j, modulo 2^128: so all entries are read, whichever block it is.
    """
    open_count = 0
    pos = 0
    inside = (_ONE << block_bits) - _ONE
    for i in range(values.size):
        noise = np.int64(0)
        done = False
        unclear = False
        for _ in range(candidates):
            word = words[pos] >> _ONE
            rest = words[pos + 1]
            block = np.uint64(0)
            first = np.uint64(0)
            second = np.uint64(0)
            for j in range(starts.size):
                # Both are below 2^63, so the sign of the difference compares them without a branch.
                mask = ((word - starts[j]) >> np.uint64(63)) - _ONE
                block -= mask
                first += mask & high[j]
                second += mask & low[j]
            block -= _ONE
            step = rest & inside
            size = (block << block_bits) + step
            if block_bits:  # public: the same for all draws of a distribution
                above, below = _exponential(curvature * step * ((block << (block_bits + _ONE)) + step))
                first, second = _times(first, second, above, below)
                half = np.uint64(size == np.uint64(0))  # 0 has two signs
                second = (second >> half) | ((first & half) << np.uint64(63))
                first >>= half
            above = words[pos + 2] - first - np.uint64(words[pos + 3] < second)
            below = words[pos + 3] - second
            refused = (words[pos + 2] > first) | ((words[pos + 2] == first) & (words[pos + 3] >= second))
            unclear |= ((above == np.uint64(0)) & (below < _NEAR)) | ((above == _ALL) & (below > _ALL - _NEAR))
            tail = (rest >> np.uint64(TAIL_SHIFT)) & np.uint64((1 << TAIL_BITS) - 1)
            unclear |= (word == _LAST) & (tail == np.uint64((1 << TAIL_BITS) - 1))
            accepted = np.int64(not (refused | done))
            sign = np.int64(1) - np.int64((words[pos] & _ONE) << _ONE)
            noise += accepted * sign * np.int64(size)
            done |= not refused
            pos += WORDS
        if unclear or not done:
            if open_count < open_draws.size:
                open_draws[open_count] = i
            open_count += 1
            continue
        values[i] += noise
    return open_count
