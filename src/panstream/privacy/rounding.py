"""Losses rounded to the safe side: what is claimed is never below what is drawn, and a share never above its part.

A float stands for the number it is, exactly. Sums and multiples are formed as fractions and rounded once, upwards where
they are claimed and downwards where noise is drawn from them. Exponentials and logarithms have 70 correct digits, and a
margin of ``HAIR`` covers the rest.
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
    """Return a loss so many times, rounded up."""
    return math.inf if math.isinf(loss) else round_up(Fraction(loss) * times)


def remainder(epsilon: float, *spent: float) -> Fraction | float:
    """Return exactly what is left of ``epsilon``: a fraction, or inf."""
    return math.inf if math.isinf(epsilon) else Fraction(epsilon) - sum(map(Fraction, spent), Fraction(0))


def state_and_output(epsilon: float, *states: float) -> dict[str, float]:
    """Return what a claim is made of: the losses of the states seen, and what is left for the outputs."""
    remaining = remainder(epsilon, *states) if math.isfinite(epsilon) else math.inf
    return {
        "state": sum_rounded_up(states),
        "output": remaining if isinstance(remaining, float) else round_up(remaining),
    }


def equal_share(epsilon: float, parts: int) -> Fraction | float:
    """Return exactly one of so many equal parts of ``epsilon``."""
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
    """Return a little less than ln(ratio), by less than ``2·HAIR`` of it or of 1, for a ratio of at least 1."""
    logarithm = _log(ratio)
    return max(logarithm - (1 + logarithm) * HAIR, Fraction(0))


def _log(ratio: Fraction) -> Fraction:
    return Fraction(_CONTEXT.ln(_CONTEXT.divide(Decimal(ratio.numerator), Decimal(ratio.denominator))))
