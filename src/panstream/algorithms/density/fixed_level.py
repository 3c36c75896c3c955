"""Fixed-level sampling: the part of pan-private distinct sampling (PPDS) that has a finite loss."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from panstream.algorithms.density.presence import Presence
from panstream.algorithms.density.universe import Universe, as_members
from panstream.algorithms.randomized_bits import CoinPair
from panstream.primitives import validation as checks


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedLevel(Presence):
    """The fraction of a known population that has appeared, from the bits of one user in ``2**level``.

    Distinct sampling raises its level when memory runs full: the level then depends on the data, and a returning user's
    membership is drawn again, which has no finite loss. Here the level is a public parameter: the users whose permuted
    index is below U/2**level have a bit for the whole run, the others never.

    Privacy:
        As `OptBern`. The sample is public: the loss of a user in it is the same whether or not others know of it.
        Proof: docs/proofs/joint-loss.md, Theorem 1.

    Error:
        As `OptBern` with m = U/2**level, rounded up.

    Args:
        level: How often the population is halved, 0 for everyone. ``sample`` follows from it
            and must not be given.

    Examples:
        >>> FixedLevel(universe=100_000, epsilon=1.0, level=3).cells
        12500

    Reference: Digalakis et al. 2018, §5 (PPDS), corrected.
    """

    theorem: ClassVar[str] = "Theorem 1"

    level: int = 0
    sample: int | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        checks.require_integer_in_range(0, 62, level=self.level)
        size = Universe(as_members(self.universe), None, self.key).size
        object.__setattr__(self, "sample", -(-size >> self.level) if self.level else None)
        Presence.__post_init__(self)

    @property
    def law(self) -> CoinPair:
        """Return the symmetric pair of coins and the release noise at the best split."""
        return self._optimal_law()
