"""Counters modulo q = prime · width: additions, and how many lie in blocks that are quadratic residues.

The block of a counter c is c // width, an element of the field of ``prime`` elements; ``width`` is 1 for counters that
are elements of the field. Everything is exact 64-bit integer arithmetic: q is below 2**62 and so is every weight, so no
sum of two overflows. Compiled because products modulo q need 128 bits, which NumPy does not have.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.kernels.jit import njit
from panstream.primitives.kernels.machine_words import product_high, trailing_zeros

_MERSENNE = np.int64((1 << 61) - 1)
_FIELD = np.uint64((1 << 61) - 1)
_61 = np.uint64(61)


# Shifts and subtractions instead of a modular power, which would take 61 squarings.
@njit(cache=True, nogil=True)
def is_residue(value: int, prime: int) -> Any:
    """Return whether ``value`` in [0, prime) is a non-zero square modulo the odd ``prime`` (binary Jacobi symbol)."""
    if value == 0:
        return False
    a = np.uint64(value)
    n = np.uint64(prime)
    positive = True
    while a != np.uint64(0):
        twos = trailing_zeros(a)
        a >>= twos
        eighth = n & np.uint64(7)
        if twos & np.uint64(1) and (eighth == np.uint64(3) or eighth == np.uint64(5)):
            positive = not positive
        if a < n:
            a, n = n, a
            if (a & n & np.uint64(3)) == np.uint64(3):
                positive = not positive
        a -= n
    return positive


@njit(cache=True, nogil=True, forceinline=True)
def _multiply_mersenne(a: np.int64, b: np.int64) -> Any:
    x = np.uint64(a)
    y = np.uint64(b)
    low = x * y
    total = (low & _FIELD) + ((product_high(x, y) << np.uint64(3)) | (low >> _61))
    return np.int64(total - _FIELD if total >= _FIELD else total)


# By the size of the prime: folding modulo 2**61 - 1, one 64-bit product, or doubling and adding.
@njit(cache=True, nogil=True)
def multiply(a: np.int64, b: np.int64, prime: int) -> Any:
    """Return a·b modulo ``prime`` for a, b in [0, prime), prime below 2**62."""
    if prime == _MERSENNE:
        return _multiply_mersenne(a, b)
    if prime < 1 << 31:
        return a * b % prime
    total = np.int64(0)
    while b:
        if b & 1:
            total += a
            if total >= prime:
                total -= prime
        a += a
        if a >= prime:
            a -= prime
        b >>= 1
    return total


@njit(cache=True, nogil=True)
def draw_start(
    counters: NDArray[np.int64],
    coins: NDArray[np.uint8],
    plus: NDArray[np.int64],
    minus: NDArray[np.int64],
    offsets: NDArray[np.int64],
    prime: int,
    width: int,
) -> None:
    """Set counters to block·width + offset; the block is (plus + 1)² where the coin shows 1, else -minus².

    The prime is 3 modulo 4, so -minus² runs over 0 and the non-residues.
    """
    roots_used = 0
    for i in range(counters.size):
        if coins[i]:
            root = plus[roots_used] + 1
            roots_used += 1
            block = multiply(root, root, prime)
        else:
            root = minus[i - roots_used]
            block = multiply(root, root, prime)
            block = prime - block if block else block
        counters[i] = block * width + (offsets[i] if width > 1 else 0)


# Masks instead of branches: whether a counter wraps is as random as the counter, which defeats branch prediction.
@njit(cache=True, nogil=True, forceinline=True)
def _add_modulo(counter: np.int64, step: np.int64, modulus: int) -> Any:
    """Return counter + step modulo ``modulus`` for a step between -modulus and modulus."""
    counter += step
    counter += modulus & (counter >> 63)
    counter -= modulus
    return counter + (modulus & (counter >> 63))


@njit(cache=True, nogil=True, forceinline=True)
def _reduce(weight: np.int64, modulus: int, inverse: np.uint64) -> Any:
    """Return the weight modulo ``modulus``, with its sign; ``inverse`` is 2**64 // modulus."""
    size = np.uint64(abs(weight))
    rest = np.int64(size - product_high(size, inverse) * np.uint64(modulus))  # the quotient is at most one too small
    rest -= modulus
    rest += modulus & (rest >> 63)
    return -rest if weight < 0 else rest


# Three loops, since testing in every row whether weights differ and need reduction costs as much as the addition.
@njit(cache=True, nogil=True)
def add(
    counters: NDArray[np.int64],
    cells: NDArray[np.int64],
    weights: NDArray[np.int64],
    modulus: int,
    inverse: np.uint64,
) -> None:
    """Add each weight to its cell; a single weight applies to all rows. Cells beyond the array are not sampled.

    ``inverse`` is 2**64 // modulus if weights may reach the modulus, and 0 if they cannot.
    """
    size = counters.size
    if weights.size == 1:
        step = _reduce(weights[0], modulus, inverse) if inverse else weights[0]
        for i in range(cells.size):
            cell = cells[i]
            if cell < size:
                counters[cell] = _add_modulo(counters[cell], step, modulus)
    elif inverse:
        for i in range(cells.size):
            cell = cells[i]
            if cell < size:
                counters[cell] = _add_modulo(counters[cell], _reduce(weights[i], modulus, inverse), modulus)
    else:
        for i in range(cells.size):
            cell = cells[i]
            if cell < size:
                counters[cell] = _add_modulo(counters[cell], weights[i], modulus)


@njit(cache=True, nogil=True)
def add_multiples(
    counters: NDArray[np.int64],
    cells: NDArray[np.int64],
    weights: NDArray[np.int64],
    multipliers: NDArray[np.uint64],
    prime: int,
    inverse: np.uint64,
) -> None:
    """Add weight·multiplier to every row's cell, modulo ``prime``; a single weight applies to all rows."""
    stride = 0 if weights.size == 1 else 1
    if prime == _MERSENNE:
        for i in range(cells.size):
            weight = weights[i * stride]
            step = _multiply_mersenne(abs(weight), np.int64(multipliers[i]))
            counters[cells[i]] = _add_modulo(counters[cells[i]], step if weight >= 0 else -step, prime)
        return
    for i in range(cells.size):
        weight = weights[i * stride]
        if inverse:
            weight = _reduce(weight, prime, inverse)
        step = multiply(abs(weight), np.int64(multipliers[i]), prime)
        counters[cells[i]] = _add_modulo(counters[cells[i]], step if weight >= 0 else -step, prime)


# A product instead of a remainder; the probabilities differ from uniform by less than prime / 2**64.
@njit(cache=True, nogil=True)
def multipliers_of(words: NDArray[np.uint64], prime: np.uint64) -> None:
    """Turn hashes into multipliers in 1..prime - 1, in place."""
    for i in range(words.size):
        words[i] = product_high(words[i], prime - np.uint64(1)) + np.uint64(1)


# Folding instead of a remainder, since 2**61 = 1 in the field.
@njit(cache=True, nogil=True)
def points_of(words: NDArray[np.uint64], out: NDArray[np.uint64]) -> None:
    """Reduce words modulo 2**61 - 1, the field of the polynomial families; ``out`` may be ``words``."""
    for i in range(words.size):
        word = (words[i] & _FIELD) + (words[i] >> _61)
        out[i] = word - _FIELD if word >= _FIELD else word


@njit(cache=True, nogil=True)
def plus_counts(
    counters: NDArray[np.int64], prime: int, width: int, first: int, readings: int, totals: NDArray[np.int64]
) -> None:
    """Count, per row, the residues among the blocks of ``readings`` shifted readings of each counter.

    Rows are ``totals.size`` equal parts of ``counters``; the readings are counter - first + i·width.
    """
    row = counters.size // totals.size
    modulus = prime * width
    for r in range(totals.size):
        total = 0
        for i in range(r * row, (r + 1) * row):
            block = (counters[i] - first) % modulus // width
            for _ in range(readings):
                total += is_residue(block, prime)
                block = block + 1 if block + 1 < prime else 0
        totals[r] = total


@njit(cache=True, nogil=True)
def count_zero(counters: NDArray[np.int64], totals: NDArray[np.int64]) -> None:
    """Count the zeros of each of ``totals.size`` equal rows."""
    row = counters.size // totals.size
    for r in range(totals.size):
        total = 0
        for i in range(r * row, (r + 1) * row):
            total += counters[i] == 0
        totals[r] = total


@njit(cache=True, nogil=True)
def sum_hats(
    counters: NDArray[np.int64], modulus: int, width: int, first: int, readings: int, totals: NDArray[np.int64]
) -> None:
    """Sum, per row, max(0, width - distance to c) over the centres c = first, first - width, ... modulo ``modulus``."""
    row = counters.size // totals.size
    for r in range(totals.size):
        total = np.int64(0)
        for i in range(r * row, (r + 1) * row):
            ahead = (counters[i] - first) % modulus
            for _ in range(readings):
                total += max(width - min(ahead, modulus - ahead), 0)
                ahead = (ahead + width) % modulus
        totals[r] = total


@njit(cache=True, nogil=True)
def histogram(counters: NDArray[np.int64], totals: NDArray[np.int64]) -> None:
    """Count how often each value below ``totals.size`` occurs."""
    totals[:] = 0
    for i in range(counters.size):
        totals[counters[i]] += 1
