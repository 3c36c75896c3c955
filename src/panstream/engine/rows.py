"""Rows on their way through the engine: typed columns, what was skipped, and where they came from.

Bad rows are known by their number and a reason that names a column and a rule, never by what stands in them, and only
their sender is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from panstream.engine.arrow import pa
from panstream.engine.config import StreamConfig
from panstream.engine.memory import NONE_LENT, Lent, wipe_array
from panstream.errors import InvalidParameter
from panstream.scratch import clear_registers

if TYPE_CHECKING:
    from panstream.engine.stored_ids import StoredIds

__all__ = [
    "ENDLESS",
    "NOT_JSON",
    "RAGGED",
    "BadRow",
    "Faults",
    "MicroBatch",
    "RowSchema",
    "arrow_type",
]


RAGGED, NOT_JSON, ENDLESS = 1, 2, 3  # codes of rows that are not made as they should be
_FAULTS = (
    "",
    "the row has too few or too many fields",
    "the line is not a JSON object",
    "the record does not end: a quote is not closed, or it is too long",
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

    def misfit(self, name: str) -> int:
        """Return the code of a row whose value in a column does not fit."""
        return len(_FAULTS) + 2 * list(self.columns).index(name)

    def absent(self, name: str) -> int:
        """Return the code of a row without a user."""
        return self.misfit(name) + 1

    def reason(self, code: int) -> str:
        """Return in words what is wrong with a row: a rule, never what stands there.

        >>> schema = RowSchema(columns={"age": "int"})
        >>> schema.reason(schema.misfit("age"))
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


@dataclass(frozen=True, slots=True, eq=False)
class Faults:
    """What is wrong with each of some rows: a code that the schema knows, 0 where nothing is."""

    codes: NDArray[np.uint16]
    schema: RowSchema

    @property
    def bad(self) -> NDArray[np.bool_]:
        """Which rows cannot be used."""
        found: NDArray[np.bool_] = self.codes != 0
        return found

    def part(self, start: int, stop: int) -> Faults | None:
        """Return the faults of some rows; None if they have none."""
        codes = self.codes[start:stop]
        return Faults(codes, self.schema) if codes.any() else None

    def first(self) -> tuple[int, str]:
        """Return position and fault of the first bad row."""
        position = int(np.argmax(self.bad))
        return position, self.schema.reason(int(self.codes[position]))

    @classmethod
    def joined(cls, parts: Sequence[tuple[Faults | None, int]]) -> Faults | None:
        """Return the faults of rows that follow each other, given with their numbers."""
        known = [faults for faults, _ in parts if faults is not None]
        if not known:
            return None
        codes = [np.zeros(rows, np.uint16) if faults is None else faults.codes for faults, rows in parts]
        return cls(np.concatenate(codes), known[0].schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRow:
    """A row that was skipped: its number in the input, counted from 1 without the header, and why."""

    row: int
    reason: str


@dataclass(slots=True, kw_only=True, eq=False)
class MicroBatch:
    """Some rows of one producer, typed as declared; bad ones are among them, since their times count.

    ``sequence`` is the producer's position after this batch (rows read so far for files, the last entry's id for Redis): it
    grows from batch to batch, and a source told the last one applied goes on behind it. ``token`` goes to
    ``Feed.acknowledge`` once the state is durable. ``faults`` is for the sender alone, and ``labels`` is what the sender calls the
    rows, where those are not numbers. ``ids`` is the user column, where that is still in the pages of a file and not in ``columns``.
    ``lent`` is memory of the columns that belongs to the caller.
    """

    columns: Any = field(repr=False)
    first_row: int = 0
    faults: Faults | None = field(default=None, repr=False)
    producer: str | None = None
    sequence: int | None = None
    token: object = field(default=None, repr=False)
    labels: Sequence[str] = field(default=(), repr=False)
    lent: Lent = field(default=NONE_LENT, repr=False)
    ids: StoredIds | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return int(self.columns.num_rows)

    def row_numbers(self) -> NDArray[np.int64]:
        """Return the number of every row in the input, counted from 1."""
        return np.arange(self.first_row + 1, self.first_row + len(self) + 1)

    @property
    def bad_rows(self) -> tuple[BadRow, ...]:
        """The rows that cannot be used, for their sender."""
        if self.faults is None:
            return ()
        found = []
        for place in np.flatnonzero(self.faults.bad).tolist():
            reason = self.faults.schema.reason(int(self.faults.codes[place]))
            label = f"{self.labels[place]}: " if self.labels else ""
            found.append(BadRow(row=self.first_row + place + 1, reason=label + reason))
        return tuple(found)

    def report(self, rows: NDArray[np.bool_], reason: str) -> tuple[BadRow, ...]:
        """Return reports for the sender about rows that a query could not use."""
        return tuple(BadRow(row=int(number), reason=reason) for number in self.row_numbers()[rows])

    def wipe(self) -> None:
        """Overwrite the columns, but for memory that was lent; the batch must not be used afterwards."""
        for column in self.columns.columns:
            wipe_array(column, self.lent)
        if self.ids is not None:
            self.ids.wipe()
        clear_registers()
