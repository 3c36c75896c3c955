"""Which rows a state can have seen, as its answers say it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Coverage:
    """Which rows a state can have seen: those that came ``since`` its query was added to a stream that had begun, but
    for ``gaps`` in which the configuration did not name the query. Times are those of starts, as rows are not.
    """

    since: str | None = None  # None: from the beginning of the stream
    gaps: tuple[tuple[str, str], ...] = ()

    def labels(self, window: Sequence[str] | None) -> dict[str, Any]:
        """Return what an answer must say, of all data or of one window: nothing if it has seen all of it."""
        begin = "" if window is None else window[0]
        labels: dict[str, Any] = {}
        if self.since is not None and self.since > begin:
            labels["since"] = self.since
        gaps = [list(gap) for gap in self.gaps if gap[1] > begin and (window is None or gap[0] < window[1])]
        return {**labels, "gaps": gaps} if gaps else labels


ALL_DATA = Coverage()
