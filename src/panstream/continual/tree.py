"""KaryTree: the plain form of the default tree, for bounded integers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from panstream.batch import integers
from panstream.continual.grid import Steps
from panstream.continual.slots import clipped
from panstream.continual.tree_base import SLOT_TOTAL, Tree
from panstream.errors import InvalidParameter
from panstream.privacy.claim import Adjacency, Unit

__all__ = ["KaryTree"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KaryTree(Tree):
    """Running sums of bounded integers from a pan-private tree of noisy sums: the default mechanism of this room.

    Privacy
        Unit: one event added or removed anywhere in time; with ``unit="slot"`` a slot's whole content exchanged; with
        ``contributions=K`` a user of at most K events. An item is in one node of each of h levels, whose accumulator
        starts as noise and is released with fresh noise, all of rate epsilon/(h·sensitivity): one look at any time
        and all outputs lose exactly ``epsilon``, and so does any number of announced looks, each with a refresh.
        Two looks without a refresh in between have no finite loss.

    Error
        With b² the variance of a draw, about 2(h·sensitivity/epsilon)²: a leaf has V = 2b² (b² if it was filled and
        closed in one step), a node 1/V = 1/(2b²) + 1/(sum of its children's V), an answer the sum over its digit nodes.
        Mean squared error times epsilon² over 2**10, 2**14, 2**16, 2**20 slots: 426, 1106, 1623, 3117, and with
        ``one_step_ticks`` 323, 905, 1351, 2684.

    Parameters
        lower, upper: range of one event; values outside are moved to the nearer bound.
        unit: "event", or "slot" (needs ``one_step_ticks``). ``ticks`` takes the total of every slot; with "slot" it
            must be in the range, with "event" it may stand for any number of events.
        The others as in :class:`panstream.continual.tree_base.Tree`.

    Example
        >>> monitor = KaryTree(epsilon=1.0, horizon=1000, lower=0, upper=5).start()
        >>> monitor.update([5, 0, 3])
        >>> estimate = monitor.tick()
        >>> estimate.name, estimate.claim.epsilon
        ('sum', 1.0)

    Reference: "Private Aggregate Computations on Streams", section 2.3 (p-sums of Chan, Shi, Song), with noise at the
    start and at the release of every node, weights after Honaker, and radices as in :mod:`panstream.continual.radices`.
    """

    lower: int = 0
    upper: int = 1
    unit: Literal["event", "slot"] = "event"

    def check(self) -> None:
        """Check the range and the unit."""
        if not (-SLOT_TOTAL <= self.lower <= self.upper <= SLOT_TOTAL and (self.lower or self.upper)):
            raise InvalidParameter(f"lower and upper must be a range, got lower={self.lower} and upper={self.upper}")
        if self.unit not in ("event", "slot"):
            raise InvalidParameter(f"unit must be 'event' or 'slot', got unit={self.unit!r}")
        if self.unit == "slot" and not (self.one_step_ticks and self.contributions is None):
            # Over several steps nobody could enforce a slot's range without keeping its exact total.
            raise InvalidParameter("unit='slot' needs one_step_ticks=True and no contributions")

    @property
    def sensitivity(self) -> int:
        """Return the largest change of a leaf: an event added or removed, or a slot's content exchanged."""
        if self.unit == "slot":
            return max(self.upper, 0) - min(self.lower, 0)
        return max(abs(self.lower), abs(self.upper))

    @property
    def protected(self) -> tuple[Unit, Adjacency]:
        """Return the unit of the claim and its adjacency."""
        if self.unit == "slot":
            return "slot", "replace"
        return "user" if self.contributions is not None else "event", "add-remove"

    def read(self, values: Any) -> Steps:
        """Return integers within the range, one event each."""
        rows, copied = clipped(values, self.lower, self.upper)
        return Steps(rows, (rows,) if copied else ())

    def read_slots(self, values: Any) -> Steps:
        """Return the totals of whole slots: of one value each if the unit is the slot, else of any number of events."""
        if self.unit == "slot":
            return self.read(values)
        rows, copied = integers(values, name="values", lower=-SLOT_TOTAL, upper=SLOT_TOTAL)
        return Steps(rows, (rows,) if copied else ())
