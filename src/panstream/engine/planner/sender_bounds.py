"""Queries whose rows are bounded by the person's own sender: what they need, and what their claims assume."""

from __future__ import annotations

from collections.abc import Iterable

from panstream.engine.config.config import Config, QueryConfig, StreamConfig
from panstream.errors import ConfigError, InvalidParameter
from panstream.primitives.durations import format_duration
from panstream.primitives.sender_counts import COLUMN, ROW


def check_sender_bound(query: QueryConfig, stream: StreamConfig) -> None:
    """Raise InvalidParameter if senders cannot bound the rows of a query."""
    if query.bounded_by != "sender":
        return
    option = 'bounded_by = "sender"'
    if query.parsed.aggregate.of_users:
        raise InvalidParameter(
            f"{option} is for counts and sums of rows; COUNT(DISTINCT user) and DENSITY need no bound"
        )
    if query.contributions is None:
        raise InvalidParameter(f"{option} needs contributions, the most rows of one sender in a window")
    if query.window is None or query.window != int(query.window) or query.calendar is not None:
        raise InvalidParameter(
            f"{option} needs window, a fixed length of whole seconds: senders count their rows window by window, and "
            "do not know the calendar of the stream's time zone"
        )
    if stream.columns.get(COLUMN) != "string":
        raise InvalidParameter(
            f'{option} reads in which windows a sender counts a row: declare {COLUMN} = "string" in [stream.columns]'
        )


def check_counter(config: Config) -> None:
    """Raise ConfigError if queries need browsers to count what they send, and the configuration does not ask for it."""
    for query in config.queries:
        if query.bounded_by == "sender" and config.web is not None and not config.web.counter:
            raise ConfigError(
                f'[[query]] {query.name}: bounded_by = "sender" needs [web] counter = true: browsers then store counts'
            )
        if query.counter != ROW and config.web is None:
            raise ConfigError(f"[[query]] {query.name}: counter is for beacons, whose kinds browsers count apart")


def limits_users(query: QueryConfig) -> bool:
    """Return whether the rows of one user are limited to ``contributions`` in every batch."""
    return query.contributions is not None and query.bounded_by != "sender"


def sender_assumption(query: QueryConfig) -> str:
    """Return what a claim assumes whose rows are bounded by senders."""
    assert query.window is not None
    span = format_duration(query.window)
    return (
        f"the person's own sender numbers at most {query.contributions} rows in a window of {span} (a person with "
        "several senders, or whose sender lost what it had stored, counts as several people)"
    )


def sender_caps(queries: Iterable[QueryConfig]) -> dict[tuple[str, int], int]:
    """Return the most rows that a sender needs to number, by kind and seconds of the window."""
    caps: dict[tuple[str, int], int] = {}
    for query in queries:
        if query.bounded_by == "sender" and query.window is not None and query.contributions is not None:
            key = query.counter, int(query.window)
            caps[key] = max(query.contributions, caps.get(key, 0))
    return caps
