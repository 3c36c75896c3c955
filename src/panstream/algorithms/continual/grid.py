"""Numbers as whole steps of a public grid: noise is added to integers, never to floats.

A value is clipped to its declared range (or refused) and rounded to the nearest grid point, so it is off by at most
half a step: a sum of n values by at most n/2 steps, a mean by half a step. Choose ``resolution`` so that your data lies
on the grid (1 for whole numbers, 0.01 for cents) and nothing is lost.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from panstream.errors import InvalidBatch, InvalidParameter
from panstream.primitives.inputs import integers, numbers
from panstream.primitives.memory.scratch import wipe

Outside = Literal["clip", "refuse"]
Protects = Literal["event", "slot"]
MAX_STEPS = 1 << 40  # from 0 to a bound: a 64-bit sum still holds millions of such values
Bounds = tuple[NDArray[np.float64] | float, NDArray[np.float64] | float]


@dataclass(frozen=True, slots=True, eq=False)
class GridBatch:
    """Checked rows of one batch, as integers; ``owned`` arrays are our copies, to be wiped."""

    rows: NDArray[np.int64]
    owned: tuple[NDArray[Any], ...] = ()

    @classmethod
    def integers(cls, data: Any, *, name: str = "values", lower: int | None = None, upper: int | None = None) -> Self:
        """Check integers from ``lower`` to ``upper``.

        Raises:
            InvalidBatch: A value is no integer or out of range; the error names its row.
        """
        rows, copied = integers(data, name=name, lower=lower, upper=upper)
        return cls(rows, (rows,) if copied else ())

    def __len__(self) -> int:
        return int(self.rows.shape[0])

    def wipe(self) -> None:
        """Overwrite the copies made of the input."""
        for array in self.owned:
            wipe(array)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The points origin + i·step for low <= i <= high, and what happens to values outside lower..upper."""

    lower: float
    upper: float
    origin: float
    step: float
    low: int
    high: int
    outside: Outside
    integral: bool = False  # takes integers only

    @classmethod
    @lru_cache(maxsize=256)
    def spanning(cls, lower: float, upper: float, resolution: float | None, steps: int, outside: Outside) -> Grid:
        """Return the grid from ``lower`` to ``upper``, with ``steps`` steps or steps no longer than ``resolution``."""
        _check(lower, upper, resolution, outside)
        count = steps if resolution is None else _steps((upper - lower) / resolution)
        return cls(
            lower=lower, upper=upper, origin=lower, step=(upper - lower) / count, low=0, high=count, outside=outside
        )

    @classmethod
    @lru_cache(maxsize=256)
    def around_zero(cls, lower: float, upper: float, resolution: float | None, steps: int, outside: Outside) -> Grid:
        """Return the multiples of ``resolution`` within the range, for sums; by default max(|bound|)/``steps``."""
        _check(lower, upper, resolution, outside)
        reach = max(abs(lower), abs(upper))
        step = reach / steps if resolution is None else resolution
        _steps(reach / step)
        low = math.ceil(lower / step - 1e-9)
        high = math.floor(upper / step + 1e-9)
        if low > high or low == high == 0:
            raise InvalidParameter(f"resolution must leave a step between lower and upper, got resolution={resolution}")
        return cls(lower=lower, upper=upper, origin=0.0, step=step, low=low, high=high, outside=outside)

    @classmethod
    @lru_cache(maxsize=256)
    def whole_numbers(cls, lower: float, upper: float, outside: Outside) -> Grid:
        """Return the integers from ``lower`` to ``upper``; other numbers are refused."""
        _check_outside(outside)
        if not -math.inf < lower <= upper < math.inf:
            raise InvalidParameter(f"lower must not exceed upper, got lower={lower} and upper={upper}")
        if lower % 1 or upper % 1:
            raise InvalidParameter("lower and upper must be integers unless there is a resolution")
        if not 1 <= max(abs(lower), abs(upper)) <= MAX_STEPS:
            raise InvalidParameter(f"lower and upper must be a range of 1..2**40, got lower={lower} and upper={upper}")
        low = int(lower)
        high = int(upper)
        return cls(lower=low, upper=high, origin=0.0, step=1.0, low=low, high=high, outside=outside, integral=True)

    @classmethod
    @lru_cache(maxsize=256)
    def cells(cls, lower: float, upper: float, count: int, outside: Outside) -> Grid:
        """Return the midpoints of ``count`` equal cells, so that rounding to the nearest one gives a value's cell."""
        _check(lower, upper, None, outside)
        step = (upper - lower) / count
        return cls(lower=lower, upper=upper, origin=lower + step / 2, step=step, low=0, high=count - 1, outside=outside)

    def sensitivity(self, unit: Protects) -> int:
        """Return how many steps one unit changes a sum: an event is added or removed, a slot's content replaced."""
        low = self.low
        high = self.high
        return max(high, 0) - min(low, 0) if unit == "slot" else max(abs(low), abs(high))

    def bounds(self, events: NDArray[np.float64] | None) -> Bounds:
        """Return the smallest and largest sum of ``events`` values, or of any number of values for None."""
        if events is not None:
            return events * self.low * self.step, events * self.high * self.step
        return (0.0 if self.low >= 0 else -math.inf), (0.0 if self.high <= 0 else math.inf)

    def read_totals(self, data: Any, max_total: int) -> GridBatch:
        """Check totals of any number of values: integers up to ``max_total``, with the signs that values may have."""
        lower = 0 if self.low >= 0 else -max_total
        return GridBatch.integers(data, lower=lower, upper=0 if self.high <= 0 else max_total)

    def read(self, data: Any, times: int = 1) -> GridBatch:
        """Return values of at most ``times`` events each as grid steps.

        A single number is refused: its callers mean a total, which would be clipped like one value.

        Raises:
            InvalidBatch: A value is null, NaN, infinite or no number, or out of range where such values are refused.
        """
        if isinstance(data, int | float | np.number):
            raise InvalidBatch(
                f"values must be a list or an array, one value of {self.lower:g} to {self.upper:g} a row, got a single "
                "number; totals of whole slots go to ticks([total]) (see max_events), numbers of events to "
                "ContinualCount"
            )
        low = times * self.low
        high = times * self.high
        if self.integral:
            return _read_integers(data, low, high, self.outside)
        from panstream.primitives.kernels.algorithms.noisy_tree import first_outside, quantize

        lower = float(times * self.lower)
        upper = float(times * self.upper)
        values, copied = numbers(data, name="values")
        try:
            row = int(first_outside(values, lower, upper)) if self.outside == "refuse" else -1
            if row >= 0:
                raise InvalidBatch(f"values must be between {lower} and {upper}", row=row)
            steps = np.empty(values.size, np.int64)
            quantize(values, self.origin, self.step, low, high, steps)
        finally:
            if copied:
                wipe(values)
        return GridBatch(steps, (steps,))


def _read_integers(data: Any, low: int, high: int, outside: Outside) -> GridBatch:
    if outside == "refuse":
        return GridBatch.integers(data, lower=low, upper=high)
    batch = GridBatch.integers(data)
    values = batch.rows
    if not values.size or (int(values.min()) >= low and int(values.max()) <= high):
        return batch
    clipped = values if batch.owned else np.empty_like(values)  # never in the caller's own array
    np.clip(values, low, high, out=clipped)
    return GridBatch(clipped, (clipped,))


def _check(lower: float, upper: float, resolution: float | None, outside: Outside) -> None:
    if not (math.isfinite(lower) and math.isfinite(upper) and lower < upper):
        raise InvalidParameter(f"lower must be below upper, got lower={lower} and upper={upper}")
    if resolution is not None and not 0 < resolution < math.inf:
        raise InvalidParameter(f"resolution must be positive, got resolution={resolution}")
    _check_outside(outside)


def _check_outside(outside: Outside) -> None:
    if outside not in get_args(Outside):
        raise InvalidParameter(f"outside must be 'clip' or 'refuse', got outside={outside!r}")


def _steps(count: float) -> int:
    """Return the number of steps, rounded up unless it is an integer up to rounding errors."""
    steps = max(1, math.ceil(count - 1e-9 * count))
    if steps > MAX_STEPS:
        raise InvalidParameter(f"resolution must leave at most 2**40 steps, got {steps}")
    return steps
