"""Generate inputs that differ in all rows of one person over a period of several windows.

Where the person's own sender bounds her rows, there are two more: what she sends beyond that bound must change nothing,
not even before noise is added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from panstream.audit.product._neighbouring_inputs import Neighbour, Row, new_user, sender_entry
from panstream.audit.product._sending_client import MOST
from panstream.engine.config.config import Config
from panstream.primitives.sender_counts import COLUMN

_Change = Callable[[Row], Row]

_PARTS = 3  # windows in which the person has rows
_USUAL_ROWS = 3  # of a person in a window, where nothing bounds them
_BEYOND = 4  # rows in a window that are more than the person's sender may number


def person_neighbours(config: Config, rows: Sequence[Row], now: float) -> Iterator[Neighbour]:
    """Yield inputs in which one person comes in several windows, or in which all that she did was something else."""
    most = min((query.contributions for query in config.queries if query.contributions), default=_USUAL_ROWS)
    added = _with_person(config, rows, [[_numbered(config, now, number) for number in range(1, most + 1)]] * _PARTS)
    yield replace(added, name=f"person with {most} rows in each of {_PARTS} windows", is_informative=True)
    user = config.stream.user
    victim = None if user is None else rows[len(rows) // 2][user]
    fixed = {user, config.stream.time, config.stream.weight}
    other = rows[-1]
    changed = tuple(
        {name: value if name in fixed else other[name] for name, value in row.items()}
        if (row[user] == victim if user is not None else number % 13 == 0)
        else row
        for number, row in enumerate(rows)
    )
    yield Neighbour(name="all rows of a person changed", rows=changed)


def beyond_bounds(config: Config, rows: Sequence[Row], now: float) -> tuple[Neighbour, Neighbour] | None:
    """Return a person whose sender keeps to its bound, and one with more rows; None if no sender bounds any rows."""
    bounded = [query for query in config.queries if query.bounded_by == "sender" and query.contributions]
    if not bounded:
        return None
    most = max(query.contributions or 0 for query in bounded)
    allowed = [_numbered(config, now, number) for number in range(1, most + 1)]
    # Numbers above the bound, and those of a sender whose clock is in another window.
    beyond = [_numbered(config, now, most + number) for number in range(1, _BEYOND + 1)]
    elsewhere = [_numbered(config, now, number, shift=2) for number in range(1, most + 1)]
    honest = _with_person(config, rows, [allowed] * _PARTS)
    liar = _with_person(config, rows, [[*allowed, *beyond, *elsewhere]] * _PARTS)
    return replace(honest, name="person within her sender's bound"), replace(
        liar, name="person beyond her sender's bound"
    )


def beyond_clients_bounds(config: Config, rows: Sequence[Row]) -> tuple[Neighbour, Neighbour] | None:
    """Return the rows of one person whose client numbers them, in three windows: as many as it may, and more.

    None unless senders bound rows, by the time of arrival, since clients number rows by their own clock.
    """
    if config.stream.time is not None or all(query.bounded_by != "sender" for query in config.queries):
        return None

    def sent(count: int) -> Neighbour:
        cuts = tuple((number * count, number * count) for number in range(1, _PARTS))
        # Every part begins with the same rows, so that those that count are the same wherever a day ends. The last row
        # is a post of its own: it is in the last window, too.
        part = tuple(rows[number % len(rows)] for number in range(count))
        return Neighbour(name="", rows=part * _PARTS, cuts=cuts)

    return replace(sent(MOST), name="person within her client's bound"), replace(
        sent(MOST + _BEYOND), name="person beyond her client's bound"
    )


def beyond_a_files_bound(config: Config, rows: Sequence[Row], now: float) -> tuple[Neighbour, Neighbour] | None:
    """Return a file in which a person has as many rows as may count, and one with more; None if nothing bounds them."""
    most = min((query.contributions for query in config.queries if query.contributions), default=0)
    if not most or config.stream.user is None or any(query.bounded_by == "sender" for query in config.queries):
        return None
    counts = (most, most + _BEYOND)
    within, beyond = (
        _with_person(config, rows, [[_numbered(config, now, number) for number in range(count)], [], []])
        for count in counts
    )
    return replace(within, name="person within the file's bound"), replace(
        beyond, name="person beyond the file's bound"
    )


def _numbered(config: Config, now: float, number: int, *, shift: int = 0) -> _Change:
    """Return what makes a row one of the person's: a function of the row whose time it has."""

    def change(row: Row) -> Row:
        if COLUMN not in row:
            return row
        seconds = now if config.stream.time is None else _seconds(row[config.stream.time])
        return {**row, COLUMN: sender_entry(config, seconds, number, shift=shift)}

    return change


def _seconds(time: Any) -> float:
    if isinstance(time, int):
        return float(time)
    moment = time if isinstance(time, datetime) else datetime(time.year, time.month, time.day)
    return moment.replace(tzinfo=UTC).timestamp()


def _with_person(config: Config, rows: Sequence[Row], windows: Sequence[Sequence[_Change]]) -> Neighbour:
    """Return the rows with those of a newcomer after three of them that lie in different windows."""
    user = config.stream.user
    newcomer = {} if user is None else {user: new_user(rows, user)}
    result: list[Row] = []
    cuts: list[tuple[int, int]] = []
    places = [(2 * part + 1) * len(rows) // (2 * _PARTS + 1) for part in range(_PARTS)]
    for number, row in enumerate(rows):
        result.append(row)
        if number in places:
            for further, change in enumerate(windows[places.index(number)]):
                time = {name: row[name] for name in (config.stream.time,) if name is not None}
                result.append(change({**rows[(number + further) % len(rows)], **newcomer, **time}))
            cuts.append((number + 1, len(result)))
    return Neighbour(name="", rows=tuple(result), length=len(result) - len(rows), cuts=tuple(cuts))
