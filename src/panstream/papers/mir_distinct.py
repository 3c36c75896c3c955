"""Algorithm 1 of "Pan-private Algorithms Via Statistics on Sketches": distinct count from a stable sketch.

The noise is drawn from the exponential mechanism with quality -d(z), d(z) = min ||c||_0 over X^T c = z, |c_i| ≤ 2Z, at rate
epsilon/4, by exhaustion: tiny instances only. As printed the noise comes from a finite set of integer (or discretised real)
vectors. No shift maps a finite set onto itself, so some state is possible with a user and impossible without: the loss is
infinite. Over Z_q the same mechanism is sound: epsilon/4 for the state, epsilon/2 with the output, epsilon for replace.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from panstream.errors import InvalidParameter
from panstream.papers.calibration import CalibratedSketch
from panstream.randomness import Source

__all__ = ["PublishedDistinct", "modular_distinct", "stable_matrix", "stable_median"]

_MAX_VECTORS = 200_000


def _stable(draws: int, p: float, source: Source) -> NDArray[np.float64]:
    """Return draws of the symmetric p-stable law (Chambers, Mallows, Stuck 1976)."""
    uniform = (source.uniform_below(1 << 52, 2 * draws) + 0.5) / float(1 << 52)
    angle, waiting = math.pi * (uniform[:draws] - 0.5), -np.log(uniform[draws:])
    tail = (np.cos((1 - p) * angle) / waiting) ** ((1 - p) / p)
    return np.asarray(np.sin(p * angle) / np.cos(angle) ** (1 / p) * tail)


def stable_matrix(users: int, columns: int, p: float, source: Source, *, limit: int = 1 << 20) -> NDArray[np.int64]:
    """Return X: ``users`` × ``columns`` draws of the p-stable law, rounded to integers and cut off at ±``limit``."""
    clipped = np.clip(_stable(users * columns, p, source), -limit, limit)
    return np.rint(clipped).astype(np.int64).reshape(users, columns)


def stable_median(p: float, source: Source, draws: int = 100_001) -> float:
    """Return sf(p) = median of |X|**p, by simulation; it tends to 1/ln 2 as p tends to 0."""
    return float(np.median(np.abs(_stable(draws, p, source)) ** p))


def modular_distinct(rows: tuple[tuple[int, ...], ...], modulus: int, epsilon: float) -> CalibratedSketch:
    """Return Algorithm 1 over Z_q with the printed rate epsilon/4: its joint loss is epsilon/2."""
    return CalibratedSketch(rows=rows, modulus=modulus, epsilon=epsilon / 2, quality="L0")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedDistinct:
    """Algorithm 1 as printed, over the integers, by exhaustion.

    ``rows`` is X, one row of r integers per user; ``largest`` is Z, the bound on |a_i|. True loss: infinite (``loss``).
    """

    rows: tuple[tuple[int, ...], ...]
    largest: int
    epsilon: float

    def __post_init__(self) -> None:
        if (4 * self.largest + 1) ** len(self.rows) > _MAX_VECTORS:
            raise InvalidParameter(f"(4·largest + 1)**users must be at most {_MAX_VECTORS}: tiny instances only")

    def distances(self) -> dict[tuple[int, ...], int]:
        """Return d(z) for every z that some c with |c_i| ≤ 2Z explains."""
        span = range(-2 * self.largest, 2 * self.largest + 1)
        found: dict[tuple[int, ...], int] = {}
        columns = range(len(self.rows[0]))
        for vector in product(span, repeat=len(self.rows)):
            z = tuple(sum(c * row[j] for c, row in zip(vector, self.rows, strict=True)) for j in columns)
            size = sum(c != 0 for c in vector)
            found[z] = min(found.get(z, size), size)
        return found

    def law(self) -> dict[tuple[int, ...], float]:
        """Return the chance of every start vector, proportional to exp(-epsilon/4·d)."""
        weights = {z: math.exp(-self.epsilon / 4 * d) for z, d in self.distances().items()}
        total = math.fsum(weights.values())
        return {z: weight / total for z, weight in weights.items()}

    def loss(self) -> float:
        """Return the loss of the state alone between a stream with and without one user of weight 1..Z, by enumeration."""
        law = self.law()
        worst = 0.0
        for row in self.rows:
            for weight in range(1, self.largest + 1):
                for z, chance in law.items():
                    other = law.get(tuple(v - weight * part for v, part in zip(z, row, strict=True)))
                    if other is None:
                        return math.inf
                    worst = max(worst, abs(math.log(chance / other)))
        return worst

    def draw(self, source: Source) -> NDArray[np.int64]:
        """Return one start vector."""
        law = sorted(self.law().items())
        pick = int(source.uniform_below(1 << 53, 1)[0]) / float(1 << 53)
        place = int(np.searchsorted(np.cumsum([chance for _, chance in law]), pick, side="right"))
        return np.array(law[min(place, len(law) - 1)][0], np.int64)

    def run(self, net: NDArray[np.int64], p: float, median: float, source: Source, *, divide: bool = False) -> float:
        """Return the estimate for net weights ``net``: median |sketch|**p times sf(p), as printed, or divided by it."""
        sketch = self.draw(source) + net @ np.array(self.rows, np.int64) + self.draw(source)
        middle = float(np.median(np.abs(sketch.astype(np.float64)) ** p))
        return middle / median if divide else middle * median
