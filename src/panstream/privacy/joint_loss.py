"""Exact joint losses of (state at one time, all outputs) for stored bits and for counters, as closed forms.

Proofs: docs/proofs/joint-loss.md. Every formula here is checked against an enumeration of the shipped code.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from itertools import product
from typing import TypeVar

from panstream.errors import InvalidParameter
from panstream.primitives.noise.distributions import exp_fraction
from panstream.privacy.numeric_search import bisect
from panstream.privacy.rounding import HAIR, log_down, log_up, round_down

Number = TypeVar("Number", float, Fraction)


def present_probability(epsilon_state: float) -> float:
    """Return p1 = R/(1+R), R = e**epsilon_state: the probability that a present user's bit is 1."""
    return 1.0 / (1.0 + math.exp(-epsilon_state))


def symmetric_loss(epsilon_state: float, kappa: float, releases: int = 1) -> float:
    """Return the joint loss of bits with p0 = 1 - p1 under n releases of sum + DLap(kappa).

    epsilon = epsilon_state + ln(1 - p1 + p1·e**(n·kappa)) (joint-loss.md, Theorem 1).
    """
    return epsilon_state + log_mixture(epsilon_state, releases * kappa)


def log_mixture(epsilon_state: float, exponent: float) -> float:
    """Return ln(1 - p1 + p1·e**exponent) without overflow or cancellation."""
    p1 = present_probability(epsilon_state)
    if exponent > 30.0:
        return exponent + math.log(p1 + (1.0 - p1) * math.exp(-exponent))
    return math.log1p(p1 * math.expm1(exponent))


def kappa_for_approx(epsilon: float, epsilon_state: float, releases: int = 1, announced: int = 0) -> float:
    """Return ``kappa_for`` up to rounding errors of either sign: fast, for searches only.

    kappa = ln(1 + (e**(epsilon - (k+1)·epsilon_state) - 1)/p1) / n
    """
    if math.isinf(epsilon):
        return math.inf
    remaining = epsilon - (announced + 1) * epsilon_state
    p1 = present_probability(epsilon_state)
    if remaining > 30.0:
        return (remaining - math.log(p1)) / releases
    return math.log1p(math.expm1(remaining) / p1) / releases


@lru_cache(maxsize=1024)
def kappa_for(epsilon: float, epsilon_state: float, releases: int = 1, announced: int = 0) -> float:
    """Return the largest kappa with which all intrusions and releases lose at most ``epsilon``, rounded down.

    k announced intrusions lose epsilon_state each, and the last phase ``symmetric_loss`` (joint-loss.md, Theorem 3).
    """
    if math.isinf(epsilon):
        return math.inf
    remaining = Fraction(epsilon) - (announced + 1) * Fraction(epsilon_state)
    if not remaining > 0:
        raise InvalidParameter(f"epsilon_state must be below epsilon={epsilon}, got {epsilon_state}")
    return round_down(max_mixture_exponent(remaining, epsilon_state) / releases)


def max_mixture_exponent(remaining: Fraction, epsilon_state: float) -> Fraction:
    """Return the largest x with ln(1 - p1 + p1·e**x) at most ``remaining``, rounded down: inverts ``log_mixture``."""
    if remaining > _LARGE:
        return remaining
    odds = exp_fraction(-Fraction(epsilon_state)) * (1 - HAIR)
    return log_down(1 + (exp_fraction(remaining) * (1 - HAIR) - 1) * (1 + odds))


_LARGE = 100_000  # e**remaining would have too many digits; no kappa that large can be drawn


def pair_loss(p0: float, p1: float, kappa: float, releases: int = 1) -> float:
    """Return the exact joint loss for any pair of coins, inserts and deletes, intrusion before or after the outputs.

    One user's bit is followed in both neighbours. Before the intrusion it was last drawn from p0 or p1; between
    intrusion and outputs it stays or is re-drawn. Outputs far above (below) the possible sums weigh a neighbour by the
    mean of K**±bit, and every other output lies between (joint-loss.md, Lemma 2), so the maximum over these finitely
    many cases is the loss. With the outputs first, the roles of the last output's bit and the copied bit are exchanged.

    Args:
        p0: Probability of a 1 for a user who is absent.
        p1: Probability of a 1 for a user who is present.
        kappa: Rate of the discrete Laplace noise of an output.
        releases: Number of outputs.
    """
    if math.isinf(kappa) or p0 in (0.0, 1.0) or p1 in (0.0, 1.0):
        return math.inf
    return math.log(_pair_ratio(p0, p1, math.exp(kappa * releases), math.exp(-kappa * releases)))


def _pair_ratio(p0: Number, p1: Number, growth: Number, decay: Number) -> Number:
    ratios: list[Number] = []
    for factor, seen in product((growth, decay), (0, 1)):
        views: list[Number] = []
        for first in (p0, p1):
            state = first if seen else 1 - first
            views.append(state * factor if seen else state)  # not touched after the intrusion
            views += [state * (1 - later + later * factor) for later in (p0, p1)]
        ratios.append(max(views) / min(views))
    return max(ratios)


def pair_state_loss(p0: float | Fraction, p1: float | Fraction) -> float:
    """Return the loss of the state without outputs, rounded up: max(ln p1/p0, ln (1-p0)/(1-p1)) for p0 < p1."""
    low = Fraction(p0)
    high = Fraction(p1)
    return log_up(max(high / low, (1 - low) / (1 - high))) if low > 0 and high < 1 else math.inf


def kappa_for_pair(epsilon: float | Fraction, p0: float | Fraction, p1: float | Fraction, releases: int = 1) -> float:
    """Return the largest kappa whose ``pair_loss`` is at most ``epsilon``, by bisection, rounded down."""
    if math.isinf(epsilon):
        return math.inf
    if not pair_state_loss(p0, p1) < epsilon:
        raise InvalidParameter(f"the state alone must lose less than epsilon={float(epsilon)}")
    high = math.log1p(math.expm1(epsilon) / p1) / releases  # the loss is at least ln(1 - p1 + p1·e**(n·kappa))
    low, _ = bisect(lambda kappa: pair_loss(float(p0), float(p1), kappa, releases) <= epsilon, 0.0, high)
    max_ratio = exp_fraction(epsilon) * (1 - HAIR)
    while _pair_ratio(Fraction(p0), Fraction(p1), *_growths(low, releases)) * (1 + HAIR) > max_ratio:
        low *= 1.0 - 2.0**-52
    return low


def _growths(kappa: float, releases: int) -> tuple[Fraction, Fraction]:
    return exp_fraction(Fraction(kappa) * releases), exp_fraction(-Fraction(kappa) * releases)
