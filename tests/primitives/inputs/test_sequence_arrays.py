from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from panstream.errors import InvalidBatch
from panstream.primitives.inputs import items


def test_trailing_nulls_are_lost_as_numpy_loses_them(rows) -> None:
    assert rows(items(np.array([b"a\0", b"a", b"\0b"]))) == [b"a", b"a", b"\0b"]
    assert rows(items(np.array(["a\0", "a", "\0b"]))) == [b"a", b"a", b"\0b"]


def test_bytes_that_fill_their_width_are_looked_at_in_place(rows) -> None:
    array = np.array([b"abcd", b"efgh"])
    batch = items(array)
    assert rows(batch) == [b"abcd", b"efgh"]
    assert np.shares_memory(batch.parts[0].data, array)
    batch.wipe()
    assert array.tolist() == [b"abcd", b"efgh"]


@pytest.mark.parametrize("kind", ["S", "U"])
def test_width_zero(kind, rows) -> None:
    wide = np.zeros(3, [("empty", f"{kind}0"), ("rest", "i8")])
    assert wide["empty"].dtype.itemsize == 0
    assert rows(items(wide["empty"])) == [b"", b"", b""]


def test_a_number_beyond_unicode_is_refused() -> None:
    array = np.array([65, 0x110000], np.uint32).view("U1")
    with pytest.raises(InvalidBatch, match=r"^row 1: ids must be valid Unicode"):
        items(array)


@settings(max_examples=100, deadline=None)
@given(points=st.lists(st.integers(0, sys.maxunicode), min_size=1, max_size=20))
def test_utf8_is_what_python_makes_of_it(rows, points) -> None:
    texts = list(map(chr, points))
    surrogates = [row for row, text in enumerate(texts) if "\ud800" <= text <= "\udfff"]
    array = np.array(points, np.uint32).view("U1")
    for data in (texts, array):
        if surrogates:
            with pytest.raises(InvalidBatch) as caught:
                items(data)
            assert caught.value.row == surrogates[0]
        elif data is texts:
            assert rows(items(data)) == [text.encode() for text in texts]
        else:
            assert rows(items(data)) == [text.rstrip("\0").encode() for text in texts]


def test_every_boundary_of_utf8(rows) -> None:
    points = [1, 0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF]
    texts = [chr(a) + chr(b) for a in points for b in points]
    assert rows(items(texts)) == [text.encode() for text in texts]
    assert rows(items(np.array(texts))) == [text.encode() for text in texts]
