"""Group keys that are written as text, as on the command line, in the type of their key."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any

_TRUTH = {"true": True, "false": False}
_MONTH = len("2026-01")


class KeyText(str):
    """A group key as text whose type is known only when the expression that it belongs to is compiled."""

    __slots__ = ()


def parse_group_key(text: str, kind: str) -> Any:
    """Return a key of a column's type; raise ValueError if the text is none.

    >>> parse_group_key("-7", "int"), parse_group_key("TRUE", "bool"), parse_group_key("2026-03", "date")
    (-7, True, datetime.date(2026, 3, 1))
    >>> parse_group_key("2026-03-01T12:00:00+02:00", "timestamp")
    datetime.datetime(2026, 3, 1, 10, 0)
    """
    return _READ.get(kind, str)(text)


def _truth(text: str) -> bool:
    if text.lower() not in _TRUTH:
        raise ValueError
    return _TRUTH[text.lower()]


def _whole_month(text: str) -> str:
    return f"{text}-01" if len(text) == _MONTH and text[4] == "-" else text


def _date(text: str) -> date:
    return date.fromisoformat(_whole_month(text))


def _timestamp(text: str) -> datetime:
    time = datetime.fromisoformat(_whole_month(text))
    return time if time.tzinfo is None else time.astimezone(UTC).replace(tzinfo=None)


_READ: dict[str, Callable[[str], Any]] = {
    "int": int,
    "double": float,
    "bool": _truth,
    "date": _date,
    "timestamp": _timestamp,
}
