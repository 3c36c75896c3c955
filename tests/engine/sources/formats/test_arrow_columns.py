"""Parquet and Arrow IPC: only declared columns are read, dictionaries stay, damaged files are refused without a
word of them.
"""

import datetime
import io
import itertools
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from panstream.engine.rows.row_batch import RowBatch, RowSchema
from panstream.engine.sources import FileSource
from panstream.engine.sources.formats.arrow_columns import from_arrow
from panstream.engine.sources.formats.parquet.file import ParquetFile
from panstream.errors import SourceError
from panstream.primitives.inputs.argument import read_only
from panstream.primitives.kernels.arrow_gather import narrow_offsets
from tests.engine.runtime.streams import good

N = 1000
SCHEMA = RowSchema(columns={"ip": "string", "n": "int", "symptom": "string"}, user="ip")


def table(rows: int = N) -> pa.Table:
    return pa.table(
        {
            "n": pa.array(range(rows), pa.int32()),
            "ip": [f"10.0.{row}" for row in range(rows)],
            "symptom": [("YES", "NO", None)[row % 3] for row in range(rows)],
            "secret": [f"secret-{row}" * 20 for row in range(rows)],
        }
    )


def batches(path: Path, schema: RowSchema = SCHEMA, **settings: object) -> list[RowBatch]:
    source = FileSource([str(path)], schema, **settings)  # type: ignore[arg-type]
    return [batch for batch in source.batches() if batch is not None]


def rows_of(found: list[RowBatch]) -> dict[str, list[object]]:
    return pa.Table.from_batches([b.columns for b in found]).to_pydict()


def expected(rows: int = N) -> dict[str, list[object]]:
    return table(rows).select(["ip", "n", "symptom"]).to_pydict()


# --- Parquet ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1000, 300, 7])
@pytest.mark.parametrize("compression", ["snappy", "zstd", "none"])
def test_parquet(tmp_path: Path, size: int, compression: str) -> None:
    path = tmp_path / "visits.parquet"
    pq.write_table(table(), path, row_group_size=size, compression=compression)
    found = batches(path, batch_rows=256)
    assert rows_of(found) == expected()
    sizes = {1000: [250, 250, 250, 250], 300: [150, 150, 150, 150, 150, 250], 7: [252, 252, 252, 244]}[size]
    assert [len(batch) for batch in found] == sizes  # row groups are cut into equal parts, and joined uncut
    assert [batch.sequence for batch in found] == np.cumsum(sizes).tolist()
    assert {batch.producer for batch in found} == {"visits.parquet"}


def test_repetitive_strings_stay_a_dictionary(tmp_path: Path) -> None:
    path = tmp_path / "visits.parquet"
    pq.write_table(table(), path, row_group_size=500)
    (batch,) = batches(path)
    assert pa.types.is_dictionary(batch.columns.column("symptom").type)
    assert batch.columns.column("ip").type == pa.string()  # which are not
    pq.write_table(table().select(["n", "ip", "ip", "symptom"]).rename_columns(["n", "symptom", "x", "ip"]), path)
    (batch,) = batches(path, RowSchema(columns={"ip": "string"}, user="ip"))
    assert pa.types.is_dictionary(batch.columns.column("ip").type)


@pytest.mark.parametrize("size", [1000, 130, 7])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("missing", [False, True])
def test_columns_of_few_words_keep_their_codes(tmp_path: Path, size: int, version: str, missing: bool) -> None:
    """Row groups have dictionaries of their own, and batches lie across them."""
    path = tmp_path / "f.parquet"
    words = [None if missing and row % 5 == 0 else f"kind {row // 100}" for row in range(N)]
    given = pa.table({"n": range(N), "kind": words})
    pq.write_table(given, path, row_group_size=size, data_page_version=version, data_page_size=64, write_batch_size=16)
    schema = RowSchema(columns={"n": "int", "kind": "string"})
    found = batches(path, schema, batch_rows=256)
    assert rows_of(found) == given.to_pydict()
    if size > 7:
        assert all(pa.types.is_dictionary(batch.columns.column("kind").type) for batch in found)


def test_a_dictionary_that_was_given_up_halfway(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    words = ["common"] * 9_000 + [f"w{row:02d}" for row in range(100)] + ["common"] * 900
    pq.write_table(
        pa.table({"kind": words}), path, dictionary_pagesize_limit=256, data_page_size=128, write_batch_size=50
    )
    assert {"PLAIN", "RLE_DICTIONARY"} <= set(pq.read_metadata(path).row_group(0).column(0).encodings)
    schema = RowSchema(columns={"kind": "string"})
    for rows in (10_000, 700):
        found = batches(path, schema, batch_rows=rows)
        assert [word for batch in found for word in batch.columns.column("kind").to_pylist()] == words


def test_a_code_outside_its_dictionary_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    words = [f"kind {row % 3}" for row in range(N)]
    pq.write_table(pa.table({"kind": words}), path, compression="none")
    data = bytearray(path.read_bytes())
    place = pq.read_metadata(path).row_group(0).column(0)
    stop = place.dictionary_page_offset + place.total_compressed_size
    data[stop - 9 : stop] = b"\xff" * 9  # two bits of every code: 3, of three words
    path.write_bytes(data)
    with pytest.raises(SourceError, match=r"f.parquet \(row group 0\) could not be read: column 'kind' points outside"):
        batches(path, RowSchema(columns={"kind": "string"}))


def test_other_columns_are_not_read(tmp_path: Path) -> None:
    """The bytes of an undeclared column are garbage, and nobody notices."""
    path = tmp_path / "visits.parquet"
    pq.write_table(table(), path, compression="none", use_dictionary=False)
    data = bytearray(path.read_bytes())
    place = pq.read_metadata(path).row_group(0).column(3)
    start = place.data_page_offset
    data[start : start + place.total_compressed_size] = os.urandom(place.total_compressed_size)
    path.write_bytes(data)
    assert rows_of(batches(path)) == expected()
    with pytest.raises(SourceError, match=r"visits.parquet \(row group 0\) could not be read: it is cut off, damaged"):
        batches(path, RowSchema(columns={"secret": "string"}))


def test_parquet_goes_on_behind_what_was_applied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "visits.parquet"
    pq.write_table(table(), path, row_group_size=100)
    skipped = []
    skip = ParquetFile.skip
    monkeypatch.setattr(ParquetFile, "skip", lambda self, rows: skipped.append(skip(self, rows)) or skipped[-1])
    for applied in (0, 99, 100, 550, 999, 1000, 5000):
        source = FileSource([str(path)], SCHEMA, batch_rows=256)
        source.resume({"visits.parquet": applied, "another": 7})
        found = [batch for batch in source.batches() if batch is not None]
        assert [n for batch in found for n in batch.columns.column("n").to_pylist()] == list(range(applied, N))
        assert not found or (found[0].first_row - 1, found[-1].sequence) == (applied, N)
    assert skipped == [0, 0, 100, 500, 900, 1000, 1000]  # whole row groups are not even read


def test_bad_rows_in_parquet(tmp_path: Path) -> None:
    path = tmp_path / "visits.parquet"
    data = pa.table(
        {"ip": ["a", None, "c", "d"], "n": pa.array([1, 2, 2**63 + 5, 4], pa.uint64()), "symptom": ["x"] * 4}
    )
    pq.write_table(data, path)
    (batch,) = batches(path)
    assert good(batch).column("n").to_pylist() == [1, 4]
    assert [(bad.row, bad.reason) for bad in batch.bad_rows(SCHEMA)] == [
        (2, "column ip, the user, is missing"),
        (3, "column n is not a whole number of 64 bits"),
    ]


def test_memory_does_not_grow_with_row_groups(tmp_path: Path) -> None:
    """A row group of 16 MB is read a page at a time."""
    path = tmp_path / "big.parquet"
    pq.write_table(pa.table({"n": np.arange(2_000_000)}), path, row_group_size=2_000_000, use_dictionary=False)
    before = pa.total_allocated_bytes()
    highest = 0
    for batch in FileSource([str(path)], RowSchema(columns={"n": "int"}), batch_rows=10_000).batches():
        assert batch is not None
        highest = max(highest, pa.total_allocated_bytes() - before)
    assert highest < 5_000_000


@pytest.mark.parametrize("content", [b"", b"PAR1", b"not parquet at all, secret", b"PAR1" + bytes(100) + b"PAR1"])
def test_files_that_are_not_parquet(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "visits.parquet"
    path.write_bytes(content)
    with pytest.raises(SourceError, match="not a Parquet file") as caught:
        batches(path)
    assert caught.value.__context__ is None


def test_truncated_parquet(tmp_path: Path) -> None:
    path = tmp_path / "visits.parquet"
    pq.write_table(table(), path, row_group_size=10)
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    with pytest.raises(SourceError, match="visits.parquet could not be read"):
        batches(path)


# --- Arrow IPC --------------------------------------------------------------------------------------------------------


def write_ipc(path: Path, data: pa.Table, *, stream: bool, chunk: int = 300, **options: object) -> None:
    settings = pa.ipc.IpcWriteOptions(**options)
    with path.open("wb") as file:
        writer = pa.ipc.new_stream if stream else pa.ipc.new_file
        with writer(file, data.schema, options=settings) as out:
            out.write_table(data, max_chunksize=chunk)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("options", [{}, {"compression": "zstd"}, {"compression": "lz4"}])
def test_arrow(tmp_path: Path, stream: bool, options: dict[str, object]) -> None:
    path = tmp_path / "visits.arrow"
    write_ipc(path, table(), stream=stream, **options)
    found = batches(path, batch_rows=256)
    assert rows_of(found) == expected()
    assert [len(batch) for batch in found] == [256, 256, 256, 232]
    for batch in found:
        batch.wipe()
    assert rows_of(batches(path, batch_rows=256)) == expected()  # the file itself is not touched


@pytest.mark.parametrize("stream", [True, False])
def test_arrow_dictionaries(tmp_path: Path, stream: bool) -> None:
    path = tmp_path / "visits.arrow"
    data = table()
    for name in ("ip", "symptom"):
        data = data.set_column(data.schema.get_field_index(name), name, data.column(name).dictionary_encode())
    write_ipc(path, data, stream=stream, unify_dictionaries=not stream)
    found = batches(path)
    assert rows_of(found) == expected()
    assert found[0].columns.column("ip").type == pa.string()


def test_arrow_through_a_pipe() -> None:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table().schema) as out:
        out.write_table(table(100))
    reading, writing = os.pipe()
    os.write(writing, sink.getvalue())
    os.close(writing)
    source = FileSource(["-"], SCHEMA, format="arrow", fd=reading)
    found = [batch for batch in source.batches() if batch is not None]
    os.close(reading)
    assert rows_of(found) == expected(100)
    for batch in found:
        batch.wipe()


def test_arrow_made_by_an_enemy(tmp_path: Path) -> None:
    """Offsets that point outside the data, codes outside the dictionary: refused, not followed."""
    path = tmp_path / "evil.arrows"
    offsets = pa.py_buffer(np.array([0, 3, 100_000_000, 6], np.int32))
    wild = pa.Array.from_buffers(pa.string(), 3, [None, offsets, pa.py_buffer(b"abcdef")])
    with path.open("wb") as file, pa.ipc.new_stream(file, pa.schema([("ip", pa.string())])) as out:
        out.write_batch(pa.RecordBatch.from_arrays([wild], ["ip"]))
    for user in ("ip", None):
        with pytest.raises(SourceError, match="evil.arrows could not be read"):
            batches(path, RowSchema(columns={"ip": "string"}, user=user))
    codes = pa.array([0, 5, 1], pa.int32())
    coded = pa.DictionaryArray.from_arrays(codes, pa.array(["a", "b"]), safe=False)
    with path.open("wb") as file, pa.ipc.new_stream(file, pa.schema([("ip", coded.type)])) as out:
        out.write_batch(pa.RecordBatch.from_arrays([coded], ["ip"]))
    for user in ("ip", None):
        with pytest.raises(SourceError, match="points outside its data"):
            batches(path, RowSchema(columns={"ip": "string"}, user=user))


@pytest.mark.parametrize("content", [b"", b"ARROW1", b"garbage, secret", b"ARROW1" + bytes(50)])
def test_files_that_are_not_arrow(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "visits.arrow"
    path.write_bytes(content)
    with pytest.raises(SourceError, match="not Arrow IPC") as caught:
        batches(path)
    assert caught.value.__context__ is None


def test_columns_that_do_not_fit(tmp_path: Path) -> None:
    for path in (tmp_path / "x.parquet", tmp_path / "x.arrow"):
        data = pa.table({"ip": [1, 2], "symptom": [datetime.date(2024, 1, 1)] * 2})
        if path.suffix == ".parquet":
            pq.write_table(data, path)
        else:
            write_ipc(path, data, stream=False)
        with pytest.raises(SourceError, match=f"{path.name}: column 'ip' is declared string"):
            batches(path)
        with pytest.raises(SourceError, match=f"{path.name} has no column 'n'"):
            batches(path, RowSchema(columns={"n": "int"}))


@pytest.mark.parametrize(
    ("offsets", "is_valid"),
    [
        ([0, 1, 3, 6], True),
        ([2, 2, 2, 2], True),
        ([6, 6, 6, 6], True),
        ([0, 1, 3, 7], False),
        ([-1, 1, 3, 6], False),
        ([0, 3, 1, 6], False),
        ([0, 2**40, 3, 6], False),
        ([2**62, 2**62, 2**62, 2**62], False),
        ([-(2**63), -(2**63), 0, 6], False),
    ],
)
def test_wide_offsets_are_narrowed_within_their_data(offsets: list[int], is_valid: bool) -> None:
    """Slices and missing values, too: what lies before the first offset belongs to somebody else."""
    data = b"abcdef"
    wide = np.array(offsets, np.int64)
    assert narrow_offsets(read_only(wide), len(data), np.empty(4, np.int32)) == is_valid
    if not 0 <= offsets[0] <= offsets[-1] <= len(data):
        return  # pyarrow makes no such array
    for kind, validity in itertools.product((pa.large_string(), pa.large_binary()), (pa.py_buffer(b"\x05"), None)):
        array = pa.Array.from_buffers(kind, 3, [validity, pa.py_buffer(wide), pa.py_buffer(data)])
        schema = RowSchema(columns={"text": "string" if kind == pa.large_string() else "binary"})
        for part in (array, array[1:]) if is_valid else (array,):
            batch = pa.RecordBatch.from_arrays([part], ["text"])
            if is_valid:
                rows = from_arrow(batch, schema, owned=False)
                assert rows.columns.column("text").to_pylist() == part.to_pylist()
                rows.wipe()
                assert array.buffers()[2].to_pybytes() == data
            else:
                with pytest.raises(SourceError, match="points outside its data"):
                    from_arrow(batch, schema)
