"""The published density estimators with a fixed sample: the stored values of each, and its mistakes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from panstream.algorithms.planning.density_published import (
    DWORK,
    GAUSSIAN,
    LAPLACE,
    OPTBERN,
    QUANTISED_LAPLACE,
    TRUNCATED_LAPLACE,
    PublishedEstimator,
    quantised_laplace,
)
from panstream.errors import InvalidParameter
from panstream.papers.as_printed.density_base import LiteralDensity
from panstream.papers.as_printed.density_distributions import (
    LaplaceDistribution,
    LevelDistribution,
    StoredDistribution,
    TruncatedGaussianDistribution,
    TruncatedLaplaceDistribution,
)
from panstream.primitives import validation as checks
from panstream.privacy.joint_loss import pair_loss, pair_state_loss


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedDwork(LiteralDensity):
    """Dwork's estimator: bits of probability 1/2 and 1/2 + ε/4, output noise Laplace(1/(ε·m)).

    Digalakis et al. 2018, Algorithm 1; Digalakis 2018, Algorithm 4.1; Roth 2011, lecture 18, Density(ε, α, β).

    Mistake: one bit moves the debiased mean by 4/(ε·m), not by 1/m, so the noise is too small by the factor 4/ε.
    It claims 2ε and loses 3.374, 3.423, 3.522, 3.829 at ε = .05, .1, .2, .5; however small ε is, never less than
    ln((1+e⁴)/2) = 3.325. And the bits use only part of their budget: they lose -ln(1 - ε/2) where ε is allowed.

    Examples:
        >>> estimator = PublishedDwork(universe=1000, epsilon=0.1)
        >>> round(estimator.claim().epsilon, 3)
        3.423
    """

    bounds: ClassVar[PublishedEstimator] = DWORK  # the bound of Theorem 3.3

    @property
    def state_loss(self) -> float:
        """Return -ln(1 - ε/2), the papers' ε_actual."""
        return -math.log1p(-self.epsilon / 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedOptBern(LiteralDensity):
    """OptBern: bits of probability c(1 - tanh(ε/2)) and c(1 + tanh(ε/2)), output noise Laplace(1/(ε·m)).

    Digalakis et al. 2018, Algorithm 2; Digalakis 2018, Algorithm 4.2.

    Mistake: one bit moves the debiased mean by 1/(m·tanh(ε/2)), not by 1/m. It claims 2ε and loses 1.503, 1.573, 1.713,
    2.143 at ε = .05, .1, .2, .5; never less than ln((1+e²)/2) = 1.433. And "any c in (0, 4/5]" is wrong: only the ones
    were checked, not the zeros, and for c > 1/2 these lose more than ε (c = .8, ε = .5: the state itself loses 4.579).

    Examples:
        >>> estimator = PublishedOptBern(universe=1000, epsilon=0.1)
        >>> round(estimator.claim().epsilon, 3)
        1.573
    """

    bounds: ClassVar[PublishedEstimator] = OPTBERN  # the bound of Theorem 4.3, which is for c = 1/2

    centre: float = 0.5

    def __post_init__(self) -> None:
        LiteralDensity.__post_init__(self)
        if not 0 < self.centre * (1 + math.tanh(self.epsilon / 2)) < 1:
            raise InvalidParameter(f"centre must be positive and keep both coins below 1, got centre={self.centre}")

    @property
    def law(self) -> LevelDistribution:
        """Return the coins of probability ``centre``·(1 ∓ tanh(ε/2))."""
        gap = math.tanh(self.epsilon / 2)
        return LevelDistribution.bit(self.centre * (1 - gap), self.centre * (1 + gap))

    @property
    def state_loss(self) -> float:
        """Return the larger of the losses of a one and of a zero."""
        return pair_state_loss(self.law.absent[1], self.law.present[1])

    @property
    def true_loss(self) -> float:
        """Return the joint loss for any ``centre``."""
        p0 = self.law.absent[1]
        p1 = self.law.present[1]
        return pair_loss(p0, p1, self.epsilon / (p1 - p0))


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedLaplace(LiteralDensity):
    """The Laplace estimator: a number per sampled user, Laplace(μ_init, b) or Laplace(μ_upd, b), μ_upd - μ_init = ε·b.

    Digalakis 2018, Algorithm 4.3, with the means (1 ∓ ε)/2 and scale 1 of Figure 4.6.

    Mistake: the stored number has no bound, so neither has one user's effect on the debiased mean. Output noise and
    stored values have the same decay rate: for an attacker who copied the value, a redrawn user makes a distant output
    y more likely by a factor that grows like y. No finite loss. It claims 2ε.

    Examples:
        >>> PublishedLaplace(universe=1000, epsilon=0.1).claim().epsilon
        inf
    """

    bounds: ClassVar[PublishedEstimator] = LAPLACE  # the bound of Theorem 4.9
    distribution = LaplaceDistribution

    @property
    def mean_squared_error(self) -> float:
        """Return 2(m+1)/(m²ε²)                                                                     [Theorem 4.8]."""
        return 2 * (self.sampled + 1) / (self.sampled * self.epsilon) ** 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedQuantisedLaplace(LiteralDensity):
    """The Laplace estimator with each number rounded to one of ``levels`` points by Lloyd and Max's quantiser.

    Digalakis 2018, §4.4.3. Two levels are bits of probability e^(-ε/2)/2 and 1 - e^(-ε/2)/2.

    Mistake: as in OptBern the output noise is for a sensitivity of 1/m, where one user moves the debiased mean by the
    range of the points over m times the distance of the means. Two levels claim 2ε and lose 1.524, 1.613, 1.787, 2.281
    at ε = .05, .1, .2, .5. More levels lose more, since their range is wider. And two levels do not use the state's
    budget, they lose ln(2·e^(ε/2) - 1) < ε.

    Examples:
        >>> [round(PublishedQuantisedLaplace(universe=9, epsilon=0.1, levels=n).claim().epsilon, 3) for n in (2, 4)]
        [1.613, 3.631]
    """

    levels: int = 2

    def __post_init__(self) -> None:
        checks.require_integer_in_range(2, 64, levels=self.levels)
        LiteralDensity.__post_init__(self)

    @property
    def law(self) -> StoredDistribution:
        """Return the distributions of the levels."""
        if self.levels == 2:
            return super(PublishedQuantisedLaplace, self).law
        return LevelDistribution.quantised_laplace(self.epsilon, self.levels)

    @property
    def bounds(self) -> PublishedEstimator:
        """Return OptBern's bound with the contrast of the points; none is printed."""
        return QUANTISED_LAPLACE if self.levels == 2 else quantised_laplace(self.levels)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedTruncatedLaplace(LiteralDensity):
    """A number in [0, 1] per sampled user: Laplace((1 ∓ ε)/2, 1) cut to the interval.

    Digalakis 2018, §4.4.4: means symmetric around 1/2 "so that the normalisation factors cancel". No further
    parameters are printed; we take those of Figure 4.6. The cut means lie only .23·ε apart.

    Mistake: a stored number v moves the debiased mean by v over m times the distance of the means, about 4.4v/(ε·m),
    but the noise is for 1/m. An attacker who copied v and reads a large output y compares e^(r·v), r = ε/distance, for
    an unchanged user with the mean of e^(r·x) over the distribution of a redrawn x; other outputs lie between, and a
    very negative y is the mirror image. The maximum (``StoredValues.joint_loss``) is 2.880, 2.955, 3.119, 3.729 at
    ε = .05, .1, .2, .5, where 2ε is claimed: finite, unlike Laplace's, since v is bounded.
    """

    bounds: ClassVar[PublishedEstimator] = TRUNCATED_LAPLACE  # Hoeffding's bound on [0, 1]; none is printed
    distribution = TruncatedLaplaceDistribution


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedTruncatedGaussian(LiteralDensity):
    """A number in [0, 1] per sampled user: Normal(0, 1/(2ε)) or Normal(1, 1/(2ε)) cut to the interval.

    Digalakis 2018, §4.4.4, "properly selecting their means and (common) variance". None are printed. These
    are the ones whose ratio e^(ε(2x - 1)) runs exactly from e^-ε to e^ε, so that the state loses ε.

    Mistake: as for the truncated Laplace distribution the noise is for a sensitivity of 1/m, but one user moves the
    debiased mean by up to 1/m over the distance of the means, which is only .166·ε. True loss: 4.287, 4.368, 4.532,
    5.030 at ε = .05, .1, .2, .5.
    """

    bounds: ClassVar[PublishedEstimator] = GAUSSIAN  # Hoeffding's bound on [0, 1]; none is printed
    distribution = TruncatedGaussianDistribution
