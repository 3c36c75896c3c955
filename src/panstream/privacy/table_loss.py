"""Losses of tables and choices when one record is replaced by another: sensitivities and noise.

Neighbouring data sets have the same public number of records n and differ in one record. A table of counts then loses
one from a cell and gains one in another: 2 in L1, sqrt(2) in L2. Proofs: docs/proofs/networks.md. Every sensitivity is
checked by brute force on all small tables.
"""

from __future__ import annotations

import math
from fractions import Fraction

from panstream.primitives import validation as checks

TABLE_L1 = 2
TABLE_L2_SQUARED = 2


def table_kappa(epsilon: float | Fraction) -> Fraction | float:
    """Return the decay rate of discrete Laplace noise with which one table loses ``epsilon``: epsilon/2."""
    checks.require_positive(epsilon=epsilon)
    return math.inf if math.isinf(epsilon) else Fraction(epsilon) / TABLE_L1


def table_sigma(rho: float) -> float:
    """Return the sigma of discrete Gaussian noise with which one table loses ``rho`` zCDP: 1/sqrt(rho), rounded up.

    Sums of counts are integers, so the discrete Gaussian loses what the continuous one does: sensitivity²/(2·sigma²).
    [Canonne, Kamath, Steinke 2020, Theorem 14]
    """
    checks.require_positive(rho=rho)
    return 0.0 if math.isinf(rho) else math.nextafter(math.sqrt(TABLE_L2_SQUARED / (2.0 * rho)), math.inf)


def choice_rate(epsilon: float | Fraction, sensitivity: int | Fraction) -> Fraction | float:
    """Return the exponent for each unit of utility with which one choice loses ``epsilon``: epsilon/(2·sensitivity)."""
    checks.require_positive(epsilon=epsilon)
    checks.require_positive(sensitivity=sensitivity)
    return math.inf if math.isinf(epsilon) else Fraction(epsilon) / (2 * Fraction(sensitivity))


def choice_rho(epsilon: float) -> float:
    """Return the zCDP loss of the exponential mechanism at ``epsilon``: epsilon²/8 (not of permute-and-flip).

    [Cesar, Rogers 2021, Lemma 3.4: its range is bounded by epsilon]
    """
    return epsilon**2 / 8.0


def choice_epsilon(rho: float) -> float:
    """Return the epsilon of an exponential mechanism that loses ``rho`` zCDP: sqrt(8·rho), rounded down."""
    checks.require_positive(rho=rho)
    return math.inf if math.isinf(rho) else math.nextafter(math.sqrt(8.0 * rho), 0.0)


def mutual_information_sensitivity(records: int, *, binary: bool) -> float:
    """Return the sensitivity of the empirical mutual information to one record, in bits.

    ``binary`` means that one of the two sides has two values only: then log(n)/n + (n-1)/n·log(n/(n-1)), which is
    attained; else 2/n·log((n+1)/2) + (n-1)/n·log((n+1)/(n-1)), attained at odd n.      [Zhang et al. 2017, Lemma 4.1]

    >>> mutual_information_sensitivity(2, binary=True)
    1.0
    """
    n = _records(records)
    if n == 1:
        return 0.0
    if binary:
        return math.log2(n) / n + (n - 1) / n * math.log2(n / (n - 1))
    return 2 / n * math.log2((n + 1) / 2) + (n - 1) / n * math.log2((n + 1) / (n - 1))


def r_sensitivity(records: int) -> Fraction:
    """Return the bound for R = ½·‖P(X, Π) - P(X)·P(Π)‖₁: 3/n - 2/n² (networks.md, Lemma 2).

    Published with 3/n + 2/n² (Zhang et al. 2017, Theorem 5.3). 3/n is approached as n grows: 99.3% of it at 10,000
    records.
    """
    n = _records(records)
    return Fraction(3, n) - Fraction(2, n * n)


def f_sensitivity(records: int) -> Fraction:
    """Return the sensitivity of F, for a child with two values: 1/n (Zhang et al. 2017, Theorem 4.5).

    Also that of a residual ½·‖P(X, Y) - Q‖₁ for a fixed or already released Q.
    """
    return Fraction(1, _records(records))


def _records(records: int) -> int:
    checks.require_at_least(1, records=records)
    return records
