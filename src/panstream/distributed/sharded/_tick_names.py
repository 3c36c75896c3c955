"""Names of the parts of a tick of Kafka: they hold the tick's position, which does not count messages."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from typing import NamedTuple

_PATTERN = re.compile(r"(kafka:.*)@([0-9]+)#[0-9]+")


class TickName(NamedTuple):
    """The topic's producer, and the position after the tick."""

    producer: str
    position: int


def tick_names(producer: str, position: int, parts: int) -> list[str]:
    """Return the names of the parts of a tick.

    >>> tick_names("kafka:visits:panstream", 7, 2)
    ['kafka:visits:panstream@7#0', 'kafka:visits:panstream@7#1']
    """
    return [f"{producer}@{position}#{rank}" for rank in range(parts)]


def tick_of(name: str) -> TickName | None:
    """Return whose part a name is; None for files."""
    match = _PATTERN.fullmatch(name)
    return None if match is None else TickName(match[1], int(match[2]))


def is_recorded(name: str, applied: Mapping[str, int], recorded: Container[str]) -> bool:
    """Return whether a coordinator that has recorded these partitions and positions will not read ``name`` again."""
    tick = tick_of(name)
    return name in recorded if tick is None else applied.get(tick.producer, -1) >= tick.position
