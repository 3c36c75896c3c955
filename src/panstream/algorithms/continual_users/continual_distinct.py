"""ContinualDistinct: how many distinct users have appeared, at every tick; picks the cells and the release strategy."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from panstream.algorithms.continual_users.continual_bitmap import ContinualBitmap
from panstream.algorithms.continual_users.continual_density import ContinualDensity
from panstream.algorithms.continual_users.release_strategies import Protected
from panstream.algorithms.density.universe import as_members
from panstream.core.auto_algorithm import AutoAlgorithm
from panstream.errors import InvalidParameter
from panstream.primitives.hashing import StringHash

_COMMON = ("epsilon", "horizon", "unit", "window", "contributions", "expected", "key")
_DEFAULT_MEMORY = 1 << 23  # bytes
_LEVELS = 24
_BUCKETS = [1 << power for power in range(6, 18)]
_TOLERATED_ERROR = 1.05  # times the smallest: a twentieth more error often halves the cells


@dataclass(frozen=True, slots=True)
class ContinualDistinct(AutoAlgorithm):
    """How many distinct users have appeared so far, at every tick? Picks bits or a bitmap, and how they are released.

    Privacy:
        Unit: as ``unit`` says; at most ``epsilon`` for one copy of the state at any time and all answers together.

    Args:
        epsilon: Total loss.
        horizon: How many ticks there will be; needed unless ``unit`` is "event".
        unit: "event" protects one row, "user-window" the rows of one user within ``window``
            ticks in a row, "user" all rows of one user, or of a user who has at most
            ``contributions``.
        window: Ticks in a row in which a user's rows are protected together.
        contributions: Protect a user with at most this many rows instead of one event.
        universe: Number of users (ids 0..U-1), or the public list of their ids, if the
            population is known.
        expected: About how many will come.
        memory: Bytes that the cells may take, 8 MiB by default.
        deletions: Whether rows may remove users, which needs the universe.
        key: Public number that picks sample or hash function.
        hash: Hash of strings: "fold" or, at half the speed, "siphash", which withstands chosen ids if ``key`` is
            secret.

    Examples:
        >>> question = ContinualDistinct(1.0, horizon=100, universe=20_000, expected=10_000)
        >>> monitor = question.start()
        >>> monitor.update(range(5_000))
        >>> abs(monitor.tick().value - 5_000) < 2_000
        True
    """

    epsilon: float
    _: KW_ONLY
    horizon: int | None = None
    unit: Protected = "event"
    window: int | None = None
    contributions: int | None = None
    universe: int | tuple[Any, ...] | None = None
    expected: float | None = None
    memory: int | None = None
    deletions: bool = False
    key: int = 0
    hash: StringHash = "fold"
    algorithm: ContinualDensity | ContinualBitmap = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "universe", as_members(self.universe))
        object.__setattr__(self, "algorithm", self._choose())

    def _choose(self) -> ContinualDensity | ContinualBitmap:
        common: dict[str, Any] = {name: getattr(self, name) for name in _COMMON}
        cells = 8 * (self.memory or _DEFAULT_MEMORY)
        if self.universe is None:
            if self.deletions:
                raise InvalidParameter("deletions needs universe: a hashed cell may be somebody else's as well")
            return self._bitmap(common, cells)
        size = self.universe if isinstance(self.universe, int) else len(self.universe)
        bits = ContinualDensity(
            universe=self.universe,
            deletions=self.deletions,
            count=True,
            sample=cells if size > cells else None,
            **common,
        )
        if self.deletions or self.expected is None:
            return bits
        bitmap = self._bitmap(common, cells)
        return bits if self._error(bits) <= self._error(bitmap) else bitmap

    def _bitmap(self, common: dict[str, Any], cells: int) -> ContinualBitmap:
        """Return the smallest bitmap within memory whose error is close to that of the best."""
        sizes = [buckets for buckets in _BUCKETS if buckets * _LEVELS <= cells]
        if not sizes:
            raise InvalidParameter(f"memory must be at least {_BUCKETS[0] * _LEVELS // 8} bytes, got {self.memory}")
        if self.expected is None:
            return ContinualBitmap(buckets=min(4096, sizes[-1]), rows_of_cells=_LEVELS, hash=self.hash, **common)
        common = {**common, "hash": self.hash}
        bitmaps = [ContinualBitmap(buckets=buckets, rows_of_cells=_LEVELS, **common) for buckets in sizes]
        errors = [self._error(bitmap) for bitmap in bitmaps]
        return next(
            bitmap for bitmap, error in zip(bitmaps, errors, strict=True) if error <= _TOLERATED_ERROR * min(errors)
        )

    def _error(self, algorithm: ContinualDensity | ContinualBitmap) -> float:
        """Return the root of the mean squared error at the first, middle and last tick."""
        errors = algorithm.errors()
        return math.sqrt(math.fsum(error**2 for error in errors.values()) / len(errors))

    def explain(self) -> str:
        """Return which cells and which release strategy were chosen, and their error."""
        cells = (
            f"a bitmap of {self.algorithm.buckets:,} buckets x {self.algorithm.rows_of_cells} levels"
            if isinstance(self.algorithm, ContinualBitmap)
            else f"one bit for each of {self.algorithm.population.sampled:,} users"
        )
        return f"Cells: {cells}.\n{self.algorithm.explain()}"
