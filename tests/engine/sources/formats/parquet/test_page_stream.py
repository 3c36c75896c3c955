"""Pages of Parquet files that are read together: as each on its own, as pyarrow reads them, and nothing stays."""

from __future__ import annotations

import ctypes
import io
import itertools
import mmap
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from pyarrow import parquet

from panstream.engine.rows.buffer_pool import Spare
from panstream.engine.rows.evaluator import Evaluator, Expression
from panstream.engine.rows.row_batch import RowSchema
from panstream.engine.sources.coalescer import Coalescer, _with_ids
from panstream.engine.sources.formats.parquet import _page_stream as alike
from panstream.engine.sources.formats.parquet.file import ParquetFile
from panstream.engine.sources.formats.parquet.pages import PageHeader
from panstream.errors import FeedError
from panstream.primitives.kernels.sources.parquet_page_headers import DATA, DATA_2
from panstream.primitives.kernels.sources.parquet_uniform_pages import decode_page, decode_pages

SCHEMA = RowSchema(columns={"id": "int", "n": "int", "word": "string"}, user="id")
CODECS = ["none", "snappy", "zstd", "gzip"]


def written(data: st.DataObject) -> tuple[bytes, pa.Table]:
    """Return a file of small pages, written in any of the ways that we decode ourselves, and what is in it."""
    rows, draw = data.draw(st.integers(0, 900)), random.Random(data.draw(st.integers(0, 99)))
    kinds, nulls = data.draw(st.sampled_from([1, 2, 3, 40, 10**6])), data.draw(st.sampled_from([0.0, 0.0, 0.01, 0.9]))

    def column(make: Any) -> list[Any]:
        return [None if draw.random() < nulls else make(draw.randrange(kinds)) for _ in range(rows)]

    ids = [draw.randrange(-kinds, kinds) for _ in range(rows)]
    table = pa.table(
        [ids, column(lambda n: n * 2**40), column(lambda n: f"w{n % 50}")],
        schema=pa.schema(
            [
                pa.field("id", pa.int64(), nullable=data.draw(st.booleans())),
                pa.field("n", pa.int64()),
                pa.field("word", pa.string()),
            ]
        ),
    )
    out = io.BytesIO()
    parquet.write_table(
        table,
        out,
        compression=data.draw(st.sampled_from(CODECS)),
        use_dictionary=data.draw(st.booleans()),
        data_page_version=data.draw(st.sampled_from(["1.0", "2.0"])),
        data_page_size=data.draw(st.sampled_from([1, 300, 5000])),
        write_batch_size=data.draw(st.sampled_from([3, 40])),
        dictionary_pagesize_limit=data.draw(st.sampled_from([100, 100_000])),
        row_group_size=data.draw(st.sampled_from([70, 1000])),
    )
    return out.getvalue(), table


def read(path: Path, rows: int, *, stored: bool) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {name: [] for name in SCHEMA.columns}
    file = ParquetFile(path, SCHEMA, rows=rows, ahead=False, stored_ids=stored)
    try:
        for piece in file.pieces():
            piece = _with_ids(piece, SCHEMA)
            for name, column in found.items():
                column += piece.columns.column(name).to_pylist()
            piece.wipe()
    finally:
        file.close()
    return found


@pytest.mark.slow
@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.data())
def test_pages_read_together_are_those_that_were_written(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("alike") / "f.parquet"
    whole, table = written(data)
    path.write_bytes(whole)
    rows, stored = data.draw(st.sampled_from([1, 13, 64, 2000])), data.draw(st.booleans())
    with pytest.MonkeyPatch.context() as patch:
        together = read(path, rows, stored=stored)
        patch.setattr(alike, "_joined", lambda *given: None)
        assert together == read(path, rows, stored=stored) == table.to_pydict()


def test_pages_are_in_fact_read_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, join, joined = tmp_path / "f.parquet", alike._joined, []
    ids = pa.array(np.random.default_rng(2).integers(0, 900, 3000))
    table = pa.table({"id": ids, "n": ids, "word": ["a", "b", None] * 1000})

    def noted(raw: Any, several: list[PageHeader], *rest: Any) -> Any:
        page = join(raw, several, *rest)
        joined.append(0 if page is None else len(several))
        return page

    monkeypatch.setattr(alike, "_joined", noted)
    for codec, dictionary in itertools.product(("none", "snappy", "zstd", "gzip", "brotli"), (False, True)):
        parquet.write_table(
            table, path, compression=codec, use_dictionary=dictionary, data_page_size=400, write_batch_size=20
        )
        joined.clear()
        assert read(path, 1000, stored=True)["id"] == ids.to_pylist()
        own = dictionary or codec in ("none", "snappy")
        assert sum(joined) >= 30 if own else sum(joined) == 0


def test_nothing_stays_of_pages_that_were_read_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[NDArray[Any]] = []
    array = Spare.array

    def noted(self: Spare, size: int, dtype: Any = np.uint8) -> NDArray[Any]:
        found = array(self, size, dtype)
        used.append(found)
        return found

    monkeypatch.setattr(Spare, "array", noted)
    readers: list[alike.PageReader] = []

    class Noted(alike.PageReader):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            readers.append(self)

    monkeypatch.setattr(alike, "PageReader", Noted)
    ids = pa.array(np.random.default_rng(2).integers(1, 2**60, 20_000))
    table = pa.table({"id": ids, "n": ids, "word": ["some", "words", "here", "again"] * 5000})
    for codec in ("none", "snappy", "zstd"):
        path = tmp_path / f"{codec}.parquet"
        parquet.write_table(table, path, compression=codec, use_dictionary=["word"], data_page_size=4000)
        file = ParquetFile(path, SCHEMA, rows=7000, ahead=False, stored_ids=True)
        for piece in file.pieces():
            assert piece.ids is not None and piece.ids.all()[0].as_py()
            piece.wipe()
        file.close()
    assert len(used) > 20 and len(readers) == 9
    assert not any(each.any() for each in used)
    assert not any(each.raw.any() for each in readers)


def test_a_file_that_says_no_value_is_missing_but_lacks_some_is_read_page_by_page() -> None:
    """Levels that are not one run of ones make a page other than usual, whatever the file says of it."""
    page = header(DATA, 12 + 8 * 4, 5)
    body = np.frombuffer(b"\x02\0\0\0\x0a\x01" + bytes(40), np.uint8).copy()
    assert decode_page(body, page, True, np.zeros(40, np.uint8), np.zeros(0, np.int32))
    body = np.frombuffer(b"\x02\0\0\0\x03\x1e" + bytes(40), np.uint8).copy()  # five bits, the first of them 0
    assert not decode_page(body, page, True, np.zeros(40, np.uint8), np.zeros(0, np.int32))


def header(kind: int, size: int, values: int, *, levels: int = 0, start: int = 0, stop: int = 0) -> NDArray[np.int64]:
    """Return a page's description; its encoding is known from where it is decoded to."""
    described = PageHeader(kind, size, values, 0, levels, 1, 0, start, stop)
    return np.array(described, np.int64)


def runs(values: list[int], width: int, draw: random.Random) -> bytes:
    """Write numbers as Parquet does: any number of eights bit by bit, or one number again and again."""
    out, at = b"", 0
    while at < len(values):
        if draw.random() < 0.5:
            same = 1
            while at + same < len(values) and values[at + same] == values[at]:
                same += 1
            out += varint(same << 1) + values[at].to_bytes((width + 7) // 8, "little")
            at += same
        else:
            eights = draw.randint(1, 4)
            here = values[at : at + 8 * eights]
            here += [0] * (8 * eights - len(here))
            packed = sum(value << (place * width) for place, value in enumerate(here))
            out += varint(eights << 1 | 1) + packed.to_bytes(eights * width, "little")
            at += 8 * eights
    return out


def varint(number: int) -> bytes:
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


@contextmanager
def at_the_end_of_memory(size: int) -> Iterator[NDArray[np.uint8]]:
    """Yield bytes behind which nothing may be read or written."""
    pages = -(-size // mmap.PAGESIZE)
    memory = mmap.mmap(-1, (pages + 1) * mmap.PAGESIZE)
    everything = np.frombuffer(memory, np.uint8)
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    beyond = ctypes.c_void_p(everything.ctypes.data + pages * mmap.PAGESIZE)
    assert protect(beyond, ctypes.c_size_t(mmap.PAGESIZE), 0) == 0
    try:
        yield everything[pages * mmap.PAGESIZE - size : pages * mmap.PAGESIZE]
    finally:
        assert protect(beyond, ctypes.c_size_t(mmap.PAGESIZE), mmap.PROT_READ | mmap.PROT_WRITE) == 0


@pytest.mark.parametrize("width", range(33))
def test_indices_of_every_width_are_decoded_within_their_page(width: int) -> None:
    draw = random.Random(width)
    for optional, kind in ((False, DATA), (True, DATA), (True, DATA_2), (False, DATA_2)):
        values = [draw.choice([0, (1 << width) - 1, draw.getrandbits(width)]) for _ in range(draw.randint(1, 70))]
        ones = varint(len(values) << 1) + b"\x01" if optional else b""
        levels = len(ones).to_bytes(4, "little") + ones if optional and kind == DATA else ones
        body = levels + bytes([width]) + runs(values, width, draw)
        page = header(kind, len(body), len(values), levels=len(ones) if kind == DATA_2 else 0)
        with at_the_end_of_memory(len(body)) as memory:
            for cut in (0, *range(1, len(body) + 1)):
                memory[cut:] = np.frombuffer(body, np.uint8)[: len(body) - cut]
                codes = np.full(len(values), 7, np.int32)
                sound = decode_page(memory[cut:], page, optional, np.empty(0, np.uint8), codes)
                assert sound or cut
                if sound:
                    assert codes.view(np.uint32).tolist() == values


def test_narrow_indices_are_never_cut_off() -> None:
    """A byte has room for seven bits; wider indices are decoded page by page, though each may be small."""
    for width in range(33):
        values = [value & ((1 << width) - 1) for value in (1, 127, 0, 5)]
        body = np.frombuffer(bytes([width]) + runs(values, width, random.Random(1)), np.uint8).copy()
        codes = np.full(4, 7, np.int8)
        sound = decode_page(body, header(DATA, body.size, 4), False, np.empty(0, np.uint8), codes)
        assert sound == (width < 8)
        assert not sound or codes.tolist() == values


def test_narrow_codes_of_several_dictionaries_are_joined(tmp_path: Path) -> None:
    """Each row group has few words, all of them together too many for a byte, and batches cut row groups."""
    path = tmp_path / "f.parquet"
    texts = [f"{row // 1000}-{row % 90}" for row in range(5000)]
    table = pa.table({"id": range(5000), "n": range(5000), "word": texts})
    parquet.write_table(table, path, row_group_size=1000, data_page_size=50, write_batch_size=50)
    narrow = set()
    for rows, batch in ((100, 250), (700, 700), (1000, 5000), (5000, 5000), (450, 1000)):
        file = ParquetFile(path, SCHEMA, rows=rows, ahead=False)
        coalescer, found = Coalescer(SCHEMA, rows=batch, producer=None, place="f"), []
        for piece in file.pieces():
            narrow.add(piece.columns.column("word").type.index_type)
            found += list(coalescer.add(piece))
        file.close()
        found += list(coalescer.flush())
        assert [text for each in found for text in each.columns.column("word").to_pylist()] == texts
    assert narrow == {pa.int8(), pa.int32()}


@pytest.mark.parametrize("words", [1, 2, 3, 127, 128, 129, 200])
def test_conditions_on_codes_of_any_width_choose_the_same_rows(words: int, tmp_path: Path) -> None:
    path, draw = tmp_path / "f.parquet", random.Random(words)
    texts = [f"w{draw.randrange(words)}" for _ in range(3000)]
    texts[:words] = [f"w{each}" for each in range(words)]
    table = pa.table({"id": range(3000), "n": range(3000), "word": texts})
    parquet.write_table(table, path, data_page_size=50, write_batch_size=50)
    conditions = {
        "word = 'w1'": lambda text: text == "w1",
        "word = 'none'": lambda text: False,
        "word <> 'w0'": lambda text: text != "w0",
        "word LIKE 'w1%'": lambda text: text.startswith("w1"),
        "word IN ('w1', 'w2') OR word = 'w0'": lambda text: text in ("w0", "w1", "w2"),
        "NOT (word = 'w1')": lambda text: text != "w1",
    }
    evaluator = Evaluator([Expression(sql=sql) for sql in conditions], SCHEMA.columns, user="id")
    for rows in (3000, 700):
        found: dict[str, list[bool]] = {sql: [] for sql in conditions}
        file = ParquetFile(path, SCHEMA, rows=rows, ahead=False)
        for piece in file.pieces():
            for sql, mask in zip(conditions, evaluator.evaluate(piece.columns), strict=True):
                assert isinstance(mask, np.ndarray)
                found[sql] += mask.tolist()
        file.close()
        assert found == {sql: [right(text) for text in texts] for sql, right in conditions.items()}


@pytest.mark.parametrize("snappy", [False, True])
@pytest.mark.parametrize("kind", [DATA, DATA_2])
def test_pages_that_lie_about_themselves_are_left_alone(snappy: bool, kind: int) -> None:
    """No number in a header makes the decoder read or write where it must not."""
    draw, numbers = random.Random(3), np.arange(40, dtype=np.int64)
    levels = varint(40 << 1) + b"\x01"
    front = levels if kind == DATA_2 else len(levels).to_bytes(4, "little") + levels
    clear = len(levels) if kind == DATA_2 else 0
    body = front + numbers.tobytes()
    packed = body[:clear] + (pa.compress(body[clear:], "snappy", asbytes=True) if snappy else body[clear:])
    sound = header(kind, len(body), 40, levels=clear, start=0, stop=len(packed))
    with at_the_end_of_memory(2 * len(packed)) as raw, at_the_end_of_memory(len(body)) as room:
        raw[:] = np.frombuffer(packed * 2, np.uint8)
        for trial in range(3000):
            pages = np.array([sound, sound])
            pages[1, -2:] += len(packed)
            for _ in range(min(trial, 2)):
                line, place = draw.randrange(2), draw.randrange(pages.shape[1])
                pages[line, place] = draw.choice([0, 1, 39, 41, len(packed) + 1, 2**31 - 1, draw.randrange(700)])
            with at_the_end_of_memory(640) as out:
                done = decode_pages(raw, pages, snappy, True, room, out, np.empty(0, np.int32))
                assert done or trial
                if done and (pages[:, 2] == 40).all():
                    assert out.view(np.int64).tolist() == numbers.tolist() * 2
            decode_pages(raw, pages, snappy, True, room, np.empty(0, np.uint8), np.empty(80, np.int32))


def test_a_page_beyond_its_row_group_is_damage_though_others_were_read_with_it(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    table = pa.table({"id": range(500), "n": range(500), "word": ["a"] * 500})
    parquet.write_table(table, path, use_dictionary=False, compression="none", data_page_size=400, write_batch_size=20)
    whole = path.read_bytes()
    assert read(path, 500, stored=True)["id"] == list(range(500))
    # The first page says that it has 21 values, not 20 or so: all have one more then than the row group.
    first = parquet.read_metadata(path).row_group(0).column(0).data_page_offset
    at = whole.index(b"\x2c\x15", first) + 2
    path.write_bytes(whole[:at] + bytes([whole[at] + 2]) + whole[at + 1 :])
    with pytest.raises(FeedError, match="damaged"):
        read(path, 500, stored=True)
