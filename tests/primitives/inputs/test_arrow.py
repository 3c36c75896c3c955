from __future__ import annotations

import sys
import uuid

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from panstream.errors import InvalidBatch, MissingExtra
from panstream.primitives.inputs import Dictionary, Strings, items

TEXTS = ["ann", "", "bob", "a much longer identifier", "Zürich"]


def memory(buffer: pa.Buffer) -> np.ndarray:
    return np.frombuffer(buffer, np.uint8)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
@pytest.mark.parametrize("cut", [slice(0, None), slice(1, None), slice(2, 4)])
def test_string_buffers_are_looked_at_in_place(kind, cut) -> None:
    array = pa.array([text.encode() for text in TEXTS], kind)
    batch = items(array[cut])
    (part,) = batch.parts
    assert isinstance(part, Strings)
    assert np.shares_memory(part.offsets, memory(array.buffers()[1]))
    assert np.shares_memory(part.data, memory(array.buffers()[2]))
    assert batch.owned == ()


def test_a_pandas_text_column_is_looked_at_in_place() -> None:
    series = pd.Series(TEXTS)
    batch = items(series)
    buffers = series.array.__arrow_array__().chunk(0).buffers()
    assert np.shares_memory(batch.parts[0].data, memory(buffers[2]))
    assert batch.owned == ()


def test_fixed_width_bytes_are_looked_at_in_place(rows) -> None:
    array = pa.array([b"abcd", b"efgh", b"ijkl"], pa.binary(4))
    batch = items(array[1:])
    assert rows(batch) == [b"efgh", b"ijkl"]
    assert np.shares_memory(batch.parts[0].data, memory(array.buffers()[1]))
    assert rows(items(pa.array([b"", b""], pa.binary(0)))) == [b"", b""]


@pytest.mark.parametrize("codes", [pa.int32(), pa.uint32(), pa.int64(), pa.uint64()])
def test_dictionary_codes_are_looked_at_in_place(codes, rows) -> None:
    array = pa.DictionaryArray.from_arrays(pa.array([1, 0, 1], codes), pa.array(["ann", "bob"]))
    batch = items(array)
    (part,) = batch.parts
    assert isinstance(part, Dictionary)
    assert part.codes.dtype == (np.int32 if codes.bit_width == 32 else np.int64)
    assert np.shares_memory(part.codes, memory(array.indices.buffers()[1]))
    assert np.shares_memory(part.values.data, memory(array.dictionary.buffers()[2]))
    assert rows(batch) == [b"bob", b"ann", b"bob"]
    assert batch.owned == ()


def test_chunks_with_different_dictionaries_stay_apart(rows) -> None:
    chunks = [pa.array(["ann", "bob"]).dictionary_encode(), pa.array(["cy", "ann"]).dictionary_encode()]
    batch = items(pa.chunked_array(chunks))
    assert len(batch.parts) == 2
    assert rows(batch) == [b"ann", b"bob", b"cy", b"ann"]
    assert [start for start, _ in batch.spans()] == [0, 2]


def test_an_unused_null_entry_is_no_row(rows) -> None:
    array = pa.DictionaryArray.from_arrays(pa.array([2, 0]), pa.array(["ann", None, "bob"]))
    assert rows(items(array)) == [b"bob", b"ann"]


def test_uuids_are_ids(rows) -> None:
    identifiers = [uuid.UUID(int=i) for i in (1, 2**100, 3)]
    array = pa.array([identifier.bytes for identifier in identifiers], pa.uuid())
    assert rows(items(array[1:])) == [identifier.bytes for identifier in identifiers[1:]]


def test_strings_whose_offsets_are_unaligned_are_copied(rows) -> None:
    offsets = pa.py_buffer(b"\0" + np.array([0, 3, 6], np.int32).tobytes()).slice(1)
    array = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"annbob")])
    batch = items(array)
    assert rows(batch) == [b"ann", b"bob"]
    assert batch.parts[0].offsets.flags.aligned


def forged(kind: pa.DataType, rows: int, table: bytes, *buffers: bytes) -> pa.Array:
    """An array whose offsets or views are put in behind the back of pyarrow's own checks."""
    memory = bytearray(len(table))
    array = pa.Array.from_buffers(kind, rows, [None, *map(pa.py_buffer, [memory, *buffers])])
    memory[:] = table
    return array


def view(length: int, buffer: int, start: int) -> bytes:
    return np.array([length, 0, buffer, start], np.int32).tobytes()


SHORT = view(2, 0, 0)
BROKEN = {
    "offset past the end": (forged(pa.string(), 2, np.array([0, 1, 9], np.int32).tobytes(), b"abc"), 1),
    "offset backward": (forged(pa.string(), 3, np.array([0, 2, 1, 3], np.int32).tobytes(), b"abc"), 1),
    "offset negative": (forged(pa.large_string(), 2, np.array([-4, 1, 2], np.int64).tobytes(), b"abc"), 0),
    "view past the end": (forged(pa.string_view(), 2, SHORT + view(20, 0, 5), b"x" * 24), 1),
    "view of no buffer": (forged(pa.string_view(), 2, SHORT + view(20, 1, 0), b"x" * 24), 1),
    "view of a negative buffer": (forged(pa.string_view(), 2, SHORT + view(20, -1, 0), b"x" * 24), 1),
    "view before the start": (forged(pa.string_view(), 1, view(20, 0, -1), b"x" * 24), 0),
    "view of negative length": (forged(pa.string_view(), 1, view(-1, 0, 0), b"x" * 24), 0),
    "code past the end": (
        pa.DictionaryArray.from_arrays(pa.array([0, 2]), pa.array(["a", "b"]), safe=False),
        1,
    ),
    "code negative": (pa.DictionaryArray.from_arrays(pa.array([0, -1]), pa.array(["a", "b"]), safe=False), 1),
    "code of nothing": (
        pa.DictionaryArray.from_arrays(pa.array([0]), pa.array([], pa.string()), safe=False),
        0,
    ),
}


@pytest.mark.parametrize(("array", "row"), BROKEN.values(), ids=BROKEN.keys())
def test_damaged_arrays_are_refused_rather_than_read_past_the_end(array, row) -> None:
    with pytest.raises(InvalidBatch, match=" within the ") as caught:
        items(array)
    assert caught.value.row == row


def test_views_that_share_and_cross_buffers(rows) -> None:
    """Arrow lets views overlap, repeat and jump between buffers in any order."""
    first = b"0123456789abcdefghij"
    second = b"ABCDEFGHIJKLMNOPQRST"
    table = view(13, 1, 0) + view(20, 0, 0) + view(13, 1, 7) + view(13, 0, 7)
    array = forged(pa.binary_view(), 4, table, first, second)
    assert rows(items(array)) == [second[:13], first, second[7:], first[7:]]
    assert rows(items(array[2:])) == [second[7:], first[7:]]


def test_an_exporter_that_pyarrow_cannot_import_is_asked_for_its_own_conversion(rows) -> None:
    class Older:
        def __arrow_c_stream__(self, requested_schema=None):
            raise NotImplementedError

        def to_arrow(self):
            return pa.array(TEXTS)

    assert rows(items(Older())) == [text.encode() for text in TEXTS]


class TestWithoutPyarrow:
    @pytest.fixture(autouse=True)
    def no_pyarrow(self, monkeypatch) -> None:
        monkeypatch.setitem(sys.modules, "pyarrow", None)

    @pytest.mark.parametrize(
        "data",
        [pa.array([1]), pa.chunked_array([["a"]]), pl.Series(["a"]), pl.Series([1]), pd.Series(["a"], dtype="str")],
        ids=["array", "chunked", "polars text", "polars integers", "pandas text"],
    )
    def test_arrow_input_names_the_extra(self, data) -> None:
        with pytest.raises(MissingExtra, match=r"^Arrow input needs .* -m pip install 'pyarrow.*'$") as caught:
            items(data)
        assert caught.value.extra == "arrow"
        assert caught.value.__context__ is None

    def test_python_numpy_and_plain_pandas_work(self, rows) -> None:
        for data in ([1, 2], np.array([1, 2]), pd.Series([1, 2]), pd.Series([1, 2], dtype="Int64"), pd.Index([1, 2])):
            assert rows(items(data)) == [1, 2]
        for dtype in (object, "string[python]"):
            assert rows(items(pd.Series(["ann", "bob"], dtype=dtype))) == [b"ann", b"bob"]
        assert rows(items(pd.Categorical([3, 1, 3]))) == [3, 1, 3]
