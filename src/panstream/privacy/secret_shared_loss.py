"""Loss of secret shares on two machines: that of the answers only.

A copy of one machine shows uniform numbers (docs/proofs/two-machines.md). Each answer contains a full draw of each
machine, and an attacker at one machine knows its draw; so the loss is that of the other machine's draw.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

from panstream.primitives.noise.distributions import DiscreteLaplace
from panstream.privacy.claim import Claim, Intrusions, Unit
from panstream.privacy.retained_loss import RetainedRates
from panstream.privacy.rounding import equal_share, round_down

__all__ = [
    "ASSUMPTION",
    "moved_by_changes",
    "noisy_claim",
    "shared_claim",
    "shared_law",
    "shared_retained_rates",
]

ASSUMPTION = "AES-256-CTR, X25519, TLS 1.3; front end and machines run hardened (the default on Linux)"
_STEPS = "when steps happen, and how large their messages are"


@lru_cache(maxsize=256)
def shared_law(epsilon: float, moved: int) -> DiscreteLaplace:
    """Return the distribution of each machine's draws; one unit changes the reconstructed numbers by ``moved`` in all.

    epsilon = moved·kappa (two-machines.md, Theorem).
    """
    return DiscreteLaplace.at_most(equal_share(epsilon, moved))


def moved_by_changes(levels: int, changes: int = 1) -> int:
    """Return by how much one user moves the noises of a tree over the changes of a number of set bits, in all.

    With and without any of her rows, a bit changes ``changes`` times at most, and a change is in one node of each of
    the ``levels`` (two-machines.md, Live counts).

    >>> moved_by_changes(3)
    6
    """
    return 2 * changes * levels


@lru_cache(maxsize=256)
def shared_retained_rates(epsilon: float, lags: int) -> RetainedRates:
    """Return the largest rates with which all answers about one window lose at most ``epsilon``.

    Rows of one user in one window move the number of its ones, and its differences from ``lags`` windows before it and
    as many after it, by at most one each: epsilon = of_count + 2·lags·of_pair (two-machines.md, Theorem 3). The
    share of the count makes the noise of (first + second - differing)/2 smallest.

    >>> rates = shared_retained_rates(1.0, 4)
    >>> round(rates.of_count, 4), round(rates.of_pair, 4)
    (0.2395, 0.0951)
    """
    if math.isinf(epsilon):
        return RetainedRates(math.inf, math.inf)
    of_count = round_down(Fraction(epsilon / (1.0 + (2.0 * lags**2) ** (1 / 3))))
    return RetainedRates(of_count, round_down((Fraction(epsilon) - Fraction(of_count)) / (2 * lags)))


def shared_claim(epsilon: float, unit: Unit, releases: int, public: str) -> Claim:
    """Return the claim for any number of copies, of one machine at a time, and all releases."""
    return Claim(
        epsilon=epsilon,
        unit=unit,
        intrusions=Intrusions(unannounced=-1, machines=2),
        assumption=ASSUMPTION,
        inputs="adaptive",
        locations=("memory", "disk"),
        releases=releases,
        public=(public, _STEPS),
        note="" if epsilon < float("inf") else "no noise: for tests only",
    )


def noisy_claim(one: Claim) -> Claim:
    """Return the claim for shares of noisy cells that on one machine have the claim ``one``.

    Copies of both machines in one epoch, once, reveal as much as its one copy does:
    epsilon = epsilon_s + ln(1 - p1 + p1·e**(n·kappa)) (two-machines.md, Noisy cells).
    """
    return replace(
        one,
        intrusions=Intrusions(unannounced=-1, machines=2, together=1),
        assumption=ASSUMPTION,
        locations=("memory", "disk"),
        public=(*one.public, _STEPS),
    )
