"""Released rows for point queries: the count of any name, and their stored form."""

from __future__ import annotations

import json
import math
import zlib
from dataclasses import dataclass
from typing import Self

import numpy as np

from panstream.algorithms.heavy_hitters.count_rows import CountRows, ErrorQuantiles
from panstream.core.estimate import Estimate, symmetric_interval
from panstream.errors import InvalidBytes
from panstream.privacy.claim import Claim


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PointCounts:
    """Released rows with the parameters to read them: the count of any name, any number of times, without loss."""

    rows: CountRows
    law: ErrorQuantiles
    max_item_bytes: int
    step: int
    seed: int
    repeats: int = 1

    def count(self, name: str | bytes | int, claim: Claim) -> Estimate:
        """Return the number of events of ``name``; the interval holds for this name, not for several together."""
        from panstream.primitives.kernels.algorithms.prefix_tables import hash_names

        encoded = name if isinstance(name, bytes) else str(name).encode()
        hashes = np.empty(1, np.uint64)
        data = np.frombuffer(encoded or b"\0", np.uint8)
        offsets = np.array([0, len(encoded)])
        hash_names(offsets, data, self.max_item_bytes, self.step, self.repeats, np.uint64(self.seed), hashes)
        counts = self.rows.counts(hashes)
        value = float(counts.values[0])
        error = float(counts.errors[0])
        return Estimate.clipped(
            value,
            (0.0, math.inf),
            standard_error=error,
            claim=claim,
            name="events with this name",
            interval_rule=symmetric_interval(value, lambda level: self.law.quantile(1 - level) * error),
        )

    def shown(self, name: str) -> str:
        """Return the name as it is counted: a long one is truncated, and shares its count with all that begin alike."""
        encoded = name.encode()
        if len(encoded) <= self.max_item_bytes:
            return name
        return encoded[: self.max_item_bytes].decode(errors="ignore") + "…"

    def to_bytes(self) -> bytes:
        """Return a line of JSON and the rows, compressed."""
        cells = np.ascontiguousarray(self.rows.cells, "<i4")
        # Zigzag: small numbers of either sign have few bits, so the planes of their high bytes are 0 and compress well.
        unsigned = (cells << 1) ^ (cells >> 31)
        planes = np.ascontiguousarray(unsigned.view(np.uint8).reshape(-1, 4).T)
        head = {
            "shape": list(cells.shape),
            "scale": self.rows.scale,
            "law": list(self.law.quantiles),
            "max_item_bytes": self.max_item_bytes,
            "step": self.step,
            "seed": f"{self.seed:016x}",
            **({"repeats": self.repeats} if self.repeats > 1 else {}),
        }
        return json.dumps(head).encode() + b"\n" + zlib.compress(planes.tobytes(), 6)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read what `to_bytes` wrote; raise InvalidBytes for anything else."""
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
                repeats=int(head.get("repeats", 1)),
            )
        except (KeyError, TypeError, ValueError, zlib.error):
            raise InvalidBytes("this is not a table of counts") from None
