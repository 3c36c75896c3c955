"""Discrete Gaussian noise from a fixed number of candidates: the same work whatever is drawn.

The size m of the noise has weight v(m) = exp(-rate·m²), and v(0) = 1/2 since 0 has two signs. Sizes lie in blocks of
2^places, few of them, so that a candidate's block is found by looking at all. A uniform word of 63 bits names block h
for ``counts[h]`` of its values, uniform bits name m in it, and it is accepted with chance v(m)·scale/counts[h]. That
is at most 1, as counts[h] is above scale times the largest weight in the block; so accepted sizes have weights v(m),
exactly. Words that name no block are refused.

All sizes behind these blocks are the tail. One candidate in 2^95 is there: in the tail's j-th block of
2^tail_places sizes with chance 2^-(j + 1). A block of the tail has less than half the weight of the one before, so its
sizes can be accepted in the same way, with 2^-(33 + j) for a count of 2^tail_places sizes.

A candidate is accepted if 128 uniform bits are below those of its chance. The kernel computes the chance with an error
below 2^-117 and leaves the draw open where the two are closer than 2^-96. It does too if a candidate is in the tail, or
none is accepted: with as many candidates as there are, that has a chance below 2^-64 in all. Only then
`resolve_draw` looks again, with exact chances and as many bits as they need, so the law is the stated one.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.noise._binary_expansion import first_bits
from panstream.primitives.noise._inversion_table import weights_below
from panstream.primitives.noise.distributions import RATE_BITS, DiscreteGaussian

# As in the kernel
WORDS = 4
TAIL_BITS = 32
TAIL_SHIFT = 31
_BITS = 256
_ALL = (1 << 64) - 1
_LAST = (1 << 63) - 1


@dataclass(frozen=True, slots=True, eq=False)
class RejectionPlan:
    """How candidates of a law are drawn, and how many of them; arrays as the kernel reads them."""

    counts: tuple[int, ...]
    scale: int
    places: int
    tail_places: int
    number: int
    starts: NDArray[np.uint64]
    high: NDArray[np.uint64]
    low: NDArray[np.uint64]


@lru_cache(maxsize=256)
def candidates_of(law: DiscreteGaussian) -> RejectionPlan:
    """Return the candidates of a law."""
    numerator = law.numerator or 0
    tail_places = 0
    while numerator << 2 * tail_places < 1 << 43:  # less than 16 blocks up to sigma
        tail_places += 1
    block_bits = 0 if numerator >= 1 << 37 else tail_places  # up to sigma = 128, looking at all sizes is faster
    rate = numerator << 2 * block_bits
    blocks = math.isqrt((72 << RATE_BITS) // rate) + 1  # their weights are below exp(-72) < 2^-103 from there on
    lower, _ = weights_below(DiscreteGaussian(rate), _BITS)
    lower = lower[:blocks] + [0] * (blocks - len(lower))
    upper = [weight + 2 * (block + 2) ** 2 for block, weight in enumerate(lower)]
    if not block_bits:
        lower[0] = lower[0] // 2
        upper[0] = upper[0] // 2 + 1
    scale = ((_LAST - blocks) << _BITS) // sum(upper)
    counts = tuple((scale * weight >> _BITS) + 1 for weight in upper)
    starts = [0, *accumulate(counts)]
    chances = [(scale * weight << 128) // (count << _BITS) for weight, count in zip(lower, counts, strict=True)]
    words = [chance >> 64 for chance in chances], [chance & _ALL for chance in chances]
    high, low = ([b - a & _ALL for a, b in zip([0, *column], [*column, 0], strict=True)] for column in words)
    arrays = [np.array(values, np.uint64) for values in (starts, high, low)]
    for array in arrays:
        array.flags.writeable = False
    return RejectionPlan(counts, scale, block_bits, tail_places, _needed(law, counts, scale, block_bits), *arrays)


def _needed(law: DiscreteGaussian, counts: tuple[int, ...], scale: int, block_bits: int) -> int:
    """Return how many candidates there must be so that all are refused with a chance below 2^-65."""
    if not block_bits:  # refused are at most a unit for rounding in every block, and words without a block
        refused = len(counts) + 1 + (1 << 63) - sum(counts)
        return math.ceil(65 / (63 - math.log2(refused)))
    # The weights add up to more than their integral, by Poisson's formula; a part in 2^30 is for rounding here.
    mass = math.sqrt(math.pi * (1 << RATE_BITS) / (law.numerator or 1)) / 2 / (1 << block_bits) * (1 - 2.0**-30)
    return math.ceil(65 / -math.log2(1.0 - mass * (scale / 2**63)))


def resolve_draw(law: DiscreteGaussian, words: Iterable[int], more: Callable[[], int]) -> int:
    """Return the noise of a draw that took these words; ``more`` gives 64 further bits.

    What is computed here on the way is not overwritten. It is called for less than one draw in 2^64.
    """
    drawn = candidates_of(law)
    ends = list(accumulate(drawn.counts))
    for word, rest, first, second in _candidates(words, more):
        named = word >> 1
        block = bisect_right(ends, named)
        size = (block << drawn.places) + rest % (1 << drawn.places)
        count = Fraction(drawn.counts[block]) if block < len(ends) else Fraction(0)
        if named == _LAST and (rest >> TAIL_SHIFT) % (1 << TAIL_BITS) == (1 << TAIL_BITS) - 1:
            farther = 0
            while more() & 1:
                farther += 1
            size = (len(ends) << drawn.places) + (farther << drawn.tail_places) + rest % (1 << drawn.tail_places)
            count = Fraction(1, 1 << TAIL_BITS + 1 + farther + drawn.tail_places - drawn.places)
        if count and _accepted(law, size, drawn.scale / count, first << 64 | second, more):
            return -size if word & 1 else size
    raise AssertionError("candidates do not end")


def _candidates(words: Iterable[int], more: Callable[[], int]) -> Iterator[tuple[int, ...]]:
    word_iter = iter(words)
    yield from zip(word_iter, word_iter, word_iter, word_iter, strict=True)
    while True:
        yield more(), more(), more(), more()


def _accepted(law: DiscreteGaussian, size: int, scale: Fraction, drawn: int, more: Callable[[], int]) -> bool:
    bits = 128
    while drawn == (chance := _chance(law, size, scale, bits)):
        drawn = drawn << 64 | more()
        bits = bits + 64
    return drawn < chance


def _chance(law: DiscreteGaussian, size: int, scale: Fraction, bits: int) -> int:
    """Return scale·v(size) in units of 2^-bits, rounded down."""
    if size == 0:
        return math.floor(scale / 2 * (1 << bits))

    def chance(context: Context) -> Decimal:
        exponent = context.divide(Decimal(-(law.numerator or 0) * size**2), Decimal(1 << RATE_BITS))
        weight = context.multiply(context.exp(exponent), Decimal(scale.numerator))
        return context.divide(weight, Decimal(scale.denominator))

    return first_bits(bits, chance)
