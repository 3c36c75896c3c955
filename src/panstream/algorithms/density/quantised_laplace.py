"""Quantised Laplace: the sign of a Laplace-noised bit, with output noise for which the claim holds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from panstream.algorithms.density.presence import Presence
from panstream.algorithms.randomized_bits import CoinPair
from panstream.primitives.noise import Coin, DiscreteLaplace
from panstream.privacy.joint_loss import kappa_for, pair_state_loss


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantisedLaplace(Presence):
    """The fraction of a known population that has appeared, with the coins of one-bit quantised Laplace noise.

    A present user's bit shows 1 with probability 1 - e**(-epsilon/4)/2, an absent user's with e**(-epsilon/4)/2: the
    paper's coins at half of the budget. They lose only ln(2·e**(epsilon/4) - 1), and the rest goes to the release,
    exactly. It exists for comparison: `OptBern` has a smaller error.

    Privacy:
        As `OptBern`: unit user, one unannounced copy of the state and all releases, in either order, lose
        exactly ``epsilon``. As published it loses 1.613 where it claims 0.2.
        Proof: docs/proofs/joint-loss.md, Theorem 2.

    Error:
        MSE = [p1(1-p1)/m + Var DLap(kappa)/m²]/(p1-p0)² + sampling.

    Examples:
        >>> monitor = QuantisedLaplace(universe=100_000, epsilon=1.0).start()
        >>> monitor.update(range(25_000))
        >>> abs(monitor.release().value - 0.25) < 0.15
        True

    Reference: Digalakis 2018, §4.4.3.
    """

    theorem: ClassVar[str] = "Theorem 2"

    @property
    def law(self) -> CoinPair:
        """Return the paper's coins at half of the budget per phase and the exact noise for the rest."""
        return _law(self.epsilon, self.releases, self.announced)


@lru_cache(maxsize=256)
def _law(epsilon: float, releases: int, announced: int) -> CoinPair:
    present = Coin.at_most(1.0 - math.exp(-epsilon / (4.0 * (announced + 1))) / 2.0)
    absent = present.complement
    state = pair_state_loss(absent.probability, present.probability)
    kappa = kappa_for(epsilon, state, releases, announced)
    return CoinPair(absent=absent, present=present, noise=DiscreteLaplace.at_most(kappa), epsilon_state=state)
