"""One tick of the least-squares tree on secret shares: 128-bit integers and public integer weights, no division.

A number is two words, the low one first. ``siblings`` are in units of 1, ``complete[level]`` in units of
2**-(12·level); an answer is in units of 2**-(12·top). Every step is linear, so shares go through it like the numbers
they are shares of. The modulus is 2**128, or a small number in audits that enumerate all states. Compiled because NumPy
has no 128-bit integers. Control flow depends on public digits only, never on a share; scratch is zeroed at the end.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.kernels.jit import njit

__all__ = ["FRACTION", "answer_wide", "close_slot", "open_nodes"]

FRACTION = 12

Words = NDArray[np.uint64]
Integers = NDArray[np.int64]
_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


# 128-bit arithmetic in two words; halves of 32 bits keep every partial product within 64.
@njit(cache=True, nogil=True)
def _add_scaled(into: Words, number: Words, weight: int, shift: int, modulus: np.uint64) -> None:
    """Add number·weight·2**shift, for a weight of at most 31 bits of either sign; modulo 2**128 if modulus is 0."""
    size = np.uint64(abs(weight))
    if modulus:
        times = (np.uint64(1) << np.uint64(shift % 24)) * size % modulus
        for _ in range(shift // 24):
            times = (times << np.uint64(24)) % modulus
        added = number[0] * times % modulus
        into[0] = (into[0] + (added if weight >= 0 else modulus - added)) % modulus
        return
    low = (number[0] & _LOW) * size
    high = (number[0] >> _HALF) * size + (low >> _HALF)
    first = (low & _LOW) | (high << _HALF)
    second = number[1] * size + (high >> _HALF)
    if shift >= 64:
        second = first << np.uint64(shift - 64)
        first = np.uint64(0)
    elif shift > 0:
        second = (second << np.uint64(shift)) | (first >> np.uint64(64 - shift))
        first = first << np.uint64(shift)
    if weight >= 0:
        total = into[0] + first
        into[1] = into[1] + second + np.uint64(total < first)
        into[0] = total
    else:
        into[1] = into[1] - second - np.uint64(into[0] < first)
        into[0] = into[0] - first


@njit(cache=True, nogil=True)
def open_nodes(level: int, siblings: Words, radices: Integers, noise: Words) -> None:
    """Set the noise share of the nodes that open on the levels up to ``level`` to one party's own draws."""
    top = radices.size - 1
    used = 0
    width = siblings.shape[2]
    for below in range(level, -1, -1):
        if below == level and level < top:
            continue
        for child in range(radices[below] if below < top else 1):
            for part in range(width):
                siblings[below, child, part] = noise[used]
                used += 1


# Which nodes close depends on public digits; shares are only added, and multiplied by public weights.
@njit(cache=True, nogil=True)
def close_slot(
    siblings: Words, complete: Words, digits: Integers, radices: Integers, folds: Integers, modulus: np.uint64
) -> int:
    """Close a slot and the nodes that end with it; return up to which level nodes must open."""
    top = radices.size - 1
    width = complete.shape[1]
    level = 0
    for part in range(width):
        _add_scaled(complete[0, part], siblings[0, digits[0] if top > 0 else 0, part], 1, 0, modulus)
    digits[0] += 1
    while level < top and digits[level] == radices[level]:
        level += 1
        sibling = digits[level] if level < top else 0
        weight = folds[level]
        for part in range(width):
            below = complete[level - 1, part]
            _add_scaled(complete[level, part], below, (1 << FRACTION) - weight, 0, modulus)
            _add_scaled(complete[level, part], siblings[level, sibling, part], weight, FRACTION * (level - 1), modulus)
            below[:] = np.uint64(0)
        digits[level - 1] = 0
        digits[level] += 1
    return level


@njit(cache=True, nogil=True)
def answer_wide(
    total: Words,
    siblings: Words,
    complete: Words,
    digits: Integers,
    radices: Integers,
    done_weights: Integers,
    rest_weights: Integers,
    modulus: np.uint64,
    out: Words,
) -> None:
    """Write a share of the running total plus the least-squares estimate of the noise of all slots so far."""
    top = radices.size - 1
    unit = 0
    done = np.zeros(2, np.uint64)
    rest = np.zeros(2, np.uint64)
    off = np.zeros(2, np.uint64)
    unscaled = np.zeros(2, np.uint64)
    for part in range(out.shape[0]):
        unit = 0
        done[0] = complete[0, part, 0]
        done[1] = complete[0, part, 1]
        rest[:] = np.uint64(0)
        if top > 0:
            for child in range(digits[0], radices[0]):
                _add_scaled(rest, siblings[0, child, part], 1, 0, modulus)
        for level in range(1, top + 1):
            off[:] = np.uint64(0)
            _add_scaled(off, siblings[level, digits[level] if level < top else 0, part], 1, unit, modulus)
            _add_scaled(off, done, -1, 0, modulus)
            _add_scaled(off, rest, -1, 0, modulus)
            unscaled[0] = done[0]
            unscaled[1] = done[1]
            done[:] = np.uint64(0)
            _add_scaled(done, unscaled, 1, FRACTION, modulus)
            _add_scaled(done, off, done_weights[level], 0, modulus)
            unscaled[0] = rest[0]
            unscaled[1] = rest[1]
            rest[:] = np.uint64(0)
            _add_scaled(rest, unscaled, 1, FRACTION, modulus)
            _add_scaled(rest, off, rest_weights[level], 0, modulus)
            unit += FRACTION
            _add_scaled(done, complete[level, part], 1, unit - FRACTION * level, modulus)
            if level < top:
                for child in range(digits[level] + 1, radices[level]):
                    _add_scaled(rest, siblings[level, child, part], 1, unit, modulus)
        out[part] = done
        _add_scaled(out[part], total[part], 1, unit, modulus)
    done[:] = np.uint64(0)
    rest[:] = np.uint64(0)
    off[:] = np.uint64(0)
    unscaled[:] = np.uint64(0)
