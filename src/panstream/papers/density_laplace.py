"""The Laplace density estimator and its quantised form."""

from __future__ import annotations

import math
from dataclasses import dataclass

from panstream import checks
from panstream.papers.density_laws import LaplaceLaw, LevelLaw
from panstream.papers.literal_density import LiteralDensity
from panstream.planning._stored_values import quantised_values
from panstream.planning.density_published import (
    LAPLACE,
    QUANTISED_LAPLACE,
    PublishedEstimator,
    quantised_laplace,
)

__all__ = ["PublishedLaplace", "PublishedQuantisedLaplace"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedLaplace(LiteralDensity):
    """The Laplace estimator: a real number per sampled user, Laplace(μ_init, b) or Laplace(μ_upd, b), μ_upd - μ_init = ε·b.

    "Data Analytics with Differential Privacy", Algorithm 4.3, with the means (1 ∓ ε)/2 and scale 1 of Figure 4.6.

    What is wrong: the stored number has no bound, so what one user does to the debiased mean has none either. Output noise and
    stored values have the same decay rate: against an intruder who saw the value, a user who was re-drawn makes an output y
    far away likelier by a factor that grows like y. No finite loss. It claims 2ε.

    Example
        >>> PublishedLaplace(universe=1000, epsilon=0.1).claim().epsilon
        inf
    """

    @property
    def law(self) -> LaplaceLaw:
        """Return the two Laplace laws."""
        return LaplaceLaw(epsilon=self.epsilon)

    @property
    def bounds(self) -> PublishedEstimator:
        """Return the bound of Theorem 4.9."""
        return LAPLACE

    @property
    def mean_squared_error(self) -> float:
        """Return 2(m+1)/(m²ε²)                                                                     [Theorem 4.8]."""
        return 2 * (self.sampled + 1) / (self.sampled * self.epsilon) ** 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedQuantisedLaplace(LiteralDensity):
    """The Laplace estimator with each number rounded to one of ``levels`` points by Lloyd and Max's quantiser.

    "Data Analytics with Differential Privacy", section 4.4.3. Two levels are bits of probability e^(-ε/2)/2 and
    1 - e^(-ε/2)/2.

    What is wrong: as in OptBern the output noise is for a sensitivity of 1/m, where one user moves the debiased mean by the
    range of the points over m times the distance of the means. Two levels claim 2ε and lose 1.524, 1.613, 1.787, 2.281 at
    ε = .05, .1, .2, .5. More levels lose more: their outermost points lie further out. And two levels do not use the
    state's budget, they lose ln(2·e^(ε/2) - 1) < ε.

    Example
        >>> [round(PublishedQuantisedLaplace(universe=9, epsilon=0.1, levels=n).claim().epsilon, 3) for n in (2, 4)]
        [1.613, 3.631]
    """

    levels: int = 2

    def __post_init__(self) -> None:
        checks.within(2, 64, levels=self.levels)
        LiteralDensity.__post_init__(self)

    @property
    def law(self) -> LevelLaw:
        """Return the laws of the levels."""
        if self.levels == 2:
            tail = 0.5 * math.exp(-self.epsilon / 2)
            return LevelLaw.bit(tail, 1 - tail)
        return LevelLaw.quantised_laplace(self.epsilon, self.levels)

    @property
    def bounds(self) -> PublishedEstimator:
        """Return OptBern's bound with the contrast of the points; none is printed."""
        return QUANTISED_LAPLACE if self.levels == 2 else quantised_laplace(self.levels)

    @property
    def state_loss(self) -> float:
        """Return the loss of a stored level."""
        return quantised_values(self.epsilon, self.levels).state_loss
