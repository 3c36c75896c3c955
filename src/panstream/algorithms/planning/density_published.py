"""Accuracy bounds and sample sizes of the published density estimators, as the papers derive them.

References as in docs/reference/bibliography.md.

Every estimator has three sources of error, and ``alpha`` is shared among them by δ1, δ2 in [0, 1]:

* the sample: p1 <= 2·exp(-2m·α²(1-δ1)²),
* the stored values: p2 <= 2·exp(-2m·c²·α²·δ1²(1-δ2)²), where c is the *contrast* of the estimator,
* the output noise: p3 = exp(-ε·α·m·δ1·δ2)     [Digalakis et al. 2018, Theorem 3.3; Digalakis 2018, Theorem 4.3].

The tight beta is the minimum of p1 + p2 + p3 over δ1, δ2 (Digalakis et al. 2018, end of §3.1; Digalakis 2018, end of
§4.2.2). The optimal sample size m* is the smallest m with beta(m) <= beta; minimising max(m1, m2, m3) over δ1..δ4 gives
the same (§3.2 and §4.2.3 there), since for any δ1, δ2 the best δ3, δ4 are p1/beta and p2/beta. ``epsilon`` is the
papers' parameter, of which they claim 2·epsilon in all; the actual loss is ``true_loss``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from panstream.algorithms.planning.stored_values import (
    StoredValues,
    quantised_values,
    truncated_gaussian_values,
    truncated_laplace_values,
)
from panstream.errors import InvalidParameter
from panstream.primitives import validation as checks
from panstream.privacy.joint_loss import pair_loss
from panstream.privacy.numeric_search import smallest_integer


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedEstimator:
    """One published estimator: the contrast of its stored values, their loss, and the bits that each takes.

    ``contrast`` is the distance of the two means (user seen, user not seen) divided by the range of the stored value;
    by Hoeffding's inequality (the papers' "additive Chernoff bound") p2 <= 2·exp(-2m·(contrast·t)²) for an error t of
    the debiased mean.
    """

    name: str
    contrast: Callable[[float], float]
    true_loss: Callable[[float], float]
    bits_per_user: int
    largest_epsilon: float = math.inf
    pair: Callable[[float], tuple[float, float]] | None = None  # the two coins, where a bit is stored
    values: Callable[[float], StoredValues] | None = None  # the two distributions of other values

    @classmethod
    def of_bits(cls, *, pair: Callable[[float], tuple[float, float]], **rest: Any) -> PublishedEstimator:
        """Return the estimator with bits p0, p1 whose debiased mean gets Laplace(1/(ε·m)) noise.

        One bit moves the debiased mean by 1/(m(p1-p0)), not 1/m, so the noise is worth kappa = ε/(p1-p0) per bit.
        """

        def loss(epsilon: float) -> float:
            p0, p1 = pair(epsilon)
            return pair_loss(p0, p1, epsilon / (p1 - p0))

        return cls(true_loss=loss, bits_per_user=1, pair=pair, **rest)

    @classmethod
    def of_values(cls, *, values: Callable[[float], StoredValues], **rest: Any) -> PublishedEstimator:
        """Return the estimator with values whose debiased mean gets the same noise; its bound is Hoeffding's."""
        return cls(
            contrast=lambda epsilon: values(epsilon).contrast,
            true_loss=lambda epsilon: values(epsilon).joint_loss(epsilon),
            values=values,
            **rest,
        )

    def failure_bound(self, epsilon: float, alpha: float, m: float) -> float:
        """Return the tight beta: the smallest p1 + p2 + p3 over δ1, δ2, at most 1.

        >>> round(OPTBERN.failure_bound(0.5, 0.1, 5_000), 4)
        0.083
        """
        self._check(epsilon, alpha)
        checks.require_positive(m=m)
        return _tight_beta(epsilon, alpha, m, self.contrast(epsilon))

    def sample_size(self, epsilon: float, alpha: float, beta: float) -> int:
        """Return m*, the smallest m whose tight bound is at most ``beta``.

        >>> DWORK.sample_size(0.5, 0.1, 0.05), OPTBERN.sample_size(0.5, 0.1, 0.05)
        (16597, 5679)
        """
        self._check(epsilon, alpha)
        checks.require_probability(beta=beta)
        contrast = self.contrast(epsilon)
        high = 1
        while _tight_beta(epsilon, alpha, high, contrast) > beta:
            high *= 2
        return smallest_integer(lambda m: _tight_beta(epsilon, alpha, m, contrast) <= beta, high // 2, high)

    def _check(self, epsilon: float, alpha: float) -> None:
        if not 0 < epsilon < self.largest_epsilon or not math.isfinite(epsilon):
            limit = "positive" if math.isinf(self.largest_epsilon) else f"in (0, {self.largest_epsilon:g})"
            raise InvalidParameter(f"epsilon must be {limit} for {self.name}, got epsilon={epsilon}")
        checks.require_probability(alpha=alpha)


def _tight_beta(epsilon: float, alpha: float, m: float, contrast: float) -> float:
    return _smallest_sum(2 * m, 2 * m * contrast**2, epsilon * m, alpha)


def _smallest_sum(a: float, b: float, c: float, alpha: float) -> float:
    """Return min of 2·exp(-a·x²) + 2·exp(-b·y²) + exp(-c·z) over x + y + z = alpha, or 1 if that is smaller.

    x = α(1-δ1), y = αδ1(1-δ2), z = αδ1δ2. Where the sum is below 1 every term is, so a·x² and b·y² exceed ln 2 > 1/2:
    there all terms are convex, and at the minimum their slopes are equal. Solve for the common slope.
    """

    def gaussian_part(rate: float, log_slope: float) -> float:
        # 4·rate·x·exp(-rate·x²) = slope; with u = rate·x²: u - ln(u)/2 = ln(4·sqrt(rate)) - log_slope.
        target = math.log(4.0) + math.log(rate) / 2 - log_slope
        u = max(target, math.log(2.0))
        for _ in range(20):
            step = (u - math.log(u) / 2 - target) / (1 - 0.5 / u)
            u = max(u - step, math.log(2.0))
            if abs(step) <= 1e-14 * u:
                break
        return math.sqrt(u / rate)

    def parts(log_slope: float) -> tuple[float, float, float]:
        x = gaussian_part(a, log_slope)
        y = gaussian_part(b, log_slope)
        return x, y, max(0.0, (math.log(c) - log_slope) / c)

    low = math.log(c) - c * alpha
    high = max(math.log(c), math.log(4.0) + math.log(max(a, b)) / 2)
    if sum(parts(high)) >= alpha:
        return 1.0
    while high - low > 1e-12 * (1 + abs(low)):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(parts(middle)) > alpha else (low, middle)
    x, y, _ = parts(high)
    z = alpha - x - y
    return min(1.0, 2 * math.exp(-a * x * x) + 2 * math.exp(-b * y * y) + math.exp(-c * z))


def roth_sample_size(epsilon: float, alpha: float, beta: float, *, factor: float = 200.0) -> int:
    """Return m = 200·log(1/beta)/(epsilon²·alpha²)     [Roth 2011, Density(ε, α, β)].

    Digalakis 2018, §4.2.3, quotes the same lecture with the factor 128. The proof (Roth 2011, Theorem 6) leaves out the
    factors 2 of two-sided bounds; with them it holds for beta up to about 1/3, since the formula has no additive
    constant.
    """
    OPTBERN._check(epsilon, alpha)
    checks.require_probability(beta=beta)
    return math.ceil(factor * math.log(1.0 / beta) / (epsilon * alpha) ** 2)


def ppds_level(epsilon: float, capacity: int, universe: int, density: float = 1.0) -> int:
    """Return the final level of PPDS: the first at which fewer than ``capacity`` ids are expected in memory.

    A share 2^-level of the universe qualifies, and of those a share p0 + (p1-p0)·density is stored (Digalakis et al.
    2018, Algorithm 3). The real level is random and depends on the stream; a full stream (density 1) fills the memory
    most.
    """
    stored = _stored_share(epsilon, density) * universe
    return max(0, math.floor(math.log2(stored / capacity)) + 1) if stored >= capacity else 0


def ppds_failure(epsilon: float, alpha: float, capacity: int, universe: int, density: float = 1.0) -> float:
    """Return OptBern's bound with m = universe/2^level users     [Digalakis et al. 2018, Theorem 5.2, m = |U|/2^ℓ]."""
    checks.require_integer_in_range(1, universe, capacity=capacity)
    level = ppds_level(epsilon, capacity, universe, density)
    return OPTBERN.failure_bound(epsilon, alpha, math.ldexp(universe, -level))


def ppds_capacity(epsilon: float, alpha: float, beta: float, universe: int, density: float = 1.0) -> int:
    """Return how many ids PPDS must be able to hold so that ``ppds_failure`` is at most ``beta``.

    Digalakis et al. 2018, §5.1, compute the capacity "in the same manner" as m*, which is not enough: after a halving
    the sample may be smaller than the capacity. Here it is chosen so that at least m* users qualify. The result exceeds
    ``universe`` if even all users are too few.
    """
    needed = OPTBERN.sample_size(epsilon, alpha, beta)
    if needed > universe:
        return needed
    level = math.floor(math.log2(universe / needed))
    return math.floor(math.ldexp(_stored_share(epsilon, density) * universe, -level)) + 1


def _stored_share(epsilon: float, density: float) -> float:
    checks.require_fraction(density=density)
    gap = math.tanh(epsilon / 2)
    return 0.5 * (1 - gap) + gap * density


DWORK = PublishedEstimator.of_bits(
    name="Dwork",
    contrast=lambda epsilon: epsilon / 4,  # p2 <= 2·exp(-m·ε²α²δ1²(1-δ2)²/8)  [Digalakis et al. 2018, Theorem 3.3]
    pair=lambda epsilon: (0.5, 0.5 + epsilon / 4),  # [Digalakis et al. 2018, Algorithm 1]; [C]
    largest_epsilon=2.0,
)
"""p0 = 1/2, p1 = 1/2 + ε/4: Digalakis et al. 2018, Theorem 3.3; Digalakis 2018, Theorem 4.3."""

OPTBERN = PublishedEstimator.of_bits(
    name="OptBern",
    contrast=lambda epsilon: math.tanh(epsilon / 2),  # p2 <= 2·exp(-2m·(tanh(ε/2)·αδ1(1-δ2))²)  [Theorem 4.3]
    pair=lambda epsilon: (0.5 * (1 - math.tanh(epsilon / 2)), 0.5 * (1 + math.tanh(epsilon / 2))),  # [§4.2, c = 1/2]
)
"""p0 = 1/(1+e^ε), p1 = e^ε/(1+e^ε): Digalakis et al. 2018, Theorem 4.3; Digalakis 2018, Theorem 4.6."""

LAPLACE = PublishedEstimator(
    name="Laplace",
    contrast=lambda epsilon: epsilon / 4,  # p2 as for Dwork, sub-exponential tail  [Digalakis 2018, Theorem 4.9]
    true_loss=lambda _: math.inf,
    bits_per_user=64,
)
"""Real values from Laplace(μ, b), (μ_upd - μ_init)/b = ε; the bound is printed as identical to Dwork's."""

QUANTISED_LAPLACE = PublishedEstimator.of_bits(
    name="quantised Laplace",
    contrast=lambda epsilon: -math.expm1(-epsilon / 2),  # p1 - p0 = 1 - e^(-ε/2)  [Digalakis 2018, §4.4.3]
    pair=lambda epsilon: (0.5 * math.exp(-epsilon / 2), 1 - 0.5 * math.exp(-epsilon / 2)),  # [§4.4.3]
    values=lambda epsilon: quantised_values(epsilon, 2),
)
"""Digalakis 2018, §4.4.3: p0 = e^(-ε/2)/2, p1 = 1 - p0. No bound is printed: OptBern's, with this contrast."""

TRUNCATED_LAPLACE = PublishedEstimator.of_values(
    name="truncated Laplace",
    values=truncated_laplace_values,
    bits_per_user=64,
)
"""Laplace((1 ∓ ε)/2, 1) cut to [0, 1]: Digalakis 2018, §4.4.4 and Figure 4.6. No bound is printed: Hoeffding's."""

GAUSSIAN = PublishedEstimator.of_values(
    name="truncated Gaussian",
    values=truncated_gaussian_values,
    bits_per_user=64,
)
"""Digalakis 2018, §4.4.4, without parameters: Normal(0, 1/(2ε)) and Normal(1, 1/(2ε)) cut to [0, 1], of ratio e^∓ε."""


def quantised_laplace(levels: int) -> PublishedEstimator:
    """Return the quantised Laplace estimator with ``levels`` levels by Lloyd-Max     [Digalakis 2018, §4.4.3].

    No bound is printed: Hoeffding's over the range of the representation points, which for two levels is
    ``QUANTISED_LAPLACE``. The range grows with the levels, so the bound (not the error) gets worse.
    """
    return PublishedEstimator.of_values(
        name=f"quantised Laplace, {levels} levels",
        values=lambda epsilon: quantised_values(epsilon, levels),
        bits_per_user=max(1, (levels - 1).bit_length()),
    )


STATIC_ESTIMATORS = (OPTBERN, QUANTISED_LAPLACE, quantised_laplace(4), DWORK, LAPLACE, TRUNCATED_LAPLACE, GAUSSIAN)
"""The published estimators with a fixed sample; the sample of PPDS depends on its memory (``ppds_capacity``)."""
