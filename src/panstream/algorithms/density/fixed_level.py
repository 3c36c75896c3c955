"""Fixed-level sampling: what remains sound of pan-private distinct sampling."""

from __future__ import annotations

from dataclasses import dataclass, field

from panstream.algorithms.density.presence import Presence
from panstream.algorithms.density.universe import Universe
from panstream.algorithms.randomized_bits import CoinPair
from panstream.primitives import validation as checks


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedLevel(Presence):
    """The fraction of a known population that has appeared, watching one user in ``2**level``.

    Distinct sampling raises its level when memory runs full: the level then depends on the data, and a user who returns
    has her membership drawn again, which has no finite loss. Here the level is a public parameter: the users whose
    permuted number is below U/2**level have a bit for the whole run, the others never.

    Privacy:
        As `OptBern`. The sample is public; nothing is gained from hiding it.

    Error:
        As `OptBern` with m = U/2**level, rounded up.

    Args:
        universe: Number of users (ids 0..U-1), or the public list of their ids.
        epsilon: Total loss; ``math.inf`` switches all noise off, for tests.
        releases: How many estimates will be published.
        deletions: Whether rows may remove users (presence toggles; excludes announced
            intrusions).
        announced: How many announced intrusions to pay for in advance; each is covered only if
            no row was applied between the copy and the refresh.
        key: Public number that picks the sample.
        level: How often the population is halved, 0 for everyone. ``sample`` follows from it
            and must not be given.

    Examples:
        >>> FixedLevel(universe=100_000, epsilon=1.0, level=3).cells
        12500

    Reference: Digalakis et al. 2018, §5 (PPDS), corrected.
    """

    level: int = 0
    sample: int | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        checks.require_integer_in_range(0, 62, level=self.level)
        size = Universe(tuple(self.universe) if isinstance(self.universe, list) else self.universe, None, self.key).size
        object.__setattr__(self, "sample", -(-size >> self.level) if self.level else None)
        Presence.__post_init__(self)

    @property
    def law(self) -> CoinPair:
        """Return the symmetric pair at the optimal split."""
        return self._optimal()
