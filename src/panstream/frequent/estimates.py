"""The answer to "which names, and how often": a list with intervals that hold together, and the count of any name."""

from __future__ import annotations

import base64
import math
import zlib
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from panstream import checks
from panstream.errors import InvalidParameter
from panstream.estimate import Estimate, figure
from panstream.frequent.rows import CountRows, ErrorLaw
from panstream.privacy.claim import Claim

__all__ = ["CountedName", "ItemEstimates", "PointCounts"]

_LEVEL = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedName:
    """A listed name and its count. All intervals of a list hold together, with 95%."""

    name: str
    count: float
    standard_error: float
    interval: tuple[float, float]

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "name": self.name,
            "count": self.count,
            "standard_error": self.standard_error,
            "interval": list(self.interval),
        }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PointCounts:
    """Released rows and what it takes to read them: the count of any name, any number of times, at no cost."""

    rows: CountRows
    law: ErrorLaw
    longest: int
    step: int
    seed: int

    def count(self, name: str | bytes | int, claim: Claim) -> Estimate:
        """Return how often ``name`` came; the interval is for this name alone."""
        from panstream._kernels.names import hash_names

        spelled = name if isinstance(name, bytes) else str(name).encode()
        hashes = np.empty(1, np.uint64)
        data = np.frombuffer(spelled or b"\0", np.uint8)
        offsets = np.array([0, len(spelled)])
        hash_names(offsets, data, self.longest, self.step, np.uint64(self.seed), hashes)
        found = self.rows.counts(hashes)
        value, error = float(found.values[0]), float(found.errors[0])

        def rule(level: float) -> tuple[float, float]:
            half = self.law.quantile(1 - level) * error
            return value - half, value + half

        return Estimate.clipped(
            value, (0.0, math.inf), standard_error=error, claim=claim, name="events with this name", rule=rule
        )

    def to_json(self) -> dict[str, Any]:
        """Return the rows, compressed, as a text of ASCII letters."""
        packed = zlib.compress(np.ascontiguousarray(self.rows.cells, "<i4").tobytes(), 6)
        return {
            "rows": base64.b85encode(packed).decode(),
            "shape": list(self.rows.cells.shape),
            "scale": self.rows.scale,
            "law": list(self.law.quantiles),
            "longest": self.longest,
            "step": self.step,
            "seed": f"{self.seed:016x}",
        }

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Self:
        """Return what :meth:`to_json` wrote."""
        flat: NDArray[np.int32] = np.frombuffer(zlib.decompress(base64.b85decode(stored["rows"])), "<i4")
        cells = np.ascontiguousarray(flat.reshape(stored["shape"]), np.int32)
        return cls(
            rows=CountRows(cells, stored["scale"]),
            law=ErrorLaw(tuple(stored["law"])),
            longest=stored["longest"],
            step=stored["step"],
            seed=int(stored["seed"], 16),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemEstimates(Estimate):
    """Names in the order of their counts. ``value`` is the number of events with a name, all names together.

    At most .05 of the listed names are expected to be wrong; a name with at least ``listed_from`` events is listed with
    95%. ``count(name)`` answers for any name, listed or not, as often as asked.
    """

    items: tuple[CountedName, ...]
    listed_from: float
    points: PointCounts = field(repr=False, compare=False)

    def top(self, k: int) -> tuple[CountedName, ...]:
        """Return the ``k`` names with the largest counts, or all if there are fewer."""
        checks.at_least(1, k=k)
        return self.items[:k]

    def at_least(self, count: float) -> tuple[CountedName, ...]:
        """Return the names whose estimated count is at least so large; below ``listed_from`` names may be missing."""
        if not math.isfinite(count):
            raise InvalidParameter(f"count must be finite, got count={count}")
        return tuple(item for item in self.items if item.count >= count)

    def ranks_sure(self, k: int) -> int:
        """Return how many of the first ``k`` surely belong there: their intervals lie above that of the next name."""
        if len(self.items) <= k:
            return 0
        bar = max(item.interval[1] for item in self.items[k:])
        bar = max(bar, self.listed_from)
        return sum(item.interval[0] > bar for item in self.items[:k])

    def count(self, name: str | bytes | int) -> Estimate:
        """Return how often ``name`` came, listed or not."""
        return self.points.count(name, self.claim)

    def to_json(self, level: float = _LEVEL) -> dict[str, Any]:
        """Return plain JSON values, with the list."""
        return {
            **Estimate.to_json(self, level),
            "items": [item.to_json() for item in self.items],
            "listed_from": self.listed_from,
        }

    def __str__(self) -> str:
        lines = [f"{item.name}: {figure(item.count)} ± {figure(item.standard_error)}" for item in self.items]
        lines.append(
            f"({len(self.items)} names; at most 0.05 wrong ones expected; names with at least "
            f"{figure(self.listed_from)} events are listed with 95%)"
        )
        return "\n".join(lines)
