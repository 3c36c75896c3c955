"""Base class of the literal density estimators with a fixed random sample and one stored value per sampled user.

They follow the papers line by line, with two changes: ``claim`` states the true loss, and ``integer_noise`` replaces
the output noise by discrete noise of the same decay rate on the number of ones, so that the joint loss of estimators
that store bits can be enumerated.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.density.presence import PresenceBatch
from panstream.algorithms.planning.density_published import PublishedEstimator
from panstream.core.algorithm import Algorithm, consume_release
from panstream.core.estimate import Estimate
from panstream.errors import InvalidBatch, InvalidParameter, NotSupported
from panstream.papers.as_printed.density_distributions import (
    LevelDistribution,
    RealDistribution,
    StoredDistribution,
    laplace_quantile,
    uniforms,
)
from panstream.primitives import validation as checks
from panstream.primitives.codec import FieldLayout, noised, public
from panstream.primitives.inputs import integers
from panstream.primitives.noise import DiscreteLaplace, NoiseSource
from panstream.privacy.claim import Claim
from panstream.privacy.numeric_search import bisect


@dataclass(slots=True)
class _SampleState:
    """The sampled users in ascending order and the stored value of each."""

    users: NDArray[np.int64] = public()
    stored: NDArray[Any] = noised()
    released: int = public()


@dataclass(frozen=True, slots=True, kw_only=True)
class LiteralDensity(Algorithm[_SampleState]):
    """Base class of the literal forms with a fixed sample: ids 0..universe-1, ``sample`` of them chosen at random.

    ``epsilon`` is the papers' parameter, of which they claim 2·epsilon in all.
    """

    state_type: ClassVar[type[Any]] = _SampleState
    distribution: ClassVar[type[RealDistribution] | None] = None  # of real stored values

    universe: int
    epsilon: float
    sample: int | None = None
    integer_noise: bool = False

    def __post_init__(self) -> None:
        bounds = self.bounds
        if not 0 < self.epsilon < bounds.largest_epsilon or not math.isfinite(self.epsilon):
            raise InvalidParameter(f"epsilon must be positive and finite for {bounds.name}, got epsilon={self.epsilon}")
        checks.require_integer_in_range(1, 1 << 40, universe=self.universe)
        if not 1 <= self.sampled <= self.universe:
            raise InvalidParameter(f"sample must be in 1..{self.universe}, got sample={self.sample}")
        if self.integer_noise and not (isinstance(self.law, LevelDistribution) and len(self.law.points) == 2):
            raise InvalidParameter("integer_noise needs an estimator that stores bits")

    @property
    def law(self) -> StoredDistribution:
        """Return the two distributions of a stored value; those of a bit unless ``distribution`` is given."""
        if self.distribution is not None:
            return self.distribution(epsilon=self.epsilon)
        assert self.bounds.pair is not None
        return LevelDistribution.bit(*self.bounds.pair(self.epsilon))

    @property
    @abstractmethod
    def bounds(self) -> PublishedEstimator:
        """Return the papers' accuracy bound and the true loss."""

    @property
    def sampled(self) -> int:
        """Return m, the number of sampled users."""
        return self.universe if self.sample is None else self.sample

    @property
    def state_loss(self) -> float:
        """Return the true loss of the state without outputs; the papers claim epsilon."""
        values = self.bounds.values
        return self.epsilon if values is None else values(self.epsilon).state_loss

    @property
    def true_loss(self) -> float:
        """Return the true joint loss of one copy and the output; the papers claim 2·epsilon."""
        return self.bounds.true_loss(self.epsilon)

    @property
    def mean_squared_error(self) -> float:
        """Return the papers' MSE: at the worst density, with d(1-d)/m for the sample.

        The papers print it for Dwork and OptBern as an upper bound; for the others this is the same derivation.
        """
        gap = self.law.mean(True) - self.law.mean(False)
        v0 = self.law.variance(False) / gap**2
        v1 = self.law.variance(True) / gap**2
        worst = min(max((1 + v1 - v0) / 2, 0.0), 1.0)  # maximum of the parabola v0 + d(v1 - v0) + d(1 - d)
        bits = v0 + worst * (v1 - v0) + worst * (1 - worst)
        return bits / self.sampled + 2 / (self.sampled * self.epsilon) ** 2

    def claim(self) -> Claim:
        """Return the true loss; the note has the one that the papers state."""
        return _claim(self)

    def layout(self) -> Mapping[str, FieldLayout]:
        """Return the layout of the sample and the levels; raise NotSupported for real values."""
        if not isinstance(self.law, LevelDistribution):
            raise NotSupported(f"{type(self).__name__} stores real numbers, which have no stable bytes")
        return {
            "users": FieldLayout("i8", (self.sampled,), at_least=0, below=self.universe),
            "stored": FieldLayout("u1", (self.sampled,), below=len(self.law.points)),
            "released": FieldLayout("int", at_least=0, below=2),
        }

    def initial_state(self, rng: NoiseSource) -> _SampleState:
        """Sample m users without replacement and draw the value of an absent user for each."""
        users = np.arange(self.universe)
        if self.sampled < self.universe:
            order = np.argsort(rng.uniform_below(1 << 62, self.universe))
            users = np.sort(users[order[: self.sampled]])
        return _SampleState(users=users, stored=np.array(self.law.draw(False, self.sampled, rng)), released=0)

    def batch(self, ids: Any = None, *, delete: Any = None) -> PresenceBatch:
        """Check ids that arrive, and ids that leave afterwards."""
        if ids is None and delete is None:
            raise InvalidBatch("ids are missing")
        rows = []
        copies = []
        for user_ids in (ids, delete):
            checked, copied = integers(
                [] if user_ids is None else user_ids, name="ids", lower=0, upper=self.universe - 1
            )
            rows.append(checked)
            copies += [checked] if copied else []
        both = np.concatenate(rows)
        weights = np.repeat(np.array([1, -1]), [chunk.size for chunk in rows])
        return PresenceBatch(both, weights, (*copies, both, weights))

    def update(self, state: _SampleState, batch: PresenceBatch, rng: NoiseSource) -> None:
        """Draw a fresh value for every sampled user that arrives or leaves."""
        for present in (True, False):
            rows = batch.cells[(batch.weights == 1) == present]
            indices = np.searchsorted(state.users, rows)
            indices[indices == self.sampled] = 0
            indices = indices[state.users[indices] == rows]
            if indices.size:
                state.stored[indices] = self.law.draw(present, indices.size, rng)

    def release(self, state: _SampleState, rng: NoiseSource) -> Estimate:
        """Return the debiased mean plus Laplace(1/(ε·m)), unclipped as in the papers."""
        state.released = consume_release(state.released, 1)
        released: tuple[int, ...] = ()
        low = self.law.mean(False)
        high = self.law.mean(True)
        noise = 0.0
        if self.integer_noise:
            ones = np.array([state.stored.sum(dtype=np.int64)])
            rng.add_discrete_laplace(ones, DiscreteLaplace.at_most(self.epsilon / (high - low)))
            released = (int(ones[0]),)
            mean = released[0] / self.sampled
        else:
            mean = float(self.law.values(state.stored).mean())
            noise = float(laplace_quantile(uniforms(rng, 1))[0]) / (self.epsilon * self.sampled)
        return Estimate(
            value=(mean - low) / (high - low) + noise,
            standard_error=math.sqrt(self.mean_squared_error),
            claim=self.claim(),
            name=f"density ({self.bounds.name}, as published)",
            released=released,
        )

    def refresh(self, state: _SampleState, rng: NoiseSource) -> None:
        """Raise NotSupported: the papers print no rule for announced intrusions."""
        raise NotSupported("the literal forms cannot be refreshed")

    def error_bound(self, *, beta: float) -> float:
        """Return the papers' bound: the smallest alpha whose tight beta is at most ``beta`` (1 if none is)."""
        return smallest_error(lambda alpha: self.bounds.failure_bound(self.epsilon, alpha, self.sampled), beta)


@lru_cache(maxsize=256)
def _claim(algorithm: LiteralDensity) -> Claim:
    loss = algorithm.true_loss
    state = algorithm.state_loss
    return Claim(
        epsilon=loss,
        unit="user",
        parts={"state": state, "output": loss - state if math.isfinite(loss) else math.inf},
        public=("the universe and the sample",),
        note=f"published as {2 * algorithm.epsilon:g}-pan-private",
    )


def smallest_error(failure: Callable[[float], float], beta: float) -> float:
    """Return the smallest alpha in (0, 1) whose failure bound is at most ``beta``, or 1."""
    checks.require_probability(beta=beta)
    max_error = 1.0 - 1e-12
    return 1.0 if failure(max_error) > beta else bisect(lambda alpha: failure(alpha) > beta, 0.0, max_error, 30)[1]
