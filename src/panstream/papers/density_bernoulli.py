"""The two published estimators that store one Bernoulli bit per sampled user: Dwork's (and Roth's) and OptBern."""

from __future__ import annotations

import math
from dataclasses import dataclass

from panstream.errors import InvalidParameter
from panstream.papers.density_laws import LevelLaw
from panstream.papers.literal_density import LiteralDensity
from panstream.planning.density_published import DWORK, OPTBERN, PublishedEstimator, roth_sample_size
from panstream.privacy.joint import pair_loss, pair_state_loss

__all__ = ["PublishedDwork", "PublishedOptBern"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedDwork(LiteralDensity):
    """Dwork's estimator: bits of probability 1/2 and 1/2 + ε/4, output noise Laplace(1/(ε·m)).

    "Improved Pan-Private Stream Density Estimation", Algorithm 1; "Data Analytics with Differential Privacy", Algorithm 4.1;
    Roth, lecture 18, Density(ε, α, β).

    What is wrong: one bit moves the debiased mean by 4/(ε·m), not by 1/m, so the noise is too small by the factor 4/ε. It
    claims 2ε and loses 3.374, 3.423, 3.522, 3.829 at ε = .05, .1, .2, .5; however small ε is, never less than
    ln((1+e⁴)/2) = 3.325. And the bits use only part of their budget: they lose -ln(1 - ε/2) where ε is allowed.

    Example
        >>> estimator = PublishedDwork(universe=1000, epsilon=0.1)
        >>> round(estimator.claim().epsilon, 3)
        3.423
    """

    @classmethod
    def roth(cls, *, universe: int, epsilon: float, alpha: float, beta: float) -> PublishedDwork:
        """Return the estimator with Roth's sample size m = 200·log(1/β)/(ε²α²)                     [lecture 18]."""
        return cls(universe=universe, epsilon=epsilon, sample=roth_sample_size(epsilon, alpha, beta))

    @property
    def law(self) -> LevelLaw:
        """Return Bernoulli(1/2) and Bernoulli(1/2 + ε/4)."""
        return LevelLaw.bit(0.5, 0.5 + self.epsilon / 4)

    @property
    def bounds(self) -> PublishedEstimator:
        """Return the bound of Theorem 3.3."""
        return DWORK

    @property
    def state_loss(self) -> float:
        """Return -ln(1 - ε/2), the papers' ε_actual."""
        return -math.log1p(-self.epsilon / 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedOptBern(LiteralDensity):
    """OptBern: bits of probability c(1 - tanh(ε/2)) and c(1 + tanh(ε/2)), output noise Laplace(1/(ε·m)).

    "Improved Pan-Private Stream Density Estimation", Algorithm 2; "Data Analytics with Differential Privacy", Algorithm 4.2.

    What is wrong: one bit moves the debiased mean by 1/(m·tanh(ε/2)), not by 1/m. It claims 2ε and loses 1.503, 1.573, 1.713,
    2.143 at ε = .05, .1, .2, .5; never less than ln((1+e²)/2) = 1.433. And "any c in (0, 4/5]" is not free: only the ones were
    checked, not the zeros, and for c > 1/2 these lose more than ε (c = .8, ε = .5: the state alone loses 4.579).

    Example
        >>> estimator = PublishedOptBern(universe=1000, epsilon=0.1)
        >>> round(estimator.claim().epsilon, 3)
        1.573
    """

    centre: float = 0.5

    def __post_init__(self) -> None:
        LiteralDensity.__post_init__(self)
        if not 0 < self.centre * (1 + math.tanh(self.epsilon / 2)) < 1:
            raise InvalidParameter(f"centre must be positive and keep both coins below 1, got centre={self.centre}")

    @property
    def law(self) -> LevelLaw:
        """Return the pair around ``centre``."""
        gap = math.tanh(self.epsilon / 2)
        return LevelLaw.bit(self.centre * (1 - gap), self.centre * (1 + gap))

    @property
    def bounds(self) -> PublishedEstimator:
        """Return the bound of Theorem 4.3, which is for c = 1/2."""
        return OPTBERN

    @property
    def state_loss(self) -> float:
        """Return the larger of the losses of a one and of a zero."""
        return pair_state_loss(self.law.absent[1], self.law.present[1])

    @property
    def true_loss(self) -> float:
        """Return the joint loss for any ``centre``."""
        p0, p1 = self.law.absent[1], self.law.present[1]
        return pair_loss(p0, p1, self.epsilon / (p1 - p0))
