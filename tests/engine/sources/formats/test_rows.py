"""Micro-batches: boundaries by row count, numbers of bad rows, wiping, typed conversion."""

import datetime
import sys
import threading
from collections.abc import Generator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from panstream.engine.config.config import StreamConfig
from panstream.engine.rows.row_batch import RowBatch, RowSchema, arrow_type
from panstream.engine.rows.wiping import BorrowedMemory, wipe_array
from panstream.engine.sources import TableSource
from panstream.engine.sources import _read_ahead as _ahead
from panstream.engine.sources._read_ahead import read_ahead
from panstream.engine.sources.coalescer import Coalescer
from panstream.engine.sources.formats.arrow_columns import check_types, from_arrow
from panstream.engine.sources.formats.text_columns import columns_from_spans
from panstream.errors import BadRowError, InvalidParameter, MissingExtra, SourceError
from panstream.primitives.kernels.sources.csv_fields import copy_spans
from tests.engine.runtime.streams import good
from tests.waiting import PATIENCE

SCHEMA = RowSchema(columns={"n": "int"})


def piece_of(numbers: list[int | None]) -> RowBatch:
    """A piece in which ``None`` stands for a bad row."""
    codes = np.array([SCHEMA.type_error_code("n") if number is None else 0 for number in numbers], np.uint16)
    return RowBatch(columns=pa.record_batch({"n": pa.array(numbers, pa.int64())}), codes=codes)


# --- coalescing -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@given(
    st.lists(st.lists(st.booleans(), max_size=9), max_size=9),
    st.integers(1, 7),
    st.integers(0, 20),
)
def test_batches_depend_on_row_numbers_only(pieces: list[list[bool]], size: int, skip: int) -> None:
    """However the rows come in pieces: row i is i, goes into batch (i - skip) // size, and is reported as i + 1 if
    bad.
    """
    coalescer = Coalescer(SCHEMA, rows=size, producer="p", label="p", skip=skip)
    rows = [good for piece in pieces for good in piece]
    batches = []
    row = 0
    for piece in pieces:
        numbers = [row + position if good else None for position, good in enumerate(piece)]
        batches += list(coalescer.add(piece_of(numbers)))
        row += len(piece)
    batches += list(coalescer.flush())
    expected = [list(range(start, min(start + size, len(rows)))) for start in range(skip, len(rows), size)]
    assert [good(batch).column("n").to_pylist() for batch in batches] == [
        [row for row in span if rows[row]] for span in expected
    ]
    assert [[bad.row for bad in batch.bad_rows(SCHEMA)] for batch in batches] == [
        [row + 1 for row in span if not rows[row]] for span in expected
    ]
    assert [batch.sequence for batch in batches] == [span[-1] + 1 for span in expected]
    assert [batch.first_row - 1 for batch in batches] == [span[0] for span in expected]
    for batch in batches:
        numbers = list(batch.numbers(~batch.bad))
        assert numbers == [number + 1 for number in good(batch).column("n").to_pylist()]


def test_time_lets_a_batch_go() -> None:
    now = [0.0]
    coalescer = Coalescer(SCHEMA, rows=10, producer="p", label="p", seconds=0.02, clock=lambda: now[0])
    assert coalescer.remaining() is None
    assert list(coalescer.add(piece_of([1]))) == []
    now[0] = 0.015
    assert list(coalescer.add(piece_of([2]))) == []
    assert coalescer.remaining() == pytest.approx(0.005)
    now[0] = 0.03
    assert coalescer.remaining() == 0.0
    (batch,) = coalescer.flush()
    assert len(batch) == 2
    assert coalescer.remaining() is None


def test_stop_at_a_bad_row() -> None:
    schema = RowSchema(columns={"n": "int"}, on_bad_row="stop")
    coalescer = Coalescer(schema, rows=3, producer="p", label="visits.csv", skip=2)
    assert list(coalescer.add(piece_of([0, None]))) == []  # passed over, applied by an earlier run
    with pytest.raises(BadRowError, match=r"visits.csv, row 4: column n is not") as caught:
        list(coalescer.add(piece_of([2, None])))
    assert caught.value.row == 4


def test_pieces_of_different_encoding() -> None:
    schema = RowSchema(columns={"s": "string"})
    coalescer = Coalescer(schema, rows=100, producer="p", label="p")
    for words in (pa.array(["a", None]), pa.array(["b"]).dictionary_encode(), pa.array(["c"]).dictionary_encode()):
        list(coalescer.add(RowBatch(columns=pa.record_batch({"s": words}))))
    (batch,) = coalescer.flush()
    assert batch.columns.column("s").to_pylist() == ["a", None, "b", "c"]
    for words in (["a", "b"], ["c", None, "a"]):
        coded = pa.array(words).dictionary_encode()
        list(coalescer.add(RowBatch(columns=pa.record_batch({"s": coded}))))
    (batch,) = coalescer.flush()
    assert batch.columns.column("s").to_pylist() == ["a", "b", "c", None, "a"]


# --- reading ahead ----------------------------------------------------------------------------------------------------


def batch_of(number: int) -> RowBatch:
    return RowBatch(columns=pa.record_batch({"n": pa.array([number], pa.int64())}))


def value_of(batch: RowBatch | None) -> object:
    return None if batch is None else batch.columns.column("n")[0].as_py()


def test_reading_ahead() -> None:
    def read() -> Generator[RowBatch | None, None, None]:
        for number in range(50):
            yield batch_of(number)
            yield None  # nothing to read just then: only of interest to who waits

    assert [value_of(batch) for batch in read_ahead(read())] == list(range(50))


def test_reading_ahead_of_an_error() -> None:
    def failing() -> Generator[RowBatch | None, None, None]:
        yield batch_of(1)
        raise SourceError("damaged")

    ahead = read_ahead(failing())
    assert value_of(next(ahead)) == 1
    with pytest.raises(SourceError, match="damaged"):
        next(ahead)


def test_leaving_a_reader_that_is_ahead() -> None:
    """The thread ends and closes what it read from, and what it had read is overwritten."""
    batches = [batch_of(number + 1) for number in range(5)]
    threads = set(threading.enumerate())
    second = threading.Event()
    closed = threading.Event()

    def read() -> Generator[RowBatch | None, None, None]:
        try:
            yield batches[0]
            second.set()
            yield from batches[1:]
        finally:
            closed.set()

    ahead = read_ahead(read())
    first = next(ahead)
    assert second.wait(PATIENCE)
    ahead.close()
    assert set(threading.enumerate()) <= threads
    assert closed.is_set()
    assert value_of(first) == 1
    assert value_of(batches[1]) == 0  # was read, or about to be
    assert value_of(batches[-1]) == 5  # was never read


def test_leaving_a_reader_whose_input_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller does not wait for ever, and what the thread reads afterwards is overwritten."""
    monkeypatch.setattr(_ahead, "_JOIN_TIMEOUT", 0.01)
    blocked = threading.Event()
    released = threading.Event()
    closed = threading.Event()
    late = batch_of(7)

    def read() -> Generator[RowBatch | None, None, None]:
        try:
            yield batch_of(1)
            blocked.set()
            assert released.wait(PATIENCE)
            yield late
        finally:
            closed.set()

    ahead = read_ahead(read())
    next(ahead)
    assert blocked.wait(PATIENCE)
    ahead.close()
    assert not closed.is_set()
    released.set()
    assert closed.wait(PATIENCE)
    assert value_of(late) == 0


# --- wiping -----------------------------------------------------------------------------------------------------------

ROWS = {
    "int": [5, None, 7, 2**40, 9, 10, 11, 12, 13, 14],
    "double": [0.5, None, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5],
    "string": ["ab", "", None, "défg", "h", "ij", "k", "lm", "n", "op"],
    "binary": [b"ab", b"", None, b"\xff", b"h", b"ij", b"k", b"lm", b"n", b"op"],
    "bool": [True, None, True, True, True, True, True, True, True, True],
    "timestamp": [datetime.datetime(2024, 1, day) for day in range(1, 11)],
    "date": [datetime.date(2024, 1, day) for day in range(1, 11)],
}


@pytest.mark.parametrize("kind", ROWS)
@pytest.mark.parametrize(("start", "stop"), [(0, 10), (3, 7), (0, 8), (8, 10), (4, 4)])
def test_wiping_touches_its_own_rows_only(kind: str, start: int, stop: int) -> None:
    array = pa.concat_arrays([pa.array(ROWS[kind], arrow_type(kind)), pa.array(ROWS[kind], arrow_type(kind))])
    before = array.slice(0, start).to_pylist()
    after = array.slice(stop).to_pylist()
    data = np.frombuffer(array.buffers()[-1], np.uint8)
    wipe_array(array.slice(start, stop - start))
    assert array.slice(0, start).to_pylist() == before
    assert array.slice(stop).to_pylist() == after
    if kind in ("string", "binary"):
        offsets = np.frombuffer(array.buffers()[1], np.int32)
        assert not data[offsets[start] : offsets[stop]].any()
    elif kind != "bool":
        width = arrow_type(kind).bit_width // 8
        assert not data[start * width : stop * width].any()
    elif (start, stop) == (0, 8):
        assert data[0] == 0


def test_wiping_a_batch() -> None:
    columns = pa.concat_batches(
        [pa.record_batch({kind: pa.array(v, arrow_type(kind)) for kind, v in ROWS.items()})] * 2
    )
    views = [np.frombuffer(column.buffers()[-1], np.uint8) for column in columns.columns]
    RowBatch(columns=columns, borrowed=BorrowedMemory.of(columns.columns)).wipe()
    assert all(view.any() for view in views)
    batch = RowBatch(columns=columns)
    batch.wipe()
    assert not any(view[:-2].any() for view in views)
    wipe_array(pa.chunked_array([pa.array([1, 2])]))
    coded = pa.array(["a", "b", "a"]).dictionary_encode()
    wipe_array(coded)
    assert coded.to_pylist() == ["a", "a", "a"]  # the dictionary is shared, the codes are gone
    wipe_array(pa.array([[1], [2]]))
    wipe_array(pa.nulls(3))


def test_a_batch_shows_no_values() -> None:
    batch = RowBatch(columns=pa.record_batch({"n": [12345]}), producer="p", sequence=1)
    assert "12345" not in repr(batch)


# --- types ------------------------------------------------------------------------------------------------------------


def converted(kind: str, array: pa.Array, *, user: bool = False) -> tuple[list[object], list[int]]:
    schema = RowSchema(columns={"x": kind}, user="x" if user else None)
    check_types(pa.schema([("x", array.type)]), schema, "input")
    piece = from_arrow(pa.record_batch({"x": array}), schema, owned=False)
    assert len(piece) == len(array)
    bad = np.flatnonzero(piece.bad).tolist()
    return good(piece).column("x").to_pylist(), bad


NOON = datetime.datetime(2024, 3, 1, 12)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "array", "expected", "bad"),
    [
        ("int", pa.array([1, None, -3], pa.int8()), [1, None, -3], []),
        ("int", pa.array([1, 2**64 - 1, None], pa.uint64()), [1, None], [1]),
        ("int", pa.array([1.0, 1.5, None, float("nan"), float("inf"), 1e19, -2.0]), [1, None, -2], [1, 3, 4, 5]),
        ("int", pa.array([1, None], pa.decimal128(20, 0)), [1, None], []),
        ("int", pa.array(["1.0", "1.5"]).cast(pa.decimal128(5, 1)), [1], [1]),
        ("double", pa.array([1.5, None, float("nan"), float("-inf")]), [1.5, None], [2, 3]),
        ("double", pa.array([1.5, None], pa.float32()), [1.5, None], []),
        ("double", pa.array([1, 2**60 + 1, None]), [1.0, float(2**60), None], []),
        ("double", pa.array(["1.25"]).cast(pa.decimal128(5, 2)), [1.25], []),
        ("string", pa.array(["a", None], pa.large_string()), ["a", None], []),
        ("string", pa.array(["a", None], pa.string_view()), ["a", None], []),
        ("string", pa.array(["a", None, "b"]).dictionary_encode(), ["a", None, "b"], []),
        ("string", pa.array(["a", None, "b"], pa.large_string()).dictionary_encode(), ["a", None, "b"], []),
        ("string", pa.nulls(2), [None, None], []),
        ("binary", pa.array([b"\xff", None], pa.large_binary()), [b"\xff", None], []),
        ("binary", pa.array([b"ab"], pa.binary(2)), [b"ab"], []),
        ("binary", pa.array(["é"]), ["é".encode()], []),
        ("bool", pa.array([True, None]), [True, None], []),
        ("timestamp", pa.array([NOON, None], pa.timestamp("s")), [NOON, None], []),
        ("timestamp", pa.array([NOON], pa.timestamp("ns")), [NOON], []),
        ("timestamp", pa.array([NOON], pa.timestamp("us", "Europe/Paris")), [NOON], []),
        ("timestamp", pa.array([2**60, 0], pa.int64()).cast(pa.timestamp("s")), [datetime.datetime(1970, 1, 1)], [0]),
        ("timestamp", pa.array([NOON.date()]), [datetime.datetime(2024, 3, 1)], []),
        ("timestamp", pa.array(["2024-03-01T12:00:00Z", "x", None]), [NOON, None], [1]),
        ("date", pa.array([NOON.date(), None], pa.date64()), [NOON.date(), None], []),
        ("date", pa.array(["2024-03-01", "2024-02-30"]), [NOON.date()], [1]),
    ],
)
def test_arrow_types(kind: str, array: pa.Array, expected: list[object], bad: list[int]) -> None:
    assert converted(kind, array) == (expected, bad)


def test_user_ids() -> None:
    assert converted("int", pa.array([1, None, 2]), user=True) == ([1, 2], [1])
    assert converted("int", pa.array([2**64 - 1, None], pa.uint64()), user=True) == ([2**64 - 1], [1])
    assert converted("string", pa.array(["a", None, "b"]).dictionary_encode(), user=True) == (["a", "b"], [1])
    assert converted("int", pa.array([17850.0, float("nan"), None]), user=True) == ([17850], [1, 2])


def test_broken_letters() -> None:
    broken = pa.Array.from_buffers(
        pa.string(), 3, [None, pa.py_buffer(np.array([0, 1, 2, 3], np.int32)), pa.py_buffer(b"a\xffc")]
    )
    assert converted("string", broken) == (["a", "c"], [1])
    coded = pa.DictionaryArray.from_arrays(pa.array([2, 1, None, 0], pa.int32()), broken)
    assert converted("string", coded) == (["c", None, "a"], [1])
    with_null = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int32()), pa.array(["a", None]))
    assert converted("string", with_null) == (["a", None], [])


@pytest.mark.parametrize(
    ("kind", "array"),
    [
        ("int", pa.array(["1"])),
        ("int", pa.array([True])),
        ("bool", pa.array([1])),
        ("string", pa.array([1])),
        ("string", pa.array([b"a"])),
        ("timestamp", pa.array([1])),
        ("date", pa.array([NOON])),
        ("double", pa.array([[1.0]])),
    ],
)
def test_types_that_do_not_convert(kind: str, array: pa.Array) -> None:
    with pytest.raises(SourceError, match="'x' is declared"):
        converted(kind, array)


def test_missing_columns() -> None:
    with pytest.raises(SourceError, match="input has no column 'y'"):
        check_types(pa.schema([("x", pa.int64())]), RowSchema(columns={"y": "int"}), "input")


def from_text(cells: list[bytes | None], schema: RowSchema) -> RowBatch:
    """Return a column of cells that lie one behind the other, as readers of text find them."""
    data = np.frombuffer(b"".join(cell or b"" for cell in cells) or b"?", np.uint8).copy()
    stops = np.cumsum([[len(cell or b"") for cell in cells]], axis=1)
    starts = stops - [[len(cell or b"") for cell in cells]]
    present = np.array([[cell is not None for cell in cells]])

    def copy(column: int, offsets: Any, out: Any) -> None:
        copy_spans(data, starts[column], stops[column], offsets, out)

    return columns_from_spans(data, schema, np.zeros(len(cells), np.uint16), (starts, stops), present, copy)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("int", " 5\t", 5),
        ("int", "-7", -7),
        ("int", "9223372036854775807", 2**63 - 1),
        ("double", " 1e3", 1000.0),
        ("double", ".5", 0.5),
        ("double", "+5", 5.0),
        ("bool", "TRUE", True),
        ("bool", "0", False),
        ("timestamp", "2024-03-01 12:00", NOON),
        ("timestamp", "2024-03-01T12:00:00.000000999", NOON),
        ("timestamp", "2024-03-01T14:00:00+02:00", NOON),
        ("timestamp", "2024-03-01T12:00:00.000000001Z", NOON),
        ("timestamp", "2024-03-01", datetime.datetime(2024, 3, 1)),
        ("date", " 2024-03-01", NOON.date()),
        ("string", " é ", " é "),
        ("binary", "é", "é".encode()),
    ],
)
def test_text(kind: str, text: str, value: object) -> None:
    piece = from_text([text.encode(), None], RowSchema(columns={"x": kind}))
    assert piece.columns.column("x").to_pylist() == [value, None]
    assert not piece.bad.any()


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        ("int", ["", "abc", "1.0", "+5", "9223372036854775808", "1 2", "٣"]),
        ("double", ["", "abc", "nan", "inf", "-Infinity", "1e999", "1,5", "0x1p3"]),
        ("bool", ["", "yes", " true", "2", "tRue"]),
        ("timestamp", ["", "12:00", "2024-02-30", "2024-03-01 25:00", "01/02/2024", " 2024-03-01"]),
        ("date", ["", "2024-02-30", "2024-3-1", "2024-03-01 12:00"]),
        ("string", [b"\xff", b"a\xc3"]),
    ],
)
def test_text_that_does_not_fit(kind: str, texts: list[str | bytes]) -> None:
    encoded = [text if isinstance(text, bytes) else text.encode() for text in texts]
    fine = {"int": b"1", "double": b"1", "bool": b"1", "timestamp": b"2024-03-01", "date": b"2024-03-01"}.get(
        kind, b"a"
    )
    mixed = [cell for text in encoded for cell in (fine, text)]
    schema = RowSchema(columns={"x": kind})
    piece = from_text(mixed, schema)
    assert np.flatnonzero(piece.bad).tolist() == list(range(1, len(mixed), 2))
    assert good(piece).num_rows == len(texts)
    assert piece.columns.column("x").null_count == len(texts)
    assert piece.codes[1] == schema.type_error_code("x")


def test_schema_of_a_stream() -> None:
    stream = StreamConfig(name="s", columns={"a": "int", "b": "string", "c": "double"}, user="b", on_bad_row="stop")
    schema = RowSchema.of(stream, {"c", "b"})
    assert list(schema.columns) == ["b", "c"]
    assert schema.user == "b"
    assert schema.on_bad_row == "stop"
    assert RowSchema.of(stream).arrow().names == ["a", "b", "c"]
    assert RowSchema.of(stream, ["c"]).user is None
    assert list(RowSchema.of(stream, []).columns) == ["a"]  # rows are counted by some column
    with pytest.raises(InvalidParameter, match="'z' is not declared"):
        RowSchema.of(stream, ["z"])
    with pytest.raises(InvalidParameter, match="must be one of"):
        arrow_type("number")


def test_tables_are_left_alone() -> None:
    table = pa.table({"n": [1, None, 3, 4], "other": ["a", "b", "c", "d"]})
    source = TableSource(table, RowSchema(columns={"n": "int"}, user="n"), batch_rows=2)
    batches = []
    for batch in source.batches():
        assert batch is not None
        batches.append(good(batch).to_pydict())
        batch.wipe()
    assert batches == [{"n": [1]}, {"n": [3, 4]}]
    assert table.column("n").to_pylist() == [1, None, 3, 4]
    source.resume({"table": 2})
    assert [len(batch) for batch in source.batches() if batch is not None] == [2]
    source.acknowledge(None)
    assert source.progress() is None
    source.close()
    reader = pa.RecordBatchReader.from_batches(table.schema, table.to_batches())
    assert sum(len(batch) for batch in TableSource(reader, SCHEMA).batches() if batch) == 4


def test_missing_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "panstream.engine.arrow")
    with pytest.raises(MissingExtra, match="-m pip install 'duckdb"):
        __import__("panstream.engine.arrow")
