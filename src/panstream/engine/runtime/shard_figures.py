"""What an engine knows of shards of its state on other machines."""

from __future__ import annotations


class WithoutShards:
    """Base of an engine; one with shards overrides these methods."""

    def gauges(self) -> list[tuple[str, str, float]]:
        """Return name, meaning and value of further public figures for metrics: none in one process."""
        return []

    def positions_ahead(self) -> dict[str, set[int]] | None:
        """Return later positions that some shards had reached when the engine was opened; None without shards."""
        return None
