"""OptBern: the optimal pair of coins for one bit per user, with the optimal split of the budget."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.density.presence import Presence
from panstream.algorithms.randomized_bits import CoinPair
from panstream.core.estimate import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class OptBern(Presence):
    """The fraction of a known population that has appeared, from one noisy bit per sampled user.

    Privacy:
        Unit: user; any of one user's occurrences may be added or removed. The joint view of one copy of the state at
        any time and of all releases, in either order, loses exactly ``epsilon``. Noise enters with every bit (a coin
        of probability R/(1+R) or 1/(1+R), R = e**epsilon_state) and with every release (discrete Laplace on the integer
        number of ones, before debiasing). Two unannounced copies have no finite loss. Replacing one user by another
        costs 2·epsilon.
        Proof: docs/proofs/joint-loss.md, Theorem 1.

    Error:
        MSE = [p1(1-p1)/m + Var DLap(kappa)/m²]/(p1-p0)² + d(1-d)/m·(U-m)/(U-1), with the split between
        epsilon_state and kappa that minimises it.

    Args:
        count: Whether the answer is the number of users instead of their fraction.

    Examples:
        >>> monitor = OptBern(universe=100_000, epsilon=1.0).start()
        >>> monitor.update(range(25_000))
        >>> abs(monitor.release().value - 0.25) < 0.05
        True
        >>> monitor = OptBern(universe=100_000, epsilon=1.0, count=True).start()
        >>> monitor.update(range(25_000))
        >>> abs(monitor.release().value - 25_000) < 5_000
        True

    Reference: Digalakis et al. 2018, §4.3, Algorithm 2, with the output noise corrected.
    """

    theorem: ClassVar[str] = "Theorem 1"

    count: bool = False

    @property
    def law(self) -> CoinPair:
        """Return the symmetric pair of coins and the release noise at the best split."""
        return self._optimal_law()

    def _decode(self, released: tuple[int, ...], sizes: NDArray[np.int64], phases: int) -> Estimate:
        density = Presence._decode(self, released, sizes, phases)
        return density.scaled(self.population.size, "distinct users") if self.count else density

    def error_bound(self, *, beta: float) -> float:
        """Return the error of the answer that is exceeded with probability at most ``beta``."""
        return Presence.error_bound(self, beta=beta) * (self.population.size if self.count else 1)

    def standard_error(self, users: float) -> float:
        """Return the standard error, in users, when ``users`` have appeared.

        U·sqrt([p1(1-p1)/m + Var DLap/m²]/(p1-p0)² + d(1-d)/m·(U-m)/(U-1)), d = users/U, and for k announced
        intrusions the first term is (1+v)**(k+1) - 1 as in docs/proofs/joint-loss.md.
        """
        law = self.law
        total = self.population.size
        sampled = self.cells
        gap = law.p1 - law.p0
        density = min(users / total, 1.0)
        second_moment = 1.0 + law.p1 * law.p0 / gap**2
        cells = second_moment ** (self.announced + 1) - 1.0
        weights = ((law.p1**2 + law.p0**2) / gap**2) ** self.announced
        sampling_variance = density * (1 - density) * (total - sampled) / max(total - 1, 1)
        return total * math.sqrt(
            (cells + sampling_variance) / sampled + law.noise.variance * weights / (gap * sampled) ** 2
        )
