"""Discrete Gaussian noise from a fixed number of candidates: the same work whatever is drawn.

The magnitude m of the noise has weight v(m) = exp(-rate·m²), and v(0) = 1/2 since 0 has two signs. Magnitudes are
grouped into a few blocks of 2^block_bits, so that a candidate's block can be found by comparing with all of them. A
uniform word of 63 bits selects block h for ``counts[h]`` of its values, uniform bits select m in it, and it is accepted
with probability v(m)·scale/counts[h]. That is at most 1, as counts[h] is above scale times the largest weight in the
block; so accepted magnitudes have weights v(m), exactly. Words that select no block are rejected.

All magnitudes beyond these blocks are the tail. One candidate in 2^95 is there: in the tail's j-th block of
2^tail_bits magnitudes with probability 2^-(j + 1). A block of the tail has less than half the weight of the one before,
so its magnitudes can be accepted in the same way, with 2^-(33 + j) for a count of 2^tail_bits magnitudes.

A candidate is accepted if 128 uniform bits are below those of its probability. The kernel computes the probability with
an error below 2^-117 and leaves the draw undecided where the two are closer than 2^-96. It also does if a candidate is
in the tail, or none is accepted: the number of candidates is such that all this has a probability below 2^-64. Only
then `resolve_draw` decides, with exact probabilities and as many bits as they need, so that the distribution is the
stated one.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache, partial
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.noise._binary_expansion import first_bits, is_below
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
    """Blocks and number of candidates for one distribution; arrays in the kernel's layout."""

    counts: tuple[int, ...]
    scale: int
    block_bits: int
    tail_bits: int
    number: int
    starts: NDArray[np.uint64]
    high: NDArray[np.uint64]
    low: NDArray[np.uint64]


@lru_cache(maxsize=256)
def candidates_of(law: DiscreteGaussian) -> RejectionPlan:
    """Compute the plan of a distribution; cached, since that takes milliseconds."""
    numerator = law.numerator or 0
    tail_bits = 0
    while numerator << 2 * tail_bits < 1 << 43:  # less than 16 blocks up to sigma
        tail_bits += 1
    block_bits = 0 if numerator >= 1 << 37 else tail_bits  # up to sigma = 128, one block per magnitude is faster
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
    return RejectionPlan(counts, scale, block_bits, tail_bits, _needed(law, counts, scale, block_bits), *arrays)


def _needed(law: DiscreteGaussian, counts: tuple[int, ...], scale: int, block_bits: int) -> int:
    """Return how many candidates are needed for all to be rejected with a probability below 2^-65."""
    if not block_bits:  # rejected: at most one unit of rounding per block, and words without a block
        rejected = len(counts) + 1 + (1 << 63) - sum(counts)
        return math.ceil(65 / (63 - math.log2(rejected)))
    # The weights sum to more than their integral, by Poisson's summation formula; 2^-30 allows for rounding here.
    mass = math.sqrt(math.pi * (1 << RATE_BITS) / (law.numerator or 1)) / 2 / (1 << block_bits) * (1 - 2.0**-30)
    return math.ceil(65 / -math.log2(1.0 - mass * (scale / 2**63)))


def resolve_draw(law: DiscreteGaussian, words: Iterable[int], more: Callable[[], int]) -> int:
    """Decide a draw from these words exactly; ``more`` draws 64 further bits.

    Its intermediate Python integers are not wiped; it is called for less than one draw in 2^64.
    """
    drawn = candidates_of(law)
    ends = list(accumulate(drawn.counts))
    for word, rest, first, second in _candidates(words, more):
        named = word >> 1
        block = bisect_right(ends, named)
        size = (block << drawn.block_bits) + rest % (1 << drawn.block_bits)
        count = Fraction(drawn.counts[block]) if block < len(ends) else Fraction(0)
        if named == _LAST and (rest >> TAIL_SHIFT) % (1 << TAIL_BITS) == (1 << TAIL_BITS) - 1:
            farther = 0
            while more() & 1:
                farther += 1
            size = (len(ends) << drawn.block_bits) + (farther << drawn.tail_bits) + rest % (1 << drawn.tail_bits)
            count = Fraction(1, 1 << TAIL_BITS + 1 + farther + drawn.tail_bits - drawn.block_bits)
        probability = partial(_acceptance, law, size, drawn.scale / count) if count else None
        if probability and is_below(first << 64 | second, 128, probability, more):
            return -size if word & 1 else size
    raise AssertionError("candidates do not end")


def _candidates(words: Iterable[int], more: Callable[[], int]) -> Iterator[tuple[int, ...]]:
    word_iter = iter(words)
    yield from zip(word_iter, word_iter, word_iter, word_iter, strict=True)
    while True:
        yield more(), more(), more(), more()


def _acceptance(law: DiscreteGaussian, size: int, scale: Fraction, bits: int) -> int:
    """Return scale·v(size) in units of 2^-bits, rounded down."""
    if size == 0:
        return math.floor(scale / 2 * (1 << bits))

    def chance(context: Context) -> Decimal:
        exponent = context.divide(Decimal(-(law.numerator or 0) * size**2), Decimal(1 << RATE_BITS))
        weight = context.multiply(context.exp(exponent), Decimal(scale.numerator))
        return context.divide(weight, Decimal(scale.denominator))

    return first_bits(bits, chance)
