"""The first bits of a number that can be computed as precisely as one likes."""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_FLOOR, Context, Decimal


def first_bits(bits: int, number: Callable[[Context], Decimal]) -> int:
    """Return floor(2**bits·number) of an irrational number from 0 to 1, as few exact operations compute it."""
    unit = Decimal(1 << bits)
    precision = bits // 3 + 20
    while True:
        context = Context(prec=precision)
        slack = context.scaleb(unit, 3 - precision)  # a thousand units of the last digit, more than all errors together
        scaled = context.multiply(number(context), unit)
        lower, upper = (int(context.add(scaled, error).to_integral_value(ROUND_FLOOR)) for error in (-slack, slack))
        if max(lower, 0) == upper:
            return upper
        precision *= 2
