"""Every Arrow type by every way in: DuckDB's answers on the same rows, or a clear refusal; never anything else."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from panstream.client.client import Client
from panstream.client.transport import as_batches, encode
from panstream.engine.config.config import Config, read_config
from panstream.engine.reporting.export import answers
from panstream.engine.rows.row_batch import RowBatch, RowSchema
from panstream.engine.runtime.engine import Engine
from panstream.engine.runtime.ingest import ingest_all
from panstream.engine.runtime.selector import Selector
from panstream.engine.sources import TableSource, open_source
from panstream.errors import SourceError
from panstream.server.ingest.request_bodies import _read_arrow
from tests.engine.runtime.matrix import FORMS, REFUSED, ROWS, Form, arrays, expected, query, questions, same, table
from tests.server.server_live import served, write_config

VARIANTS = ("plain", "nulls", "sliced", "chunked")
CODECS = ("lz4", "zstd", "snappy", "json")
TRIED: set[tuple[str, str, str]] = set()  # column, way and variant


def plan(names: list[str], kinds: dict[str, str] | None = None, asked: list[dict[str, Any]] | None = None) -> Config:
    columns = kinds or {"u": "string", **{name: FORMS[name].kind for name in names}}
    stream = {"name": "s", "columns": columns, "user": "u"}
    return read_config({"stream": stream, "query": asked or questions(names), "store": {"batch_rows": 29}})


def schema_of(config: Config) -> RowSchema:
    return RowSchema.of(config.stream, config.needed_columns)


class Bodies:
    """A source of bodies, as the server reads them."""

    def __init__(self, bodies: list[bytes], schema: RowSchema) -> None:
        self._bodies = bodies
        self._schema = schema

    def batches(self) -> Iterator[RowBatch]:
        for number, body in enumerate(self._bodies):
            piece = _read_arrow(memoryview(bytearray(body)), self._schema, rows=10**6)
            yield RowBatch(columns=piece.columns, producer="p", sequence=number + 1)

    def resume(self, applied: Any, ahead: Any = None) -> None: ...
    def acknowledge(self, token: object) -> None: ...
    def progress(self) -> None: ...
    def close(self) -> None: ...


def outcome(config: Config, select: Selector, source: Any) -> dict[str, float]:
    """Return the answers of all queries without noise."""
    with Engine(config, zero_noise=True) as engine:
        fed = ingest_all(engine, source, select)
        assert (fed.rows, fed.skipped_count) == (ROWS, 0)
        engine.finish()
        return {each["name"]: each["value"] for each in answers(engine)}


# --- the ways in: what comes in is a pyarrow table, what goes out is something that can be fed ------------------------


def as_table(rows: pa.Table, schema: RowSchema, folder: Path) -> Any:
    return TableSource(rows, schema, batch_rows=29)


def as_reader(rows: pa.Table, schema: RowSchema, folder: Path) -> Any:
    return TableSource(pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches()), schema)


def as_body(rows: pa.Table, schema: RowSchema, folder: Path) -> Any:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows, max_chunksize=17)
    return Bodies([sink.getvalue()], schema)


def by_client(convert: Callable[[pa.Table], Any]) -> Callable[[pa.Table, RowSchema, Path], Any]:
    def way(rows: pa.Table, schema: RowSchema, folder: Path) -> Any:
        given = convert(rows)
        before = pa.table(given) if not isinstance(given, pa.Table) else given
        copy = pa.ipc.open_stream(pa.py_buffer(as_stream(before))).read_all()
        source = Bodies([bytes(encode(as_batches(given), None))], schema)
        assert same(pa.table(given) if not isinstance(given, pa.Table) else given, copy)
        return source

    return way


def as_stream(rows: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return sink.getvalue()


def in_file(ending: str, write: Callable[[pa.Table, Path], None]) -> Callable[[pa.Table, RowSchema, Path], Any]:
    def way(rows: pa.Table, schema: RowSchema, folder: Path) -> Any:
        path = folder / f"rows.{ending}"
        write(rows, path)
        return open_source([str(path)], schema, batch_rows=29)

    return way


def write_arrow(form: str, compression: str | None = None) -> Callable[[pa.Table, Path], None]:
    def write(rows: pa.Table, path: Path) -> None:
        options = pa.ipc.IpcWriteOptions(compression=compression)
        opened = pa.ipc.new_file if form == "file" else pa.ipc.new_stream
        with opened(path, rows.schema, options=options) as writer:
            writer.write_table(rows, max_chunksize=17)

    return write


def write_parquet(compression: str) -> Callable[[pa.Table, Path], None]:
    return lambda rows, path: pq.write_table(rows, path, compression=compression, row_group_size=25)


def write_csv(rows: pa.Table, path: Path) -> None:
    pyarrow.csv.write_csv(rows, path)


def write_json(rows: pa.Table, path: Path) -> None:
    text = [json.dumps({k: v for k, v in row.items()}, default=plainly) for row in rows.to_pylist()]
    path.write_text("\n".join(text))


def plainly(value: Any) -> Any:
    if isinstance(value, Decimal):
        return int(value) if value == int(value) else float(value)
    return value.isoformat() if hasattr(value, "isoformat") else value.decode()


WAYS: dict[str, Callable[[pa.Table, RowSchema, Path], Any]] = {
    "table": as_table,
    "reader": as_reader,
    "body": as_body,
    "client-pyarrow": by_client(lambda rows: rows),
    "client-pandas": by_client(lambda rows: rows.to_pandas()),
    "client-pandas-arrow": by_client(lambda rows: rows.to_pandas(types_mapper=pd.ArrowDtype)),
    "client-polars": by_client(pl.from_arrow),
    "client-duckdb": by_client(lambda rows: duckdb.from_arrow(rows)),
    "arrow-file": in_file("arrow", write_arrow("file")),
    "arrow-stream": in_file("arrows", write_arrow("stream")),
    "arrow-file-lz4": in_file("arrow", write_arrow("file", "lz4")),
    "arrow-file-zstd": in_file("arrow", write_arrow("file", "zstd")),
    "arrow-stream-lz4": in_file("arrows", write_arrow("stream", "lz4")),
    "arrow-stream-zstd": in_file("arrows", write_arrow("stream", "zstd")),
    "parquet-none": in_file("parquet", write_parquet("none")),
    "parquet-snappy": in_file("parquet", write_parquet("snappy")),
    "parquet-lz4": in_file("parquet", write_parquet("lz4")),
    "parquet-zstd": in_file("parquet", write_parquet("zstd")),
    "csv": in_file("csv", write_csv),
    "json": in_file("jsonl", write_json),
}


FIXED = {f"timestamp_{unit}_fixed" for unit in ("s", "ms", "us", "ns")}
VIEWS = {"string_string_view", "binary_binary_view", "binary_string_view", "date_text_view"}
EXTENSIONS = {"int_extension", "string_extension", "binary_extension", "bool_extension"}
WIDE = {"int_decimal256", "double_decimal256"}
LOST = {  # columns that a container cannot hold, or holds as another kind, which is refused or makes bad rows
    "client-pandas": {"string_by_null"},
    "client-polars": {"date_date64", *WIDE, *FIXED},
    "client-duckdb": {"int_halffloat", "double_halffloat", *WIDE},
    **{f"parquet-{codec}": {"string_by_null"} for codec in ("none", "snappy", "lz4", "zstd")},
    "csv": {*VIEWS, *EXTENSIONS, *(f"int_decimal{width}" for width in (32, 64, 128, 256))},
    "json": {"int_halffloat", "int_float", "int_double"},
}


@pytest.fixture(scope="module")
def prepared() -> Iterator[tuple[Config, Selector]]:
    """The queries about all columns, checked once."""
    config = plan(list(FORMS))
    with Selector(config) as select:
        yield config, select


CASES = [(way, variant) for way in WAYS for variant in (("nulls", "chunked") if way.endswith(CODECS) else VARIANTS)]


@pytest.mark.slow
@pytest.mark.parametrize(("way", "variant"), CASES)
def test_answers_are_duckdbs(
    way: str, variant: str, tmp_path: Path, prepared: tuple[Config, Selector], wanted: dict[str, dict[str, float]]
) -> None:
    config, select = prepared
    lost = LOST.get(way, set())
    rows = table(list(FORMS), variant, canonical=lost)
    copy = pa.ipc.open_stream(pa.py_buffer(as_stream(rows))).read_all()
    found = outcome(config, select, WAYS[way](rows, schema_of(config), tmp_path))
    wrong = {
        name: (found[name], truth)
        for name, truth in wanted[variant].items()
        if not math.isclose(found[name], truth, abs_tol=1e-3)
    }
    assert not wrong
    assert same(rows, copy)  # nobody wrote on the caller's memory
    TRIED.update((name, way, variant) for name in set(FORMS) - lost)


@pytest.fixture(scope="module")
def wanted() -> dict[str, dict[str, float]]:
    plain = expected(list(FORMS), "plain")
    nulls = expected(list(FORMS), "nulls")
    return {"plain": plain, "nulls": nulls, "sliced": nulls, "chunked": nulls}


# --- ids --------------------------------------------------------------------------------------------------------------

WIDTH = 3
IDS: dict[str, Form] = {
    **{f"int_{kind}": FORMS[f"int_{kind}"] for kind in ("int8", "int32", "int64", "uint8", "uint64", "double")},
    "int_dictionary": FORMS["int_dictionary"],
    **{name: FORMS[name] for name in ("string_string", "string_large_string", "string_string_view")},
    **{name: FORMS[name] for name in ("string_by_int8", "string_by_uint64", "string_by_large", "string_extension")},
    **{name: form for name, form in FORMS.items() if form.kind == "binary"},
    "binary_fixed": Form(
        "binary", lambda array: pa.array([v[:WIDTH].ljust(WIDTH) for v in array.to_pylist()], pa.binary(WIDTH))
    ),
}


@pytest.mark.parametrize("name", IDS)
def test_ids_are_counted(name: str, tmp_path: Path) -> None:
    """The number of different ids is that of the values, whatever holds them."""
    form = IDS[name]
    asked = [query("people", "SELECT COUNT(DISTINCT u) FROM s", universe=64)]
    if form.kind != "int":
        asked = [query("people", "SELECT COUNT(DISTINCT u) FROM s", expected=100, memory=65536)]
    config = plan([], {"u": form.kind}, asked)
    counts = {}
    with Selector(config) as select:
        for way in ("table", "body", "client-polars", "client-duckdb", "arrow-file-lz4", "arrow-stream", "parquet-lz4"):
            if name in LOST.get(way, ()):
                continue
            rows = pa.table({"u": pa.chunked_array(arrays(form, "plain"))})
            different = len(set(rows["u"].to_pylist()))
            counts[way] = outcome(config, select, WAYS[way](rows, schema_of(config), tmp_path))["people"]
            TRIED.add((f"user {name}", way, "plain"))
    assert set(map(round, counts.values())) == {different}, counts


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["table", "body", "arrow-file", "arrow-stream", "arrow-file-lz4"])
@pytest.mark.parametrize("name", REFUSED)
def test_other_types_are_refused_by_name(name: str, way: str, tmp_path: Path) -> None:
    kind, array = REFUSED[name]
    schema = RowSchema(columns={"x": kind})
    with pytest.raises(SourceError, match="'x' is declared"):
        list(WAYS[way](pa.table({"x": array}), schema, tmp_path).batches())
    TRIED.add((f"refused {name}", way, "plain"))


# --- through a server -------------------------------------------------------------------------------------------------

SERVED = """
[stream]
name = "visits"
user = "u"
[stream.columns]
u = "string"
at = "timestamp"
[stream.budget]
event = 500.0
[[query]]
name = "rows"
sql = "SELECT COUNT(*) FROM visits WHERE u <> 'nobody' AND at >= TIMESTAMP '2024-03-02 00:00:00'"
epsilon = 200.0
releases = 40
[store]
directory = "state"
"""
FRAMES: dict[str, Callable[[pa.Table], Any]] = {
    "pyarrow": lambda rows: rows,
    "pandas": lambda rows: rows.to_pandas(),
    "polars": pl.from_arrow,
    "duckdb": lambda rows: duckdb.from_arrow(rows),
}


@pytest.mark.slow
def test_frames_sent_to_a_server(tmp_path: Path) -> None:
    """pandas and polars make large strings and times with a zone: none of them may be counted as zeros."""
    total = 0
    with served(write_config(tmp_path / "live", SERVED)) as live:
        for number, (kind, convert) in enumerate(FRAMES.items()):
            rows = pa.table(
                {
                    "u": pa.array([f"{kind}{n}" for n in range(ROWS)], pa.large_string()),
                    "at": pa.chunked_array(arrays(FORMS["timestamp_us_utc"], "plain")),
                }
            )
            given = convert(rows)
            with Client(f"http://{live.host}:{live.port}", stream="visits", producer=f"p{number}") as client:
                client.send(given)
                assert client.flush().skipped == 0
            with duckdb.connect() as connection:
                connection.register("s", rows)
                sql = "SELECT COUNT(*) FROM s WHERE \"at\" >= TIMESTAMPTZ '2024-03-02 00:00:00+00'"
                total += connection.execute(sql).fetchall()[0][0]
            assert live.rows() == total
            TRIED.add(("frame", kind, "server"))


def test_there_were_hundreds_of_combinations() -> None:
    """Runs last. A part of the matrix can be run alone."""
    if len({way for _, way, _ in TRIED}) >= len(WAYS):
        print(f"{len(TRIED):,} combinations of type, way and variant, each by two kernels; 0 differences from DuckDB")
        assert len(TRIED) >= 4_000
