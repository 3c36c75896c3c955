"""Parquet files as rows: what pyarrow wrote is read, in batches and row groups of any size, and bad rows are marked."""

from __future__ import annotations

import contextlib
import gc
import itertools
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from panstream.engine.rows.evaluator import Evaluator, Expression
from panstream.engine.rows.row_batch import RowBatch, RowSchema
from panstream.engine.rows.wiping import wipe_array
from panstream.engine.runtime.engine import Engine
from panstream.engine.runtime.ingest import ingest_all
from panstream.engine.runtime.selector import Selector
from panstream.engine.sources import FileSource
from panstream.engine.sources.formats.parquet import column_decoder, local_bytes
from panstream.engine.sources.formats.parquet.file import ParquetFile
from panstream.engine.sources.formats.parquet.page_limits import chunk_range, measure_pages
from panstream.errors import SourceError
from panstream.primitives.inputs.parquet_footer import CorruptParquet, read_footer
from tests.engine.runtime.streams import config, question

CODECS = ["none", *(name for name in ("snappy", "gzip", "brotli", "zstd", "lz4") if pa.Codec.is_available(name))]
SCHEMA = RowSchema(columns={"id": "string", "number": "int", "word": "string"}, user="id")
WORDS = RowSchema(columns={"word": "string"})


def words(count: int, seed: int, *, nulls: float = 0.1, kinds: int = 400) -> list[str | None]:
    """Return strings of many lengths, among them empty ones, letters of four bytes and some longer than a page."""
    draw = random.Random(seed)
    known = ["".join(draw.choice("aé€😀z") for _ in range(int(draw.expovariate(0.1)))) for _ in range(kinds)]
    known[0] = "long" * 400
    return [None if draw.random() < nulls else draw.choice(known) for _ in range(count)]


def write(path: Path, table: pa.Table, **options: Any) -> Path:
    """Write a file of small pages."""
    parquet.write_table(table, path, **{"data_page_size": 600, "write_batch_size": 50, **options})
    return path


def read(path: Path, schema: RowSchema, rows: int, *, skip: int = 0) -> dict[str, list[Any]]:
    values: dict[str, list[Any]] = {name: [] for name in schema.columns}
    file = ParquetFile(path, schema, rows=rows)
    try:
        file.skip(skip)
        for piece in file.pieces():
            assert 0 < len(piece) <= rows
            for name, column in values.items():
                column += piece.columns.column(name).to_pylist()
            piece.wipe()
    finally:
        file.close()
    return values


@pytest.mark.slow
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("dictionary", [False, True])
@pytest.mark.parametrize("codec", CODECS)
def test_every_way_of_writing_is_read(tmp_path: Path, codec: str, dictionary: bool, version: str) -> None:
    """Dictionaries end within a row group, so that a column goes on plainly. DuckDB reads the file as well."""
    numbers = [None if row % 5 == 0 else row * row * 2**30 for row in range(3000)]
    table = pa.table({"id": words(3000, 2, nulls=0.0), "number": numbers, "word": words(3000, 1)})
    path = write(
        tmp_path / "f.parquet",
        table,
        compression=codec,
        use_dictionary=dictionary,
        data_page_version=version,
        row_group_size=1100,
        dictionary_pagesize_limit=3000,
    )
    for rows in (7, 333, 10_000):
        assert read(path, SCHEMA, rows) == table.to_pydict()
    assert duckdb.sql(f"SELECT id, number, word FROM '{path}'").fetchall() == [*zip(*table.to_pydict().values())]  # noqa: B905


@pytest.mark.parametrize(
    "column",
    [[], [None] * 70, [""] * 70, ["x" * 5000, None, "", "y"] * 9, [str(number) for number in range(3000)]],
    ids=["no rows", "all missing", "all empty", "longer than a page", "all different"],
)
@pytest.mark.parametrize("dictionary", [False, True])
def test_columns_at_the_edge(tmp_path: Path, column: list[str | None], dictionary: bool) -> None:
    table = pa.table({"word": pa.array(column, pa.string())})
    path = write(tmp_path / "f.parquet", table, use_dictionary=dictionary)
    assert read(path, WORDS, 17)["word"] == column
    with parquet.ParquetWriter(path, table.schema) as writer:  # row groups without rows are among them
        for part in (table[:0], table, table[:0]):
            writer.write_table(part)
    assert read(path, WORDS, 17)["word"] == column


def test_a_column_that_must_have_values_is_read(tmp_path: Path) -> None:
    column = words(500, 2, nulls=0.0)
    table = pa.table([column], schema=pa.schema([pa.field("word", pa.string(), nullable=False)]))
    for version in ("1.0", "2.0"):
        assert read(write(tmp_path / "f.parquet", table, data_page_version=version), WORDS, 99)["word"] == column


def test_reading_begins_at_any_row_group(tmp_path: Path) -> None:
    table = pa.table({"id": words(2000, 3, nulls=0.0), "number": range(2000), "word": words(2000, 4)})
    path = write(tmp_path / "f.parquet", table, row_group_size=300)
    for rows in (0, 299, 300, 1700, 2000, 5000):
        file = ParquetFile(path, SCHEMA, rows=128)
        start = file.skip(rows)
        file.close()
        assert start == (rows // 300 * 300 if rows < 2000 else 2000)
        assert read(path, SCHEMA, 128, skip=rows) == table[start:].to_pydict()


@pytest.mark.parametrize(
    ("name", "encoding"),
    [
        ("word", "DELTA_BYTE_ARRAY"),
        ("word", "DELTA_LENGTH_BYTE_ARRAY"),
        ("number", "DELTA_BINARY_PACKED"),
        ("number", "BYTE_STREAM_SPLIT"),
    ],
)
def test_other_encodings_are_read(tmp_path: Path, name: str, encoding: str) -> None:
    table = pa.table({"id": [f"u{row}" for row in range(400)], "number": range(400), "word": words(400, 4)})
    path = write(tmp_path / "f.parquet", table, use_dictionary=False, column_encoding={name: encoding})
    assert read(path, SCHEMA, 128) == table.to_pydict()


@pytest.mark.parametrize("store_schema", [True, False])
def test_strings_of_every_type_are_read_alike(tmp_path: Path, store_schema: bool) -> None:
    """Some are decoded as dictionaries and others with wide offsets; batches of the two are joined."""
    texts = [None if row % 7 == 0 else f"{row}-é" * (row % 5) for row in range(3000)]
    few = words(3000, 6, kinds=5)
    columns = {
        "text": pa.array(texts),
        "large": pa.array(texts, pa.large_string()),
        "bytes": pa.array([text and text.encode() for text in texts], pa.binary()),
        "few": pa.array(few),
        "category": pa.array(few).dictionary_encode(),
        "number": pa.array(range(3000)),
        "ARROW:schema": pa.array(texts),
    }
    path = write(tmp_path / "f.parquet", pa.table(columns), row_group_size=1100, store_schema=store_schema)
    kinds = dict.fromkeys(columns, "string") | {"bytes": "binary", "number": "int"}
    for names in (columns, ["text"], ["few"], ["bytes", "few"], ["ARROW:schema"], ["number", "text"]):
        schema = RowSchema(columns={name: kinds[name] for name in names})
        for rows in (450, 3000):
            assert read(path, schema, rows) == {name: columns[name].to_pylist() for name in names}


def test_types_that_only_the_arrow_schema_knows_are_refused(tmp_path: Path) -> None:
    table = pa.table({"word": ["a"], "wait": pa.array([3], pa.duration("s"))})
    path = write(tmp_path / "f.parquet", table)
    with pytest.raises(SourceError, match="column 'wait' is declared int"):
        ParquetFile(path, RowSchema(columns={"word": "string", "wait": "int"}), rows=10)


def test_columns_are_joined_whatever_the_length_of_their_batches() -> None:
    def parts(name: str, *ends: int) -> Iterator[Any]:
        yield from (pa.record_batch({name: range(*between)}) for between in itertools.pairwise((0, *ends)))

    joined = [*column_decoder._joined([parts("a", 3, 4, 9), parts("b", 1, 9)], ["b", "a"])]
    assert [batch.num_rows for batch in joined] == [1, 2, 1, 5]
    table = pa.Table.from_batches(joined)
    assert table.to_pydict() == {"b": [*range(9)], "a": [*range(9)]}
    left = pa.record_batch({"b": range(9)})
    short = column_decoder._joined([parts("a", 3), iter([left])], ["a", "b"])
    assert next(short).num_rows == 3
    with pytest.raises(CorruptParquet):
        next(short)
    assert left.column("b").to_pylist() == [0, 1, 2, 0, 0, 0, 0, 0, 0]  # what nobody has taken over is overwritten


def test_columns_whose_names_begin_alike_are_told_apart(tmp_path: Path) -> None:
    table = pa.table({"word": ["a", "b"], "word.id": ["c", "d"], "other": [{"word": "e"}, {"word": "f"}]})
    assert read(write(tmp_path / "f.parquet", table), WORDS, 10)["word"] == ["a", "b"]
    schema = RowSchema(columns={"other": "string"})
    with pytest.raises(SourceError, match="column 'other' is declared string"):
        ParquetFile(tmp_path / "f.parquet", schema, rows=10)


def batches(path: Path, schema: RowSchema, rows: int, applied: int = 0) -> list[RowBatch]:
    source = FileSource([str(path)], schema, batch_rows=rows)
    source.resume({"f.parquet": applied})
    return [batch for batch in source.batches() if batch is not None]


@pytest.mark.parametrize("dictionary", [False, True])
@pytest.mark.parametrize("nulls", [0.0, 0.1])
def test_batches_go_on_behind_what_was_applied(tmp_path: Path, nulls: float, dictionary: bool) -> None:
    """Missing ids are bad rows; batches cut row groups, and row groups batches."""
    ids = words(3000, 2, nulls=nulls)
    table = pa.table({"id": ids, "number": pa.array(range(3000)), "word": words(3000, 5)})
    path = write(tmp_path / "f.parquet", table, row_group_size=700, use_dictionary=dictionary)
    for rows, applied in itertools.product((64, 450, 5000), (0, 450, 900)):
        found: list[Any] = []
        for batch in batches(path, SCHEMA, rows, applied):
            assert batch.first_row == applied + len(found) + 1
            assert batch.bad.tolist() == [each is None for each in batch.columns.column("id").to_pylist()]
            found += batch.columns.column("id").to_pylist()
            assert batch.sequence == applied + len(found)
        assert found == ids[applied:]


def test_bad_rows_keep_their_place(tmp_path: Path) -> None:
    table = pa.table(
        {"id": [f"id-{i}" for i in range(900)], "number": [i / 2 for i in range(900)], "word": ["w"] * 900}
    )
    path = write(tmp_path / "f.parquet", table)
    found = batches(path, SCHEMA, 250)
    assert [len(batch) for batch in found] == [225, 225, 225, 225]
    assert [int(batch.bad.sum()) for batch in found] == [112, 113, 112, 113]
    numbers = [each for batch in found for each in batch.columns.column("number").to_pylist()]
    assert numbers == [None if i % 2 else i // 2 for i in range(900)]


@pytest.mark.parametrize("kinds", [1, 3, 127, 129, 300])
def test_conditions_choose_the_same_rows_of_dictionaries(kinds: int, tmp_path: Path) -> None:
    """Each row group has a dictionary of its own, and batches cut row groups."""
    draw = random.Random(kinds)
    texts = [f"w{draw.randrange(kinds)}" for _ in range(3000)]
    table = pa.table({"id": texts, "number": pa.array(range(3000)), "word": texts})
    path = write(tmp_path / "f.parquet", table, row_group_size=700)
    conditions = {
        "word = 'w1'": lambda text: text == "w1",
        "word <> 'w0'": lambda text: text != "w0",
        "id LIKE 'w1%'": lambda text: text.startswith("w1"),
        "id IN ('w0', 'w1', 'w2')": lambda text: text in ("w0", "w1", "w2"),
    }
    evaluator = Evaluator([Expression(sql=sql) for sql in conditions], SCHEMA.columns, user="id")
    for rows in (3000, 450):
        found: dict[str, list[bool]] = {sql: [] for sql in conditions}
        for batch in batches(path, SCHEMA, rows):
            for sql, mask in zip(conditions, evaluator.evaluate(batch.columns), strict=True):
                assert isinstance(mask, np.ndarray)
                found[sql] += mask.tolist()
        assert found == {sql: [right(text) for text in texts] for sql, right in conditions.items()}


def test_repeated_ids_stay_in_their_dictionary(tmp_path: Path) -> None:
    """Unless it is larger than the batch: it is hashed once for each."""
    table = pa.table({"id": [f"user-{row % 50}" for row in range(2000)]})
    path = write(tmp_path / "f.parquet", table, row_group_size=1000, data_page_size=1 << 20)
    schema = RowSchema(columns={"id": "string"}, user="id")
    for rows in (1000, 50, 49):
        file = ParquetFile(path, schema, rows=rows)
        for piece in file.pieces():
            assert pa.types.is_dictionary(piece.columns.column("id").type) == (len(piece) >= 50)
        file.close()


def test_chosen_codes_are_a_copy_to_be_overwritten() -> None:
    ids = pa.array(["ann", "bob", "ann"]).dictionary_encode()
    rows = RowBatch(count=3, ids=ids)
    assert rows.some_ids(np.ones(3, bool)) == (ids, False)
    kept, owned = rows.some_ids(np.array([False, True, True]))
    assert owned and kept.to_pylist() == ["bob", "ann"]
    wipe_array(kept)
    assert kept.to_pylist() == ["ann", "ann"] and ids.to_pylist() == ["ann", "bob", "ann"]


@pytest.mark.slow
def test_the_engine_answers_alike_whether_ids_are_in_a_dictionary(tmp_path: Path) -> None:
    """Several conditions, conditions on the id itself, groups, declared ids, and bounds on users."""
    draw = random.Random(8)
    ids = [f"u{draw.randrange(300)}" for _ in range(4000)]
    table = pa.table({"name": ids, "region": [draw.choice("nsx") for _ in ids], "w": [draw.randrange(9) for _ in ids]})
    distinct = "SELECT COUNT(DISTINCT name) FROM s"
    settings = config(
        question("all", distinct, expected=500),
        question("some", f"{distinct} WHERE w < 3", expected=500),
        question("none", f"{distinct} WHERE w < 0", expected=500),
        question("some more", f"{distinct} WHERE w = 3 OR region = 'n'", expected=500),
        question("listed", distinct, universe=[f"u{i}" for i in range(40)]),
        question("by region", "SELECT region, COUNT(DISTINCT name) FROM s GROUP BY region", expected=500,
                 groups={"region": ["n", "s"]}),
        question("bounded", "SELECT COUNT(*) FROM s", contributions=4),
        user="name",
    )  # fmt: skip
    by_id = config(question("by id", f"{distinct} WHERE name LIKE 'u1%' AND w < 5", expected=500), user="name")
    schema = RowSchema(columns={"name": "string", "region": "string", "w": "int"}, user="name")
    for each in (settings, by_id):
        answers = []
        for dictionary in (True, False):
            path = write(tmp_path / "f.parquet", table, row_group_size=900, use_dictionary=dictionary)
            with Selector(each) as select, Engine(each, zero_noise=True) as engine:
                fed = ingest_all(engine, FileSource([str(path)], schema, batch_rows=640), select)
                engine.finish()
                values = [(release.query, release.number, release.record["value"]) for release in engine.log.history()]
                answers.append((sorted(values, key=str), fed.rows, fed.skipped, fed.skipped_count))
        assert answers[0] == answers[1]
        assert len(answers[0][0]) == (8 if each is settings else 1)


def test_a_reader_closed_early_leaves_no_thread(tmp_path: Path) -> None:
    path = write(tmp_path / "f.parquet", pa.table({"word": words(3000, 7)}))
    before = set(threading.enumerate())
    source = FileSource([str(path)], WORDS, batch_rows=10).batches()
    assert next(source) is not None
    source.close()  # type: ignore[attr-defined]
    assert set(threading.enumerate()) <= before


@pytest.mark.slow
def test_the_footer_is_gone_with_the_file(tmp_path: Path) -> None:
    """It holds the smallest and the largest id of every row group."""
    path = write(tmp_path / "f.parquet", pa.table({"word": [f"id-{number}" for number in range(100)]}))
    gc.collect()
    gc.disable()
    try:
        assert len(read(path, WORDS, 30)["word"]) == 100
        assert not [each for each in gc.get_objects() if isinstance(each, parquet.FileMetaData)]
    finally:
        gc.enable()


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("compression", ["none", "snappy", "zstd"])
def test_row_groups_are_read_alike_whether_they_are_loaded_or_not(
    version: str, compression: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [f"id-{number % 97}-{number}" for number in range(3000)]
    table = pa.table({"id": ids, "number": pa.array(range(3000)), "word": [f"w{number % 5}" for number in range(3000)]})
    path = tmp_path / "f.parquet"
    parquet.write_table(
        table, path, compression=compression, data_page_version=version, row_group_size=1000, data_page_size=256
    )
    footer = read_footer(path)
    results = []
    for most in (1 << 25, 0):
        monkeypatch.setattr(local_bytes, "_MAX_LOADED_BYTES", most)
        with contextlib.closing(local_bytes.LocalBytes(path)) as file:
            chunks = footer.columns[1]
            file.load([chunk_range(chunk) for chunk in chunks])
            assert (file.view(*chunk_range(chunks[0])) is None) == (most == 0)
            limits = [measure_pages(file, chunk, 1) for chunk in chunks]
        rows = [batch.columns.to_pydict() for batch in batches(path, SCHEMA, 400)]
        results.append((limits, rows))
    assert results[0] == results[1]
    assert [value for rows in results[0][1] for value in rows["id"]] == ids


def test_what_is_loaded_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(bytes(range(1, 256)))
    file = local_bytes.LocalBytes(path)
    file.load([(10, 20), (100, 30)])
    memory = file.view(10, 20)
    assert memory is not None
    assert memory.tobytes() == bytes(range(11, 31))
    file.seek(100)
    assert bytes(file.read(30)) == bytes(range(101, 131))
    assert file.view(10, 21) is None
    assert file.read(5) == bytes(range(131, 136))  # beyond what is loaded
    file.load([(0, 200)])
    assert not memory.any()
    memory = file.view(0, 200)
    assert memory is not None
    file.load([(50, 10)])
    assert memory.tobytes() == bytes(range(51, 61)) + bytes(190)
    file.close()
    assert not memory.any()
