"""Noise calibrated to a linear sketch and to what it estimates (Mir et al., section 3.1), over Z_q and by exhaustion.

A sketch maps state vectors a in Z^u to L·a in Z_q^r. Let f(c) = outer(sum of cost(c_i)) be even and subadditive with
f(0) = 0, and d(z) = min{f(c) : L·c = z}. Noise with weight exp(-rate·d(z)) at every z of Z_q^r is calibrated to both:
one user changes d by at most max f(y·e_i), so the state loses rate times that, as enumerated by ``step``; and since
d(L·a + z) lies within d(z) of d(L·a), the decoded quality errs by at most d of the noise.

Over the integers the same recipe draws from a finite set, which no shift leaves in place: its loss is infinite. Over
Z_q the shifts form a group and the normalising constant is the same for every state. The price is time and memory q**r:
a reference for tiny sketches. L0 gives Algorithm 1; L1 and L2 are the paper's other instances, with a step that grows
with the largest weight.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from panstream import checks
from panstream.algorithm import Algorithm, spend_release
from panstream.batch import integers
from panstream.codec import FieldLayout, noised, public
from panstream.errors import InvalidBatch, InvalidParameter, NotSupported
from panstream.estimate import Estimate
from panstream.privacy.claim import Claim
from panstream.randomness import Source
from panstream.turnstile.counter import CounterBatch

__all__ = ["L0", "L1", "L2", "CalibratedSketch", "Quality", "weighted_ids"]

MAX_TABLE = 1 << 16
_WEIGHT_BITS = 44


@dataclass(frozen=True, slots=True)
class Quality:
    """f(c) = outer(sum over i of cost(|c_i|)): what a sketch estimates and noise is measured by."""

    name: str
    cost: Callable[[int], float]
    outer: Callable[[NDArray[np.float64]], NDArray[np.float64]]

    def of(self, state: NDArray[np.int64]) -> float:
        """Return f of a state vector."""
        total = np.array([math.fsum(self.cost(abs(int(entry))) for entry in state)])
        return float(self.outer(total)[0])


L0 = Quality("distinct users", lambda size: float(size != 0), lambda total: total)
L1 = Quality("L1 norm", float, lambda total: total)
L2 = Quality("L2 norm", lambda size: float(size * size), np.sqrt)
_QUALITIES = {"L0": L0, "L1": L1, "L2": L2}


@dataclass(frozen=True, slots=True, kw_only=True)
class _NoiseTable:
    """d(z) and the integer weight of every z in Z_q^r, in C order."""

    distance: NDArray[np.float64]
    weight: NDArray[np.int64]
    shape: tuple[int, ...]

    @classmethod
    def build(
        cls, rows: tuple[tuple[int, ...], ...], modulus: int, quality: Quality, rate: float, bound: int
    ) -> _NoiseTable:
        """Find d by adding one user at a time, each with every |c_i| up to ``bound``; inf where nothing maps to z."""
        shape = (modulus,) * len(rows[0])
        if modulus ** len(rows[0]) > MAX_TABLE:
            raise InvalidParameter(f"modulus**columns must be at most {MAX_TABLE}, got {modulus}**{len(rows[0])}")
        total = np.full(shape, math.inf)
        total[(0,) * len(shape)] = 0.0
        axes = tuple(range(len(shape)))
        for row in rows:
            best = total
            for entry in range(-bound, bound + 1):
                shift = tuple(entry * part % modulus for part in row)
                best = np.minimum(best, np.roll(total, shift, axes) + quality.cost(abs(entry)))
            total = best
        distance = quality.outer(total)
        reached = np.isfinite(distance)
        decay = np.exp(-rate * np.where(reached, distance, 0.0))
        weight = np.where(reached, np.floor(decay * (1 << _WEIGHT_BITS)), 0).astype(np.int64)
        if (weight[reached] == 0).any():
            raise InvalidParameter("epsilon is too large for this sketch: some noise would have no weight at all")
        return cls(distance=distance, weight=weight, shape=shape)

    def step(self, rows: tuple[tuple[int, ...], ...], modulus: int) -> float:
        """Return the largest change of d that one user can make, whatever the weight."""
        worst = 0.0
        for moved in _moves(self.distance, rows, modulus):
            same = moved == self.distance  # also where neither can be explained
            change = np.abs(np.subtract(moved, self.distance, out=np.zeros(self.shape), where=~same))
            worst = max(worst, float(change.max()))
        return worst

    def ratio(self, rows: tuple[tuple[int, ...], ...], modulus: int) -> Fraction | None:
        """Return the largest exact ratio of the integer weights that one user can make, or None if it is infinite."""
        worst = Fraction(1)
        for moved in _moves(self.weight, rows, modulus):
            if ((moved == 0) != (self.weight == 0)).any():
                return None
            place = np.argmax(np.divide(self.weight, moved, out=np.zeros(self.shape), where=moved > 0))
            worst = max(worst, Fraction(int(self.weight.flat[place]), int(moved.flat[place])))
        return worst

    def draw(self, source: Source) -> NDArray[np.int64]:
        """Return one z, with exactly its weight."""
        cumulative = np.cumsum(self.weight.reshape(-1))
        pick = int(source.uniform_below(int(cumulative[-1]), 1)[0])
        place = int(np.searchsorted(cumulative, pick, side="right"))
        return np.array(np.unravel_index(place, self.shape), np.int64)


def _moves(table: NDArray[Any], rows: tuple[tuple[int, ...], ...], modulus: int) -> Iterator[NDArray[Any]]:
    """Yield the table as it is seen after each thing that one user can do."""
    axes = tuple(range(table.ndim))
    for row in rows:
        for entry in range(1, modulus):
            yield np.roll(table, tuple(entry * part % modulus for part in row), axes)


@dataclass(slots=True)
class _SketchState:
    """The noisy sketch."""

    sketch: NDArray[np.int64] = noised()
    released: int = public()


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedSketch(Algorithm[_SketchState]):
    """Any linear sketch over Z_q with noise calibrated to its quality function, drawn exhaustively.

    Privacy
        Unit: user. 2·rate·step for one copy of the state and one release, step being the largest change of the quality
        that one user can make: 1 for L0, up to q//2 for L1 and L2. rate = epsilon/(2·step) makes that ``epsilon``; the
        claim is the exact figure for the weights as rounded to integers. Twice that for replace.

    Error
        |estimate - d(L·a)| ≤ d(y) + d(y') for the two noise vectors, and d(y) ≤ (ln(q**r) + ln(1/beta))/rate with
        probability 1 - beta (McSherry and Talwar): additive and linear in the largest weight for L1 and L2.

    Parameters
        rows: the sketch, one row of r integers per user.
        modulus: q; q**r is at most 65,536.
        quality: "L0", "L1" or "L2".

    Reference: "Pan-private Algorithms Via Statistics on Sketches", section 3.1, "A general noise-calibrating
    technique".
    """

    state_type: ClassVar[type[Any]] = _SketchState

    rows: tuple[tuple[int, ...], ...]
    modulus: int
    epsilon: float
    quality: str = "L0"

    def __post_init__(self) -> None:
        if not self.rows or len({len(row) for row in self.rows}) != 1 or not self.rows[0]:
            raise InvalidParameter("rows must be equally long and not empty")
        object.__setattr__(self, "rows", tuple(tuple(row) for row in self.rows))
        if not 0 < self.epsilon < math.inf:
            raise InvalidParameter(f"epsilon must be positive and finite, got epsilon={self.epsilon}")
        checks.at_least(2, modulus=self.modulus)
        if self.quality not in _QUALITIES:
            raise InvalidParameter(f"quality must be one of {', '.join(_QUALITIES)}, got quality={self.quality!r}")
        if not self.step > 0:
            raise InvalidParameter("rows must not all be zero modulo q")

    @property
    def rate(self) -> float:
        """Return how fast the weight of noise falls with its quality: epsilon/(2·step), and a little less for
        rounding.
        """
        return self.epsilon / (2 * self.step) * (1 - 2.0**-30)

    @property
    def step(self) -> float:
        """Return the largest change of the quality that one user can make, by enumeration."""
        return _step(self.rows, self.modulus, self.quality)

    @property
    def table(self) -> _NoiseTable:
        """Return the noise law."""
        return _table(self.rows, self.modulus, self.quality, self.rate)

    def claim(self) -> Claim:
        """Return the joint loss of one look and the release."""
        ratio = self.table.ratio(self.rows, self.modulus)  # e**(rate·step) but for the rounding of weights to integers
        loss = math.inf if ratio is None else 2 * (math.log(ratio.numerator) - math.log(ratio.denominator))
        return Claim(
            epsilon=loss, unit="user", parts={"state": loss / 2, "output": loss / 2}, public=("the sketch matrix",)
        )

    def layout(self) -> Mapping[str, FieldLayout]:
        """Return r integers below q, and the release count."""
        return {
            "sketch": FieldLayout("i8", (len(self.rows[0]),), at_least=0, below=self.modulus),
            "released": FieldLayout("int", at_least=0, below=2),
        }

    def begin(self, source: Source) -> _SketchState:
        """Return a draw of the calibrated noise."""
        return _SketchState(sketch=self.table.draw(source), released=0)

    def batch(self, ids: Any, weight: Any = 1) -> CounterBatch:
        """Check ids 0..u-1 and integer weights."""
        return weighted_ids(ids, weight, len(self.rows))

    def update(self, state: _SketchState, batch: CounterBatch, source: Source) -> None:
        """Add weight times the user's row, modulo q."""
        rows = np.array(self.rows, np.int64) % self.modulus
        state.sketch += (batch.weights % self.modulus) @ rows[np.asarray(batch.ids)]
        state.sketch %= self.modulus

    def release(self, state: _SketchState, source: Source) -> Estimate:
        """Add a second draw and return the quality of the cheapest explanation."""
        state.released = spend_release(state.released, 1)
        seen = (state.sketch + self.table.draw(source)) % self.modulus
        value = float(self.table.distance[tuple(seen)])
        return Estimate(
            value=value,
            standard_error=2 * self._mean_distance(),
            claim=self.claim(),
            name=_QUALITIES[self.quality].name,
            released=tuple(seen.tolist()),
        )

    def _mean_distance(self) -> float:
        finite = np.where(self.table.weight > 0, self.table.distance, 0.0)
        return float((finite * self.table.weight).sum() / self.table.weight.sum())

    def refresh(self, state: _SketchState, source: Source) -> None:
        """Refuse: not part of the recipe."""
        raise NotSupported("a calibrated sketch cannot be refreshed")

    def error(self, *, beta: float) -> float:
        """Return 2·(ln(q**r) + ln(2/beta))/rate (McSherry and Talwar, Theorem 2 of the paper)."""
        return 2 * (math.log(self.modulus) * len(self.rows[0]) + math.log(2 / beta)) / self.rate


@lru_cache(maxsize=64)
def _step(rows: tuple[tuple[int, ...], ...], modulus: int, quality: str) -> float:
    table = _NoiseTable.build(rows, modulus, _QUALITIES[quality], 0.0, modulus // 2)
    return table.step(rows, modulus)


@lru_cache(maxsize=64)
def _table(rows: tuple[tuple[int, ...], ...], modulus: int, quality: str, rate: float) -> _NoiseTable:
    return _NoiseTable.build(rows, modulus, _QUALITIES[quality], rate, modulus // 2)


def weighted_ids(ids: Any, weight: Any, users: int) -> CounterBatch:
    """Check ids 0..users-1 and an integer weight for each."""
    rows, copied = integers(ids, name="ids", lower=0, upper=users - 1)
    given, copied_too = integers([weight] * rows.size if isinstance(weight, int) else weight, name="weight")
    if given.size != rows.size:
        raise InvalidBatch(f"weight must have one value per id, got {given.size} for {rows.size}")
    return CounterBatch(rows, given, (rows,) * copied + (given,) * copied_too)
