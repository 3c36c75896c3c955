"""Which rows a state can have seen, as its answers report it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Coverage:
    """The rows that a state can have seen.

    The times are those at which the engine was started, which are public, and not those of rows.

    Attributes:
        since: When the query was added to a running stream; None if it was there from the beginning.
        gaps: Periods in which the configuration did not name the query.
    """

    since: str | None = None
    gaps: tuple[tuple[str, str], ...] = ()

    def labels(self, window: Sequence[str] | None) -> dict[str, Any]:
        """Return the fields that mark an answer about a window, or all data, as incomplete; empty if it is complete."""
        begin = "" if window is None else window[0]
        labels: dict[str, Any] = {}
        if self.since is not None and self.since > begin:
            labels["since"] = self.since
        gaps = [list(gap) for gap in self.gaps if gap[1] > begin and (window is None or gap[0] < window[1])]
        return {**labels, "gaps": gaps} if gaps else labels


ALL_DATA = Coverage()
