"""Discrete Laplace noise from coins for its binary digits: the same work whatever is drawn.

Let q = exp(-kappa), and let X and Y be independent with P(k) proportional to q^k for k = 0, 1, 2, ... Then X - Y = d
has a probability proportional to the sum of q^(2k + |d|) over all k, that is to q^|d|: it is the noise.

X = r + 2^n·j with r below 2^n, and q^X is the product of q^(2^i) over the digits i of r that are 1, times q^(2^n·j). So
the digits of r are independent coins, digit i with probability 1/(1 + exp(kappa·2^i)), and j is the number of
consecutive 1s of a coin of probability q^(2^n). The number of digits n is the least for which that is below 2^-128.

A coin compares 128 uniform bits with the first 128 of its probability. Only if they are equal, further bits decide, and
`resolve_draw` draws them: only then is there more work to do. A draw has at most 120 coins, so that happens with a
probability below 2^-121. In every case the distribution is the stated one, with its tails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import Context, Decimal
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.noise._binary_expansion import first_bits, is_below
from panstream.primitives.noise.distributions import LAPLACE_BITS, DiscreteLaplace

_FIRST = 128
_REST = (1 << 64) - 1


@lru_cache(maxsize=256)
def digit_coins(law: DiscreteLaplace) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return the first 128 bits of every coin's probability, as two words: the digits', then that of j > 0."""
    chances = [_chance(law, digit, _FIRST) for digit in range(_digit_count(law))] + [0]
    high = np.array([chance >> 64 for chance in chances], np.uint64)
    low = np.array([chance & _REST for chance in chances], np.uint64)
    for array in (high, low):
        array.flags.writeable = False
    return high, low


def resolve_draw(law: DiscreteLaplace, words: Iterable[int], more: Callable[[], int]) -> int:
    """Decide a draw from these words exactly; ``more`` draws 64 further bits.

    Its intermediate Python integers are not wiped; it is called for less than one draw in 2^121.
    """
    word_iter = iter(words)
    last_digit = _digit_count(law)
    noise = 0
    for sign in (1, -1):
        for digit in range(last_digit + 1):
            first = next(word_iter)
            second = next(word_iter)
            while is_below(first << 64 | second, _FIRST, partial(_chance, law, digit), more):
                noise += sign << digit
                if digit < last_digit:
                    break
                first = more()
                second = more()
    return noise


def _digit_count(law: DiscreteLaplace) -> int:
    digits = 0
    rate = law.numerator or 0
    while rate << digits < 89 << LAPLACE_BITS:  # exp(-89) is below 2^-128
        digits += 1
    return digits


def _chance(law: DiscreteLaplace, digit: int, bits: int) -> int:
    """Return the probability of a coin in units of 2^-bits, rounded down; the coin after the digits' is that of j."""

    def chance(context: Context) -> Decimal:
        exponent = context.divide(Decimal(-(law.numerator or 0) << digit), Decimal(1 << LAPLACE_BITS))
        power = context.exp(exponent)
        return power if digit == _digit_count(law) else context.divide(power, context.add(Decimal(1), power))

    return first_bits(bits, chance)
