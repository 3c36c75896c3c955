"""The start distribution of modular counters: a coin for the class, then a uniform square or minus a square.

p ≡ 3 (mod 4) is prime, so -1 is no square and the field falls into the (p-1)/2 non-zero squares r² (r = 1..(p-1)/2,
each once) and the (p+1)/2 others, 0 and all -r² (r = 0..(p-1)/2, each once).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from panstream.errors import InvalidParameter
from panstream.primitives.noise import Coin
from panstream.primitives.noise.distributions import COIN_BITS, exp_fraction

MERSENNE = (1 << 61) - 1
MAX_MODULUS = 1 << 62
_WITNESSES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)
_SAFETY = 1 - Fraction(1, 10**60)  # exp_fraction errs by less than one part in 10**70


def _is_prime(number: int) -> bool:
    """Return whether ``number`` is prime (Miller and Rabin), exactly below 3·10**24 with these twelve witnesses."""
    if number < 2 or any(number % witness == 0 for witness in _WITNESSES):
        return number in _WITNESSES
    odd = number - 1
    twos = 0
    while odd % 2 == 0:
        odd = odd // 2
        twos = twos + 1
    for witness in _WITNESSES:
        power = pow(witness, odd, number)
        if power not in (1, number - 1) and all(pow(power, 1 << i, number) != number - 1 for i in range(1, twos)):
            return False
    return True


def check_prime(prime: int) -> None:
    """Raise InvalidParameter unless ``prime`` is a prime ≡ 3 (mod 4) from 3 to 2**62."""
    if not 3 <= prime < MAX_MODULUS or prime % 4 != 3 or not _is_prime(prime):
        raise InvalidParameter(f"prime must be a prime ≡ 3 (mod 4) from 3 to 2**62, got prime={prime}")


@lru_cache(maxsize=256)
def prime_at_least(lower: int) -> int:
    """Return the smallest prime ≡ 3 (mod 4) that is at least ``lower``.

    >>> prime_at_least(20), prime_at_least(1 << 10)
    (23, 1031)
    """
    candidate = max(lower, 3)
    candidate += (3 - candidate) % 4
    while not _is_prime(candidate):
        candidate += 4
    return candidate


@dataclass(frozen=True, slots=True)
class ResidueLaw:
    """A start value: in the plus class with probability ``plus``, and uniform within its class."""

    prime: int
    plus: Coin

    @classmethod
    def at_most(cls, prime: int, epsilon_state: float) -> ResidueLaw:
        """Return the distribution whose plus elements are at most e**epsilon_state times as likely as the others.

        The exact probability nR/(nR + n + 1), n = (p-1)/2, is rounded down to a multiple of 2**-64; the ratio of an
        element of either class, (P/n)/((1-P)/(n+1)), grows with P, so rounding down can only make it smaller.
        """
        residues = (prime - 1) // 2
        weight = residues * exp_fraction(Fraction(min(epsilon_state, 200.0))) * _SAFETY
        law = cls(prime, Coin(math.floor(weight / (weight + residues + 1) * (1 << COIN_BITS))))
        if law.ratio < 1:
            raise InvalidParameter(f"epsilon leaves a state loss of {epsilon_state:g}, too small to be drawn exactly")
        return law

    @property
    def ratio(self) -> Fraction:
        """Return the exact ratio of the probabilities of a plus and a minus element."""
        residues = (self.prime - 1) // 2
        plus = self.plus.probability
        return (plus / residues) / ((1 - plus) / (residues + 1))

    @property
    def at_zero(self) -> float:
        """Return P, the probability of the plus class at net weight 0."""
        return float(self.plus)

    @property
    def elsewhere(self) -> float:
        """Return w = 1/2 - P/(p-1), the probability of the plus class at other net weights (turnstile.md, Lemma 1)."""
        return 0.5 - float(self.plus) / (self.prime - 1)
