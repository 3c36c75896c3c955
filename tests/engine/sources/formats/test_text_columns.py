"""Text to columns: what pyarrow's casts accept, with the values they give, one row at a time."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from panstream.engine.sources.formats.text_columns import parse
from tests.engine.runtime import by_halves

SEEDS = {
    "int": [
        "12", "-7", "0x1F", "9223372036854775807", "-9223372036854775808", "9223372036854775808", " 5\t", "000", "-0",
        "0xFFFFFFFFFFFFFFFF", "00000000000000000000000012",
    ],
    "double": [
        "1.5", "-2e10", "1e-5", "+.5", "5.", "1e400", "1e-400", "12345678901234567890.123", "0.1", "3.141592653589793",
        "1e22", "1e23", "9007199254740993", "inf", "nan", "  7 ", "1.7976931348623157e308", "123456789e-30", "-0.0",
        "4.9e-324", "0.30000000000000004", "1e99999999999999999999",
    ],
    "timestamp": [
        "2024-03-01", "2024-03-01 12:34:56", "2024-02-29T01:02:03.123456Z", "1960-01-01T00:00:00.1234567",
        "2024-03-01T12:00+0230", "2024-03-01T12:00-02:30", "2024-03-01T12+02", "1677-09-21T00:12:43.145224193",
        "2262-04-11T23:47:16.854775807Z", "9999-12-31T23:59:59.999999", "0000-01-01", "2023-12-31 23:59",
    ],
    "date": ["2024-03-01", "2024-02-29", " 2023-02-28 ", "0000-01-01", "9999-12-31", "1900-02-29", "2000-02-29"],
    "bool": ["true", "0", "FALSE", "1"],
    "string": ["abc", "é", "漢字", "\U0001f600", "\x7f"],
    "binary": ["abc", "é"],
}  # fmt: skip
LETTERS = b"0123456789-+.eExX:TZ \tafAF/,\xff\xc3\xa9\xed\xa0\x80\xf4\x90\xe0\xc0"


def mutated(seed: str, chance: random.Random) -> bytes:
    text = bytearray(seed.encode())
    for _ in range(chance.choice([0, 1, 1, 1, 2, 3])):
        place = chance.randrange(len(text) + 1)
        way = chance.random()
        if way < 0.4 and place < len(text):
            text[place] = chance.choice(LETTERS)
        elif way < 0.7:
            text.insert(place, chance.choice(LETTERS))
        else:
            del text[place : place + 1]
    return bytes(text)


@pytest.mark.slow
@pytest.mark.parametrize("kind", SEEDS)
@pytest.mark.parametrize("form", [pa.binary(), pa.large_binary(), pa.binary_view()], ids=str)
def test_the_language_is_pyarrows(kind: str, form: pa.DataType) -> None:
    """5,000 cells that are nearly right, nulls among them, in the middle of a longer array."""
    chance = random.Random(f"{kind} {form}")
    cells = [None if chance.random() < 0.02 else mutated(chance.choice(SEEDS[kind]), chance) for _ in range(5000)]
    array = pa.array([b"x", *cells, b"y"], form).slice(1, len(cells))
    expected, failed = by_halves.parse(pa.array(cells, pa.binary()), kind)
    good = np.ones(len(cells), bool)
    good[failed] = False
    if kind == "double":
        numbers = np.frombuffer(expected.buffers()[1], np.float64, len(cells))
        good &= np.isfinite(np.where(expected.is_valid().to_numpy(zero_copy_only=False), numbers, 0.0))
    found, bad = parse(array, kind)
    ours = np.ones(len(cells), bool) if bad is None else ~bad
    assert [cells[i] for i in np.flatnonzero(good != ours)] == []
    assert found.type == expected.type
    mask = pa.array(good)
    assert found.filter(mask).equals(expected.filter(mask))
    assert not found.filter(pa.array(~good)).is_valid().to_numpy(zero_copy_only=False).any()


def test_doubles_are_the_nearest() -> None:
    """Against Python's reading, which is exact, at every length and exponent."""
    chance = random.Random(3)
    cells = []
    for _ in range(20_000):
        digits = "".join(chance.choices("0123456789", k=chance.randrange(1, 25)))
        point = chance.randrange(len(digits) + 1)
        power = f"e{chance.randrange(-330, 320)}" if chance.random() < 0.7 else ""
        cells.append(f"{digits[:point]}.{digits[point:]}{power}")
    found, bad = parse(pa.array([cell.encode() for cell in cells], pa.binary()), "double")
    for number, (cell, value) in enumerate(zip(cells, found.to_pylist(), strict=True)):
        exact = float(cell)
        assert value == (exact if np.isfinite(exact) else None), cell
        assert (bad is not None and bool(bad[number])) == (not np.isfinite(exact))


def test_days_are_those_of_the_calendar() -> None:
    days = np.arange("0000-01-01", "9999-12-31", 37, dtype="datetime64[D]")
    found, bad = parse(pa.array([str(day).encode() for day in days], pa.binary()), "date")
    assert bad is None
    assert np.array_equal(np.frombuffer(found.buffers()[1], np.int32, len(days)), days.astype(np.int64))
