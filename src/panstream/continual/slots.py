"""What one slot may receive: integers or fixed-point numbers in a declared range, and how far one unit moves them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from panstream import checks
from panstream.batch import integers, numbers
from panstream.errors import InvalidBatch, InvalidParameter
from panstream.scratch import wipe

__all__ = ["REFUSES", "Amounts", "Outside", "Protects", "SlotRange", "clipped"]

Outside = Literal["clip", "refuse"]
REFUSES = 'outside="refuse" lets one value decide whether all others of its batch count'
Protects = Literal["event", "slot"]

_LARGEST = 1 << 40


@dataclass(frozen=True, slots=True, eq=False)
class Amounts:
    """Checked values of one batch in integer steps of 2**-fraction_bits."""

    values: NDArray[np.int64]
    owned: tuple[NDArray[Any], ...]

    def __len__(self) -> int:
        return int(self.values.size)

    def wipe(self) -> None:
        """Overwrite the copies made of the input."""
        for array in self.owned:
            wipe(array)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotRange:
    """Values from ``lower`` to ``upper`` in steps of 2**-fraction_bits; others are refused by row, or clipped."""

    lower: float
    upper: float
    fraction_bits: int
    outside: Outside

    def check(self) -> None:
        """Raise InvalidParameter unless the range is one."""
        checks.within(0, 40, fraction_bits=self.fraction_bits)
        if not (math.isfinite(self.lower) and math.isfinite(self.upper) and self.lower <= self.upper):
            raise InvalidParameter(f"lower must not exceed upper, got lower={self.lower} and upper={self.upper}")
        if self.fraction_bits == 0 and not (float(self.lower).is_integer() and float(self.upper).is_integer()):
            raise InvalidParameter("lower and upper must be integers unless fraction_bits is positive")
        if self.outside not in get_args(Outside):
            raise InvalidParameter(f"outside must be 'clip' or 'refuse', got outside={self.outside!r}")
        if not 1 <= self.reach <= _LARGEST:
            raise InvalidParameter(
                f"lower and upper must span 1..2**40 steps of 2**-{self.fraction_bits}, got {self.reach} steps"
            )

    @property
    def steps(self) -> tuple[int, int]:
        """Return the range in integer steps."""
        return round(self.lower * (1 << self.fraction_bits)), round(self.upper * (1 << self.fraction_bits))

    @property
    def reach(self) -> int:
        """Return the largest absolute value in steps: what adding or removing one event moves a sum by."""
        return max(abs(step) for step in self.steps)

    def sensitivity(self, unit: Protects) -> int:
        """Return how many steps one unit moves a sum: an event is added or removed, a slot's content exchanged."""
        low, high = self.steps
        return self.reach if unit == "event" else max(high, 0) - min(low, 0)

    def amounts(self, data: Any, times: int = 1) -> Amounts:
        """Check values of at most ``times`` events each; raise InvalidBatch with the row, never the value."""
        if isinstance(data, int | float) and not isinstance(data, bool):
            data = [data]
        low, high = (times * step for step in self.steps)
        if self.fraction_bits == 0:
            if self.outside == "clip":
                values, copied = clipped(data, low, high)
            else:
                values, copied = integers(data, name="values", lower=low, upper=high)
            return Amounts(values, (values,) if copied else ())
        return self._fixed_point(data, low, high)

    def _fixed_point(self, data: Any, low: int, high: int) -> Amounts:
        reals, copied = numbers(data, name="values")
        with np.errstate(over="ignore"):  # infinity is outside of every range
            scaled = np.multiply(reals, float(1 << self.fraction_bits))
        if copied:
            wipe(reals)
        np.rint(scaled, out=scaled)
        if self.outside == "refuse":
            self._refuse_outside(scaled, low, high)
        np.clip(scaled, low, high, out=scaled)
        values = scaled.astype(np.int64)
        wipe(scaled)
        return Amounts(values, (values,))

    def _refuse_outside(self, scaled: NDArray[np.float64], low: int, high: int) -> None:
        outside = np.empty(scaled.size, np.bool_)
        first = scaled.size
        for compare, bound in ((np.less, low), (np.greater, high)):
            compare(scaled, bound, out=outside)
            first = min(first, int(outside.argmax())) if outside.any() else first
        wipe(outside)
        if first < scaled.size:
            wipe(scaled)
            unit = 1 << self.fraction_bits
            raise InvalidBatch(f"values must be between {low / unit} and {high / unit}", row=first)


def clipped(data: Any, low: int, high: int) -> tuple[NDArray[np.int64], bool]:
    """Return integers moved into a range, and whether they are a copy to be wiped."""
    values, copied = integers(data, name="values")
    if not values.size or (int(values.min()) >= low and int(values.max()) <= high):
        return values, copied
    kept = values if copied else np.empty_like(values)
    np.clip(values, low, high, out=kept)
    return kept, True
