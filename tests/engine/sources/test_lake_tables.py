"""Delta and Iceberg tables at one snapshot, and columns from paths; what would count rows wrongly is refused."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import panstream
from panstream.engine.rows.row_batch import RowBatch, RowSchema
from panstream.engine.sources import FileSource
from panstream.engine.sources.hive_columns import infer_kinds
from panstream.engine.sources.input_files import expand_paths
from panstream.engine.sources.schema_guess import infer_schema
from panstream.errors import SourceError
from tests.engine.sources.lake_tables import DeltaTable, IcebergTable, write_rows
from tests.engine.sources.object_store import object_store

SCHEMA = RowSchema(columns={"ip": "string", "n": "int"}, user="ip")


def read(
    path: Path | str, applied: dict[str, int] | None = None, *, stop: int = 9_999, schema: RowSchema = SCHEMA
) -> list[int]:
    """Return the numbers of the rows; ``applied`` is brought up to date as an engine would."""
    positions = {} if applied is None else applied
    source = FileSource([str(path)], schema, batch_rows=50)
    source.resume(positions)
    numbers: list[int] = []
    for batch in source.batches():
        assert isinstance(batch, RowBatch)
        assert batch.producer is not None
        numbers += batch.columns.column("n").to_pylist()
        positions[batch.producer] = batch.sequence
        stop -= 1
        if not stop:
            break
    return numbers


# --- Delta ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("checkpointed", [False, True])
def test_a_delta_table_is_read_as_of_its_newest_version(tmp_path: Path, *, checkpointed: bool) -> None:
    table = DeltaTable(tmp_path / "visits")
    table.commit({"a.parquet": range(100), "b.parquet": range(100, 200)})
    table.commit({"c%2520d.parquet": range(200, 300)}, removed=["a.parquet"])
    if checkpointed:
        table.checkpoint()
        table.commit({"e.parquet": range(300, 400)})
        table.commit({}, removed=["e.parquet"])
    assert (tmp_path / "visits" / "a.parquet").exists()
    assert sorted(read(tmp_path / "visits")) == list(range(100, 300))
    assert infer_schema([str(tmp_path / "visits")]).columns == {"ip": "string", "n": "int"}


def test_a_run_goes_on_with_its_version_and_then_reads_what_was_appended(tmp_path: Path) -> None:
    table = DeltaTable(tmp_path / "visits")
    table.commit({f"{number}.parquet": range(100 * number, 100 * number + 100) for number in range(5)})
    applied: dict[str, int] = {}
    numbers = read(tmp_path / "visits", applied, stop=6)
    assert applied["visits#snapshot-1"] == 1
    table.commit({"0a.parquet": range(500, 600)})
    for counted in (500, 600, 600):
        numbers += read(tmp_path / "visits", applied)
        assert sorted(numbers) == list(range(counted))
    assert {key: value for key, value in applied.items() if "snapshot" in key} == {
        "visits#snapshot-1": 2,
        "visits#snapshot-2": 2,
    }


def test_a_run_goes_on_after_a_compaction_in_its_middle_and_then_refuses(tmp_path: Path) -> None:
    table = DeltaTable(tmp_path / "visits")
    table.commit({"a.parquet": range(100), "b.parquet": range(100, 200)})
    applied: dict[str, int] = {}
    numbers = read(tmp_path / "visits", applied, stop=3)
    table.commit({"ab.parquet": range(200)}, removed=["a.parquet", "b.parquet"])
    numbers += read(tmp_path / "visits", applied)
    assert sorted(numbers) == list(range(200))
    with pytest.raises(SourceError, match="the table 'visits' was rewritten since its rows were counted"):
        read(tmp_path / "visits", applied)
    (tmp_path / "visits" / "b.parquet").unlink()
    with pytest.raises(SourceError, match=r"b\.parquet belongs to the snapshot but is not there"):
        read(tmp_path / "visits", {"visits#snapshot-1": 1})


def test_partition_columns_come_from_the_log(tmp_path: Path) -> None:
    table = DeltaTable(tmp_path / "visits", partitioned=True)
    table.commit({"day=2026-11-01/a.parquet": range(10), "day=2026-11-02/a.parquet": range(10, 30)})
    sql = "SELECT day, COUNT(*) FROM v GROUP BY day"
    groups = {"day": ["2026-11-01", "2026-11-02"]}
    answer = panstream.query(tmp_path / "visits", sql, epsilon=1000.0, groups=groups, types={"day": "string"})
    assert [round(row["estimate"]) for row in answer.rows] == [10, 20]
    assert (tmp_path / "visits.ledger").exists()  # one for the table: its files come and go
    assert not list((tmp_path / "visits").rglob("*.ledger"))


def test_deltas_that_do_not_consist_of_whole_files_are_refused(tmp_path: Path) -> None:
    def table(name: str, **options: str | int) -> DeltaTable:
        made = DeltaTable(tmp_path / name, **options)  # type: ignore[arg-type]
        made.commit({"a.parquet": range(10)})
        return made

    vector = {"storageType": "u", "pathOrInlineDv": "x", "offset": 1, "sizeInBytes": 1, "cardinality": 1}
    cut = table("cut", reader=3, features="deletionVectors")
    assert read(tmp_path / "cut") == list(range(10))
    cut.commit({"b.parquet": range(5)}, deletionVector=vector)
    table("renamed", reader=2, **{"delta.columnMapping.mode": "name"})
    table("newer", reader=3, features="deletionVectors,variantType")
    table("newest", reader=4, features="x")
    broken = table("broken")
    (broken.root / "_delta_log" / f"{1:020}.json").write_text("{")
    lost = table("lost")
    lost.commit({"b.parquet": range(5)})
    (lost.root / "_delta_log" / f"{1:020}.json").unlink()
    clone = table("clone")
    clone.commit({})
    (clone.root / "_delta_log" / f"{2:020}.json").write_text('{"add": {"path": "s3://other/a.parquet"}}')
    for name, message in {
        "cut": "deleted rows",
        "renamed": "renamed columns",
        "newer": "not supported: variantType",
        "newest": "not supported",
        "broken": "damaged",
        "lost": "version 1 of its _delta_log is missing",
        "clone": "files elsewhere",
    }.items():
        with pytest.raises(SourceError, match=message):
            read(tmp_path / name)


def test_a_delta_table_in_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    table = DeltaTable(tmp_path / "visits")
    table.commit({"a.parquet": range(100), "b.parquet": range(100, 200)})
    with object_store() as store:
        store.put_directory(table.root, "lake/visits")
        applied: dict[str, int] = {}
        numbers = read(store.address("lake/visits"), applied, stop=3)
        table.commit({"c.parquet": range(200, 250)})
        store.put_directory(table.root, "lake/visits")  # every object has another time now
        for _ in range(2):
            numbers += read(store.address("lake/visits"), applied)
        assert sorted(numbers) == list(range(250))
        answer = panstream.query(store.address("lake/visits"), "SELECT COUNT(*) FROM v", epsilon=1.0)
    assert answer.covered == "all answers about the table visits"
    (ledger,) = (tmp_path / "state" / "panstream" / "ledgers").iterdir()
    assert ledger.name.startswith("visits-")


# --- Iceberg ----------------------------------------------------------------------------------------------------------


def test_an_iceberg_table_is_read_as_of_its_current_snapshot(tmp_path: Path) -> None:
    table = IcebergTable(tmp_path / "visits")
    table.commit({"data/a.parquet": range(100), "data/b.parquet": range(100, 200)})
    write_rows(tmp_path / "visits/data/orphan.parquet", range(7))
    applied: dict[str, int] = {}
    numbers = read(tmp_path / "visits", applied, stop=3)
    table.commit({"data/0.parquet": range(200, 300)})
    for counted in (200, 300, 300):
        numbers += read(tmp_path / "visits", applied)
        assert sorted(numbers) == list(range(counted))
    assert read(tmp_path / "visits/metadata/00001-aaaa.metadata.json") == list(range(200))  # the file that one names
    table.commit({"data/ab.parquet": range(200)}, removed=["data/a.parquet", "data/b.parquet"])
    with pytest.raises(SourceError, match="was rewritten"):
        read(tmp_path / "visits", applied)


def test_icebergs_that_do_not_consist_of_whole_files_are_refused(tmp_path: Path) -> None:
    def table(name: str) -> IcebergTable:
        made = IcebergTable(tmp_path / name)
        made.commit({"data/a.parquet": range(10)})
        return made

    table("deletes").commit({"data/d.parquet": range(2)}, content=1)
    table("two").write_metadata(1, "bbbb")
    table("newer").write_metadata(2, version=3)
    (table("broken").root / "metadata/snap-1.avro").write_bytes(b"Obj\x01nothing")
    write_rows(table("renamed").root / "data/a.parquet", range(10), [1, 3])
    elsewhere = IcebergTable(tmp_path / "elsewhere", "s3://lake/x")
    elsewhere.commit({"data/a.parquet": range(10)})
    elsewhere.location = "s3://lake/y"
    elsewhere.write_metadata(2)
    for name, message in {
        "deletes": "deleted rows",
        "two": "two metadata files have the number 1",
        "newer": "version 3 are not supported",
        "broken": "damaged",
        "renamed": "column 'n' of the table is another one in this file",
        "elsewhere": "outside its location",
    }.items():
        with pytest.raises(SourceError, match=message):
            read(tmp_path / name)
    assert read(table("moved").root.rename(tmp_path / "new place")) == list(range(10))
    assert expand_paths([str(IcebergTable(tmp_path / "empty").write_metadata(1))]) == []


# --- columns from paths -----------------------------------------------------------------------------------------------


def test_columns_from_paths(tmp_path: Path) -> None:
    for day in (1, 2):
        for region in ("north", "S%20E", "__HIVE_DEFAULT_PARTITION__"):
            write_rows(tmp_path / f"visits/day=2026-11-0{day}/region={region}/x.parquet", range(10 * day))
    guess = infer_schema([str(tmp_path / "visits")])
    assert guess.columns == {"day": "date", "region": "string", "ip": "string", "n": "int"}
    sql = "SELECT region, COUNT(*) FROM v WHERE day = DATE '2026-11-02' GROUP BY region"
    answer = panstream.query(
        tmp_path / "visits", sql, epsilon=1000.0, groups={"region": ["north", "S E"]}, ledger=False
    )
    assert [round(row["estimate"]) for row in answer.rows] == [20, 20]
    total = panstream.query(f"{tmp_path}/visits/*/*/x.parquet", "SELECT COUNT(*) FROM v", epsilon=1000.0, ledger=False)
    assert round(float(total)) == 90
    one = RowSchema(columns={"day": "string", "n": "int"})
    assert read(tmp_path / "visits/day=2026-11-01/region=north", schema=one) == list(range(10))


def test_the_column_in_a_file_wins_over_its_path(tmp_path: Path) -> None:
    write_rows(tmp_path / "n=7/x.parquet", range(3))
    assert read(tmp_path / "n=7") == [0, 1, 2]


def test_paths_with_users_or_values_of_another_type_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "ip=secret-user/hour=x/x.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(pa.table({"n": [1]}), path)
    for columns, message in (
        ({"ip": "string", "n": "int"}, "the user column 'ip'"),
        ({"hour": "int"}, "declared type"),
    ):
        with pytest.raises(SourceError, match=message) as error:
            read(tmp_path, schema=RowSchema(columns=columns, user="ip"))
        assert "secret-user" not in str(error.value)


def test_kinds_of_path_columns() -> None:
    paths = [
        {"a": "1", "b": "2026-01-01", "c": "1", "d": None, "e": "x"},
        {"a": "02", "b": "2026-01-02", "c": "x", "d": None},
    ]
    assert infer_kinds(paths) == {"a": "int", "b": "date", "c": "string", "d": "string"}
