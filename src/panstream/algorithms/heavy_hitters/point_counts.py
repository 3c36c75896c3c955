"""Released rows as they are stored, and the count of any name that they give."""

from __future__ import annotations

import json
import math
import zlib
from dataclasses import dataclass
from typing import Self

import numpy as np

from panstream.algorithms.heavy_hitters.count_rows import CountRows, ErrorQuantiles
from panstream.core.estimate import Estimate
from panstream.errors import InvalidBytes
from panstream.privacy.claim import Claim


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PointCounts:
    """Released rows and what it takes to read them: the count of any name, any number of times, at no cost."""

    rows: CountRows
    law: ErrorQuantiles
    max_item_bytes: int
    step: int
    seed: int

    def count(self, name: str | bytes | int, claim: Claim) -> Estimate:
        """Return how often ``name`` came; the interval is for this name alone."""
        from panstream.primitives.kernels.algorithms.prefix_tables import hash_names

        spelled = name if isinstance(name, bytes) else str(name).encode()
        hashes = np.empty(1, np.uint64)
        data = np.frombuffer(spelled or b"\0", np.uint8)
        offsets = np.array([0, len(spelled)])
        hash_names(offsets, data, self.max_item_bytes, self.step, np.uint64(self.seed), hashes)
        counts = self.rows.counts(hashes)
        value = float(counts.values[0])
        error = float(counts.errors[0])

        def rule(level: float) -> tuple[float, float]:
            half = self.law.quantile(1 - level) * error
            return value - half, value + half

        return Estimate.clipped(
            value, (0.0, math.inf), standard_error=error, claim=claim, name="events with this name", interval_rule=rule
        )

    def shown(self, name: str) -> str:
        """Return what is counted under a name: itself, or what it shares with all that begin like it."""
        spelled = name.encode()
        return (
            name
            if len(spelled) <= self.max_item_bytes
            else spelled[: self.max_item_bytes].decode(errors="ignore") + "…"
        )

    def to_bytes(self) -> bytes:
        """Return a line of JSON and the rows, compressed."""
        cells = np.ascontiguousarray(self.rows.cells, "<i4")
        unsigned = (cells << 1) ^ (cells >> 31)  # small numbers of either sign have few bits, and planes of bytes are 0
        planes = np.ascontiguousarray(unsigned.view(np.uint8).reshape(-1, 4).T)
        head = {
            "shape": list(cells.shape),
            "scale": self.rows.scale,
            "law": list(self.law.quantiles),
            "max_item_bytes": self.max_item_bytes,
            "step": self.step,
            "seed": f"{self.seed:016x}",
        }
        return json.dumps(head).encode() + b"\n" + zlib.compress(planes.tobytes(), 6)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Return what `to_bytes` wrote."""
        try:
            first, _, packed = data.partition(b"\n")
            head = json.loads(first)
            rows, width = head["shape"]
            planes = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(4, rows * width)
            unsigned = np.ascontiguousarray(planes.T).view("<u4").reshape(rows, width)
            cells = (unsigned >> 1).astype(np.int32) ^ -(unsigned & 1).astype(np.int32)
            return cls(
                rows=CountRows(cells, float(head["scale"])),
                law=ErrorQuantiles(tuple(map(float, head["law"]))),
                max_item_bytes=int(head["max_item_bytes"]),
                step=int(head["step"]),
                seed=int(head["seed"], 16),
            )
        except (KeyError, TypeError, ValueError, zlib.error):
            raise InvalidBytes("this is not a table of counts") from None
