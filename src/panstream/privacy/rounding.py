"""Rounding of losses in the direction that never understates them.

A float is taken as the exact number it represents. Sums and multiples are formed as fractions and rounded once: up
where they are claimed, down where noise is drawn from them. Exponentials and logarithms have 70 correct digits, and a
margin of ``HAIR`` covers their error.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import Context, Decimal
from fractions import Fraction

HAIR = Fraction(1, 10**60)
_CONTEXT = Context(prec=80)


def round_up(number: Fraction | float) -> float:
    """Return the smallest float that is at least ``number``."""
    nearest = float(number)
    return math.nextafter(nearest, math.inf) if math.isfinite(nearest) and Fraction(nearest) < number else nearest


def round_down(number: Fraction | float) -> float:
    """Return the largest float that is at most ``number``."""
    nearest = float(number)
    return math.nextafter(nearest, -math.inf) if math.isfinite(nearest) and Fraction(nearest) > number else nearest


def sum_rounded_up(losses: Iterable[float | Fraction]) -> float:
    """Return the sum of losses, rounded up.

    >>> sum([0.1] * 10), sum_rounded_up([0.1] * 10)
    (0.9999999999999999, 1.0000000000000002)
    """
    values = list(losses)
    return math.inf if math.inf in values else round_up(sum((Fraction(value) for value in values), Fraction(0)))


def times_rounded_up(loss: float, times: int | Fraction) -> float:
    """Return a multiple of a loss, rounded up."""
    return math.inf if math.isinf(loss) else round_up(Fraction(loss) * times)


def remainder(epsilon: float, *spent: float) -> Fraction | float:
    """Return exactly what remains of ``epsilon``: a fraction, or inf."""
    return math.inf if math.isinf(epsilon) else Fraction(epsilon) - sum(map(Fraction, spent), Fraction(0))


def state_and_output(epsilon: float, *states: float) -> dict[str, float]:
    """Return the parts of a claim: the losses of the copied states, and what remains for the outputs."""
    remaining = remainder(epsilon, *states) if math.isfinite(epsilon) else math.inf
    return {
        "state": sum_rounded_up(states),
        "output": remaining if isinstance(remaining, float) else round_up(remaining),
    }


def equal_share(epsilon: float, parts: int) -> Fraction | float:
    """Return exactly one of ``parts`` equal parts of ``epsilon``."""
    return math.inf if math.isinf(epsilon) else Fraction(epsilon) / parts


def rounded_up(number: float) -> str:
    """Return three significant digits, rounded up (a limit must not be understated)."""
    if number <= 0:
        return "0"
    unit = 10.0 ** (math.floor(math.log10(number)) - 2)
    near = round(number / unit)
    return f"{(near if math.isclose(near, number / unit, rel_tol=1e-9) else math.ceil(number / unit)) * unit:,.6g}"


def log_up(ratio: Fraction) -> float:
    """Return ln(ratio) for a ratio of at least 1, rounded up."""
    logarithm = _log(ratio)
    return round_up(logarithm + (1 + logarithm) * HAIR)


def log_down(ratio: Fraction) -> Fraction:
    """Return a lower bound of ln(ratio), too small by at most ``2·HAIR``·max(it, 1), for a ratio of at least 1."""
    logarithm = _log(ratio)
    return max(logarithm - (1 + logarithm) * HAIR, Fraction(0))


def _log(ratio: Fraction) -> Fraction:
    return Fraction(_CONTEXT.ln(_CONTEXT.divide(Decimal(ratio.numerator), Decimal(ratio.denominator))))
