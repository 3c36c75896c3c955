"""Files, globs, directories, pipes and compression; where batches end, and going on after a crash."""

import bz2
import errno
import gzip
import lzma
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from panstream.engine.rows.row_batch import RowBatch, RowSchema
from panstream.engine.sources import Dialect, FileSource, RedisStreamSource, TailSource, open_source
from panstream.engine.sources.byte_streams import compression_of
from panstream.engine.sources.files import _position_in
from panstream.engine.sources.input_files import expand_paths, format_from_name
from panstream.errors import InvalidParameter, SourceError
from tests.engine.runtime.streams import good

SCHEMA = RowSchema(columns={"ip": "string", "n": "int"}, user="ip")
CODECS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": lambda data: pa.compress(data, codec="zstd", asbytes=True),
}


def csv_of(numbers: range) -> bytes:
    return b"ip,n\n" + b"".join(b"u%d,%d\n" % (n, n) for n in numbers)


def numbers(batches: list[RowBatch | None]) -> list[int]:
    return [n for batch in batches if batch is not None for n in good(batch).column("n").to_pylist()]


# --- which files ------------------------------------------------------------------------------------------------------


def test_directories_and_globs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("day/b.csv", "day/a.csv", "day/deep/c.jsonl", "day/README.md", "day/.hidden.csv", "day/_tmp/x.csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = expand_paths([str(tmp_path / "day")])
    assert [(file.name, file.format) for file in found] == [
        ("a.csv", "csv"),
        ("b.csv", "csv"),
        ("deep/c.jsonl", "json"),
    ]
    assert [file.name for file in expand_paths([f"{tmp_path}/day/*.csv"])] == ["a.csv", "b.csv"]
    assert [file.name for file in expand_paths([f"{tmp_path}/*/a.csv"])] == ["day/a.csv"]
    assert [file.name for file in expand_paths([f"{tmp_path}/day/**/*.jsonl"])] == ["deep/c.jsonl"]
    assert [file.name for file in expand_paths([str(tmp_path / "day/b.csv"), "-"])] == ["b.csv", "standard input"]
    monkeypatch.chdir(tmp_path)
    assert [file.name for file in expand_paths(["day"])] == [file.name for file in found]  # wherever it is seen from
    assert [file.name for file in expand_paths(["day/[ab].csv"])] == ["a.csv", "b.csv"]


def test_names_tell_the_format() -> None:
    names = {
        "x.CSV": "csv",
        "x.tsv.zst": "tsv",
        "x.ndjson.gz": "json",
        "x.pq": "parquet",
        "x.feather": "arrow",
        "x.md": None,
    }
    assert {name: format_from_name(Path(name)) for name in names} == names


def test_inputs_that_do_not_work(tmp_path: Path) -> None:
    for name in ("a/x.csv", "b/x.csv", "c.data"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    with pytest.raises(SourceError, match="two inputs would have the same name, 'x.csv'"):
        expand_paths([str(tmp_path / "a/x.csv"), str(tmp_path / "b/x.csv")])
    assert len(expand_paths([str(tmp_path / "*/x.csv")])) == 2
    with pytest.raises(SourceError, match="no file matches"):
        expand_paths([str(tmp_path / "*.parquet")])
    with pytest.raises(SourceError, match=r"gone.csv does not exist"):
        expand_paths([str(tmp_path / "gone.csv")])
    with pytest.raises(SourceError, match="c.data: the file name does not say the format"):
        expand_paths([str(tmp_path / "c.data")])
    assert expand_paths([str(tmp_path / "c.data")], format="csv")[0].format == "csv"
    with pytest.raises(InvalidParameter, match="at least one input"):
        expand_paths([])
    with pytest.raises(InvalidParameter, match="format must be one of"):
        expand_paths(["-"], format="xml")  # type: ignore[arg-type]
    with pytest.raises(SourceError, match="Parquet cannot be read from standard input"):
        list(FileSource(["-"], SCHEMA, format="parquet").batches())


def test_several_files(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(csv_of(range(5)))
    (tmp_path / "b.jsonl").write_text('{"n":5,"ip":"x"}\n{"n":6,"ip":"y"}\n')
    pq.write_table(pa.table({"ip": ["p", "q"], "n": [7, 8]}), tmp_path / "c.parquet")
    source = FileSource([str(tmp_path)], SCHEMA, batch_rows=3)
    seen = []
    shares = []
    for batch in source.batches():
        seen.append(batch)
        shares.append(source.progress())
    assert numbers(seen) == list(range(9))
    assert [(b.producer, b.sequence) for b in seen if b] == [
        ("a.csv", 3),
        ("a.csv", 5),
        ("b.jsonl", 2),
        ("c.parquet", 2),
    ]
    assert shares == sorted(shares)
    assert source.progress() == 1.0
    source.acknowledge(None)
    source.close()


def test_progress_of_a_file_that_the_reading_thread_closes(tmp_path: Path) -> None:
    """Closed before the question, or during it: the descriptor is gone although the object was still open."""

    class ClosedMeanwhile:
        def tell(self) -> int:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))

    path = tmp_path / "a.csv"
    path.write_bytes(csv_of(range(5)))
    with path.open("rb", buffering=0) as raw:
        raw.read(3)
        assert _position_in(raw, 30) == 3.0
    assert _position_in(raw, 30) == 30.0
    assert _position_in(ClosedMeanwhile(), 30) == 30.0


def test_going_on_after_a_crash(tmp_path: Path) -> None:
    """Wherever a run ended, the next one yields exactly the rest, with other batch sizes too."""
    (tmp_path / "a.csv").write_bytes(csv_of(range(10)))
    (tmp_path / "b.csv").write_bytes(csv_of(range(10, 17)))
    whole = [b for b in FileSource([str(tmp_path)], SCHEMA, batch_rows=3).batches() if b]
    for stop in range(len(whole) + 1):
        applied = {batch.producer or "": batch.sequence or 0 for batch in whole[:stop]}
        for rows in (3, 4):
            source = FileSource([str(tmp_path)], SCHEMA, batch_rows=rows)
            source.resume(applied)
            rest = list(source.batches())
            assert numbers(list(whole[:stop])) + numbers(rest) == list(range(17))
            if rows == 3:
                assert [b.sequence for b in rest if b] == [b.sequence for b in whole[stop:]]


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "big.csv"
    path.write_bytes(csv_of(range(1_000_000)))
    before = pa.total_allocated_bytes()
    highest = 0
    source = FileSource([str(path)], SCHEMA, batch_rows=10_000)
    assert path.stat().st_size > 14_000_000
    rows = 0
    for batch in source.batches():
        assert batch is not None
        rows += len(batch)
        highest = max(highest, pa.total_allocated_bytes() - before)
    assert rows == 1_000_000
    assert highest < 6_000_000


# --- compression ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
def test_compressed(tmp_path: Path, codec: str) -> None:
    path = tmp_path / f"visits.csv.{codec}"
    path.write_bytes(CODECS[codec](csv_of(range(3000))))
    source = FileSource([str(path)], SCHEMA, batch_rows=1000)
    assert numbers(list(source.batches())) == list(range(3000))
    assert source.progress() == 1.0
    path.write_bytes(CODECS[codec](csv_of(range(10))) + CODECS[codec](b"x,10\n"))  # two members in a row
    assert numbers(list(FileSource([str(path)], SCHEMA).batches())) == list(range(11))
    misnamed = path.rename(tmp_path / "misnamed.csv")
    assert numbers(list(FileSource([str(misnamed)], SCHEMA).batches())) == list(range(11))


@pytest.mark.parametrize("codec", CODECS)
def test_compressed_and_cut_off(tmp_path: Path, codec: str) -> None:
    path = tmp_path / f"visits.csv.{codec}"
    path.write_bytes(CODECS[codec](csv_of(range(30000)))[:-9])
    with pytest.raises(SourceError, match=f"visits.csv.{codec} could not be read: it is cut off") as caught:
        list(FileSource([str(path)], SCHEMA).batches())
    assert caught.value.__context__ is None


@pytest.mark.parametrize("codec", CODECS)
def test_compressed_arrow(tmp_path: Path, codec: str) -> None:
    table = pa.table({"ip": [f"u{n}" for n in range(500)], "n": range(500)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as out:
        out.write_table(table)
    path = tmp_path / f"visits.arrows.{codec}"
    path.write_bytes(CODECS[codec](sink.getvalue().to_pybytes()))
    assert numbers(list(FileSource([str(path)], SCHEMA).batches())) == list(range(500))


def test_what_looks_compressed() -> None:
    assert compression_of(b"BZhello,x\n") is None
    assert [compression_of(pack(b"x")[:10]) for pack in CODECS.values()] == ["gzip", "bz2", "xz", "zstd"]
    assert compression_of(b"") is None


# --- pipes ------------------------------------------------------------------------------------------------------------


def test_standard_input_as_it_comes() -> None:
    """Rows go after ``batch_time``, an idle pipe gives ``None``, and a half line waits for its other half."""
    reading, writing = os.pipe()
    now = [0.0]
    source = FileSource(["-"], SCHEMA, batch_time=0.02, fd=reading, poll=0.0, clock=lambda: now[0])
    assert source.progress() is None
    stream = source.batches()
    assert next(stream) is None
    os.write(writing, b"ip,n\nu1,1\nu2,2\nu3,")
    assert next(stream) is None
    now[0] = 0.03
    batch = next(stream)
    assert batch is not None and batch.columns.column("n").to_pylist() == [1, 2]
    assert (batch.producer, batch.sequence) == ("standard input", 2)
    assert next(stream) is None
    os.write(writing, b"3\nu4,4")
    os.close(writing)
    assert numbers(list(stream)) == [3, 4]
    os.close(reading)


def test_standard_input_by_rows() -> None:
    reading, writing = os.pipe()
    os.write(writing, csv_of(range(10)))
    os.close(writing)
    source = FileSource(["-"], SCHEMA, batch_rows=4, fd=reading, clock=lambda: 0.0)
    source.resume({"standard input": 2})
    batches = [batch for batch in source.batches() if batch is not None]
    assert [batch.columns.column("n").to_pylist() for batch in batches] == [[2, 3, 4, 5], [6, 7, 8, 9]]
    os.close(reading)


@pytest.mark.parametrize("codec", CODECS)
def test_standard_input_compressed(codec: str) -> None:
    reading, writing = os.pipe()
    os.write(writing, CODECS[codec](csv_of(range(1000))))
    os.close(writing)
    assert numbers(list(FileSource(["-"], SCHEMA, fd=reading).batches())) == list(range(1000))
    os.close(reading)


def test_standard_input_empty() -> None:
    reading, writing = os.pipe()
    os.close(writing)
    assert list(FileSource(["-"], SCHEMA, fd=reading).batches()) == []
    os.close(reading)


# --- front door -------------------------------------------------------------------------------------------------------


def test_front_door(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text('ip\tn\n"u\t1\n')
    source = open_source([str(tmp_path)], SCHEMA, dialect=Dialect(delimiter="\t", quote=None))
    assert isinstance(source, FileSource)
    assert numbers(list(source.batches())) == [1]
    assert isinstance(open_source([str(tmp_path)], SCHEMA, follow=True), TailSource)
    assert isinstance(open_source(["redis://localhost:1/0#visits"], SCHEMA), RedisStreamSource)
    for wrong in (["redis://localhost"], ["redis://localhost#a", "b.csv"]):
        with pytest.raises(SourceError, match="a Redis stream must be the only input"):
            open_source(wrong, SCHEMA)
    with pytest.raises(SourceError, match="and no format"):
        open_source(["redis://localhost#a"], SCHEMA, format="csv")


def test_files_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.csv"
    path.touch()
    source = FileSource([str(path)], SCHEMA)
    path.unlink()
    with pytest.raises(SourceError, match=r"a.csv does not exist"):
        list(source.batches())
    path.mkdir()
    with pytest.raises(SourceError, match=r"a.csv is a directory"):
        list(source.batches())
    path.rmdir()
    path.touch()

    def refuse(*given: object) -> object:
        raise PermissionError

    monkeypatch.setattr("panstream.engine.sources.byte_streams.io.FileIO", refuse)
    with pytest.raises(SourceError, match=r"a.csv may not be read"):
        list(source.batches())
