"""ContinualCount and ContinualSum: how many, and how much, at every tick."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from panstream.batch import integers
from panstream.continual.grid import Grid, Outside, Steps
from panstream.continual.tree_base import SLOT_TOTAL, Tree, TreeBatch
from panstream.errors import InvalidBatch, InvalidParameter
from panstream.privacy.claim import Adjacency, Unit

__all__ = ["ContinualCount", "ContinualSum"]

_STEPS = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinualCount(Tree):
    """How many events so far, at every tick; arrivals minus departures if rows are -1 too.

    Privacy
        Unit: one event added or removed, anywhere in time (``contributions=K``: a user of at most K events). One look at
        any time and all outputs lose exactly ``epsilon``; any number of announced looks with a refresh too.

    Error
        As :class:`panstream.continual.tree.KaryTree`: mean squared error 3117/epsilon² over 2**20 slots; without a
        horizon about 5100/epsilon² there, growing with the cube of log t.

    Parameters
        As :class:`panstream.continual.tree_base.Tree`.

    Example
        >>> monitor = ContinualCount(epsilon=1.0).start()
        >>> monitor.update(1000)          # a number of events
        >>> monitor.update([1, 1, -1])    # or rows: arrivals and departures
        >>> abs(monitor.tick().value - 1001) < 150
        True

    Reference: "Private Aggregate Computations on Streams", 2.3 and 4.1; the tree of :mod:`panstream.continual.radices`.
    """

    @property
    def sensitivity(self) -> int:
        """Return 1: an event counts once."""
        return 1

    @property
    def label(self) -> str:
        """Return what the estimate is called."""
        return "count"

    def read(self, values: Any) -> Steps:
        """Return rows of -1, 0 and 1."""
        rows, copied = integers(values, name="events", lower=-1, upper=1)
        return Steps(rows, (rows,) if copied else ())

    def read_slots(self, values: Any) -> Steps:
        """Return the number of events of every slot."""
        rows, copied = integers(values, name="events", lower=-SLOT_TOTAL, upper=SLOT_TOTAL)
        return Steps(rows, (rows,) if copied else ())

    def batch(self, values: Any, *, users: Any = None) -> TreeBatch:
        """Check events of the open slot: their number, or one row each."""
        counted = isinstance(values, int | np.integer) and not isinstance(values, bool)
        if not counted or users is not None or self.one_step_ticks:
            return Tree.batch(self, values, users=users)
        if not -SLOT_TOTAL <= values <= SLOT_TOTAL:
            raise InvalidBatch("events must be between -2**40 and 2**40")
        return TreeBatch(np.array([values], np.int64), 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinualSum(Tree):
    """The sum of all values so far, at every tick.

    Privacy
        Unit: one value added or removed, anywhere in time; with ``unit="slot"`` the value of a slot exchanged; with
        ``contributions=K`` a user of at most K values. One look at any time and all outputs lose exactly ``epsilon``;
        any number of announced looks with a refresh too.

    Error
        That of :class:`ContinualCount` times max(|lower|, |upper|), and at most half a step per item from rounding.

    Parameters
        lower, upper: range of a value.
        resolution: length of a step; the larger bound over 2**20 by default. Sums are exact below 2**53 steps.
        outside: "clip" moves values into the range; "refuse" refuses the batch and names the row, and has no claim: one value
            would decide whether all others of its batch count.
        unit: "event", or "slot" (needs ``one_step_ticks``).
        The others as in :class:`panstream.continual.tree_base.Tree`.

    Example
        >>> monitor = ContinualSum(epsilon=1.0, horizon=24, lower=0.0, upper=5.0).start()
        >>> monitor.update([2.5, 3.0, 99.0])    # 99 is clipped to 5
        >>> monitor.tick().name
        'sum'

    Reference: "Private Aggregate Computations on Streams", 3.1 and 4.1.
    """

    lower: float
    upper: float
    resolution: float | None = None
    outside: Outside = "clip"
    unit: Literal["event", "slot"] = "event"

    def check(self) -> None:
        """Check range, resolution and unit."""
        _ = self.grid
        if self.unit not in ("event", "slot"):
            raise InvalidParameter(f"unit must be 'event' or 'slot', got unit={self.unit!r}")
        if self.unit == "slot" and not (self.one_step_ticks and self.contributions is None):
            raise InvalidParameter("unit='slot' needs one_step_ticks=True and no contributions")

    @property
    def grid(self) -> Grid:
        """Return the multiples of the resolution within the range."""
        return Grid.around_zero(self.lower, self.upper, self.resolution, _STEPS, self.outside)

    @property
    def sensitivity(self) -> int:
        """Return the largest change of a leaf in steps."""
        low, high = self.grid.low, self.grid.high
        return max(high, 0) - min(low, 0) if self.unit == "slot" else max(abs(low), abs(high))

    @property
    def protected(self) -> tuple[Unit, Adjacency]:
        """Return the unit of the claim and its adjacency."""
        if self.unit == "slot":
            return "slot", "replace"
        return "user" if self.contributions is not None else "event", "add-remove"

    @property
    def scale(self) -> float:
        """Return the length of a step."""
        return self.grid.step

    def read(self, values: Any) -> Steps:
        """Return values as steps."""
        return self.grid.read(values)
