"""Records as codes: one contiguous row of small integers per attribute, read from table libraries or files."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from panstream.errors import InvalidBatch, translate_errors
from panstream.models.networks.bins import EVERYWHERE, Within
from panstream.models.networks.domain import Attribute, Domain
from panstream.primitives import validation as checks
from panstream.primitives.inputs.dataframes import dataframe_library, pyarrow
from panstream.primitives.inputs.table_files import read_columns
from panstream.primitives.memory.scratch import wipe
from panstream.primitives.noise import NoiseSource


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Records:
    """Records over a declared domain; ``codes[i, r]`` is the code of attribute ``i`` in record ``r``.

    Args:
        domain: The attributes.
        codes: A row of codes per attribute, a column per record.

    >>> domain = Domain({"sex": ["f", "m"], "smokes": ["no", "yes"]})
    >>> records = Records.read({"sex": ["f", "m", "f"], "smokes": ["no", "no", "yes"]}, domain)
    >>> len(records), records.to_columns()["smokes"]
    (3, ['no', 'no', 'yes'])
    """

    domain: Domain
    codes: NDArray[np.uint16]

    def __post_init__(self) -> None:
        codes = np.asarray(self.codes)
        if codes.ndim != 2 or codes.shape[0] != len(self.domain):
            raise InvalidBatch(f"codes must have shape (attributes, records) with {len(self.domain)} attributes")
        if codes.dtype.kind not in "iu":
            raise InvalidBatch(f"codes must be integers, got {codes.dtype}")
        for position, attribute in enumerate(self.domain.attributes):
            row = codes[position]
            if row.size and not 0 <= int(row.min()) <= int(row.max()) < attribute.size:
                first = int(np.argmax((row < 0) | (row >= attribute.size)))
                raise InvalidBatch(f"codes of {attribute.name!r} must be in 0..{attribute.size - 1}", row=first)
        object.__setattr__(self, "codes", np.ascontiguousarray(codes, np.uint16))

    def __len__(self) -> int:
        return int(self.codes.shape[1])

    def __repr__(self) -> str:
        return f"Records({len(self.domain)} attributes)"

    @classmethod
    def read(cls, data: Any, domain: Domain) -> Records:
        """Read a mapping of columns, a list of mappings, a pandas or polars frame or an Arrow table.

        Working copies are wiped; the codes and the columns of ``data`` are the caller's responsibility.

        Columns that the domain does not name are ignored. A value that is not declared raises InvalidBatch with its row
        number, or becomes the attribute's missing category where one is declared. Integers, also those stored as
        floats, match categories written without a decimal point.

        Args:
            domain: The attributes to read.
            data: The columns.
        """
        columns = _named_columns(data)
        absent = [name for name in domain.names if name not in columns]
        if absent:
            raise InvalidBatch(f"there is no column {absent[0]!r}")
        codes: NDArray[np.uint16] | None = None
        for position, attribute in enumerate(domain.attributes):
            column_codes = _column_codes(columns[attribute.name], attribute)
            if codes is None:
                codes = np.empty((len(domain), column_codes.size), np.uint16)
            if column_codes.size != codes.shape[1]:
                raise InvalidBatch(f"column {attribute.name!r} must be as long as the others")
            codes[position] = column_codes
            wipe(column_codes)
        assert codes is not None  # a domain has at least one attribute
        return cls(domain, codes)

    @classmethod
    def load(cls, path: str | Path, domain: Domain) -> Records:
        """Read the declared columns of a file: CSV, TSV, JSON lines (also compressed), Parquet or Arrow.

        Args:
            path: The file.
            domain: The attributes to read.
        """
        text = [attribute.name for attribute in domain.attributes if attribute.bins is None or attribute.bins.dates]
        columns = read_columns(Path(path), domain.names, text=text)

        def in_file(error: InvalidBatch) -> InvalidBatch:
            if error.row is None:
                return error
            why = str(error).partition(": ")[2]
            return InvalidBatch(f"{Path(path).name}, row {error.row + 1}: {why}")  # rows of files are counted from 1

        return translate_errors(lambda: cls.read(columns, domain), InvalidBatch, in_file)

    def to_columns(self) -> dict[str, list[str]]:
        """Return the labels of every record, one list per attribute; a bin is named by its interval."""
        columns = {}
        for attribute, row in zip(self.domain.attributes, self.codes, strict=True):
            labels = np.array(attribute.labels, object)
            columns[attribute.name] = labels[row].tolist()
        return columns

    def numeric_columns(
        self, rng: NoiseSource, *, within: Mapping[str, Within] | None = None, markers: bool = False
    ) -> dict[str, list[object]]:
        """Return columns of labels, and of numbers or dates sampled uniformly from the bins of binned attributes.

        Atoms are returned as such; a bin without end is sampled up to its tail, or gives its finite edge; integers
        remain integers, as bins and as categories; dates are ISO 8601. ``within`` restricts numbers to ranges. A
        missing number is ``None``; with ``markers`` it is the label for missing values, and the column is text.

        Args:
            rng: Source of the draws.
            within: Ranges of the numbers of some attributes, by name.
            markers: Whether a missing number is replaced by its label.
        """
        columns: dict[str, list[object]] = {}
        for attribute, row, labels in zip(self.domain.attributes, self.codes, self.to_columns().values(), strict=True):
            if attribute.bins is None:
                integers = whole_numbers(attribute)
                values = list(labels) if integers is None else [integers[code] for code in row.tolist()]
            else:
                words = rng.scratch.array(row.size, np.uint64)
                rng.fill_words(words)
                limits = (within or {}).get(attribute.name, EVERYWHERE)
                values = attribute.bins.sample_values(row, np.minimum(words / 2.0**64, 1 - 2.0**-53), limits)
            if markers and attribute.missing is not None:
                values = _marked(values, attribute.labels[attribute.missing])
            columns[attribute.name] = values
        return columns

    def take(self, rows: ArrayLike) -> Records:
        """Return the records of these row numbers (or where a mask is true), in this order.

        Args:
            rows: Row numbers, or a mask.
        """
        return Records(self.domain, self.codes[:, np.asarray(rows)])

    def select(self, positions: Sequence[int]) -> Records:
        """Return all records with some of the attributes, in the order of ``positions``."""
        return Records(self.domain.select(positions), self.codes[list(positions)])

    def split(self, parts: int) -> tuple[Records, ...]:
        """Assign the records round robin to ``parts`` parts whose sizes differ by at most one."""
        checks.require_at_least(1, parts=parts)
        return tuple(Records(self.domain, self.codes[:, start::parts]) for start in range(parts))


_INTEGERS = "biu"
_MAX_DIGITS = 18  # any integer of this many digits fits into 64 bits


def _marked(values: list[object], marker: str) -> list[object]:
    """Return a column as text with ``marker`` for missing values, or unchanged if none is missing."""
    if None not in values:
        return values
    return [marker if value is None else str(value) for value in values]


def whole_numbers(attribute: Attribute) -> list[int | None] | None:
    """Return the categories as integers, "missing" as None; None if one is not an integer (007 is text)."""
    integers: list[int | None] = []
    for code, label in enumerate(attribute.labels):
        if code == attribute.missing:
            integers.append(None)
        elif len(label) <= _MAX_DIGITS and re.fullmatch(r"0|-?[1-9][0-9]*", label):
            integers.append(int(label))
        else:
            return None
    return integers


def _named_columns(data: Any) -> dict[str, Any]:
    """Return the columns of a mapping, a list of mappings, a pandas or polars frame or an Arrow table by name."""
    if isinstance(data, Mapping):
        return dict(data)
    library = dataframe_library(type(data))
    if library == "pyarrow":
        return {name: data.column(name) for name in data.schema.names}
    if library:
        return {str(name): data[name] for name in data.columns}
    if isinstance(data, list | tuple):
        if not all(isinstance(row, Mapping) for row in data):
            raise InvalidBatch("a list of records must hold mappings from names to values")
        names = dict.fromkeys(name for row in data for name in row)
        return {name: [row.get(name) for row in data] for name in names}
    raise InvalidBatch(
        f"records must be a mapping of columns, a list of mappings or a table, got {type(data).__name__}"
    )


def _column_codes(column: Any, attribute: Attribute) -> NDArray[np.int64]:
    """Return the codes of one column; raise InvalidBatch with the row of an undeclared value."""
    codes = _binned(column, attribute) if attribute.bins is not None else _labelled(column, attribute)
    unknown = codes < 0
    if unknown.any():
        if attribute.missing is None:
            inside = "a date" if attribute.bins and attribute.bins.dates else "a number"
            rule = f"{inside} inside the declared edges" if attribute.bins else "one of the declared categories"
            instead = "clip = true" if attribute.bins else "other = true"
            raise InvalidBatch(
                f"{attribute.name!r} must be {rule}, or declare {instead} for all others", row=int(unknown.argmax())
            )
        codes[unknown] = attribute.missing
    return codes


def _labelled(column: Any, attribute: Attribute) -> NDArray[np.int64]:
    codes, entries = factorised(column)
    code_by_label: dict[str | None, int] = {label: code for code, label in enumerate(attribute.labels)}
    table = np.array([*(code_by_label.get(label_of(entry), -1) for entry in entries), -1], np.int64)
    row_codes = table[codes]  # a null has code -1, which is the table's last entry
    wipe(codes)
    return row_codes


def label_of(value: Any) -> str | None:
    """Return a value as a label, integers without a decimal point even if stored as floats; None for null or NaN.

    Args:
        value: A value of a column.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if value is None or value != value:
        return None
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)


def factorised(column: Any) -> tuple[NDArray[np.int64], list[Any]]:
    """Return the code of each row, -1 for null, and the distinct values by code.

    Args:
        column: A list, an array, or a column of a table library.
    """
    library = dataframe_library(type(column))
    if library == "polars":
        pyarrow()
        column = column.to_arrow()
        library = "pyarrow"
    if library == "pandas":
        codes, entries = column.factorize()
        return np.array(codes, np.int64), list(entries)
    if library == "pyarrow":
        return _factorised_arrow(column)
    array = column if isinstance(column, np.ndarray) else None
    if array is not None and array.ndim == 1 and array.dtype.kind in _INTEGERS:
        entries, codes = np.unique(array, return_inverse=True)
        return codes.astype(np.int64), list(entries)
    if array is not None and array.ndim != 1:
        raise InvalidBatch(f"a column must have one dimension, got {array.ndim}")
    return _factorised_values(array.tolist() if array is not None else list(column))


def _factorised_arrow(column: Any) -> tuple[NDArray[np.int64], list[Any]]:
    arrow = pyarrow()
    if isinstance(column, arrow.Array):
        column = arrow.chunked_array([column])
    if not arrow.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    column = column.unify_dictionaries()
    entries = column.chunk(0).dictionary.to_pylist() if column.num_chunks else []
    chunks = [chunk.indices.cast("int64").fill_null(-1).to_numpy(zero_copy_only=False) for chunk in column.chunks]
    return np.concatenate([np.empty(0, np.int64), *chunks]).astype(np.int64), entries


def _factorised_values(values: list[Any]) -> tuple[NDArray[np.int64], list[Any]]:
    code_by_value: dict[Any, int] = {}
    try:
        codes = np.fromiter(
            (code_by_value.setdefault(value, len(code_by_value)) for value in values), np.int64, len(values)
        )
    except TypeError:
        raise InvalidBatch("a column must hold strings, numbers or nulls") from None
    return codes, list(code_by_value)


def _binned(column: Any, attribute: Attribute) -> NDArray[np.int64]:
    assert attribute.bins is not None
    numbers = _numbers(column, attribute)
    codes = attribute.bins.codes(numbers)
    wipe(numbers)
    return codes


def _numbers(column: Any, attribute: Attribute) -> NDArray[np.float64]:
    """Return the column as floats with NaN for null; text that reads as a number is taken as one."""
    plain = isinstance(column, np.ndarray) and column.ndim == 1
    if plain and column.dtype.kind in _INTEGERS + "f" and not (attribute.bins and attribute.bins.dates):
        return np.array(column, np.float64)
    if plain and column.dtype.kind == "M":
        column = column.astype("datetime64[D]")  # tolist() gives integers for nanoseconds, dates for days
    codes, entries = factorised(column)
    assert attribute.bins is not None
    missing_label = attribute.labels[attribute.missing] if attribute.missing is not None else None
    table = np.empty(len(entries) + 1)
    table[-1] = np.nan
    for code, entry in enumerate(entries):
        try:
            table[code] = np.nan if entry is None or entry == missing_label else attribute.bins.number(entry)
        except (TypeError, ValueError):
            if attribute.missing is None:
                row = int((codes == code).argmax())
                kind = "dates as YYYY-MM-DD" if attribute.bins.dates else "numbers"
                raise InvalidBatch(f"{attribute.name!r} must hold {kind}", row=row) from None
            table[code] = np.nan
    numbers = table[codes]
    wipe(codes)
    return numbers
