"""Windows between which the planner may choose for a query, and what it chose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from panstream.errors import ConfigError

_BY_WINDOW = ("expected", "target_error", "contributions")  # can be lists, too: one value for each window


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowChoice:
    """What became of one query when a person's budget was divided.

    Attributes:
        name: The query.
        window: Seconds of the window that it got; None if it was dropped, or has no window.
        dropped: Whether it is not asked.
        reasons: Why not in each of the windows before it, or in any.
    """

    name: str
    window: float | None
    dropped: bool = False
    reasons: tuple[str, ...] = ()


def candidate_tables(label: str, table: Any) -> list[Any]:
    """Return the tables of one query, one for each window that it may take; raise ConfigError if lists do not fit."""
    if not isinstance(table, dict):
        return [table]
    listed = {key: table[key] for key in ("window", *_BY_WINDOW) if isinstance(table.get(key), list)}
    if not listed:
        return [table]
    windows = listed.get("window", [])
    if not windows:
        raise ConfigError(
            f"{label}: {min(listed)} is a list, so window must be a list, too, of the windows it may take"
        )
    if table.get("epsilon") is not None:
        raise ConfigError(
            f"{label}: window is a list from which the planner of a person's budget chooses: leave out epsilon, or "
            "give one window"
        )
    for key, values in listed.items():
        if len(values) != len(windows):
            raise ConfigError(f"{label}: {key} must have one entry for each of the {len(windows)} windows")
    return [{**table, **{key: values[index] for key, values in listed.items()}} for index in range(len(windows))]
