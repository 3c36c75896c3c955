"""Tables in memory: Arrow's, and all that export Arrow's C stream, as those of pandas, polars and DuckDB do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from panstream.engine.arrow import pa
from panstream.engine.rows.row_batch import RowBatch, RowSchema
from panstream.engine.sources.base import EventSource
from panstream.engine.sources.coalescer import Coalescer
from panstream.engine.sources.formats.arrow_columns import check_types, from_arrow
from panstream.errors import InvalidBatch, translate_errors


def open_table(data: Any) -> Any:
    """Return a table of any library that exports Arrow as a ``pyarrow.Table`` or ``RecordBatchReader``.

    >>> open_table({"n": [1, 2]})
    Traceback (most recent call last):
    panstream.errors.InvalidBatch: a table must be Arrow's, or export itself by __arrow_c_stream__, got dict
    """
    if isinstance(data, pa.Table | pa.RecordBatchReader):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if not hasattr(type(data), "__arrow_c_stream__"):
        raise InvalidBatch(
            f"a table must be Arrow's, or export itself by __arrow_c_stream__, got {type(data).__name__}"
        )
    # the exporter's own errors may quote values
    return translate_errors(
        lambda: pa.RecordBatchReader.from_stream(data), Exception, lambda _: InvalidBatch(_why_not_exported(data))
    )


def readable_columns(data: Any) -> tuple[Any, dict[str, str]]:
    """Return a table without the columns that have values of several types, and for each of those what to do."""
    refused = _mixed_columns(data)
    if not refused or len(refused) == len(data.columns):
        return data, {}
    return data[[name for name in data.columns if name not in refused]], refused


def _mixed_columns(data: Any) -> dict[str, str]:
    """Return the columns of a DataFrame that have values of several types, and what to do about each."""
    refused = {}
    for name in getattr(data, "columns", ()) if isinstance(getattr(data, "columns", None), Iterable) else ():
        try:
            pa.RecordBatchReader.from_stream(data[[name]])
        except Exception:
            refused[name] = (
                f"column {name!r} of the {type(data).__name__} has values of several types: convert it, such as by "
                f"frame[{name!r}] = frame[{name!r}].astype(str), or by pandas.to_numeric(frame[{name!r}], "
                'errors="coerce"), which leaves out what is no number'
            )
    return refused


def _why_not_exported(data: Any) -> str:
    return next(iter(_mixed_columns(data).values()), f"the {type(data).__name__} could not be exported to Arrow")


class TableSource(EventSource):
    """A table that `open_table` takes; its memory is the caller's and is never overwritten.

    Args:
        table: A table or reader of Arrow, or of a library that exports one.
        schema: The columns to read.
        name: Under which positions are stored; with None none is, and the next table is read from its first row.
        batch_rows: Rows of a batch.
    """

    def __init__(self, table: Any, schema: RowSchema, *, name: str | None = "table", batch_rows: int = 50_000) -> None:
        super().__init__(schema, batch_rows=batch_rows)
        table = open_table(table)
        check_types(table.schema, schema, name or "the table")
        self._table = table
        self._name = name

    def batches(self) -> Iterator[RowBatch | None]:
        """Yield all rows."""
        coalescer = Coalescer(
            self._schema,
            rows=self._rows,
            producer=self._name,
            label=self._name or "the table",
            skip=0 if self._name is None else self._applied.get(self._name, 0),
        )
        batches = self._table.to_batches() if hasattr(self._table, "to_batches") else self._table
        for batch in batches:
            yield from coalescer.add(from_arrow(batch, self._schema, owned=False))
        yield from coalescer.flush()
