"""CSV: the same rows as Python's csv module, whatever the block size; a bad row spoils no other."""

import csv
import datetime
import io
from collections.abc import Iterable

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from panstream.engine.rows.row_batch import RowBatch, RowSchema
from panstream.engine.sources.byte_streams import TextReader
from panstream.engine.sources.coalescer import Coalescer
from panstream.engine.sources.formats.csv import CsvParser, Dialect
from panstream.errors import BadRowError, InvalidParameter, SourceError
from tests.engine.runtime.streams import good


class Memory:
    """Bytes that come in steps."""

    was_cut = False

    def __init__(self, data: bytes, step: int = 1 << 30) -> None:
        self.data = io.BytesIO(data)
        self.step = step
        self.closed = False

    def readinto(self, view: memoryview, wait: float) -> int | None:
        return self.data.readinto(view[: self.step])

    def close(self) -> None:
        self.closed = True


def batches(
    text: str | bytes,
    columns: dict[str, str],
    *,
    user: str | None = None,
    rows: int = 1000,
    block: int = 1 << 20,
    record: int = 1 << 24,
    on_bad_row: str = "skip",
    dialect: Dialect | None = None,
) -> Iterable[RowBatch]:
    schema = RowSchema(columns=columns, user=user, on_bad_row=on_bad_row)  # type: ignore[arg-type]
    data = text if isinstance(text, bytes) else text.encode()
    parser = CsvParser(schema, label="visits.csv", dialect=dialect)
    coalescer = Coalescer(schema, rows=rows, producer="visits.csv", label="visits.csv")
    reader = TextReader(Memory(data), parser, coalescer, block_bytes=block, record_bytes=record)
    try:
        while not reader.ended:
            yield from reader.pump()
    finally:
        reader.close()


def read(
    text: str | bytes, columns: dict[str, str], **settings: object
) -> tuple[list[tuple[object, ...]], dict[int, str]]:
    """Return the good rows as tuples, and the reasons of the bad ones by number."""
    found = []
    bad = {}
    total = 0
    for batch in batches(text, columns, **settings):  # type: ignore[arg-type]
        found += list(zip(*(column.to_pylist() for column in good(batch).columns), strict=True))
        bad |= {fault.row: fault.reason for fault in batch.bad_rows(RowSchema(columns=columns))}
        assert good(batch).num_rows + int(batch.bad.sum()) == len(batch)
        total += len(batch)
    assert total == len(found) + len(bad)
    return found, bad


# --- the same as Python's csv -----------------------------------------------------------------------------------------

# A carriage return alone is a line end to pyarrow, as it once was on Macs, but Python's writer leaves it bare.
CELLS = st.text(st.sampled_from('ab ,"\n\r;é'), max_size=6).map(lambda cell: cell.replace("\r", "\r\n"))


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(CELLS, CELLS, CELLS), max_size=12),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    st.integers(8, 64),
    st.booleans(),
)
def test_quoted_cells(
    rows: list[tuple[str, str, str]], newline: str, quoting: int, block: int, last_newline: bool
) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator=newline, quoting=quoting)
    writer.writerow(["a", "x,y", "c"])
    writer.writerows(rows)
    whole = text.getvalue() if last_newline else text.getvalue().removesuffix(newline)
    expected = list(csv.reader(io.StringIO(whole, newline="")))[1:]
    found, bad = read(whole, {"c": "string", "a": "string"}, block=block)
    assert bad == {}
    assert [(c or "", a or "") for c, a in found] == [(row[2], row[0]) for row in expected if row]


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.sampled_from([b'"', b",", b"\n", b"\r\n", b"a", b"1", b'""', b',"', b'",', b"\xff", b"\r", b"x"]),
        max_size=40,
    ),
    st.integers(8, 40),
    st.sampled_from(['"', None]),
)
@example([b"a", b'"', b",", b'"', b"1", b"\n", b"x", b"\n"], 10, '"')
def test_rows_do_not_depend_on_blocks(parts: list[bytes], block: int, quote: str | None) -> None:
    """Any bytes at all: small blocks and one block give the same rows, good and bad, and nothing breaks."""
    text = b"a,b\n" + b"".join(parts)
    columns = {"a": "string", "b": "int"}
    dialect = Dialect(quote=quote)
    assert read(text, columns, block=block, dialect=dialect) == read(text, columns, dialect=dialect)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=12).filter(lambda line: not set(line) & set(b'\r\n"')))
def test_a_bad_line_spoils_no_other(line: bytes) -> None:
    text = b"a,n\nx,1\n" + line + b"\ny,2\n"
    found, bad = read(text, {"a": "string", "n": "int"}, user="a")
    assert found[0] == ("x", 1)
    assert found[-1] == ("y", 2)
    assert set(bad) <= {2}


# --- headers ----------------------------------------------------------------------------------------------------------


def test_columns_by_name() -> None:
    text = '\ufeff\r\n"b ""q""",skip,a\r\n1,x,u\r\n2,y,v\r\n'
    assert read(text, {"a": "string", 'b "q"': "int"}) == ([("u", 1), ("v", 2)], {})
    assert read("a,a,b\n1,2,3\n", {"b": "int"}) == ([(3,)], {})
    assert read("a,b\n", {"b": "int"}) == ([], {})
    assert read("a,b", {"b": "int"}) == ([], {})
    assert read("", {"b": "int"}) == ([], {})
    assert read("\n\n", {"b": "int"}) == ([], {})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x,y\n1,2\n", "does not name it"),
        ("secret-id,5\n1,2\n", "does not name it"),
        ("a,a\n1,2\n", "names it twice"),
        ("a;b\n1;2\n", "does not name it"),
        (b"\xff\xfea\x00,\x00b\x00\n\x00", "does not name it"),
        ('"a,b\n1,2\n', "does not name it"),
    ],
)
def test_headers_that_do_not_fit(text: str | bytes, words: str) -> None:
    with pytest.raises(SourceError, match=f"visits.csv: column 'a' is declared, but the first line {words}") as caught:
        read(text, {"a": "int"})
    assert "secret" not in str(caught.value)


def test_a_header_that_never_ends() -> None:
    with pytest.raises(SourceError, match="does not name it"):
        read('"' + "x" * 5000, {"a": "int"}, block=64, record=256)


# --- values -----------------------------------------------------------------------------------------------------------

ALL = {"s": "string", "i": "int", "d": "double", "b": "bool", "t": "timestamp", "day": "date", "raw": "binary"}
HEAD = ",".join(ALL) + "\n"
NOON = datetime.datetime(2024, 3, 1, 12)
GOOD = "x, 5 ,.5,true,2024-03-01 12:00:00,2024-03-01,é"
ROW = ("x", 5, 0.5, True, NOON, NOON.date(), "é".encode())


def test_types() -> None:
    assert read(HEAD + GOOD + "\n" + "," * 6 + "\n", ALL) == ([ROW, (None,) * 7], {})
    assert read('s,i\n"",1\n,2\n" ",3\n', {"s": "string", "i": "int"}) == ([("", 1), (None, 2), (" ", 3)], {})


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("x,secret,.5,true,2024-03-01,2024-03-01,r", "column i is not a whole number of 64 bits"),
        ("x,9223372036854775808,.5,true,2024-03-01,2024-03-01,r", "column i is not a whole number of 64 bits"),
        ('x,"",.5,true,2024-03-01,2024-03-01,r', "column i is not a whole number of 64 bits"),
        ("x,5,secret,true,2024-03-01,2024-03-01,r", "column d is not a finite number"),
        ("x,5,nan,true,2024-03-01,2024-03-01,r", "column d is not a finite number"),
        ("x,5,inf,true,2024-03-01,2024-03-01,r", "column d is not a finite number"),
        ("x,5,.5,secret,2024-03-01,2024-03-01,r", "column b is not true or false"),
        ("x,5,.5,true,secret,2024-03-01,r", "column t is not a time such as 2024-12-31 23:59:59"),
        ("x,5,.5,true,2024-03-01,2024-02-30,r", "column day is not a date such as 2024-12-31"),
        (",5,.5,true,2024-03-01,2024-03-01,r", "column s, the user, is missing"),
        ("x,5", "the row has too few or too many fields"),
        ("x,5,.5,true,2024-03-01,2024-03-01,r,secret", "the row has too few or too many fields"),
        (b"\xff,5,.5,true,2024-03-01,2024-03-01,r", "column s is not a string of valid UTF-8"),
        (b"\xff,5", "the row has too few or too many fields"),
        (b"x,5,.5,true,2024-03-01,2024-03-01,r,\xff", "the row has too few or too many fields"),
    ],
)
@pytest.mark.parametrize("rows", [1, 2, 1000])
def test_bad_rows(line: str | bytes, reason: str, rows: int) -> None:
    """In the middle of good rows, reported by number, never by content."""
    middle = line if isinstance(line, bytes) else line.encode()
    text = HEAD.encode() + b"\n".join([GOOD.encode(), b"", middle, GOOD.encode(), middle, middle, GOOD.encode(), b""])
    found, bad = read(text, ALL, user="s", rows=rows)
    assert found == [ROW] * 3
    assert bad == {2: reason, 4: reason, 5: reason}
    assert "secret" not in str(bad)
    with pytest.raises(BadRowError, match=r"visits.csv, row 2: ") as caught:
        read(text, ALL, user="s", rows=rows, on_bad_row="stop")
    assert caught.value.row == 2
    assert "secret" not in str(caught.value)
    assert caught.value.__context__ is None


def test_times_with_and_without_zone() -> None:
    columns = {"t": "timestamp"}
    zoned = "2024-03-01T14:00:00+02:00"
    plain = "2024-03-01 12:00"
    for times in ([zoned] * 3, [plain] * 3, [zoned, plain], [plain, "2024-03-01T12:00:00.000000001Z"]):
        assert read("\n".join(["t", *times]), columns) == ([(NOON,)] * len(times), {})
        assert read("\n".join(["t", *times]), columns, block=32) == ([(NOON,)] * len(times), {})
    mixed = read(f"t,s\n{zoned},a\n{plain},b\n", {"t": "timestamp", "s": "string"})  # read as text, nothing bad
    assert mixed == ([(NOON, "a"), (NOON, "b")], {})
    found, bad = read("t,i\n2024-03-01T12:00:00Z,1\n2024-03-01T12:00:00Z,x\n", {"t": "timestamp", "i": "int"})
    assert (found, set(bad)) == ([(NOON, 1)], {2})


# --- quotes that do not end -------------------------------------------------------------------------------------------


def test_a_quote_that_is_not_closed() -> None:
    """Its line is one bad row; what follows is read again."""
    text = 'a,n\nx,1\n"open,2\ny,3\nz,4\n'
    expected = (
        [("x", 1), ("y", 3), ("z", 4)],
        {2: "the record does not end: a quote is not closed, or it is too long"},
    )
    for block in (16, 1 << 20):
        assert read(text, {"a": "string", "n": "int"}, block=block) == expected
        assert read(text.removesuffix("\n"), {"a": "string", "n": "int"}, block=block) == expected


def test_a_record_that_is_too_long() -> None:
    text = 'a,n\nx,1\n"open,2\n' + "".join(f"y,{n}\n" for n in range(200))
    found, bad = read(text, {"a": "string", "n": "int"}, block=64, record=256)
    assert found == [("x", 1), *(("y", n) for n in range(200))]
    assert set(bad) == {2}
    found, bad = read("a,n\nx,1\n" + "z" * 5000 + ",2\ny,3\n", {"a": "string", "n": "int"}, block=64, record=256)
    assert found == [("x", 1), ("y", 3)]
    assert set(bad) == {2}
    found, bad = read("a,n\nx,1\n" + "z" * 5000, {"a": "string", "n": "int"}, block=64, record=256)
    assert found == [("x", 1)]
    assert set(bad) == {2}


def test_a_stray_quote_beside_an_open_one() -> None:
    """An even number of quotes, and yet the last newline is inside a field: the block must not end there."""
    text = 'a,n\n5" tall,1\n"two\nlines",2\n6" tall,3\nz,4\n'
    expected = [('5" tall', 1), ("two\nlines", 2), ('6" tall', 3), ("z", 4)]
    for block in range(8, 48):
        assert read(text, {"a": "string", "n": "int"}, block=block) == (expected, {})


def test_a_row_of_empty_fields_one_too_many() -> None:
    found, bad = read('a,b\n,,\n"x",y\n,,\n', {"a": "string", "b": "string"})
    assert found == [("x", "y")]
    assert set(bad) == {1, 3}


# --- dialects ---------------------------------------------------------------------------------------------------------


def test_dialects() -> None:
    tabs = Dialect(delimiter="\t", quote=None)
    text = 'host\turl\nh1\t"GET /x\nh2\ta"b\n'
    assert read(text, {"url": "string", "host": "string"}, dialect=tabs) == ([('"GET /x', "h1"), ('a"b', "h2")], {})
    semicolons = Dialect(delimiter=";", quote="'")
    assert read("a;b\n'x;''y';1\n", {"a": "string", "b": "int"}, dialect=semicolons) == ([("x;'y", 1)], {})
    for delimiter, quote in ((",,", '"'), ("é", '"'), ("\n", '"'), (",", ","), (",", "''"), ("", None)):
        with pytest.raises(InvalidParameter, match=r"must be one character of ASCII"):
            Dialect(delimiter=delimiter, quote=quote)


def test_the_block_is_overwritten() -> None:
    """Batches hold copies; the reader's own buffer holds nothing once it is closed."""
    schema = RowSchema(columns={"a": "string"})
    reader = TextReader(
        Memory(b"a\nsecret-1\nsecret-2\n"),
        CsvParser(schema, label="x"),
        Coalescer(schema, rows=1, producer="x", label="x"),
    )
    first, *_ = reader.pump()
    assert not any(reader._data)
    reader.close()
    assert first.columns.column("a").to_pylist() == ["secret-1"]
    assert pa.types.is_string(first.columns.column("a").type)
