"""Noised CountSketches: counters to which an id's rows are added with a public sign, released as a whole.

An id has one counter and one sign, from one 4-wise independent hash. Every counter starts as noise; a release publishes
all of them with fresh noise, adds what it published to the public sums, and starts them again as noise. So an event is
in one released counter only: more releases increase the variance, not the loss (turnstile.md, Theorem 4).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.turnstile._placement import Placement
from panstream.algorithms.turnstile.modular_counter import CounterBatch
from panstream.core.algorithm import Algorithm, consume_release
from panstream.core.estimate import Estimate, format_number
from panstream.errors import InvalidParameter, SignalBelowNoise
from panstream.primitives import validation as checks
from panstream.primitives.codec import FieldLayout, noised, public, published
from panstream.primitives.inputs import ItemBatch
from panstream.primitives.noise import DiscreteLaplace, NoiseSource
from panstream.privacy.claim import Claim, Intrusions
from panstream.privacy.continual_loss import tree_kappa

_MIN_DEFAULT_BUCKETS = 64  # with fewer counters the normal approximation of the interval does not hold
_MAX_DEFAULT_BUCKETS = 1 << 20
_MAX_BUCKETS = 1 << 30
_MAX_PLANNED_ERROR = 0.5  # relative to the squared norm; beyond it an answer would be mostly noise
_COLLISION_SHARE = 20  # one part in 20 of an interval's error probability is left for collisions of the largest ids


@dataclass(slots=True)
class SketchState:
    """Counters since the last release, the sum of all released ones, and the number of draws in both together."""

    counters: NDArray[np.int64] = noised()
    sums: NDArray[np.int64] = published()
    draws: int = public()
    released: int = public()


@dataclass(frozen=True, slots=True)
class CounterNoise:
    """Moments of the noise on one released counter, a sum of ``draws`` equal draws.

    A draw of weight w <= 1 counts as w² draws. That is exact for the variance, and the fourth moment is then at most
    the one computed here, since w⁴ <= w².
    """

    law: DiscreteLaplace
    draws: float

    @property
    def variance(self) -> float:
        """Return the variance."""
        return self.draws * self.law.variance

    @property
    def of_square(self) -> float:
        """Return the variance of the noise's square: n·m4 + 3n(n-1)·v² - n²·v², m4 = 2q(1+10q+q²)/(1-q)⁴."""
        if math.isinf(self.law.kappa):
            return 0.0
        n = self.draws
        v = self.law.variance
        return n * self._fourth + 3 * n * (n - 1) * v * v - self.variance**2

    @property
    def excess(self) -> float:
        """Return the excess kurtosis."""
        square = self.law.variance**2
        return (self._fourth / square - 3) / self.draws if square else 0.0

    @property
    def _fourth(self) -> float:
        q = math.exp(-self.law.kappa)
        return 2 * q * (1 + 10 * q + q * q) / math.expm1(-self.law.kappa) ** 4


@dataclass(frozen=True, slots=True)
class Spread:
    """How unevenly ids are distributed over the released counters, at one level of confidence, for every stream.

    Attributes:
        quantile: Half width of an interval in standard deviations; the error probability of collisions is deducted.
        shares: Upper bounds of the part of the second moment that ids other than the largest ones hold. The largest
            are so few that they hardly ever share a counter.
        fourth: Sum of the fourth powers of the counters.
    """

    quantile: float
    shares: tuple[float, ...]
    fourth: float

    def reach(self, excess: float) -> float:
        """Return the quantile of an error with this excess kurtosis, if it exceeds the normal one."""
        # Cornish-Fisher expansion to the fourth cumulant.
        z = self.quantile
        return z + max(z**3 - 3 * z, 0.0) * excess / 24


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedSketch(Algorithm[SketchState]):
    """Base of the moments. Subclasses give the number of streams and the estimate from their counters.

    Args:
        epsilon: Total loss; ``math.inf`` switches all noise off, for tests.
        expected: About how large the L2 norm of a stream, the root of its sum of squared net
            weights, will be. Parameters with which noise would exceed the answer are refused.
        buckets: Counters of a stream; by default as many as are best at ``expected``.
        max_weight: The largest weight of a row, of either sign. The noise grows with it.
        contributions: Protect a user with at most this many rows, not one event. The caller
            leaves further rows out.
        releases: How many answers there will be. They cost no privacy; the n-th has n times the
            noise variance.
        key: Chooses the public hash function.
    """

    state_type: ClassVar[type[Any]] = SketchState
    proof: ClassVar[str] = "turnstile.md"
    streams: ClassVar[int] = 1

    epsilon: float
    expected: float
    buckets: int | None = None
    max_weight: int = 1
    contributions: int | None = None
    releases: int = 1
    key: int = 0

    def __post_init__(self) -> None:
        checks.require_positive(epsilon=self.epsilon, expected=self.expected)
        checks.require_integer_in_range(1, (1 << 31) - 1, max_weight=self.max_weight)
        checks.require_at_least(1, releases=self.releases)
        if self.contributions is not None:
            checks.require_at_least(1, contributions=self.contributions)
        if not math.isfinite(self.expected):
            raise InvalidParameter("expected must be finite, got expected=inf")
        if self.buckets is None:
            best = min(max(self._best_buckets(self.planned), _MIN_DEFAULT_BUCKETS), _MAX_DEFAULT_BUCKETS)
            object.__setattr__(self, "buckets", 1 << round(math.log2(best)))
        checks.require_int(1, _MAX_BUCKETS, buckets=self.buckets)
        self._placement.check()
        relative = math.sqrt(self._planned_variance()) / self.expected**2
        if relative > _MAX_PLANNED_ERROR and math.isfinite(self.epsilon):
            raise SignalBelowNoise(
                f"expected must be larger, got expected={self.expected:g}: the answer would drown in noise, with a "
                f"standard error of {format_number(100 * relative)}% of the squared norm; one "
                f"{'event' if self.contributions is None else 'user'} may move it by "
                f"{self.max_weight * (self.contributions or 1):,}"
            )

    @property
    def law(self) -> DiscreteLaplace:
        """Return the distribution of every draw."""
        return DiscreteLaplace.at_most(tree_kappa(self.epsilon, 1, self.max_weight, self.contributions or 1))

    @property
    def planned(self) -> CounterNoise:
        """Return the noise of the last release without refreshes."""
        return CounterNoise(self.law, 2 * self.releases)

    @property
    def width(self) -> int:
        """Return the number of counters of one stream."""
        assert self.buckets is not None
        return self.buckets

    @property
    def _placement(self) -> Placement:
        # Two cells per counter, one for each sign: a value of one 4-wise family determines counter and sign together.
        return Placement(universe=None, sample=None, buckets=2 * self.width, levels=1, independence=4, key=self.key)

    @abstractmethod
    def _best_buckets(self, noise: CounterNoise) -> float:
        """Return the number of counters with the smallest variance at the expected norm."""

    @abstractmethod
    def _planned_variance(self) -> float:
        """Return the variance of the last release at the expected norm."""

    @abstractmethod
    def decode(self, sums: NDArray[np.float64], noise: CounterNoise, released: tuple[int, ...]) -> Estimate:
        """Turn released counters, one row for each stream, into an estimate.

        Args:
            sums: The released counters, a row for each stream.
            noise: The noise in them.
            released: The noisy integers from which they were computed.
        """

    def _spread(self, sums: NDArray[np.float64], noise: CounterNoise, level: float) -> Spread:
        """Return how unevenly ids are distributed over the released counters.         [turnstile.md, Lemma 8]"""
        budget = (1 - level) / _COLLISION_SHARE
        largest = max(1, math.floor((1 + math.sqrt(1 + 8 * self.width * budget)) / 2))
        z = NormalDist().inv_cdf(1 - ((1 - level) - (budget if largest > 1 else 0.0)) / 2)
        squares = sums**2 - noise.variance
        totals = squares.sum(axis=1, keepdims=True)
        if not (totals > 0.0).all():
            return Spread(z, (1.0,) * len(sums), float((squares**2).sum()))
        part = (squares / totals).mean(axis=0)
        chosen = np.argsort(part)[::-1][:largest]
        chosen = chosen[part[chosen] >= 1 / (4 * largest)]
        rest = np.delete(squares, chosen, axis=1)
        deviation = np.sqrt((4 * np.maximum(rest, 0.0) * noise.variance + noise.of_square).sum(axis=1))
        max_rest = (np.maximum(rest.sum(axis=1), 0.0) + z * deviation) * (1 + math.sqrt(2 / self.width))
        shares = np.minimum(max_rest / (1 - chosen.size / (2 * self.width)) / totals[:, 0], 1.0)
        return Spread(z, tuple(map(float, shares)), float((squares**2).sum()))

    def error_bound(self, *, beta: float) -> float:
        """Return the error of any release that is exceeded with probability at most ``beta``, up to ``expected``."""
        checks.require_probability(beta=beta)
        return NormalDist().inv_cdf(1 - beta / 2) * math.sqrt(self._planned_variance())

    def claim(self) -> Claim:
        """Return the exact joint loss of one copy in the last phase, all announced copies and all releases."""
        return Claim.of_rows(
            self.epsilon,
            self.contributions,
            intrusions=Intrusions(unannounced=1, announced=-1),
            inputs="adaptive",
            releases=self.releases,
            public=("the buckets, hash key and signs",),
        )

    def layout(self) -> Mapping[str, FieldLayout]:
        """Return the layout of the counters of all streams, their released sums, and the public counts."""
        cells = (self.streams * self.width,)
        return {
            "counters": FieldLayout("i8", cells),
            "sums": FieldLayout("i8", cells),
            "draws": FieldLayout("int", at_least=1, below=1 << 62),
            "released": FieldLayout("int", at_least=0, below=self.releases + 1),
        }

    def initial_state(self, rng: NoiseSource) -> SketchState:
        """Return counters that hold one draw of noise each."""
        cells = self.streams * self.width
        state = SketchState(counters=np.zeros(cells, np.int64), sums=np.zeros(cells, np.int64), draws=0, released=0)
        self._draw(state, rng)
        return state

    def update(self, state: SketchState, batch: CounterBatch, rng: NoiseSource) -> None:
        """Add every row to its counter with its sign."""
        self.add_rows([state.counters], batch, rng)

    def add_rows(self, copies: Sequence[NDArray[np.int64]], batch: CounterBatch, rng: NoiseSource) -> None:
        """Add every row to its counter with its sign, in each of several arrays of counters."""
        from panstream.primitives.kernels.algorithms.signed_counters import add_signed

        assert isinstance(batch.ids, ItemBatch)
        side = self.counters_of(batch)
        for rows, cells, _ in self._placement.pieces(batch.ids, rng.scratch):
            weights = batch.weights if batch.weights.size == 1 else batch.weights[rows]
            for counters in copies:
                add_signed(counters[side], cells, weights)

    def counters_of(self, batch: CounterBatch) -> slice:
        """Return which counters the stream of a batch has.

        Args:
            batch: The checked batch.
        """
        return slice(None)

    def release(self, state: SketchState, rng: NoiseSource) -> Estimate:
        """Publish all counters with fresh noise, and start them again as noise."""
        state.released = consume_release(state.released, self.releases)
        self._draw(state, rng)
        state.sums += state.counters
        released = tuple(state.counters.tolist())
        noise = CounterNoise(self.law, state.draws)
        state.counters.fill(0)
        self._draw(state, rng)
        return self.decode(state.sums.astype(np.float64).reshape(self.streams, -1), noise, released)

    def refresh(self, state: SketchState, rng: NoiseSource) -> None:
        """Add fresh noise to every counter after an announced intrusion; any number of them is covered."""
        self._draw(state, rng)

    def _draw(self, state: SketchState, rng: NoiseSource) -> None:
        """Add one draw of noise to every counter."""
        rng.add_discrete_laplace(state.counters, self.law)
        state.draws += 1
