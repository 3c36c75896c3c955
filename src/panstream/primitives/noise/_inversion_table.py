"""Many exact draws of integer noise from one table: inversion, with as many random bits as a draw needs.

Let w(m) = exp(-rate·m) or exp(-rate·m²), and G(m) = (w(0) + 2·w(1) + ... + 2·w(m)) / (w(0) + 2·w(1) + ...): the
probability that the noise has a magnitude of at most m. With U uniform on [0, 1), the smallest m with U < G(m) has
exactly the distribution of the magnitude, and an independent bit is the sign.

U is not rounded: a draw has its first 63 bits, u, and the table holds b(m) = floor(2^63·G(m)). If u < b(m), then
U < G(m) whatever the further bits are; if u > b(m), then U > G(m). Only if u = b(m) do they decide, with a probability
below 2^-46 per draw. Then `resolve` draws them, and computes G as precisely as they need. So the distribution is the
stated one, with its tails; nothing is truncated and no probability is rounded.

G is bounded from both sides by integers. All products are rounded down, and a product of numbers up to 1 carries the
errors of its factors and one more unit: the weight of m is at most 2·(m + 2)² units too small.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context, Decimal
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.noise.distributions import RATE_BITS, DiscreteGaussian, DiscreteLaplace

_FIRST = 63
_GUARD = 64
_MAX_MAGNITUDES = 1 << 16  # in a table; wider distributions are drawn by the other methods
_MIN_DIGITS = 6
_MAX_DIGITS = 10


@dataclass(frozen=True, slots=True, eq=False)
class _DrawTable:
    """b(m) for all m up to the first that is 2^63 - 1, and a guide that shortens the search.

    The guide is indexed by the exponent and the ``digits`` leading digits of 2^63 - u; its entry is the first of
    ``reach`` magnitudes, one of which is that of u.
    """

    bounds: NDArray[np.uint64]
    guide: NDArray[np.int32]
    digits: int
    reach: int


Law = DiscreteLaplace | DiscreteGaussian


@lru_cache(maxsize=32)
def draw_table(law: Law) -> _DrawTable | None:
    """Return the table of a distribution, or None if it would be too long."""
    numerator = law.numerator or 0
    reach = 46.0 / law.kappa if isinstance(law, DiscreteLaplace) else 9.6 * law.sigma
    if not numerator or reach > _MAX_MAGNITUDES:
        return None
    bits = _FIRST + _GUARD
    while (floors := _floors(law, bits)) is None:
        bits *= 2
    bounds = np.array(floors, np.uint64)
    digits = min(max(len(floors).bit_length() - 2, _MIN_DIGITS), _MAX_DIGITS)
    words = _words_of_entries(digits)
    first, last = (np.searchsorted(bounds, edge_words).astype(np.int32) for edge_words in words)
    reach = int((last - first).max()) + 1
    guide = np.minimum(first, len(floors) - reach)  # so that no search passes the end of the table
    for array in (bounds, guide):
        array.flags.writeable = False
    return _DrawTable(bounds, guide, digits, reach)


def _words_of_entries(digits: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return, per entry of a guide, a word not above its first and one not below its last."""
    entries = np.arange((_FIRST << digits) + 2) + (1023 << digits)
    edges = (entries << 52 - digits).view(np.float64)  # distances from 2^63 where entries begin
    # Distances below 2^52 are exact in floating point, others are rounded to a multiple of 1,024 at most.
    slack = np.where(edges < 2.0**52, 0.0, 4096.0)
    nearest = np.ceil(edges - slack)[:-1]
    farthest = np.ceil(edges + slack)[1:] - 1.0
    largest = (1 << _FIRST) - 1
    last, first = (
        [largest + 1 - min(max(int(distance), 1), largest + 1) for distance in far] for far in (nearest, farthest)
    )
    return np.minimum(np.array(first, np.uint64), np.array(last, np.uint64)), np.array(last, np.uint64)


def _floors(law: Law, bits: int) -> list[int] | None:
    """Return b(0), b(1), ... up to 2^63 - 1, or None if ``bits`` bits do not determine one of them."""
    shift = bits - _FIRST
    floors = []
    for low, high in _bounds(law, bits):
        if low >> shift != high >> shift:
            return None
        floors.append(low >> shift)
        if floors[-1] == (1 << _FIRST) - 1:
            return floors
    return None


def resolve(law: Law, start: int, more: Callable[[], int]) -> int:
    """Return the magnitude of a uniform number whose first 63 bits are ``start``; ``more`` draws 64 further bits.

    Its intermediate Python integers are not wiped; it is called for less than one draw in 2^46.
    """
    bits = _FIRST
    while True:
        start = start << 64 | more()
        bits = bits + 64
        for size, (low, high) in enumerate(_bounds(law, bits)):
            if start + 1 <= low:
                return size
            if start < high:
                break


def _bounds(law: Law, bits: int) -> Iterator[tuple[int, int]]:
    """Yield lower and upper integer bounds of 2^bits·G(m) for m = 0, 1, ... until they are nearly 2^bits."""
    one = 1 << (bits + _GUARD)
    weights, beyond = weights_below(law, bits + _GUARD)
    doubled = [weights[0], *(2 * weight for weight in weights[1:])]
    missing = [4 * (size + 2) ** 2 for size in range(len(weights))]
    lower_total = sum(doubled)
    upper_total = lower_total + sum(missing) + 2 * beyond
    assert one <= lower_total  # the weight of 0 is 1
    low = high = 0
    for weight, error in zip(doubled, missing, strict=True):
        low = low + weight
        high = high + weight + error
        yield (low << bits) // upper_total, min(-(-(high << bits) // lower_total), (1 << bits) - 1)


def weights_below(law: Law, bits: int) -> tuple[list[int], int]:
    """Return the weights of 0, 1, ... in units of 2^-bits, rounded down, and a bound for the sum of all later ones.

    The weight of m is at most 2·(m + 2)² units too small.
    """
    one = 1 << bits
    context = Context(prec=bits // 3 + 20)
    rate = context.divide(Decimal(law.numerator or 0), Decimal(1 << RATE_BITS))

    def power(times: int) -> int:
        exact = context.exp(context.multiply(rate, Decimal(-times)))
        scaled = context.multiply(exact, Decimal(one)).to_integral_value(rounding=ROUND_FLOOR, context=context)
        return max(int(scaled) - 1, 0)

    ratio = power(1)
    growth = power(2) if isinstance(law, DiscreteGaussian) else one
    weights = [one]
    while weights[-1]:
        weights.append(weights[-1] * ratio >> bits)
        ratio = ratio * growth >> bits
    size = len(weights)
    last = 2 * (size + 2) ** 2  # bounds the true weight of the last one, which was rounded down to 0
    return weights, last * one // (one - ratio - 4 * size) + 1
