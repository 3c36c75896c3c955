"""Exact samplers that consume an array of uniform random words.

A sampler that runs out of words reports how many outcomes are complete and where the first incomplete one began;
the caller appends fresh words and the incomplete draw is replayed from the same words, so nothing is biased.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from panstream.primitives.kernels.bit_deposit import spread
from panstream.primitives.kernels.machine_words import ones, trailing_zeros

DIGITS = 64
"""Binary digits of a coin's threshold."""

_AT_ONCE = 8  # digits that are compared before looking whether that was enough
_1 = np.uint64(1)
_6 = np.uint64(6)
_63 = np.uint64(63)
_ALL_ONES = np.uint64(0xFFFFFFFFFFFFFFFF)
_BLOCK = 64  # coins that are compared at once: in most blocks none is a tie


@njit(cache=True, nogil=True)
def compare_bytes(coins: NDArray[np.uint8], top: np.uint8) -> int:
    """Count the bytes equal to ``top``: those coins need more bits."""
    ties = 0
    for i in range(coins.size):
        ties += coins[i] == top
    return ties


@njit(cache=True, nogil=True, forceinline=True)
def _finish(
    coins: NDArray[np.uint8], i: int, top: np.uint8, rest: np.uint64, words: NDArray[np.uint64], used: int
) -> int:
    """Turn one byte into a coin; return how many words were used so far."""
    if coins[i] == top:
        coins[i] = np.uint8((words[used] >> np.uint64(8)) < rest)
        return used + 1
    coins[i] = np.uint8(coins[i] < top)
    return used


@njit(cache=True, nogil=True)
def resolve_coins(coins: NDArray[np.uint8], top: np.uint8, rest: np.uint64, words: NDArray[np.uint64]) -> None:
    """Turn uniform bytes into coins in place: 1 where byte.word[:56] < top.rest; one word per tie."""
    used = 0
    full = coins.size // _BLOCK * _BLOCK
    for base in range(0, full, _BLOCK):
        ties = np.uint64(0)
        for i in range(_BLOCK):
            ties |= np.uint64(coins[base + i] == top) << np.uint64(i)
        for i in range(base, base + _BLOCK):
            coins[i] = np.uint8(coins[i] < top)
        while ties:
            coins[base + np.int64(trailing_zeros(ties))] = np.uint8((words[used] >> np.uint64(8)) < rest)
            ties &= ties - np.uint64(1)
            used += 1
    for i in range(full, coins.size):
        used = _finish(coins, i, top, rest, words, used)


@njit(cache=True, nogil=True, forceinline=True)
def _decide(word: np.uint64, digit: np.uint64, undecided: np.uint64, coins: np.uint64) -> Any:
    """Compare a digit of 64 numbers with the threshold's; return which are undecided still, and the coins so far."""
    differs = word ^ digit
    return undecided & ~differs, coins | (undecided & differs & digit)


@njit(cache=True, nogil=True)
def bernoulli_words(
    threshold: NDArray[np.uint64], words: NDArray[np.uint64], coins: NDArray[np.uint64], tossed: int
) -> int:
    """Toss 64 coins for every word of ``coins`` from word ``tossed`` on; return how many words of coins are complete.

    ``threshold`` is that of the coin, a word of equal bits for each of its 64 binary digits. A random word is a digit
    of 64 uniform numbers. The first digit in which a number differs from the threshold decides its coin: few need more
    than eight. Random words that might not suffice for 64 coins are not looked at. How many coins the random words
    give depends on what these show, so the caller tosses until all of ``coins`` is complete: leaving out the last of a
    number that is not fixed would bias the others.
    """
    used = np.uint64(0)
    for index in range(tossed, coins.size):
        if np.int64(used) + DIGITS > words.size:
            return index
        undecided = _ALL_ONES
        tosses = np.uint64(0)
        for digit in range(_AT_ONCE):
            undecided, tosses = _decide(words[used], threshold[digit], undecided, tosses)
            used += _1
        for digit in range(_AT_ONCE, DIGITS):
            if not undecided:
                break
            undecided, tosses = _decide(words[used], threshold[digit], undecided, tosses)
            used += _1
        coins[index] = tosses
    return coins.size


@njit(cache=True, nogil=True)
def redraw(bits: NDArray[np.uint64], marks: NDArray[np.uint64], done: int, coins: NDArray[np.uint64]) -> int:
    """Put coins, 64 to a word, in place of the marked bits from word ``done`` on, each coin in one place only.

    Return how many words of bits are complete: all, or those before the first for which the coins might not suffice.
    """
    used = np.uint64(0)
    last = 64 * (coins.size - 1)
    for index in range(done, marks.size):
        mark = marks[index]
        if mark:
            if np.int64(used) >= last:
                return index
            word = used >> _6
            shift = used & _63
            fresh = (coins[word] >> shift) | (coins[word + _1] << _1 << (_63 - shift))
            bits[index] = (bits[index] & ~mark) | spread(fresh, mark)
            used += ones(mark)
    return marks.size


@njit(cache=True, nogil=True)
def uniform_below(out: NDArray[np.int64], done: int, bound: np.uint64, words: NDArray[np.uint64]) -> tuple[int, int]:
    """Fill ``out[done:]`` with uniform integers below ``bound`` by rejection; return (complete, words used)."""
    mask = np.uint64(1)
    while mask < bound:
        mask = (mask << np.uint64(1)) | np.uint64(1)
    position = 0
    while done < out.size:
        if position == words.size:
            return done, position
        candidate = words[position] & mask
        position += 1
        if candidate < bound:
            out[done] = np.int64(candidate)
            done += 1
    return done, position


@njit(cache=True, nogil=True)
def _bernoulli_exp(gamma: np.uint64, bits: np.uint64, words: NDArray[np.uint64], pos: int) -> tuple[int, int]:
    """Draw Bernoulli(exp(-gamma / 2**bits)) for gamma <= 2**bits; return (outcome, next word) or (-1, at).

    Canonne, Kamath, Steinke (2020), Algorithm 1: the first k with a failed Bernoulli(gamma / k) is odd. The factor 1/k
    is a uniform integer below k hitting 0; the factor gamma / 2**bits compares ``bits`` uniform bits with gamma.
    """
    k = np.uint64(1)
    shift = np.uint64(64) - bits
    while True:
        if k > np.uint64(1):
            mask = np.uint64(1)
            while mask < k:
                mask = (mask << np.uint64(1)) | np.uint64(1)
            while True:
                if pos >= words.size:
                    return -1, pos
                pick = words[pos] & mask
                pos += 1
                if pick < k:
                    break
            if pick != np.uint64(0):
                return int(k & np.uint64(1)), pos
        if pos >= words.size:
            return -1, pos
        success = (words[pos] >> shift) < gamma
        pos += 1
        if not success:
            return int(k & np.uint64(1)), pos
        k += np.uint64(1)


@njit(cache=True, nogil=True)
def bernoulli_exp_any(gamma: np.uint64, bits: np.uint64, words: NDArray[np.uint64], pos: int) -> tuple[int, int]:
    """Draw Bernoulli(exp(-gamma / 2**bits)) for any gamma; return (outcome, next word) or (-1, at)."""
    one = np.uint64(1) << bits
    while gamma > one:
        going, pos = _bernoulli_exp(one, bits, words, pos)
        if going != 1:
            return going, pos
        gamma -= one
    return _bernoulli_exp(gamma, bits, words, pos)
