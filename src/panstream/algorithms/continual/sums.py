"""ContinualCount and ContinualSum: how many, and how much, at every tick; KaryTree, their plain form for integers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.continual.grid import Bounds, Grid, GridBatch, Outside, Protects
from panstream.algorithms.continual.tree_base import SLOT_TOTAL, GridTree, Tree, TreeBatch
from panstream.errors import InvalidBatch

_STEPS = 1 << 20  # of the larger bound, where no resolution is given: rounding is far below the noise


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinualCount(Tree):
    """How many events so far, at every tick; arrivals minus departures if rows are -1 too.

    Privacy:
        Unit: one event added or removed, anywhere in time (``contributions=K``: a user of at most K events). One copy
        at any time and all outputs lose exactly ``epsilon``; any number of announced copies with a refresh too.
        Proof: docs/proofs/continual-tree.md, Theorem 1.

    Error:
        As `KaryTree`: mean squared error 3117/epsilon² over 2**20 slots;
        without a horizon about 5100/epsilon² there, growing with the cube of log t.

    Examples:
        >>> monitor = ContinualCount(epsilon=1.0).start()
        >>> monitor.update(1000)          # a number of events
        >>> monitor.update([1, 1, -1])    # or rows: arrivals and departures
        >>> abs(monitor.tick().value - 1001) < 150
        True

    Reference: Budaeva et al. 2013, §2.3 and §4.1; the tree of `panstream.algorithms.continual.tree_shape`.
    """

    theorem: ClassVar[str] = "Theorem 1"

    sensitivity: ClassVar[int] = 1  # an event counts once
    label: ClassVar[str] = "count"

    def read(self, values: Any) -> GridBatch:
        """Return rows of -1, 0 and 1."""
        return GridBatch.integers(values, name="events", lower=-1, upper=1)

    def read_slots(self, values: Any) -> GridBatch:
        """Return the number of events of every slot."""
        return GridBatch.integers(values, name="events", lower=-SLOT_TOTAL, upper=SLOT_TOTAL)

    def batch(self, values: Any, *, users: Any = None) -> TreeBatch:
        """Check events of the open slot: their number, or one row each.

        Args:
            values: How many events there were, or one row each.
            users: The users of the events, if their number is bounded.
        """
        counted = isinstance(values, int | np.integer) and not isinstance(values, bool)
        if not counted or users is not None or self.one_step_ticks:
            return Tree.batch(self, values, users=users)
        if not -SLOT_TOTAL <= values <= SLOT_TOTAL:
            raise InvalidBatch("events must be between -2**40 and 2**40")
        return TreeBatch(np.array([values], np.int64), 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinualSum(GridTree):
    """The sum of all values so far, at every tick.

    Privacy:
        Unit: one value added or removed, anywhere in time; with ``unit="slot"`` the value of a slot exchanged; with
        ``contributions=K`` a user of at most K values. One copy at any time and all outputs lose exactly ``epsilon``;
        any number of announced copies with a refresh too.
        Proof: docs/proofs/continual-tree.md, Theorem 1.

    Error:
        That of `ContinualCount` times max(|lower|, |upper|), and at most half a step per item from rounding.

    Args:
        lower: Lower end of the range of a value.
        upper: Upper end of the range of a value.
        resolution: Length of a step; the larger bound over 2**20 by default. Sums are exact
            below 2**53 steps. With a ``delta``, steps are at least a 2**20th of the noise.

    Examples:
        >>> monitor = ContinualSum(epsilon=1.0, horizon=24, lower=0.0, upper=5.0).start()
        >>> monitor.update([2.5, 3.0, 99.0])    # 99 is clipped to 5
        >>> monitor.tick().name
        'sum'

    Reference: Budaeva et al. 2013, §3.1 and §4.1.
    """

    theorem: ClassVar[str] = "Theorem 1"

    lower: float
    upper: float
    resolution: float | None = None
    outside: Outside = "clip"
    unit: Protects = "event"

    def check(self) -> None:
        """Check the range, and choose the resolution for Gaussian noise; it is stored with the state."""
        GridTree.check(self)
        if self.delta and self.resolution is None:
            reach = max(abs(self.lower), abs(self.upper))
            object.__setattr__(self, "resolution", reach / self.gaussian_steps(_STEPS))

    @property
    def grid(self) -> Grid:
        """Return the multiples of the resolution within the range."""
        return Grid.around_zero(self.lower, self.upper, self.resolution, _STEPS, self.outside)

    @property
    def scale(self) -> float:
        """Return the length of a step."""
        return self.grid.step

    @property
    def slot_label(self) -> str:
        """Return the label with the range to which a slot's value is clipped."""
        return f"{self.label}, slots clipped to {self.lower:g}..{self.upper:g}"

    def bounds(self, slots: NDArray[np.int64]) -> Bounds:
        """Return the smallest and largest sum of one value per slot, or of any number of values."""
        return self.grid.bounds(slots.astype(np.float64) if self.one_step_ticks else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class KaryTree(GridTree):
    """Running sums of bounded integers from a pan-private tree of noisy sums.

    Privacy:
        Unit: one event added or removed anywhere in time; with ``unit="slot"`` a slot's whole content exchanged; with
        ``contributions=K`` a user of at most K events. An item is in one node of each of h levels, whose accumulator
        starts as noise and is released with fresh noise, all of rate epsilon/(h·sensitivity): one copy at any time
        and all outputs lose exactly ``epsilon``, and so does any number of announced copies, each with a refresh.
        Two copies without a refresh in between have no finite loss.
        Proof: docs/proofs/continual-tree.md, Theorem 1.

    Error:
        With b² the variance of a draw, about 2(h·sensitivity/epsilon)²: a leaf has V = 2b² (b² if it was filled and
        closed in one step), a node 1/V = 1/(2b²) + 1/(sum of its children's V), an answer the sum over its digit nodes.
        Mean squared error times epsilon² over 2**10, 2**14, 2**16, 2**20 slots: 426, 1106, 1623, 3117, and with
        ``one_step_ticks`` 323, 905, 1351, 2684.

    Args:
        lower: Lower end of the range of one event; values outside are moved to the nearer end.
        upper: Upper end of the range of one event.
        unit: "event", or "slot" (needs ``one_step_ticks``). ``tick_many`` takes the total of every
            slot; with "slot" it must be in the range, with "event" it may stand for any number
            of events.

    Examples:
        >>> monitor = KaryTree(epsilon=1.0, horizon=1000, lower=0, upper=5).start()
        >>> monitor.update([5, 0, 3])
        >>> estimate = monitor.tick()
        >>> estimate.name, estimate.claim.epsilon
        ('sum', 1.0)

    Reference: Budaeva et al. 2013, §2.3 (p-sums of Chan, Shi, Song 2011), with noise at the start and at the release of
    every node, weights after Honaker 2015, and radices as in `panstream.algorithms.continual.tree_shape`.
    """

    theorem: ClassVar[str] = "Theorem 1"

    lower: int = 0
    upper: int = 1
    unit: Protects = "event"

    @property
    def grid(self) -> Grid:
        """Return the integers within the range."""
        return Grid.whole_numbers(self.lower, self.upper, self.outside)

    def read_slots(self, values: Any) -> GridBatch:
        """Return the checked totals of slots: one value each if the unit is the slot, else any number of events."""
        return self.read(values) if self.unit == "slot" else self.grid.read_totals(values, SLOT_TOTAL)

    @property
    def slot_label(self) -> str:
        """Return the label with the range to which a slot is clipped, if it holds one value."""
        return f"{self.label}, slots clipped to {self.lower}..{self.upper}" if self.unit == "slot" else self.label

    def bounds(self, slots: NDArray[np.int64]) -> Bounds:
        """Return the smallest and largest sum of one value per slot, or of any number of events."""
        return self.grid.bounds(slots.astype(np.float64) if self.unit == "slot" else None)
