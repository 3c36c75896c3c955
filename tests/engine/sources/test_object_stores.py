"""Files in an object store, through pyarrow's own S3 client: what is fetched, what is refused, and going on."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import panstream
from panstream.engine.rows.row_batch import RowBatch, RowSchema
from panstream.engine.sources import FileSource, TailSource
from panstream.engine.sources import object_stores as stores
from panstream.engine.sources.input_files import expand_paths
from panstream.engine.sources.object_stores import Store, is_live
from panstream.errors import InvalidParameter, SourceError
from panstream.primitives.memory.process_hardening import ENVIRONMENT
from panstream.testing.memory import make_needles
from tests.engine.sources.object_store import ObjectStore, object_store
from tests.scanned import Scanned

SCHEMA = RowSchema(columns={"ip": "string", "n": "int"}, user="ip")


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    for name, value in {
        "AWS_ACCESS_KEY_ID": "some-key",
        "AWS_SECRET_ACCESS_KEY": "secret-of-the-store",
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    with object_store() as opened:
        yield opened


def parquet_of(numbers: range, **options: Any) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table({"ip": [f"u{n}" for n in numbers], "n": list(numbers)}), file, **options)
    return file.getvalue()


def csv_of(numbers: range) -> bytes:
    return b"ip,n\n" + b"".join(b"u%d,%d\n" % (n, n) for n in numbers)


def read(inputs: list[str], applied: dict[str, int] | None = None, rows: int = 50, stop: int = 9_999) -> list[int]:
    """Return the numbers of the rows; ``applied`` is brought up to date as an engine would."""
    positions = {} if applied is None else applied
    source = FileSource(inputs, SCHEMA, batch_rows=rows)
    source.resume(positions)
    numbers: list[int] = []
    for batch in source.batches():
        assert isinstance(batch, RowBatch)
        numbers += batch.columns.column("n").to_pylist()
        assert batch.producer is not None
        positions[batch.producer] = batch.sequence
        stop -= 1
        if not stop:
            break
    return numbers


def test_files_globs_and_directories(store: ObjectStore) -> None:
    for number in range(20):
        store.put(f"b/visits/day={number:02}/part.parquet", parquet_of(range(10 * number, 10 * number + 10)))
    store.put("b/visits/_SUCCESS", b"")
    store.put("b/visits/README.md", b"about")
    store.put("b/one.csv", csv_of(range(5)))
    assert read([store.address("b/visits")]) == list(range(200))
    assert read([store.address("b/visits/")]) == list(range(200))
    assert read([store.address("b/visits/day=0[12]/*.parquet")]) == list(range(10, 30))
    assert read([store.address("b/**/day=1[0-9]/part.parquet")]) == list(range(100, 200))
    assert read([store.address("b/one.csv")]) == list(range(5))
    named = expand_paths([store.address("b/visits/day=03")])
    assert [(file.name, dict(file.values)) for file in named] == [("part.parquet", {"day": "03"})]
    for path, message in {"b/none": "does not exist", "b/*.parquet": "no file matches"}.items():
        with pytest.raises(SourceError, match=message):
            expand_paths([store.address(path)])


def test_only_what_is_needed_of_a_large_file_is_fetched(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "_WHOLE_BYTES", 0)
    monkeypatch.setattr(stores, "_WINDOW_BYTES", 1 << 14)
    monkeypatch.setattr(stores, "_GAP_BYTES", 0)
    rows = 40_000
    table = pa.table(
        {"ip": [f"u{n}" for n in range(rows)], "n": range(rows), "large": [f"x{n}" * 20 for n in range(rows)]}
    )
    file = io.BytesIO()
    pq.write_table(table, file, row_group_size=10_000, use_dictionary=False, compression="none")
    store.put("b/large.parquet", file.getvalue())
    store.put("b/large.csv", csv_of(range(rows)))
    assert read([store.address("b/large.parquet")], rows=7_000) == list(range(rows))
    spans = [span for path, span in store.gets() if "parquet" in path]
    fetched = sum(int(span[6:].split("-")[1]) - int(span[6:].split("-")[0]) + 1 for span in spans)
    assert fetched < len(file.getvalue()) / 3
    assert len(spans) < 20
    assert read([store.address("b/large.csv")], rows=7_000) == list(range(rows))


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_a_run_goes_on_where_it_was_stopped(store: ObjectStore, kind: str) -> None:
    write = parquet_of if kind == "parquet" else csv_of
    for number in range(9):
        store.put(f"b/in/{number}.{kind}", write(range(100 * number, 100 * number + 100)))
    applied: dict[str, int] = {}
    numbers = read([store.address("b/in")], applied, rows=30, stop=11)
    assert len(numbers) == (275 if kind == "parquet" else 290)  # in batches of 25, or of 30 and 10 at the end of a file
    store.put(f"b/in/0a.{kind}", write(range(900, 1000)))  # in the middle of the order
    while more := read([store.address("b/in")], applied, rows=30, stop=7):
        numbers += more
    assert sorted(numbers) == list(range(1000))


def test_changed_files_are_refused(store: ObjectStore) -> None:
    store.put("b/in/0.csv", csv_of(range(100)))
    store.put("b/in/1.csv", csv_of(range(100, 200)))
    applied: dict[str, int] = {}
    assert read([store.address("b/in")], applied) == list(range(200))
    store.put("b/in/0.csv", csv_of(range(300, 400)))
    with pytest.raises(SourceError, match=r"0\.csv has changed since its rows were counted"):
        read([store.address("b/in")], applied)
    store.objects.pop("b/in/0.csv")
    assert read([store.address("b/in")], applied) == []  # a file that was removed is no reason to stop


@pytest.mark.parametrize("size", [100, 101])
def test_a_file_that_changes_while_it_is_read_is_refused(store: ObjectStore, size: int) -> None:
    """Also if its size stays the same: the etag differs."""
    store.put("b/in.csv", csv_of(range(100, 200)))
    source = FileSource([store.address("b/in.csv")], SCHEMA, batch_rows=10)
    batches = source._file_batches(source._files[0], 1)
    next(batches)
    store.put("b/in.csv", csv_of(range(200, 200 + size)))
    with pytest.raises(SourceError, match="changed while it was read"):
        list(batches)


def test_an_etag_is_neither_stored_nor_held_after_the_file_was_read(store: ObjectStore) -> None:
    store.put("b/in.csv", csv_of(range(100)))
    source = FileSource([store.address("b/in.csv")], SCHEMA, batch_rows=10)
    producers = {batch.producer for batch in source.batches() if batch is not None}
    file = source._files[0].path
    assert isinstance(file, stores.RemoteFile)
    assert file._etag is None
    assert producers == {f"in.csv@{file.version}"}
    before = file.version
    store.objects["b/in.csv"] = csv_of(range(100, 200)), store.objects["b/in.csv"][1]
    (again,) = expand_paths([store.address("b/in.csv")])
    assert isinstance(again.path, stores.RemoteFile)
    assert again.path.version == before  # a function of the time alone


def test_pieces_are_overwritten(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "_WHOLE_BYTES", 0)
    monkeypatch.setattr(stores, "_WINDOW_BYTES", 1_000)
    store.put("b/in.csv", csv_of(range(5_000)))
    fetched = []
    fetch = stores.RemoteBytes._fetch

    def note(self: Any, start: int, stop: int) -> Any:
        fetched.append(fetch(self, start, stop))
        return fetched[-1]

    monkeypatch.setattr(stores.RemoteBytes, "_fetch", note)
    assert read([store.address("b/in.csv")]) == list(range(5_000))
    assert len(fetched) > 20
    assert not any(piece.any() for piece in fetched)


def test_a_store_that_fails(store: ObjectStore) -> None:
    store.put("b/in.csv", csv_of(range(100)))
    (file,) = expand_paths([store.address("b/in.csv")])
    assert isinstance(file.path, stores.RemoteFile)
    opened = file.path.open()
    store.objects.clear()
    with pytest.raises(SourceError, match=r"in\.csv could not be fetched"):
        opened.read(10)
    opened.close()
    with pytest.raises(SourceError) as error:
        file.path.open()
    assert "secret" not in str(error.value)
    assert error.value.__context__ is None


def test_addresses_that_do_not_work(monkeypatch: pytest.MonkeyPatch) -> None:
    for address, message in {
        "s3://key:secret@bucket/x.csv": "must not contain credentials",
        "s3://key@bucket/x.csv": "must not contain credentials",
        "s3://bucket/x.csv?endpoint=127.0.0.1:9000": "endpoint must be http://",
        "s3://bucket/x.csv?secret_key=a": "has the options endpoint and region",
        "abfs://c@account.dfs.core.windows.net/x.csv?endpoint=http://a": "has no options",
    }.items():
        with pytest.raises(InvalidParameter, match=message):
            expand_paths([address])
    with pytest.raises(SourceError, match="ftp:// addresses cannot be read here: download or mount.*s3://, gs://"):
        expand_paths(["ftp://host/x.csv"])
    with pytest.raises(SourceError, match="object stores do not grow"):
        TailSource(["s3://bucket/x.csv"], SCHEMA)
    for filesystem in ("gs://bucket/a/b", "abfs://container@account.dfs.core.windows.net/a/b"):
        opened = Store(filesystem)
        assert opened.path.endswith("/a/b")
        assert opened.uri_of(opened.path) == filesystem
    assert [is_live(text) for text in ("-", "kafka://h/t", "redis://h#s", "s3://b/x", "x.csv", "gs://b")] == [
        True, True, True, False, False, False,
    ]  # fmt: skip


def test_query_charges_one_ledger_per_address(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    address = store.address("b/visits.parquet")
    store.put("b/visits.parquet", parquet_of(range(1000)))
    answers = [panstream.query(address, "SELECT COUNT(*) FROM v", epsilon=0.5) for _ in range(2)]
    store.put("b/visits.parquet", parquet_of(range(2000)))
    answers.append(panstream.query(address, "SELECT COUNT(*) FROM v", epsilon=0.5))
    assert [round(answer.ledger.total("event")[0], 6) for answer in answers if answer.ledger] == [0.5, 1.0, 1.5]
    assert 1900 < float(answers[2]) < 2100
    (ledger,) = (tmp_path / "panstream" / "ledgers").iterdir()
    assert ledger.name.startswith("visits.parquet-")
    text = ledger.read_text()
    assert "secret-of-the-store" not in text
    assert "127.0.0.1" not in text
    with pytest.raises(panstream.errors.BudgetExhausted):
        panstream.query(address, "SELECT COUNT(*) FROM v", epsilon=0.5, budget=1.9)


READER = """
from panstream.engine.sources import FileSource
from panstream.engine.rows.row_batch import RowSchema
source = FileSource([line().decode()], RowSchema(columns={"ip": "string"}, user="ip"), batch_rows=100_000)
for batch in source.batches():
    answer()
    line()
    batch.wipe()
del batch, source
answer()
line()
"""


@pytest.mark.slow
@pytest.mark.usefixtures("warm_scanner")
@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_nothing_of_a_file_stays_in_memory(store: ObjectStore, kind: str) -> None:
    """Not even in the buffers of the store's client."""
    ids = make_needles(5_000)
    file = io.BytesIO()
    pq.write_table(pa.table({"ip": ids}), file, compression="none")
    store.put(f"b/in.{kind}", file.getvalue() if kind == "parquet" else "\n".join(["ip", *ids]).encode())
    reader = Scanned(READER, ENVIRONMENT)
    try:
        reader.send(f"{store.address(f'b/in.{kind}')}\n".encode())
        reader.wait_ready()
        assert reader.scan(ids).found, "the batch in hand is there, so that the scan can find such things"
        reader.send(b"go on\n")
        reader.wait_ready()
        assert not reader.scan(ids).found
    finally:
        reader.close()
