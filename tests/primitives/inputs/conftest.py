from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from panstream.primitives.inputs import Dictionary, Integers, ItemBatch, Part, Strings


def part_rows(part: Part) -> list[Any]:
    if isinstance(part, Dictionary):
        values = part_rows(part.values)
        return [values[code] for code in part.codes.tolist()]
    if isinstance(part, Integers):
        assert part.values.dtype == np.int64
        return part.values.tolist()
    assert isinstance(part, Strings)
    bounds = part.offsets.tolist()
    return [bytes(part.data[a:b]) for a, b in itertools.pairwise(bounds)]


def item_rows(items: ItemBatch) -> list[Any]:
    """The batch as plain Python values: int, or bytes for strings."""
    rows = []
    for start, part in items.spans():
        assert start == len(rows)
        assert len(part) > 0
        rows += part_rows(part)
    assert len(items) == len(rows)
    return rows


def plain_rows(values: list[Any]) -> list[Any]:
    """What the canonical form of Python values should read as."""
    wrap = {int: lambda v: (v + 2**63) % 2**64 - 2**63, str: lambda v: v.encode(), bytes: lambda v: v}
    return [wrap[type(value)](value) for value in values]


@pytest.fixture(scope="session")
def rows() -> Callable[[ItemBatch], list[Any]]:
    return item_rows


@pytest.fixture(scope="session")
def plain() -> Callable[[list[Any]], list[Any]]:
    return plain_rows
