"""Distributions of noise, exactly: values with rational parameters, so that a test can enumerate them.

A probability is a multiple of 2^-64; the rates of noise and of selection are multiples of 2^-52. All are rounded in the
direction of less privacy loss, and the closed forms in ``panstream.privacy`` are upper bounds for what is drawn.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction

from panstream.errors import InvalidParameter
from panstream.primitives import validation as checks

COIN_BITS = 64
LAPLACE_BITS = 52
RATE_BITS = 52
_CONTEXT = Context(prec=80)


@dataclass(frozen=True, slots=True)
class Coin:
    """A coin that shows 1 with probability ``threshold / 2**64``, exactly.

    Args:
        threshold: Probability of a 1 in units of 2**-64.
    """

    threshold: int

    def __post_init__(self) -> None:
        checks.require_integer_in_range(0, 1 << COIN_BITS, threshold=self.threshold)

    @classmethod
    def at_most(cls, probability: float | Fraction) -> Coin:
        """Return the coin with the largest representable probability not above ``probability``."""
        exact = Fraction(probability)
        if not 0 <= exact <= 1:
            raise InvalidParameter(f"probability must be in [0, 1], got probability={probability}")
        return cls(math.floor(exact * (1 << COIN_BITS)))

    @property
    def probability(self) -> Fraction:
        """Return the exact probability of a 1."""
        return Fraction(self.threshold, 1 << COIN_BITS)

    @property
    def complement(self) -> Coin:
        """Return the coin that shows 1 when this one shows 0."""
        return Coin((1 << COIN_BITS) - self.threshold)

    def __float__(self) -> float:
        return self.threshold / (1 << COIN_BITS)


def symmetric_coins(epsilon: float) -> tuple[Coin, Coin]:
    """Return (absent, present): coins p0 = 1 - p1 and p1 with p1/p0 at most ``e**epsilon``.

    p1 is ``e**epsilon / (1 + e**epsilon)`` rounded down to a multiple of 2^-64. Rounding down makes p1 smaller and
    p0 = 1 - p1 larger, so the ratio can only fall; the error of each is below 2^-64. ``epsilon = inf`` gives (0, 1).

    >>> absent, present = symmetric_coins(1.0)
    >>> present.probability / absent.probability <= exp_fraction(Fraction(1))
    True
    """
    checks.require_positive(epsilon=epsilon)
    if math.isinf(epsilon):
        return Coin(0), Coin(1 << COIN_BITS)
    growth = _CONTEXT.exp(Decimal(min(epsilon, 200.0)))  # beyond 45 every p1 rounds to the same coin
    exact = _CONTEXT.divide(growth, _CONTEXT.add(growth, Decimal(1)))
    scaled = _CONTEXT.multiply(exact, Decimal(1 << COIN_BITS))
    present = Coin(int(scaled.to_integral_value(rounding=ROUND_FLOOR)))
    return present.complement, present


@dataclass(frozen=True, slots=True)
class DiscreteLaplace:
    """Integer noise with P(k) proportional to ``exp(-kappa * |k|)``; ``kappa`` = ``numerator / 2**52``.

    ``numerator = None`` means no noise (kappa = inf), for claims of epsilon = inf.

    Args:
        numerator: Kappa in units of 2**-52; None for no noise.
    """

    numerator: int | None

    @classmethod
    def at_most(cls, kappa: float | Fraction) -> DiscreteLaplace:
        """Return the distribution with the largest representable decay rate not above ``kappa`` (never less noise)."""
        checks.require_positive(kappa=kappa)
        if isinstance(kappa, float) and math.isinf(kappa):
            return cls(None)
        numerator = math.floor(Fraction(kappa) * (1 << LAPLACE_BITS))
        if not 1 <= numerator < 1 << 62:
            raise InvalidParameter(f"kappa must be in [2**-{LAPLACE_BITS}, {1 << (62 - LAPLACE_BITS)}), got {kappa}")
        return cls(numerator)

    @property
    def kappa(self) -> float:
        """Return the decay rate as a float (inf for no noise)."""
        return math.inf if self.numerator is None else self.numerator / (1 << LAPLACE_BITS)

    @property
    def variance(self) -> float:
        """Return the variance, ``2q/(1-q)**2`` with ``q = exp(-kappa)``."""
        if self.numerator is None:
            return 0.0
        return 0.5 / math.sinh(self.kappa / 2) ** 2 if self.kappa < 700 else 2.0 * math.exp(-self.kappa)

    def decay(self) -> Fraction:
        """Return ``exp(-kappa)`` as a rational with more than 70 correct digits."""
        return Fraction(0) if self.numerator is None else exp_fraction(Fraction(-self.numerator, 1 << LAPLACE_BITS))


@dataclass(frozen=True, slots=True)
class DiscreteGaussian:
    """Integer noise with P(k) proportional to ``exp(-k**2 * numerator / 2**52)``, that is 1/(2·sigma²) of it.

    ``numerator = None`` means no noise (sigma = 0), for claims of epsilon = inf.

    Args:
        numerator: 1/(2·sigma²) in units of 2**-52; None for no noise.

    >>> law = DiscreteGaussian.at_least(3.0)
    >>> law.sigma >= 3.0, round(law.variance, 6)
    (True, 9.0)
    """

    numerator: int | None

    @classmethod
    def at_least(cls, sigma: float | Fraction) -> DiscreteGaussian:
        """Return the distribution with the smallest representable sigma not below ``sigma`` (never less noise)."""
        checks.require_at_least(0, sigma=sigma)
        if sigma == 0:
            return cls(None)
        if isinstance(sigma, float) and math.isinf(sigma):
            raise InvalidParameter("sigma must be finite, got sigma=inf")
        numerator = math.floor(Fraction(1 << (RATE_BITS - 1)) / Fraction(sigma) ** 2)
        if not 1 << 10 <= numerator < 1 << 62:
            raise InvalidParameter(f"sigma must be in [2**-5, 2**20], got sigma={float(sigma):g}")
        return cls(numerator)

    @property
    def sigma(self) -> float:
        """Return the scale: the standard deviation of the continuous Gaussian, an upper bound for this one's."""
        return 0.0 if self.numerator is None else math.sqrt((1 << (RATE_BITS - 1)) / self.numerator)

    @property
    def variance(self) -> float:
        """Return the variance, summed for sigma <= 3, where it differs from sigma² by more than rounding."""
        if self.numerator is None:
            return 0.0
        if self.sigma > 3.0:  # the difference is below 4·pi²·sigma⁴·exp(-2·pi²·sigma²), less than 1e-70
            return self.sigma**2
        weights = [math.exp(-(k**2) * self.numerator / (1 << RATE_BITS)) for k in range(1, 64)]
        return 2.0 * math.fsum(k**2 * w for k, w in enumerate(weights, 1)) / (1.0 + 2.0 * math.fsum(weights))


@dataclass(frozen=True, slots=True)
class SelectionRate:
    """How strongly a choice prefers larger utilities: a factor ``exp(numerator / 2**52)`` for each unit of utility.

    ``numerator = None`` always chooses a largest one, for claims of epsilon = inf.

    Args:
        numerator: The rate in units of 2**-52; None always chooses a largest utility.
    """

    numerator: int | None

    @classmethod
    def at_most(cls, rate: float | Fraction) -> SelectionRate:
        """Return the selection rate with the largest representable rate not above ``rate`` (never more revealing)."""
        checks.require_at_least(0, rate=rate)
        if isinstance(rate, float) and math.isinf(rate):
            return cls(None)
        return cls(min(math.floor(Fraction(rate) * (1 << RATE_BITS)), 1 << 62))

    @property
    def rate(self) -> float:
        """Return the exponent for each unit of utility."""
        return math.inf if self.numerator is None else self.numerator / (1 << RATE_BITS)


def exp_fraction(exponent: Fraction | float) -> Fraction:
    """Return ``exp(exponent)`` as a rational with more than 70 correct digits."""
    numerator, denominator = map(Decimal, exponent.as_integer_ratio())
    return Fraction(_CONTEXT.exp(_CONTEXT.divide(numerator, denominator)))
