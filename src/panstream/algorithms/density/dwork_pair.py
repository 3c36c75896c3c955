"""Dwork's pair of coins: half and a little more than half, with output noise for which the claim holds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from panstream.algorithms.density.presence import Presence
from panstream.algorithms.randomized_bits import CoinPair
from panstream.errors import InvalidParameter
from panstream.primitives.noise import Coin, DiscreteLaplace
from panstream.privacy.joint_loss import kappa_for_pair, pair_state_loss
from panstream.privacy.rounding import remainder


@dataclass(frozen=True, slots=True, kw_only=True)
class DworkPair(Presence):
    """The fraction of a known population that has appeared, with the coins of the first pan-private estimator.

    An absent user's bit is a fair coin, a present user's shows 1 with probability 1/2 + epsilon/8 (the paper's coins at
    half of the budget). What the bits leave of the budget goes to the release, exactly. It exists for comparison:
    `OptBern` has a smaller error at every epsilon.

    Privacy:
        As `OptBern`: unit user, one unannounced copy of the state and all releases, in either order, lose
        exactly ``epsilon``. As published, with Laplace(1/(epsilon·m)) on the debiased estimate, it loses 3.423 where it
        claims 0.2.
        Proof: docs/proofs/joint-loss.md, Theorem 2.

    Error:
        MSE = [(d·p1(1-p1) + (1-d)/4)/m + Var DLap(kappa)/m²]/(p1-p0)² + sampling.

    Args:
        epsilon: Total privacy loss, below 4; ``math.inf`` switches all noise off, for tests.

    Examples:
        >>> monitor = DworkPair(universe=100_000, epsilon=1.0).start()
        >>> monitor.update(range(25_000))
        >>> abs(monitor.release().value - 0.25) < 0.15
        True

    Reference: Dwork, Naor, Pitassi, Rothblum, Yekhanin 2010, §3.
    """

    theorem: ClassVar[str] = "Theorem 2"

    def __post_init__(self) -> None:
        Presence.__post_init__(self)
        _law(self.epsilon, self.releases, self.announced)  # raises if 1/2 + epsilon/8 is no probability

    @property
    def law(self) -> CoinPair:
        """Return the paper's coins at half of the budget per phase and the exact noise for the rest."""
        return _law(self.epsilon, self.releases, self.announced)


@lru_cache(maxsize=256)
def _law(epsilon: float, releases: int, announced: int) -> CoinPair:
    if math.isinf(epsilon):
        absent = Coin(0)
        present = Coin(1 << 64)
    else:
        if not epsilon < 4.0 * (announced + 1):
            raise InvalidParameter(
                f"epsilon must be below {4 * (announced + 1)} for Dwork's pair, got epsilon={epsilon}"
            )
        absent = Coin(1 << 63)
        present = Coin.at_most(0.5 + epsilon / (8.0 * (announced + 1)))
    state = pair_state_loss(absent.probability, present.probability)
    kappa = kappa_for_pair(remainder(epsilon, *[state] * announced), absent.probability, present.probability, releases)
    return CoinPair(absent=absent, present=present, noise=DiscreteLaplace.at_most(kappa), epsilon_state=state)
