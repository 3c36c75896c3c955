"""Exact samplers that consume an array of uniform random words.

A sampler that runs out of words reports how many outcomes are complete and where the first incomplete one began; the
caller appends fresh words and the incomplete draw is replayed from the same words, so nothing is biased. Compiled
because the number of words per draw is random. Samplers allocate nothing: the words are secret, and the caller wipes
them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.kernels.bit_deposit import deposit_bits
from panstream.primitives.kernels.jit import njit
from panstream.primitives.kernels.machine_words import ones, trailing_zeros

DIGITS = 64
"""Binary digits of a coin's threshold: a probability is a multiple of 2**-64."""

_AT_ONCE = 8  # digits compared before the first test for an early exit
_1 = np.uint64(1)
_6 = np.uint64(6)
_63 = np.uint64(63)
_ALL_ONES = np.uint64(0xFFFFFFFFFFFFFFFF)
_BLOCK = 64  # coins that are compared at once; few blocks have a tie


# Counted first, so that the caller draws exactly one word per tie.
@njit(cache=True, nogil=True)
def compare_bytes(coins: NDArray[np.uint8], top: np.uint8) -> int:
    """Count the bytes equal to ``top``: those coins need another word."""
    ties = 0
    for i in range(coins.size):
        ties += coins[i] == top
    return ties


# Most blocks have no tie and take no branch per coin.
@njit(cache=True, nogil=True)
def resolve_coins(coins: NDArray[np.uint8], top: np.uint8, rest: np.uint64, words: NDArray[np.uint64]) -> None:
    """Turn uniform bytes into coins in place: 1 where byte.word[:56] < top.rest (fractions); a word per tie."""
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
        tie = coins[i] == top
        coins[i] = np.uint8((words[used] >> np.uint64(8)) < rest) if tie else np.uint8(coins[i] < top)
        used += tie


@njit(cache=True, nogil=True, forceinline=True)
def _decide(word: np.uint64, digit: np.uint64, undecided: np.uint64, coins: np.uint64) -> Any:
    """Compare a binary digit of 64 numbers with the threshold's; return the undecided numbers and the coins so far."""
    differs = word ^ digit
    return undecided & ~differs, coins | (undecided & differs & digit)


@njit(cache=True, nogil=True)
def bernoulli_words(
    threshold: NDArray[np.uint64], words: NDArray[np.uint64], coins: NDArray[np.uint64], tossed: int
) -> int:
    """Toss 64 coins for every word of ``coins`` from word ``tossed`` on; return how many words of coins are complete.

    ``threshold`` has a word of equal bits for each of the coin's 64 binary digits. A random word is one digit of 64
    uniform numbers. The first digit in which a number differs from the threshold decides its coin: few need more than
    eight. Stops where the remaining random words might not suffice for 64 coins. How many coins the words give depends
    on the words, so the caller must toss until all of ``coins`` is complete: dropping the last of a random number of
    coins would bias the others.
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


# Every coin is used for one bit only, so that redrawn bits are independent of each other.
@njit(cache=True, nogil=True)
def redraw(bits: NDArray[np.uint64], marks: NDArray[np.uint64], done: int, coins: NDArray[np.uint64]) -> int:
    """Replace the marked bits from word ``done`` on by coins, 64 to a word; each coin is used once.

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
            bits[index] = (bits[index] & ~mark) | deposit_bits(fresh, mark)
            used += ones(mark)
    return marks.size


# Rejection instead of a remainder: every number has exactly the same probability.
@njit(cache=True, nogil=True)
def draw_below(bound: np.uint64, words: NDArray[np.uint64], pos: int) -> tuple[np.int64, int]:
    """Draw a uniform integer below ``bound`` by rejection; return it and the next word, or (-1, end of the words)."""
    mask = np.uint64(1)
    while mask < bound:
        mask = (mask << np.uint64(1)) | np.uint64(1)
    while pos < words.size:
        candidate = words[pos] & mask
        pos += 1
        if candidate < bound:
            return np.int64(candidate), pos
    return np.int64(-1), pos


# Its own loop, since computing the mask for every number would take longer than drawing it.
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
            pick, pos = draw_below(k, words, pos)
            if pick < 0:
                return -1, pos
            if pick > 0:
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
        outcome, pos = _bernoulli_exp(one, bits, words, pos)
        if outcome != 1:
            return outcome, pos
        gamma -= one
    return _bernoulli_exp(gamma, bits, words, pos)
