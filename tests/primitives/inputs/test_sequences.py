from __future__ import annotations

import enum

import pytest

from panstream.errors import InvalidBatch
from panstream.primitives.inputs import Strings, items
from panstream.primitives.inputs import _sequences as _arrays


class Shouting(str):
    """A str that lies about its length and its text."""

    __slots__ = ()

    def __len__(self) -> int:
        return 99

    def __str__(self) -> str:
        return super().upper()


class Padded(bytes):
    def __len__(self) -> int:
        return 99


class Number(enum.IntEnum):
    ONE = 1
    TWO = 2


def test_subclasses_count_as_what_they_hold(rows) -> None:
    assert rows(items([Shouting("ann"), "bob"])) == [b"ann", b"bob"]
    assert rows(items([Padded(b"ann"), b"bob"])) == [b"ann", b"bob"]
    assert rows(items([Number.TWO, 7, Number.ONE])) == [2, 7, 1]


@pytest.mark.parametrize("size", [4095, 4096, 4097, 8192, 10_001])
def test_many_rows_of_text_are_encoded_in_pieces(size, rows) -> None:
    texts = [f"{i}é" * (i % 3) for i in range(size)]
    batch = items(texts)
    assert rows(batch) == [text.encode() for text in texts]
    assert len(batch.parts) == 1


def test_one_long_row_does_not_blow_up_the_others(rows) -> None:
    texts = ["ann"] * 3000 + ["ü" * 3_000_000] + ["bob"] * 2000
    batch = items(texts)
    assert rows(batch) == [text.encode() for text in texts]
    assert sum(array.nbytes for array in batch.owned) < 7_000_000


def test_text_beyond_the_limit_of_numpy_is_refused(monkeypatch, rows) -> None:
    monkeypatch.setattr(_arrays, "_LONGEST", 100)
    monkeypatch.setattr(_arrays, "_CODE_POINTS", 100)
    assert rows(items(["x" * 99, "y"])) == [b"x" * 99, b"y"]
    with pytest.raises(InvalidBatch, match=r"^row 1: ids must be shorter than 100 characters$"):
        items(["x" * 99, "x" * 100, "y", "z" * 200])


def test_empty_strings_and_nulls_inside_survive(rows) -> None:
    for values in ([""], ["", ""], ["a\0", "\0", "\0\0b"]):
        assert rows(items(values)) == [value.encode() for value in values]
    for values in ([b""], [b"", b""], [b"a\0", b"\0", b"\0\0b"]):
        assert rows(items(values)) == values


def test_offsets_start_at_zero_and_end_with_the_data() -> None:
    (part,) = items(["ann", "Zürich"]).parts
    assert isinstance(part, Strings)
    assert part.offsets.tolist() == [0, 3, 10]
    assert part.data.size == 10
