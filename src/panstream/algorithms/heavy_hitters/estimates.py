"""The answer of a heavy-hitter query: a list of names with joint intervals, and the count of any name."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from panstream.algorithms.heavy_hitters._decoder import decode
from panstream.algorithms.heavy_hitters.count_rows import CountRows
from panstream.algorithms.heavy_hitters.point_counts import PointCounts
from panstream.algorithms.heavy_hitters.released_tables import ReleasedTables
from panstream.core.estimate import Estimate, format_number
from panstream.errors import InvalidParameter, NotSupported
from panstream.primitives import validation as checks

_LEVEL = 0.95
_INTERVAL_FAILURE = 0.04  # probability that the interval of some right name fails; with wrong names .05


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedName:
    """A listed name and its count. All intervals of a list hold together with 95%."""

    name: str
    count: float
    standard_error: float
    interval: tuple[float, float]

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {**asdict(self), "interval": list(self.interval)}


@dataclass(frozen=True, slots=True)
class DecodedAnswer:
    """The names decoded from released tables, and the rows that answer point queries."""

    items: tuple[CountedName, ...]
    points: PointCounts


def decode_names(tables: ReleasedTables) -> DecodedAnswer:
    """Decode the names in released tables; this takes seconds, and no further privacy loss."""
    decoded = decode(tables)
    law = decoded.rest.error_law(len(decoded.names))
    half = law.quantile(_INTERVAL_FAILURE / max(len(decoded.names), 1))  # union bound over the names
    rows = CountRows(tables.rows, decoded.rest.scale)
    return DecodedAnswer(
        items=tuple(
            CountedName(
                name=name.decode(errors="backslashreplace") + ("…" if cut else ""),
                count=float(value),
                standard_error=float(sd),
                interval=(max(float(value - half * sd), 0.0), float(value + half * sd)),
            )
            for (name, cut), value, sd in zip(decoded.names, decoded.values, decoded.errors, strict=True)
        ),
        points=PointCounts(
            rows=rows,
            law=law,
            max_item_bytes=tables.max_item_bytes,
            step=tables.bits,
            seed=int(tables.seed),
            repeats=tables.repeats,
        ),
    )


class LazyDecodedTables:
    """Released tables that are decoded at the first access, once, and dropped then to free their memory."""

    __slots__ = ("_decoded", "_tables")

    def __init__(self, tables: ReleasedTables) -> None:
        self._tables: ReleasedTables | None = tables
        self._decoded: DecodedAnswer | None = None

    @property
    def tables(self) -> ReleasedTables:
        """Return the tables; raise NotSupported once they are decoded."""
        if self._tables is None:
            raise NotSupported("these tables were already decoded and are no longer stored")
        return self._tables

    @property
    def decoded(self) -> DecodedAnswer:
        """Return the decoded names."""
        if self._decoded is None:
            self._decoded = decode_names(self.tables)
            self._tables = None
        return self._decoded


def certain_ranks(intervals: Sequence[Sequence[float]], k: int, listing_threshold: float) -> int:
    """Return how many of the first ``k`` intervals lie above those of all other names, listed or not.

    >>> certain_ranks([(90.0, 110.0), (45.0, 55.0), (40.0, 50.0)], 2, 30.0)
    1
    """
    bar = max([listing_threshold, *(high for _, high in intervals[k:])])
    return sum(low > bar for low, _ in intervals[:k])


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemEstimates(Estimate):
    """Names in the order of their counts. ``value`` is the number of events with a name, all names together.

    At most .05 of the listed names are expected to be wrong; a name with at least ``listing_threshold`` events is
    listed with 95%. ``count(name)`` answers for any name, listed or not, as often as asked.
    """

    listing_threshold: float
    held: LazyDecodedTables = field(repr=False, compare=False)

    @property
    def items(self) -> tuple[CountedName, ...]:
        """Return the listed names; the first access decodes them, which takes seconds."""
        return self.held.decoded.items

    @property
    def points(self) -> PointCounts:
        """Return the rows that answer point queries."""
        return self.held.decoded.points

    def top(self, k: int) -> tuple[CountedName, ...]:
        """Return the ``k`` names with the largest counts, or all if there are fewer."""
        checks.require_at_least(1, k=k)
        return self.items[:k]

    def at_least(self, count: float) -> tuple[CountedName, ...]:
        """Return the names with an estimated count of at least ``count``; incomplete below ``listing_threshold``."""
        if not math.isfinite(count):
            raise InvalidParameter(f"count must be finite, got count={count}")
        return tuple(item for item in self.items if item.count >= count)

    def certain_ranks(self, k: int) -> int:
        """Return how many of the first ``k`` are certain: their intervals lie above those of all other names."""
        return certain_ranks([item.interval for item in self.items], k, self.listing_threshold)

    def count(self, name: str | bytes | int) -> Estimate:
        """Return the number of events of ``name``, listed or not."""
        return self.points.count(name, self.claim)

    def to_json(self, level: float = _LEVEL) -> dict[str, Any]:
        """Return plain JSON values, with the list of names."""
        return {
            **Estimate.to_json(self, level),
            "items": [item.to_json() for item in self.items],
            "listing_threshold": self.listing_threshold,
        }

    def __str__(self) -> str:
        lines = [
            f"{item.name}: {format_number(item.count)} ± {format_number(item.standard_error)}" for item in self.items
        ]
        lines.append(
            f"({len(self.items)} names; expect at most 0.05 wrong names; names with at least "
            f"{format_number(self.listing_threshold)} events are listed with probability 95%)"
        )
        return "\n".join(lines)
