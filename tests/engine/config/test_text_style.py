"""Decimal marks, date formats and encodings: against Python's own csv, Decimal, datetime and codecs."""

import csv
import io
import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from panstream.engine.config.config import read_config
from panstream.engine.config.text_style import TextStyle, date_formats_of
from panstream.engine.rows.row_batch import RowSchema
from panstream.engine.runtime.ingest import dialect_of
from panstream.engine.sources import Dialect, FileSource, TailSource
from panstream.engine.sources._encodings import TranscodedBytes, to_utf8
from panstream.engine.sources.formats.text_columns import parse
from panstream.errors import ConfigError, InvalidParameter
from tests.engine.runtime.streams import good

EPOCH = datetime(1970, 1, 1)
FORMATS = [
    "%d.%m.%Y",
    "%d/%m/%y",
    "%m/%d/%Y",
    "%Y%m%d",
    "%d.%m.%Y %H:%M",
    "%Y/%m/%d %H:%M:%S.%f",
    "%m/%d/%Y %I:%M %p",
    "%d %b %Y",
    "%B %d, %Y %H.%M",
    "%d.%m.%Y %H:%M %z",
    "%%%d-%m-%Y",
]
NUMBER = st.one_of(
    st.from_regex(r"[+-]?[0-9]{1,25}([.,][0-9]{0,25})?([eE][+-]?[0-9]{1,2})?", fullmatch=True),
    st.text("0123456789.,+-eE ", max_size=8),
)


def values(cells: list[str], kind: str, style: TextStyle) -> list[Any]:
    import pyarrow as pa

    array, bad = parse(pa.array([cell.encode() for cell in cells], pa.binary()), kind, style)
    found = array.to_pylist()
    if bad is not None:
        assert all(value is None for value in np.array(found, object)[bad])
    return found


@pytest.mark.slow
@given(st.lists(NUMBER, max_size=20))
def test_numbers_with_a_decimal_comma_are_those_of_decimal(cells: list[str]) -> None:
    def oracle(cell: str) -> float | None:
        if "." in cell:
            return None
        try:
            number = float(Decimal(cell.strip(" ").replace(",", ".")))
        except InvalidOperation:
            return None
        return number if math.isfinite(number) else None

    assert values(cells, "double", TextStyle(",")) == [oracle(cell) for cell in cells]


@pytest.mark.parametrize("text", FORMATS)
@given(moments=st.lists(st.datetimes(datetime(1969, 1, 1), datetime(2068, 12, 31, 23, 59, 59)), max_size=10))
@settings(max_examples=20)
def test_times_in_a_format_are_those_of_strptime(text: str, moments: list[datetime]) -> None:
    cells = [moment.replace(tzinfo=UTC).strftime(text) for moment in moments]
    expected = [datetime.strptime(cell, text).replace(tzinfo=None) for cell in cells]
    style = TextStyle(date_formats=(text,))
    assert values(cells, "timestamp", style) == expected
    assert values([f"  {cell}\t" for cell in cells], "date", style) == [moment.date() for moment in expected]


@pytest.mark.parametrize("text", FORMATS)
@given(cell=st.text("0123456789./- :,apmAPMdec%+", max_size=24), day=st.integers(0, 40), month=st.integers(0, 14))
@settings(max_examples=30)
def test_what_strptime_refuses_is_refused(text: str, cell: str, day: int, month: int) -> None:
    near = text.replace("%d", str(day)).replace("%m", str(month)).replace("%Y", "2023").replace("%y", "23")
    style = TextStyle(date_formats=(text,))
    for candidate in (cell, near, near.replace("%H", "24").replace("%M", "7")):
        (found,) = values([candidate], "timestamp", style)
        try:
            moment = datetime.strptime(candidate.strip(" \t"), text)
        except ValueError:
            assert found is None
            continue
        moment = moment if moment.tzinfo is None else moment.astimezone(UTC).replace(tzinfo=None)
        assert found in (None, moment)  # fields next to each other must have their full width
        assert found is not None or "%Y%m%d" in text


def test_a_zone_is_taken_off() -> None:
    cells = ["31.12.2024 01:30 +0200", "31.12.2024 01:30 -05:30", "31.12.2024 01:30 Z", "31.12.2024 01:30 +2400"]
    found = values(cells, "timestamp", TextStyle(date_formats=("%d.%m.%Y %H:%M %z",)))
    moment = datetime(2024, 12, 31, 1, 30)
    assert found == [moment - timedelta(hours=2), moment + timedelta(hours=5, minutes=30), moment, None]


def test_the_first_format_that_fits_counts() -> None:
    style = TextStyle(date_formats=("%d/%m/%Y", "%Y-%m-%d %H:%M"))
    found = values(["03/04/2024", "2024-04-03 12:00", "2024-04-03"], "timestamp", style)
    assert found == [datetime(2024, 4, 3), datetime(2024, 4, 3, 12), None]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("%d.%m", "a year"),
        ("%Y-%d", "a month"),
        ("%Y-%m", "a day"),
        ("%Y-%m-%d %m", "a month"),
        ("%d.%m.%Y %I:%M", "%I with %p"),
        ("%d.%m.%Y %H %H", "%H once"),
        ("%d.%m.%Y %A", "got %A"),
        ("%d.%m.%Y %", "got %"),
    ],
)
def test_a_format_that_cannot_be_read_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        date_formats_of([text])


ENCODINGS = {"windows-1252": "cp1252", "latin-1": "latin-1", "utf-16-le": "utf-16-le", "utf-16-be": "utf-16-be"}


class Trickle:
    """Bytes that come a few at a time, with pauses."""

    was_cut = False

    def __init__(self, data: bytes, sizes: list[int]) -> None:
        self.data = io.BytesIO(data)
        self.sizes = sizes
        self.closed = False

    def readinto(self, view: memoryview, wait: float) -> int | None:
        size = self.sizes.pop() if self.sizes else len(view)
        return None if size == 0 else self.data.readinto(view[:size])

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("encoding", ENCODINGS)
@given(
    data=st.binary(max_size=60) | st.text(max_size=30).map(lambda text: text.encode("utf-16-le", "surrogatepass")),
    sizes=st.lists(st.integers(0, 5), max_size=20),
    room=st.integers(1, 9),
)
@settings(max_examples=40)
def test_transcoded_bytes_are_those_of_python(encoding: Any, data: bytes, sizes: list[int], room: int) -> None:
    stream = TranscodedBytes(Trickle(data, sizes), encoding)
    found = bytearray()
    block = bytearray(room)
    with memoryview(block) as view:
        while (count := stream.readinto(view, 0.0)) != 0:
            found += view[: count or 0]
    try:
        expected = data.decode(ENCODINGS[encoding])
    except UnicodeDecodeError:
        with pytest.raises(UnicodeDecodeError):
            found.decode()
    else:
        assert found.decode() == expected
    assert not stream._raw.any()
    assert not stream._text.any()


@pytest.mark.parametrize(
    ("mark", "codec"), [(b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"), (b"", "utf-16-le")]
)
def test_a_byte_order_mark_says_which_byte_comes_first(mark: bytes, codec: str) -> None:
    data = bytearray(mark + "a,b\n€,😀\n".encode(codec))
    assert to_utf8(data, "utf-16").decode() == "a,b\n€,😀\n"
    assert not any(data)


ROW = st.tuples(
    st.decimals(-(10**6), 10**6, places=3),
    st.dates(datetime(1970, 1, 1).date(), datetime(2060, 1, 1).date()),
    st.text(bytes(range(0x20, 0x7F)).decode() + "äöüßé€“", max_size=8),
)


@pytest.mark.parametrize("encoding", ["utf-8", "windows-1252", "utf-16"])
@given(rows=st.lists(ROW, max_size=12))
@settings(max_examples=10, deadline=None)
def test_a_file_as_spreadsheets_write_it(tmp_path_factory: pytest.TempPathFactory, encoding: str, rows: Any) -> None:
    path = tmp_path_factory.mktemp("files") / "sales.csv"
    with path.open("w", encoding="cp1252" if encoding == "windows-1252" else encoding, newline="") as file:
        writer = csv.writer(file, delimiter=";")
        writer.writerow(["Preis (€)", "Tag", "Käufer"])
        writer.writerows([str(price).replace(".", ","), day.strftime("%d.%m.%Y"), name] for price, day, name in rows)
    schema = RowSchema(columns={"Preis (€)": "double", "Tag": "date", "Käufer": "string"})
    dialect = Dialect(delimiter=";", decimal=",", date_format="%d.%m.%Y", encoding=encoding)
    feed = FileSource([str(path)], schema, dialect=dialect)
    found = [row for batch in feed.batches() if batch is not None for row in good(batch).to_pylist()]
    expected = [(float(price), day, name or None) for price, day, name in rows]
    assert [tuple(row.values()) for row in found] == expected


def test_json_lines_have_the_date_format_and_the_decimal_point_of_json(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"n": 1.5, "t": "31.12.2024"}\n{"n": "1,5", "t": "2024-12-31"}\n', encoding="utf-16")
    schema = RowSchema(columns={"n": "double", "t": "date"})
    dialect = Dialect(decimal=",", date_format="%d.%m.%Y", encoding="utf-16")
    (batch,) = FileSource([str(path)], schema, dialect=dialect).batches()
    assert batch is not None
    assert batch.bad.tolist() == [False, True]
    assert batch.columns.to_pylist()[0] == {"n": 1.5, "t": datetime(2024, 12, 31).date()}


def test_a_growing_file_is_transcoded(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes("näme\nMü".encode("cp1252"))
    feed = TailSource([str(path)], RowSchema(columns={"näme": "string"}), dialect=Dialect(encoding="windows-1252"))
    batches = feed.batches()
    assert next(batches) is None
    with path.open("ab") as file:
        file.write("ller\n".encode("cp1252"))
    batch = next(batch for batch in batches if batch is not None)
    assert batch.columns.to_pylist() == [{"näme": "Müller"}]
    feed.close()


def test_a_tab_separates_tsv_without_a_header(tmp_path: Path) -> None:
    """A dialect that says nothing of delimiters once made it a comma."""
    (tmp_path / "rows.tsv").write_text("a\t1\n")
    dialect = Dialect(names=["s", "n"])
    (batch,) = FileSource(
        [str(tmp_path / "rows.tsv")], RowSchema(columns={"s": "string", "n": "int"}), dialect=dialect
    ).batches()
    assert batch is not None
    assert batch.columns.to_pylist() == [{"s": "a", "n": 1}]


def stream(**keys: Any) -> Any:
    query = {"name": "q", "sql": "SELECT COUNT(*) FROM s", "epsilon": 1.0}
    return read_config({"stream": {"name": "s", "columns": {"a": "int"}, **keys}, "query": [query]}).stream


def test_keys_of_the_stream() -> None:
    dialect = dialect_of(stream(decimal=",", date_format="%d.%m.%Y", encoding="cp1252"))
    assert dialect is not None
    assert (dialect.style, dialect.encoding) == (TextStyle(",", ("%d.%m.%Y",)), "windows-1252")
    assert stream(date_format=["%d.%m.%Y", "%d/%m/%Y"]).date_format == ("%d.%m.%Y", "%d/%m/%Y")
    assert dialect_of(stream()) is None


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"decimal": ";"}, "decimal"),
        ({"date_format": "%d"}, "a year"),
        ({"date_format": 5}, "date_format must be a string"),
        ({"encoding": "ebcdic"}, "encoding must be one of utf-8, windows-1252"),
    ],
)
def test_wrong_keys_of_the_stream_are_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=rf"\[stream\].*{message}"):
        stream(**keys)
