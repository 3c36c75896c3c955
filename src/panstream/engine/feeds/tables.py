"""Arrow tables and record batch readers that a Python program already holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from panstream.engine.feeds.arrow_columns import check_types, from_arrow
from panstream.engine.feeds.coalesce import Coalescer
from panstream.engine.rows import Rows, RowSchema

__all__ = ["TableFeed"]


class TableFeed:
    """A ``pyarrow.Table`` or ``RecordBatchReader``; its memory is the caller's and is never overwritten."""

    def __init__(self, table: Any, schema: RowSchema, *, name: str = "table", batch_rows: int = 50_000) -> None:
        check_types(table.schema, schema, name)
        self._table, self._schema, self._name, self._rows = table, schema, name, batch_rows
        self._applied: Mapping[str, int] = {}

    def resume(self, applied: Mapping[str, int]) -> None:
        """Tell how far every producer was applied by earlier runs; call it before ``batches``."""
        self._applied = dict(applied)

    def batches(self) -> Iterator[Rows | None]:
        """Yield all rows."""
        coalescer = Coalescer(
            self._schema,
            rows=self._rows,
            producer=self._name,
            place=self._name,
            skip=self._applied.get(self._name, 0),
        )
        found = self._table.to_batches() if hasattr(self._table, "to_batches") else self._table
        for batch in found:
            yield from coalescer.add(from_arrow(batch, self._schema, owned=False))
        yield from coalescer.flush()

    def acknowledge(self, token: object) -> None:
        """Do nothing: the table is the caller's."""

    def progress(self) -> float | None:
        """Return ``None``: a reader does not tell how much is to come."""
        return None

    def close(self) -> None:
        """Nothing is held."""
