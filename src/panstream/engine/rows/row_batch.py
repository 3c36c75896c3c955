"""Batches of rows, typed and checked (``RowBatch``), and what each query selects of them (``QuerySelection``).

A bad row is reported by its number and a reason that names a column and a rule, never its content, and to its sender
only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from panstream.engine.arrow import arrow_mask, boolean_bytes, compute, null_of, pa
from panstream.engine.config.config import StreamConfig
from panstream.engine.rows.row_gather import numbers_of, take_rows
from panstream.engine.rows.wiping import NOTHING_BORROWED, BorrowedMemory, wipe_array
from panstream.errors import InvalidParameter
from panstream.primitives.memory.scratch import clear_registers

Mask = NDArray[np.bool_]
Codes = NDArray[np.uint16]

RAGGED = 1  # the first codes: faults of a row as such, in the order of _FAULTS
NOT_JSON = 2
ENDLESS = 3
NOT_LOG = 4
_FAULTS = (
    "",
    "the row has too few or too many fields",
    "the line is not a JSON object",
    "the record does not end: a quote is not closed, or it is too long",
    "the line is not one of an access log in the common or combined format",
)
_RULES = {
    "int": "is not a whole number of 64 bits",
    "double": "is not a finite number",
    "string": "is not a string of valid UTF-8",
    "binary": "is not binary",
    "bool": "is not true or false",
    "timestamp": "is not a time such as 2024-12-31 23:59:59",
    "date": "is not a date such as 2024-12-31",
}
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
    """Return the Arrow type of a column that is declared as ``kind``.

    >>> arrow_type("int")
    DataType(int64)
    """
    if kind not in _TYPES:
        raise InvalidParameter(f"the type of a column must be one of {', '.join(_TYPES)}, got {kind!r}")
    return _TYPES[kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSchema:
    """The columns to read, with their declared types, and the name of the one that holds user ids.

    Args:
        columns: The declared type of each column, by name.
        user: The column of user ids.
        on_bad_row: Whether a bad row is skipped or ends the input.
    """

    columns: Mapping[str, str]
    user: str | None = None
    on_bad_row: Literal["skip", "stop"] = "skip"

    @classmethod
    def of(cls, stream: StreamConfig, needed: Iterable[str] | None = None) -> RowSchema:
        """Return the schema of the needed columns of a stream; other columns are never read.

        Where no column is needed, as for COUNT(*), the first one is read: its length is the number of rows.

        Args:
            stream: The declared stream.
            needed: Names of the columns that queries use; all of them by default.

        Raises:
            InvalidParameter: A needed column is not declared.
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

        If the input has them so, string columns are dictionary-encoded and the user column is uint64 instead.
        """
        return pa.schema([(name, arrow_type(kind)) for name, kind in self.columns.items()])

    def type_error_code(self, name: str) -> int:
        """Return the code of a row whose value in a column is not of its declared type.

        Args:
            name: Name of the column.
        """
        return len(_FAULTS) + 2 * list(self.columns).index(name)

    def missing_code(self, name: str) -> int:
        """Return the code of a row that has NULL in the user column.

        Args:
            name: Name of the column.
        """
        return self.type_error_code(name) + 1

    def mark(self, codes: Codes, bad: Mask | None, code: int) -> None:
        """Store a fault of some rows in ``codes``; a row keeps its first one.

        Args:
            bad: Which rows have the fault; None if no row has.
            code: The code of the fault.
            codes: The fault of every row, which is changed.
        """
        if bad is not None:
            codes[bad & (codes == 0)] = code

    def reason(self, code: int) -> str:
        """Return the message for a code: the column and the rule, never the value.

        Args:
            code: The code of the fault.

        >>> schema = RowSchema(columns={"age": "int"})
        >>> schema.reason(schema.type_error_code("age"))
        'column age is not a whole number of 64 bits'
        """
        if code < len(_FAULTS):
            return _FAULTS[code]
        name, kind = list(self.columns.items())[(code - len(_FAULTS)) // 2]
        return (
            f"column {name} {_RULES[kind]}"
            if (code - len(_FAULTS)) % 2 == 0
            else f"column {name}, the user, is missing"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRow:
    """A row that was skipped: its number in the input, counted from 1 without the header, and why."""

    row: int
    reason: str


def _no_numbers() -> NDArray[np.int64]:
    return np.empty(0, np.int64)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class BatchResult:
    """What became of the rows of a batch. Private to their sender: it must not be published."""

    new: bool  # False if they were applied before
    skipped: NDArray[np.int64] = field(default_factory=_no_numbers)  # numbers of the rows that some query could not use
    late: NDArray[np.int64] = field(default_factory=_no_numbers)  # numbers of the rows whose window was over


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class QuerySelection:
    """The input of one query: ``rows`` are those that its WHERE selects, ``unusable`` those whose value is missing.

    Every other column has an entry per row of the batch, or is None where the query has no use for it; ``groups`` is -1
    for undeclared keys.
    """

    rows: Mask
    unusable: Mask
    values: NDArray[np.float64] | None = None
    weights: NDArray[np.int64] | None = None
    groups: NDArray[np.int64] | None = None
    names: Any = None  # an Arrow array of strings or integers: keys of an open domain
    counted: NDArray[np.int64] | None = None  # the window in which its sender counts a row, if that bounds the rows

    @classmethod
    def select_all(cls, count: int, **columns: Any) -> Self:
        """Return the selection of all of ``count`` rows."""
        return cls(**{"rows": np.ones(count, bool), "unusable": np.zeros(count, bool), **columns})

    def admitted(self, windows: NDArray[np.int64] | None) -> Mask | bool:
        """Return which rows may be counted in their windows: all of them, unless their senders bound their number."""
        if self.counted is None:
            return True
        return False if windows is None else self.counted == windows

    def part(self, start: int, stop: int) -> QuerySelection:
        """Return the selection of the rows from ``start`` to ``stop``."""
        parts: dict[str, Any] = {}
        for column in fields(self):
            values = getattr(self, column.name)
            parts[column.name] = None if values is None else values[start:stop]
        return QuerySelection(**parts)


@dataclass(slots=True, kw_only=True, eq=False)
class RowBatch:
    """A batch of rows of one producer. Bad rows are included, since their event times move the watermark.

    Attributes:
        columns: A record batch, typed as declared. Filled by the reader.
        count: Number of rows.
        codes: Per row 0, or the code of its fault in the schema. Filled by the reader.
        ids: User ids as a NumPy or Arrow array, if a query needs them. Filled by the selector, as are the next two.
        times: Event times in seconds, NaN where unknown; None where the time of arrival counts.
        queries: The selection of every query.
        borrowed: Memory of the columns that belongs to the caller and is never overwritten.
        producer: Who sent the rows. A batch of a producer is applied once, however often it is sent.
        sequence: The producer's position after these rows, which only grows: rows read so far for files, the id of the
            last entry for Redis. A source that is given the last one applied continues after it.
        sequences: The position after each row, if rows that come again may be in other batches.
        origins: Producers and sequences of batches that were joined; all of them are known to be new.
        token: Passed to ``EventSource.acknowledge`` once the state is durable.
        first_row: The sender's number of the first row; None counts from 0.
        labels: What the sender calls the rows, where those are not numbers.
    """

    columns: Any = field(default=None, repr=False)
    count: int = -1  # -1: taken from the columns
    codes: Codes = field(default_factory=lambda: np.zeros(0, np.uint16), repr=False)  # empty: all 0
    ids: Any = field(default=None, repr=False)
    borrowed: BorrowedMemory = field(default=NOTHING_BORROWED, repr=False)
    times: NDArray[np.float64] | None = field(default=None, repr=False)
    queries: Mapping[str, QuerySelection] = field(default_factory=dict, repr=False)
    first_row: int | None = None
    producer: str | None = None
    sequence: int = 0
    sequences: Sequence[int] = field(default=(), repr=False)
    origins: tuple[tuple[str, int], ...] = ()
    token: object = field(default=None, repr=False)
    labels: Sequence[str] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        self.count = self.count if self.columns is None else int(self.columns.num_rows)
        self.codes = self.codes if self.codes.size else np.zeros(self.count, np.uint16)

    @classmethod
    def none(cls, schema: RowSchema) -> Self:
        """Return a batch without rows."""
        return cls(columns=pa.RecordBatch.from_pylist([], schema.arrow()))

    @classmethod
    def checked(
        cls, columns: dict[str, Any], schema: RowSchema, codes: Codes, *, borrowed: BorrowedMemory = NOTHING_BORROWED
    ) -> Self:
        """Return a batch of converted columns, and mark rows without an id or with a number that is not finite."""
        for name, column in columns.items():
            if name == schema.user and column.null_count:
                schema.mark(codes, boolean_bytes(column.is_null()), schema.missing_code(name))
            if schema.columns[name] == "double" and not compute.all(compute.is_finite(column), min_count=0).as_py():
                bad = boolean_bytes(compute.invert(compute.is_finite(column)))
                columns[name] = compute.if_else(arrow_mask(bad), null_of(column.type), column)
                schema.mark(codes, bad, schema.type_error_code(name))
        batch = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
        return cls(columns=batch, codes=codes, borrowed=borrowed)

    def __len__(self) -> int:
        return self.count

    @property
    def bad(self) -> Mask:
        """A mask of the rows that cannot be used."""
        is_bad: Mask = self.codes != 0
        return is_bad

    def numbers(self, chosen: Mask) -> NDArray[np.int64]:
        """Return the sender's numbers of the chosen rows."""
        return np.flatnonzero(chosen) + (self.first_row or 0)

    def bad_rows(self, schema: RowSchema) -> list[BadRow]:
        """Return number and reason of every row that cannot be used, for the report to the sender."""
        bad_rows = []
        for row in np.flatnonzero(self.codes).tolist():
            label = f"{self.labels[row]}: " if self.labels else ""
            reason = schema.reason(int(self.codes[row]))
            bad_rows.append(BadRow(row=(self.first_row or 0) + row, reason=label + reason))
        return bad_rows

    def some_ids(self, keep: Mask) -> tuple[Any, bool]:
        """Return the ids of the rows to keep, and whether they are a copy that the caller must wipe."""
        ids = self.ids
        if keep.all():
            return ids, False
        return take_rows(ids, numbers_of(keep))

    def split(self, rows: int) -> tuple[RowBatch, RowBatch]:
        """Split after ``rows`` rows, before selection; this batch must not be used any more."""
        early = replace(self, columns=self.columns.slice(0, rows), codes=self.codes[:rows])
        return early, replace(self, columns=self.columns.slice(rows), codes=self.codes[rows:])

    def part(self, start: int, stop: int) -> RowBatch:
        """Return the rows from ``start`` to ``stop``, after selection and without their columns."""
        return replace(
            self,
            columns=None,
            count=stop - start,
            codes=self.codes[start:stop],
            ids=None if self.ids is None else self.ids[start:stop],
            times=None if self.times is None else self.times[start:stop],
            queries={name: selection.part(start, stop) for name, selection in self.queries.items()},
            first_row=(self.first_row or 0) + start,
            sequences=self.sequences[start:stop],
        )

    def wipe(self) -> None:
        """Overwrite the columns except borrowed memory; the batch must not be used afterwards."""
        for column in self.columns.columns:
            wipe_array(column, self.borrowed)
        clear_registers()
