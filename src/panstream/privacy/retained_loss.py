"""Bits that stay in the state after their window, behind answers about pairs of windows: losses, and how to split them.

A closed window's bits are frozen. Its own number of ones is released with discrete Laplace noise of rate
``of_count``, and for every pair with another window the number of cells that are 1 in both, with rate ``of_pair``. One
bit moves each of these numbers by at most one, so its answers together weigh e**``exponent``. Proof:
docs/proofs/retention.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from panstream.errors import InvalidParameter
from panstream.privacy.joint_loss import max_mixture_exponent, present_probability
from panstream.privacy.person_loss import WindowLoss
from panstream.privacy.rounding import round_down, round_up

COUNT_SHARE = Fraction(1, 10)  # of the exponent: errors of overlaps are within 2% of the least between 1/20 and 1/5


@dataclass(frozen=True, slots=True)
class RetainedRates:
    """The rates of the release noise.

    Attributes:
        of_count: Of a window's own number of ones.
        of_pair: Of the number of cells that are 1 in two windows.
    """

    of_count: float
    of_pair: float

    def exponent(self, lags: int) -> float:
        """Return the logarithm of the most by which one bit changes the chance of all answers, rounded up."""
        return (
            math.inf
            if math.isinf(self.of_count)
            else round_up(Fraction(self.of_count) + 2 * lags * Fraction(self.of_pair))
        )


@lru_cache(maxsize=1024)
def retained_rates(epsilon: float, epsilon_state: float, lags: int) -> RetainedRates:
    """Return the largest rates with which a copy of an open window and all answers about it lose at most ``epsilon``.

    A window is compared with ``lags`` windows before it and as many after it.

    >>> rates = retained_rates(2.66, 2.0, 4)
    >>> round(rates.of_count, 4), round(rates.of_pair, 4)
    (0.0723, 0.0814)
    """
    if math.isinf(epsilon):
        return RetainedRates(math.inf, math.inf)
    remaining = Fraction(epsilon) - Fraction(epsilon_state)
    if not remaining > 0:
        raise InvalidParameter(f"epsilon_state must be below epsilon={epsilon}, got epsilon_state={epsilon_state}")
    exponent = max_mixture_exponent(remaining, epsilon_state)
    of_count = round_down(exponent * COUNT_SHARE)
    return RetainedRates(of_count, round_down((exponent - Fraction(of_count)) / (2 * lags)))


def retained_window_loss(epsilon: float, epsilon_state: float, exponent: float) -> WindowLoss:
    """Return the losses to one window: with a copy while it is open, while it is retained, and without one.

    [retention.md, Theorem 1]
    """
    if math.isinf(epsilon):
        return WindowLoss(joint=epsilon, answers=epsilon, unused=epsilon, closed=epsilon)
    p1 = present_probability(epsilon_state)
    open_loss = WindowLoss.of_bits(epsilon, 1.0 - p1, p1, exponent, 1)
    return WindowLoss(
        joint=epsilon, answers=open_loss.answers, unused=open_loss.unused, closed=max(epsilon_state, open_loss.answers)
    )
