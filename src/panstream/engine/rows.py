"""Rows on their way through the engine: typed columns, what was skipped, and where they came from.

Bad rows are known by their number and a reason that names a column and a rule, never by what stands in them, and only
their sender is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from panstream.engine.arrow import pa
from panstream.engine.config import StreamConfig
from panstream.engine.memory import NONE_LENT, Lent, wipe_array
from panstream.errors import InvalidParameter, PanstreamError
from panstream.scratch import clear_registers

if TYPE_CHECKING:
    from panstream.engine.stored_ids import StoredIds

__all__ = ["BadRow", "BadRowError", "MicroBatch", "RowSchema", "SourceError", "arrow_type"]


class SourceError(PanstreamError):
    """The input cannot be read as it was declared."""


class BadRowError(SourceError):
    """A malformed row was met and ``on_bad_row`` is "stop". ``row`` counts from 1, without the header."""

    def __init__(self, message: str, *, row: int) -> None:
        super().__init__(message)
        self.row = row


_TYPES = {
    "int": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "bool": pa.bool_(),
    "timestamp": pa.timestamp("us"),
    "date": pa.date32(),
}


def arrow_type(kind: str) -> Any:
    """Return the Arrow type in which a column declared as ``kind`` travels.

    >>> arrow_type("int")
    DataType(int64)
    """
    if kind not in _TYPES:
        raise InvalidParameter(f"the type of a column must be one of {', '.join(_TYPES)}, got {kind!r}")
    return _TYPES[kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSchema:
    """The columns that are read, with their declared types, and the one that holds user ids."""

    columns: Mapping[str, str]
    user: str | None = None
    on_bad_row: Literal["skip", "stop"] = "skip"

    @classmethod
    def of(cls, stream: StreamConfig, needed: Iterable[str] | None = None) -> RowSchema:
        """Return the part of a stream that is needed: nothing else is ever read.

        Where no column is needed, as for COUNT(*), the first one is read, since rows are counted by it.
        """
        wanted = set(stream.columns if needed is None else needed) or {next(iter(stream.columns))}
        for name in wanted:
            if name not in stream.columns:
                raise InvalidParameter(f"column {name!r} is not declared; declared: {', '.join(stream.columns)}")
        columns = {name: kind for name, kind in stream.columns.items() if name in wanted}
        user = stream.user if stream.user in wanted else None
        return cls(columns=columns, user=user, on_bad_row=stream.on_bad_row)

    def arrow(self) -> Any:
        """Return the Arrow schema of a batch.

        A string column may come dictionary-encoded and the user column as uint64, if the input has it so.
        """
        return pa.schema([(name, arrow_type(kind)) for name, kind in self.columns.items()])


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRow:
    """A row that was skipped: its number in the input, counted from 1 without the header, and why."""

    row: int
    reason: str


@dataclass(slots=True, kw_only=True, eq=False)
class MicroBatch:
    """Some rows of one producer, typed as declared.

    ``sequence`` is the producer's position after this batch (rows read so far for files, the last entry's id for Redis): it
    grows from batch to batch, and a source told the last one applied goes on behind it. ``token`` goes to
    ``Source.acknowledge`` once the state is durable. ``bad_rows`` is for the sender alone. ``ids`` is the user column, where that is
    still in the pages of a file and not in ``columns``. ``lent`` is memory of the columns that belongs to the caller.
    """

    columns: Any = field(repr=False)
    rows_read: int
    first_row: int = 0
    bad_rows: tuple[BadRow, ...] = field(default=(), repr=False)
    producer: str | None = None
    sequence: int | None = None
    token: object = field(default=None, repr=False)
    lent: Lent = field(default=NONE_LENT, repr=False)
    ids: StoredIds | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return int(self.columns.num_rows)

    def row_numbers(self) -> NDArray[np.int64]:
        """Return the number of every kept row in the input, counted from 1."""
        numbers = np.arange(self.first_row + 1, self.first_row + self.rows_read + 1)
        if len(self) != self.rows_read:
            skipped = {bad.row for bad in self.bad_rows}
            numbers = numbers[~np.isin(numbers, np.fromiter(skipped, np.int64, len(skipped)))]
        return numbers

    def report(self, rows: NDArray[np.bool_], reason: str) -> tuple[BadRow, ...]:
        """Return reports for the sender about kept rows that a query could not use."""
        return tuple(BadRow(row=int(number), reason=reason) for number in self.row_numbers()[rows])

    def wipe(self) -> None:
        """Overwrite the columns, but for memory that was lent; the batch must not be used afterwards."""
        for column in self.columns.columns:
            wipe_array(column, self.lent)
        if self.ids is not None:
            self.ids.wipe()
        clear_registers()
