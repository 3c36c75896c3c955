"""OptBern: the optimal pair of coins for one bit per user, with the optimal split of the budget."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from panstream.density.presence import BitLaw, Presence
from panstream.privacy.split import density_split
from panstream.randomness import DiscreteLaplace, symmetric_pair

__all__ = ["OptBern"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OptBern(Presence):
    """The fraction of a known population that has appeared, from one noisy bit per sampled user.

    Privacy
        Unit: user; any of one user's occurrences may be added or removed. The joint view of one copy of the state at
        any time and of all releases, in either order, loses exactly ``epsilon``. Noise enters with every bit (a coin
        of probability R/(1+R) or 1/(1+R), R = e**epsilon_state) and with every release (discrete Laplace on the integer
        number of ones, before debiasing). Two unannounced copies have no finite loss. Replacing one user by another
        costs 2·epsilon.

    Error
        MSE = [p1(1-p1)/m + Var DLap(kappa)/m²]/(p1-p0)² + d(1-d)/m·(U-m)/(U-1), with the split between
        epsilon_state and kappa that minimises it.

    Parameters
        universe: number of users (ids 0..U-1), or the public list of their ids.
        epsilon: total loss; ``math.inf`` switches all noise off, for tests.
        sample: how many users have a bit; all of them by default, which has no sampling error.
        releases: how many estimates will be published.
        deletions: whether rows may remove users (presence toggles; excludes announced intrusions).
        announced: how many announced intrusions to pay for in advance.
        key: public number that picks the sample.

    Example
        >>> monitor = OptBern(universe=100_000, epsilon=1.0).start()
        >>> monitor.update(range(25_000))
        >>> abs(monitor.release().value - 0.25) < 0.05
        True

    Reference: "Improved pan-private density estimation", section 4.1, with the output noise made sound.
    """

    @property
    def law(self) -> BitLaw:
        """Return the symmetric pair at the optimal split."""
        return _law(self.epsilon, self.cells, self.releases, self.announced)


@lru_cache(maxsize=256)
def _law(epsilon: float, cells: int, releases: int, announced: int) -> BitLaw:
    epsilon_state, kappa = density_split(epsilon, cells, releases, announced)
    absent, present = symmetric_pair(epsilon_state)
    return BitLaw(
        absent=absent,
        present=present,
        noise=DiscreteLaplace.at_most(kappa),
        epsilon_state=epsilon_state,
        epsilon=epsilon,
    )
