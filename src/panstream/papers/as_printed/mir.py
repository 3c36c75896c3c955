"""The algorithms of Mir et al. 2011: distinct count and cropped sum; its heavy hitters are a difference of two sums.

Algorithms 2 and 3 work on real numbers modulo 2·crop. ``corrected=True`` corrects the debiasing constant, which is
tau²·m/K in the paper and must be 2·tau²·m/K, K = 2·tau - 1 + e**epsilon; the other mistakes remain.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.turnstile.modular_counter import CounterBatch
from panstream.core.algorithm import Algorithm, consume_release
from panstream.core.estimate import Estimate
from panstream.errors import InvalidBatch, InvalidParameter, NotSupported
from panstream.primitives import validation as checks
from panstream.primitives.codec import FieldLayout
from panstream.primitives.inputs import integers
from panstream.primitives.noise import NoiseSource
from panstream.privacy.claim import Claim, Intrusions

_MAX_VECTORS = 200_000


@dataclass(slots=True)
class _RealState:
    """Real counters and multipliers; not declared as noised, since floating point reveals which were updated."""

    counters: NDArray[np.float64]
    factors: NDArray[np.float64]
    released: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedCroppedSum(Algorithm[_RealState]):
    """Algorithm 2: sum of min(a, crop), as printed or with the constant corrected.

    True loss of the printed code: infinite, since floating-point values modulo 2·crop reveal which were updated;
    over the real numbers 2·epsilon, and 4·epsilon for the paper's own replace adjacency (``privacy.turnstile``). Bias:
    tau²·m/(e**epsilon - 1) on empty data; after the correction a user counts between .75 and 1.5 times the right amount
    or so.
    """

    state_type: ClassVar[type[Any]] = _RealState

    universe: int
    epsilon: float
    crop: int
    corrected: bool = False

    def __post_init__(self) -> None:
        checks.require_at_least(1, universe=self.universe, crop=self.crop)
        if not 0 < self.epsilon < 30:
            raise InvalidParameter(f"epsilon must be in (0, 30), got epsilon={self.epsilon}")

    def claim(self) -> Claim:
        """Return the true loss of this code, which is infinite."""
        return Claim(
            epsilon=math.inf,
            unit="user",
            intrusions=Intrusions(unannounced=1),
            note="floating-point modular noise leaks",
        )

    def layout(self) -> Mapping[str, FieldLayout]:
        """Raise NotSupported: the byte format has no real numbers."""
        raise NotSupported("the published forms keep real numbers and are not stored")

    def initial_state(self, rng: NoiseSource) -> _RealState:
        """Draw c_i from the density (2) of the paper and w_i from [1, 2]."""
        top = math.exp(self.epsilon)
        size = self.universe
        inner = _uniform(rng, size) < top / (2 * self.crop - 1 + top)
        uniforms = _uniform(rng, size)
        counters = np.where(inner, uniforms, 1 + (2 * self.crop - 1) * uniforms)
        return _RealState(counters=counters, factors=1 + _uniform(rng, size), released=0)

    def batch(self, ids: Any, weight: Any = 1) -> CounterBatch:
        """Check ids 0..m-1 and integer weights."""
        rows, copied = integers(ids, name="ids", lower=0, upper=self.universe - 1)
        weights, copied_too = integers([weight] * rows.size if isinstance(weight, int) else weight, name="weight")
        if weights.size != rows.size:
            raise InvalidBatch(f"weight must have one value per id, got {weights.size} for {rows.size}")
        return CounterBatch(rows, weights, (rows,) * copied + (weights,) * copied_too)

    def update(self, state: _RealState, batch: CounterBatch, rng: NoiseSource) -> None:
        """Set c := (c + w·d) mod 2·crop, row by row."""
        for user, weight in zip(np.asarray(batch.ids), batch.weights, strict=True):
            state.counters[user] = (state.counters[user] + state.factors[user] * weight) % (2 * self.crop)

    def release(self, state: _RealState, rng: NoiseSource) -> Estimate:
        """Return the debiased sum with Lap(2·crop/epsilon) noise."""
        state.released = consume_release(state.released, 1)
        uniform = float(_uniform(rng, 1)[0]) - 0.5
        noise = -math.copysign(math.log1p(-2 * abs(uniform)), uniform) * (2 * self.crop / self.epsilon)
        value = self.debias(float(state.counters.sum()) + noise)
        spread = self.deviation()
        return Estimate(value=value, standard_error=spread, claim=self.claim(), name="cropped sum as published")

    @property
    def _scale(self) -> float:
        return 2 * self.crop - 1 + math.exp(self.epsilon)

    def debias(self, total: float) -> float:
        """Return (sum - constant)·K/(e**epsilon - 1) - m/2."""
        constant = (2 if self.corrected else 1) * self.crop**2 * self.universe / self._scale
        return (total - constant) * self._scale / math.expm1(self.epsilon) - self.universe / 2

    def deviation(self, *, favourable: bool = False, output: bool = True) -> float:
        """Return the standard deviation on empty data, of order tau²·sqrt(m)/epsilon, or on the most favourable data.

        The least spread is reached where every user's load puts the heavy unit interval in the middle of [0, 2·tau).

        >>> cropped = PublishedCroppedSum(universe=20_000, epsilon=1.0, crop=16)
        >>> round(cropped.deviation(favourable=True, output=False))
        24975
        """
        crop = self.crop
        gain = math.expm1(self.epsilon)
        flat = 2 * crop / self._scale
        peak = gain / self._scale
        peak_centre = float(crop) if favourable else 0.5
        mean = flat * crop + peak * peak_centre
        spread = flat * (crop**2 / 3 + (crop - mean) ** 2) + peak * (1 / 12 + (peak_centre - mean) ** 2)
        noise = 2 * (2 * crop / self.epsilon) ** 2 if output else 0.0
        return math.sqrt(self.universe * spread + noise) * self._scale / gain

    def refresh(self, state: _RealState, rng: NoiseSource) -> None:
        """Raise NotSupported: the paper gives no rule beyond "randomize anew"."""
        raise NotSupported("the published form has no refresh")

    def error_bound(self, *, beta: float) -> float:
        """Return infinity: no error bound holds for the printed form."""
        return math.inf


def _uniform(rng: NoiseSource, size: int) -> NDArray[np.float64]:
    return rng.uniform_below(1 << 53, size) / float(1 << 53)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedDistinct:
    """Algorithm 1 as printed: distinct count from a stable sketch, over the integers, by exhaustion.

    The noise is drawn from the exponential mechanism with quality -d(z), d(z) = min ||c||_0 over X^T c = z, |c_i| ≤ 2Z,
    at rate epsilon/4, by exhaustion: tiny instances only. As printed the noise comes from a finite set of integer (or
    discretised real) vectors. No shift maps a finite set onto itself, so some state is possible with a user and
    impossible without: the loss is infinite. Over Z_q the same mechanism is sound: epsilon/4 for the state, epsilon/2
    with the output, epsilon for replace.

    ``rows`` is X, one row of r integers per user; ``largest`` is Z, the bound on |a_i|. True loss: infinite (``loss``).
    """

    rows: tuple[tuple[int, ...], ...]
    largest: int
    epsilon: float

    def __post_init__(self) -> None:
        if (4 * self.largest + 1) ** len(self.rows) > _MAX_VECTORS:
            raise InvalidParameter(f"(4·largest + 1)**users must be at most {_MAX_VECTORS}: tiny instances only")

    def distances(self) -> dict[tuple[int, ...], int]:
        """Return d(z) for every z = X^T c with |c_i| ≤ 2Z."""
        span = range(-2 * self.largest, 2 * self.largest + 1)
        distances: dict[tuple[int, ...], int] = {}
        columns = range(len(self.rows[0]))
        for vector in product(span, repeat=len(self.rows)):
            z = tuple(sum(c * row[j] for c, row in zip(vector, self.rows, strict=True)) for j in columns)
            size = sum(c != 0 for c in vector)
            distances[z] = min(distances.get(z, size), size)
        return distances

    def law(self) -> dict[tuple[int, ...], float]:
        """Return the probability of every initial vector, proportional to exp(-epsilon/4·d)."""
        weights = {z: math.exp(-self.epsilon / 4 * d) for z, d in self.distances().items()}
        total = math.fsum(weights.values())
        return {z: weight / total for z, weight in weights.items()}

    def loss(self) -> float:
        """Return the loss of the state between streams with and without one user of weight 1..Z, by enumeration."""
        chances = self.law()
        worst = 0.0
        for row in self.rows:
            for weight in range(1, self.largest + 1):
                for z, chance in chances.items():
                    other = chances.get(tuple(v - weight * part for v, part in zip(z, row, strict=True)))
                    if other is None:
                        return math.inf
                    worst = max(worst, abs(math.log(chance / other)))
        return worst
