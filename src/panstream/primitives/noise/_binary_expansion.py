"""Leading bits of a number that can be computed to any precision, and exact comparison with random bits."""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_FLOOR, Context, Decimal


def first_bits(bits: int, number: Callable[[Context], Decimal]) -> int:
    """Return floor(2**bits·number) of an irrational number in [0, 1].

    ``number`` computes it in a few operations, each correct to the last digit of the context.
    """
    unit = Decimal(1 << bits)
    precision = bits // 3 + 20
    while True:
        context = Context(prec=precision)
        slack = context.scaleb(unit, 3 - precision)  # a thousand units of the last digit, above the sum of all errors
        scaled = context.multiply(number(context), unit)
        lower, upper = (int(context.add(scaled, error).to_integral_value(ROUND_FLOOR)) for error in (-slack, slack))
        if max(lower, 0) == upper:
            return upper
        precision *= 2


def is_below(drawn: int, bits: int, probability: Callable[[int], int], more: Callable[[], int]) -> bool:
    """Return whether a uniform number, whose first ``bits`` bits are ``drawn``, is below a probability.

    ``probability(n)`` returns its first n bits, and ``more`` draws 64 further bits of the number while these agree.
    """
    while drawn == (threshold := probability(bits)):
        drawn = drawn << 64 | more()
        bits = bits + 64
    return drawn < threshold
