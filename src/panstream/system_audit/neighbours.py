"""Neighbouring inputs: one event or one user added, removed, or changed to every kind of odd value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from panstream.engine.config import Config
from panstream.system_audit.table import Row, Table

__all__ = ["Neighbour", "Raw", "neighbours"]


@dataclass(frozen=True, slots=True)
class Raw:
    """A field as it stands in the file, where no value of the declared type would do.

    ``text`` is what CSV holds and ``json`` the JSON text; ``value`` is for typed formats, which have no odd text.
    """

    text: str
    json: str
    value: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """One changed input. ``length`` is how many rows it has more or less; ``line`` replaces the text of one row."""

    name: str
    rows: tuple[Row, ...]
    length: int = 0
    telling: bool = False  # enough to see whether a cluster's metadata depends on what was selected
    line: tuple[int, str] | None = None  # row number, and what becomes of its line: a name from ``LINES``


LINES = ("a field too many", "a field missing", "not text", "half a line")
_EMPTY = Raw("", "null")
_FAR = 400  # days


def neighbours(config: Config, table: Table, now: float) -> Iterator[Neighbour]:
    """Yield inputs that differ from the table in one event or in one user."""
    rows, stream = table.rows, config.stream
    place = len(rows) // 2
    victim = rows[place]
    yield Neighbour(name="event removed", rows=rows[:place] + rows[place + 1 :], length=-1, telling=True)
    yield Neighbour(name="event added", rows=(*rows[: place + 1], {**victim}, *rows[place + 1 :]), length=1)
    stranger = {**victim, stream.user: _stranger(table, stream.user)} if stream.user is not None else victim
    yield Neighbour(name="event of a newcomer added", rows=(*rows[: place + 1], stranger, *rows[place + 1 :]), length=1)
    if stream.user is not None:
        others = tuple(row for row in rows if row[stream.user] != victim[stream.user])
        yield Neighbour(name="user removed", rows=others, length=len(others) - len(rows))
        spoilt = tuple({**row, stream.user: _EMPTY} if row[stream.user] == victim[stream.user] else row for row in rows)
        yield Neighbour(name="user without a name", rows=spoilt)
    for column, kind in table.columns.items():
        # An odd value must not cost the row its time: the last row opens a slot alone. An odd time is tried elsewhere.
        where = place if column == stream.time else len(rows) - 1
        for what, odd in _odd(kind, column == stream.time, rows[where][column], now):
            changed = {**rows[where], column: odd}
            yield Neighbour(
                name=f"{column}: {what}",
                rows=(*rows[:where], changed, *rows[where + 1 :]),
                telling=what in ("unknown", "empty"),
            )
    for what in LINES:
        yield Neighbour(name=what, rows=rows, line=(place, what))


def _stranger(table: Table, user: str) -> Any:
    known = {row[user] for row in table.rows}
    sample = table.rows[0][user]
    if isinstance(sample, int):
        return next(number for number in range(10_000) if number not in known)
    return "somebody else"


def _odd(kind: str, is_time: bool, value: Any, now: float) -> Iterator[tuple[str, Any]]:
    yield "empty", _EMPTY
    if is_time:
        if isinstance(value, datetime):
            yield "late", value - timedelta(days=_FAR)
            yield "from the future", datetime(1970, 1, 1) + timedelta(seconds=now, days=_FAR)
        yield "no time", Raw("yesterday", '"yesterday"')
        return
    if kind == "int":
        yield "no number", Raw("seven", '"seven"')
        yield "too large for 64 bits", Raw("9" * 30, "9" * 30)
        yield "far outside", Raw("987654321987654321", "987654321987654321", 987654321987654321)
        yield "negative", Raw("-7", "-7", -7)
        yield "a fraction", Raw("1.5", "1.5")
    if kind == "double":
        yield "no number", Raw("seven", '"seven"')
        yield "NaN", Raw("nan", "NaN", float("nan"))
        yield "infinite", Raw("inf", "1e999", float("inf"))
        yield "far outside", Raw("1e300", "1e300", 1e300)
    if kind in ("string", "binary"):
        yield "unknown", Raw("never heard of", '"never heard of"', "never heard of")
        yield "quotes and a line break", Raw('"a ""b""\nc"', '"a \\"b\\"\\nc"', 'a "b"\nc')
        yield "a number", Raw("12", "12", "12")
        yield "long", Raw("x" * 5000, '"' + "x" * 5000 + '"', "x" * 5000)
    if kind in ("bool", "date", "timestamp"):
        yield "a word", Raw("maybe", '"maybe"')
        yield "a number", Raw("12345678901234567890", "12345678901234567890")
