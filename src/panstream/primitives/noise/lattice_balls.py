"""Noise for several tables at once: a common radius, then a uniform integer point in each table's ball.

For tables whose sums are public, P(x) is proportional to exp(-kappa·max‖x_i‖₁) among integer vectors x_i that each sum
to 0. All ‖x_i‖₁ are even; with r_i half of it, P(x) is a mixture over m of uniform distributions on {r_i <= m for all
i}, with weights proportional to q^m·V_1(m)·V_2(m)···, q = exp(-2·kappa), where V_i(m) counts table i's vectors with
r_i <= m. That product of Ehrhart polynomials is, with nonnegative integers h_j (Stanley 1980), Σ_j h_j·C(m + D - j, D),
D its degree. So m is j plus D + 1 geometric numbers, j drawn in proportion to h_j·q^j. Everything is exact: weights are
compared with a uniform number of as many digits as necessary.

Unlike other draws, these pass through Python's integers, which cannot be wiped: use them in steps that hold the records
anyway, not for states that must stay private under an intrusion.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from fractions import Fraction

LARGEST_DIMENSION = 256
Below = Callable[[int], int]
"""Draws a uniform integer below its argument."""


@functools.lru_cache(maxsize=256)
def _squares(size: int) -> tuple[int, ...]:
    return tuple(math.comb(size - 1, j) ** 2 for j in range(size))


def count_ball_points(size: int, radius: int) -> int:
    """Return how many integer vectors of this size sum to 0 with absolute values that sum to at most 2·radius.

    >>> [count_ball_points(2, m) for m in range(3)], count_ball_points(3, 1)
    ([1, 3, 5], 7)
    """
    if radius < 0:
        return 0
    return sum(square * math.comb(radius + size - 1 - j, size - 1) for j, square in enumerate(_squares(size)))


@functools.lru_cache(maxsize=64)
def mixture(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Return h_0..h_D with Π balls(size, m) = Σ_j h_j·C(m + D - j, D) for all m.

    >>> mixture((2, 2))
    (1, 6, 1)
    """
    degree = sum(size - 1 for size in sizes)
    values = [math.prod(count_ball_points(size, m) for size in sizes) for m in range(degree + 1)]
    signs = [(-1) ** i * math.comb(degree + 1, i) for i in range(degree + 1)]
    return tuple(sum(signs[i] * values[j - i] for i in range(j + 1)) for j in range(degree + 1))


def pick_index(weights: Sequence[int], rate: Fraction, below: Below) -> int:
    """Return j with probability proportional to weights[j]·exp(-rate·j), exactly.

    Digits are added until only one j is possible.
    """
    digits = 60
    bits = 0
    drawn = 0
    while True:
        context = Context(prec=digits + 60, Emin=-(10**15), Emax=10**15)
        decay = context.exp(context.divide(Decimal(-rate.numerator), Decimal(rate.denominator)))
        drawn = (drawn << (3 * digits - bits)) | below(1 << (3 * digits - bits))
        bits = 3 * digits
        powers = [Decimal(1)]
        for _ in weights[1:]:
            powers.append(context.multiply(powers[-1], decay))
        sums = []
        total = Decimal(0)
        for weight, power in zip(weights, powers, strict=True):
            total = context.add(total, context.multiply(context.create_decimal(weight), power))
            sums.append(total)
        # Relative errors of single operations are below 10^-(digits + 59) and only add up.
        slack = Fraction(1, 10**digits)
        low = Fraction(drawn, 1 << bits)
        high = Fraction(drawn + 1, 1 << bits)
        bounds = [Fraction(partial_sum) / Fraction(total) for partial_sum in sums[:-1]]
        index = sum(low >= bound for bound in bounds)
        clear = index == 0 or low >= bounds[index - 1] * (1 + slack)
        if clear and (index == len(bounds) or high <= bounds[index] * (1 - slack)):
            return index
        digits *= 2


def balanced_point(size: int, radius: int, below: Below) -> list[int]:
    """Return a uniform integer vector that sums to 0 with absolute values that sum to at most 2·radius."""
    rank = below(count_ball_points(size, radius))
    # The vector's own radius: the least whose ball has more than ``rank`` points.
    radius = bisect.bisect_right(range(radius), rank, key=lambda candidate: count_ball_points(size, candidate))
    if radius == 0:
        return [0] * size
    rank -= count_ball_points(size, radius - 1)
    negative = 0
    while rank >= 0:  # the number of negative entries; which, and the magnitudes, are then uniform
        negative += 1
        rank -= _vectors(size, radius, negative)
    order = list(range(size))
    for index in range(negative):
        other = index + below(size - index)
        order[index], order[other] = order[other], order[index]
    point = [0] * size
    cuts = [0, *sorted(_subset(radius - 1, negative - 1, below)), radius]
    for coordinate, (low, high) in zip(order[:negative], itertools.pairwise(cuts), strict=True):
        point[coordinate] = low - high
    rest = size - negative
    cuts = [0, *sorted(_subset(radius + rest - 1, rest - 1, below)), radius + rest]
    for coordinate, (low, high) in zip(order[negative:], itertools.pairwise(cuts), strict=True):
        point[coordinate] = high - low - 1
    return point


def _vectors(size: int, radius: int, negative: int) -> int:
    """Count the vectors of exactly this radius with this number of negative entries."""
    rest = size - negative
    return math.comb(size, negative) * math.comb(radius - 1, negative - 1) * math.comb(radius + rest - 1, rest - 1)


def _subset(of: int, size: int, below: Below) -> set[int]:
    """Return a uniform subset of 1..of, by Floyd's algorithm."""
    chosen: set[int] = set()
    for top in range(of - size + 1, of + 1):
        drawn = 1 + below(top)
        chosen.add(top if drawn in chosen else drawn)
    return chosen
