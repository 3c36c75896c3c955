"""Mir et al. 2011, Algorithm 1, made sound: a linear sketch over Z_q whose noise is calibrated to the statistic.

The recipe of §3.1: let f(c) be what the statistic is for a state vector c, and d(z) the least f(c) over the vectors c
with sketch z. Noise with probability proportional to exp(-kappa·d(z)) hides every change of the state vector by v up to
exp(kappa·f(v)), whatever the sketch. As printed the vectors come from a finite set of integers, which no shift maps to
itself; over Z_q all of them are possible. The noise is drawn by listing all sketches: tiny instances only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.turnstile.modular_counter import CounterBatch
from panstream.core.algorithm import Algorithm, consume_release
from panstream.core.estimate import Estimate
from panstream.errors import InvalidBatch, InvalidParameter, NotSupported
from panstream.primitives import validation as checks
from panstream.primitives.codec import FieldLayout, noised, public
from panstream.primitives.inputs import integers
from panstream.primitives.noise import NoiseSource
from panstream.primitives.noise.distributions import SelectionRate
from panstream.privacy.claim import Claim, Intrusions
from panstream.privacy.rounding import equal_share

Norm = Literal["distinct", "L1", "L2"]
_MAX_SKETCHES = 1 << 18
_UNREACHABLE = 1 << 40
_COSTS: dict[Norm, Callable[[int], int]] = {"distinct": lambda c: int(c != 0), "L1": abs, "L2": lambda c: c * c}


def calibrated_distances(rows: Sequence[Sequence[int]], modulus: int, norm: Norm) -> NDArray[np.int64]:
    """Return d(z) for every sketch z in Z_q^r: the least norm of a state vector that has it, 2**40 if none has.

    Entries of a state vector count as numbers from -q/2 to q/2. L2 norms are rounded up, which leaves a change of one
    row within 1.

    Args:
        rows: The sketch of each user's unit vector, r integers each.
        modulus: q, an odd number.
        norm: "distinct" counts entries that are not 0, "L1" adds their sizes up, "L2" is the Euclidean norm.

    >>> calibrated_distances([(1,), (2,)], 5, "distinct").tolist(), calibrated_distances([(1,)], 5, "L1").tolist()
    ([0, 1, 1, 1, 1], [0, 1, 2, 2, 1])
    """
    if norm not in _COSTS:
        raise InvalidParameter(f"norm must be one of {', '.join(_COSTS)}, got norm={norm!r}")
    dimension = len(rows[0]) if rows else 0
    if modulus < 3 or modulus % 2 == 0 or not dimension or any(len(row) != dimension for row in rows):
        raise InvalidParameter("rows must have equal lengths above 0, and modulus must be odd and above 2")
    if modulus**dimension > _MAX_SKETCHES:
        raise InvalidParameter(f"modulus**{dimension} must be at most {_MAX_SKETCHES}: all sketches are listed")
    best = np.full((modulus,) * dimension, _UNREACHABLE, np.int64)
    best[(0,) * dimension] = 0
    axes = tuple(range(dimension))
    for row in rows:
        ways = [
            np.roll(best, [(entry * part) % modulus for part in row], axes) + _COSTS[norm](entry)
            for entry in range(-(modulus // 2), modulus // 2 + 1)
        ]
        best = np.minimum.reduce(ways)
    best = np.minimum(best, _UNREACHABLE)
    if norm == "L2":
        reachable = best < _UNREACHABLE
        best[reachable] = np.ceil(np.sqrt(best[reachable])).astype(np.int64)
    return best


@dataclass(slots=True)
class CalibratedState:
    """The sketch modulo q, which starts as noise."""

    sketch: NDArray[np.int64] = noised()
    released: int = public()


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedSketch(Algorithm[CalibratedState]):
    """Distinct count (or a norm) of a tiny universe from a sketch over Z_q with calibrated noise at start and release.

    Privacy:
        ``norm="distinct"``: unit user, any of her rows may be added or removed; "L1" and "L2": one row of weight 1 or
        -1. One copy of the state at any time and the release lose at most ``epsilon``, half of it each: a change moves
        d by at most 1. Replacing a user by another costs twice that. ``loss`` is the exact loss of one noise.

    Error:
        It drowns: a sketch that is short enough to be listed cannot show more than a few users, and the noise is as
        large (turnstile.md, Theorem 7). `LegendreCounter` has sd sqrt(m)/tanh(epsilon/2) at any size.

    Args:
        rows: X, one row of r integers per user, such as rounded draws of a p-stable law.
        modulus: q, odd; net weights count modulo q.
        epsilon: Total loss; ``math.inf`` switches the noise off, for tests.
        norm: The statistic f of the recipe.

    Reference: Mir et al. 2011, §3.1, Algorithm 1, over Z_q instead of a finite set of integers.
    """

    state_type: ClassVar[type[Any]] = CalibratedState
    proof: ClassVar[str] = "turnstile.md"

    rows: tuple[tuple[int, ...], ...]
    modulus: int
    epsilon: float
    norm: Norm = "distinct"

    def __post_init__(self) -> None:
        checks.require_positive(epsilon=self.epsilon)
        object.__setattr__(self, "rows", tuple(tuple(int(part) for part in row) for row in self.rows))
        self.distances()

    @property
    def rate(self) -> SelectionRate:
        """Return kappa, half of epsilon, rounded down."""
        return SelectionRate.at_most(equal_share(self.epsilon, 2))

    def distances(self) -> NDArray[np.int64]:
        """Return d(z) for every sketch."""
        return _distances(self.rows, self.modulus, self.norm)

    def law(self) -> NDArray[np.float64]:
        """Return the probability of every noise vector, proportional to exp(-kappa·d)."""
        distances = self.distances()
        if math.isinf(self.epsilon):
            weights = np.where(distances == 0, 1.0, 0.0)
        else:
            reach = np.minimum(distances, 1 << 20)
            weights = np.where(distances < _UNREACHABLE, np.exp(-self.rate.rate * reach), 0.0)
        law: NDArray[np.float64] = weights / weights.sum()
        return law

    def loss(self) -> float:
        """Return the exact loss of one noise: the largest log ratio of its law and the law moved by one unit's change.

        A unit is a user with any net weight for "distinct", one row otherwise.
        """
        law = self.law()
        axes = tuple(range(law.ndim))
        entries = range(1, self.modulus) if self.norm == "distinct" else (1, self.modulus - 1)
        worst = 0.0
        for row in self.rows:
            for entry in entries:
                moved = np.roll(law, [(entry * part) % self.modulus for part in row], axes)
                if ((law > 0) != (moved > 0)).any():
                    return math.inf
                here = law > 0
                worst = max(worst, float(np.abs(np.log(law[here] / moved[here])).max()))
        return worst

    def claim(self) -> Claim:
        """Return the loss of one copy and the release."""
        return Claim(
            epsilon=self.epsilon,
            unit="user" if self.norm == "distinct" else "event",
            intrusions=Intrusions(unannounced=1),
            inputs="adaptive",
            public=("the rows of the sketch and the modulus",),
            note="" if math.isfinite(self.epsilon) else "no noise: for tests only",
        )

    def layout(self) -> Mapping[str, FieldLayout]:
        """Return r residues and the release count."""
        return {
            "sketch": FieldLayout("i8", (len(self.rows[0]),), at_least=0, below=self.modulus),
            "released": FieldLayout("int", at_least=0, below=2),
        }

    def initial_state(self, rng: NoiseSource) -> CalibratedState:
        """Return a sketch that is noise."""
        return CalibratedState(sketch=self.draw_noise(rng), released=0)

    def draw_noise(self, rng: NoiseSource) -> NDArray[np.int64]:
        """Draw one noise vector by the exponential mechanism over all sketches."""
        distances = self.distances()
        reachable = np.flatnonzero(distances.reshape(-1) < _UNREACHABLE)
        chosen = rng.exponential(-distances.reshape(-1)[reachable], self.rate)
        return np.array(np.unravel_index(int(reachable[chosen]), distances.shape), np.int64)

    def batch(self, ids: Any, weight: Any = 1) -> CounterBatch:
        """Check ids 0..m-1 and integer weights; for "L1" and "L2" weights are 1 or -1."""
        numbers, copied = integers(ids, name="ids", lower=0, upper=len(self.rows) - 1)
        bound = None if self.norm == "distinct" else 1
        weights, copied_too = integers(
            [weight] * numbers.size if isinstance(weight, int) else weight,
            name="weight",
            lower=None if bound is None else -bound,
            upper=bound,
        )
        if weights.size != numbers.size:
            raise InvalidBatch(f"weight must have one value per id, got {weights.size} for {numbers.size}")
        return CounterBatch(numbers, weights, (numbers,) * copied + (weights,) * copied_too)

    def update(self, state: CalibratedState, batch: CounterBatch, rng: NoiseSource) -> None:
        """Add every row's sketch, times its weight, modulo q."""
        matrix = np.array(self.rows, np.int64) % self.modulus
        totals = (batch.weights % self.modulus) @ matrix[np.asarray(batch.ids)] if len(batch) else 0
        state.sketch[:] = (state.sketch + totals) % self.modulus

    def release(self, state: CalibratedState, rng: NoiseSource) -> Estimate:
        """Add a second noise vector, publish the sketch, and decode it."""
        state.released = consume_release(state.released, 1)
        shown = (state.sketch + self.draw_noise(rng)) % self.modulus
        return Estimate.clipped(
            self.decode(shown),
            (0.0, self.largest),
            standard_error=self.largest,
            claim=self.claim(),
            name=f"{self.norm} norm" if self.norm != "distinct" else "distinct users",
            released=tuple(int(part) for part in shown),
        )

    @property
    def largest(self) -> float:
        """Return the largest distance of a sketch, above which no answer lies."""
        distances = self.distances()
        return float(distances[distances < _UNREACHABLE].max())

    def decode(self, shown: NDArray[np.int64]) -> float:
        """Return the median distance, under both noises, of the true sketch that explains the published one."""
        law = self.law()
        both = np.real(np.fft.ifftn(np.fft.fftn(law) ** 2))
        back = np.roll(np.flip(both), [int(part) + 1 for part in shown], tuple(range(both.ndim)))  # weight of z - noise
        distances = self.distances().reshape(-1)
        order = np.argsort(distances, kind="stable")
        order = order[distances[order] < _UNREACHABLE]
        weight = np.cumsum(np.maximum(back.reshape(-1)[order], 0.0))
        return float(distances[order][np.searchsorted(weight, weight[-1] / 2)])

    def refresh(self, state: CalibratedState, rng: NoiseSource) -> None:
        """Raise NotSupported: the paper gives no rule for a second copy."""
        raise NotSupported("CalibratedSketch covers one intrusion")

    def error_bound(self, *, beta: float) -> float:
        """Return the largest distance of two sketches: no smaller bound is proved."""
        checks.require_probability(beta=beta)
        return self.largest


@lru_cache(maxsize=16)
def _distances(rows: tuple[tuple[int, ...], ...], modulus: int, norm: Norm) -> NDArray[np.int64]:
    distances = calibrated_distances(rows, modulus, norm)
    distances.flags.writeable = False
    return distances
