"""What became of the rows that a client sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class DeliveryReport:
    """What the server has acknowledged as durable.

    Attributes:
        batches: Batches.
        rows: Rows.
        skipped: Rows that no query could use.
        late: Rows whose window was over.
        repeated: Batches that an earlier attempt had delivered, whose answer was lost; not in ``skipped`` and ``late``.
        uncertain: Batches that may or may not have been counted; not in ``batches`` and ``rows``.
    """

    batches: int = 0
    rows: int = 0
    skipped: int = 0
    late: int = 0
    repeated: int = 0
    uncertain: int = 0

    def add(self, answer: dict[str, Any]) -> None:
        """Add the server's answer to one batch."""
        self.batches += 1
        self.rows += answer["rows"]
        self.skipped += answer["skipped"]["count"]
        self.late += answer["late"]["count"]
        self.repeated += not answer["new"]
