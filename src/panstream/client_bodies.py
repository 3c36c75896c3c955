"""Rows of any usual kind as Arrow record batches, and those as bodies of requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from panstream.errors import InvalidBatch, MissingExtra

__all__ = ["COMPRESSIONS", "as_batches", "encode"]

COMPRESSIONS = (None, "gzip", "zstd")


def as_batches(rows: Any) -> list[Any]:
    """Return rows as record batches: a mapping of columns, a sequence of dicts, or an Arrow, pandas or polars table."""
    pa = _arrow()
    wrong = False
    try:
        if isinstance(rows, pa.RecordBatch):
            return [rows]
        if isinstance(rows, pa.Table):
            return list(rows.to_batches())
        if isinstance(rows, Mapping):
            return [pa.RecordBatch.from_pydict({name: pa.array(column) for name, column in rows.items()})]
        if hasattr(rows, "__arrow_c_stream__"):
            return list(pa.table(rows).to_batches())
        if isinstance(rows, Sequence) and not isinstance(rows, str | bytes):
            return [pa.RecordBatch.from_pylist(list(rows))]
        if type(rows).__module__.partition(".")[0] == "pandas":
            return list(pa.Table.from_pandas(rows, preserve_index=False).to_batches())
        wrong = True
    except (pa.ArrowException, TypeError, AttributeError):  # their messages may quote values
        wrong = True
    assert wrong
    raise InvalidBatch("rows must be a mapping of columns, a list of dicts, or an Arrow, pandas or polars table")


def encode(batches: list[Any], compression: str | None) -> Any:
    """Return one IPC stream with all rows in one batch."""
    pa = _arrow()
    failed = False
    try:
        table = pa.Table.from_batches(batches).combine_chunks() if len(batches) > 1 else None
    except pa.ArrowException:
        failed = True
    if failed:
        raise InvalidBatch("all rows of a batch must have the same columns and types")
    sink = pa.BufferOutputStream()
    out = sink if compression is None else pa.CompressedOutputStream(sink, compression)
    schema = batches[0].schema if table is None else table.schema
    with pa.ipc.new_stream(out, schema) as writer:
        if table is None:
            writer.write_batch(batches[0])
        else:
            writer.write_table(table)
    if out is not sink:
        out.close()
    return memoryview(sink.getvalue())


def _arrow() -> Any:
    try:
        import pyarrow
    except ImportError:
        raise MissingExtra("the client", "arrow") from None
    return pyarrow
