"""Columns of any table library to codes: categories by their label, numbers by their bin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.batch.arrow import pyarrow
from panstream.batch.frames import library_of
from panstream.errors import InvalidBatch
from panstream.networks.domain import Attribute

__all__ = ["column_codes", "named_columns"]

_INTEGERS = "biu"


def named_columns(data: Any) -> dict[str, Any]:
    """Return the columns of a mapping, a list of mappings, a pandas or polars frame or an Arrow table by name."""
    if isinstance(data, Mapping):
        return dict(data)
    library = library_of(type(data))
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


def column_codes(column: Any, attribute: Attribute) -> NDArray[np.int64]:
    """Return the codes of one column; raise InvalidBatch by row for what is not declared."""
    found = _binned(column, attribute) if attribute.bins is not None else _labelled(column, attribute)
    unknown = found < 0
    if unknown.any():
        if attribute.missing is None:
            rule = "a number inside the declared edges" if attribute.bins else "one of the declared categories"
            raise InvalidBatch(f"{attribute.name!r} must be {rule}", row=int(unknown.argmax()))
        found[unknown] = attribute.missing
    return found


def _labelled(column: Any, attribute: Attribute) -> NDArray[np.int64]:
    codes, entries = _factorised(column)
    known: dict[str | None, int] = {label: code for code, label in enumerate(attribute.labels)}
    table = np.array([*(known.get(_text(entry), -1) for entry in entries), -1], np.int64)
    return table[codes]  # a null has code -1, which is the table's last entry


def _text(value: Any) -> str | None:
    """Return the label that a value stands for: whole numbers have no decimal point, however a library stores them."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if value is None or value != value:
        return None
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)


def _factorised(column: Any) -> tuple[NDArray[np.int64], list[Any]]:
    """Return codes and the distinct values they stand for; -1 is null."""
    library = library_of(type(column))
    if library == "polars":
        pyarrow()
        column, library = column.to_arrow(), "pyarrow"
    if library == "pandas":
        codes, entries = column.factorize()
        return np.asarray(codes, np.int64), list(entries)
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
    places: dict[Any, int] = {}
    try:
        codes = np.fromiter((places.setdefault(value, len(places)) for value in values), np.int64, len(values))
    except TypeError:
        raise InvalidBatch("a column must hold strings, numbers or nulls") from None
    return codes, list(places)


def _binned(column: Any, attribute: Attribute) -> NDArray[np.int64]:
    assert attribute.bins is not None
    return attribute.bins.codes(_numbers(column, attribute))


def _numbers(column: Any, attribute: Attribute) -> NDArray[np.float64]:
    """Return the column as floats with NaN for null; text that reads as a number is taken as one."""
    if isinstance(column, np.ndarray) and column.ndim == 1 and column.dtype.kind in _INTEGERS + "f":
        return column.astype(np.float64)
    codes, entries = _factorised(column)
    known = attribute.labels[attribute.missing] if attribute.missing is not None else None
    table = np.empty(len(entries) + 1)
    table[-1] = np.nan
    for place, entry in enumerate(entries):
        try:
            table[place] = np.nan if entry is None or entry == known else float(entry)
        except (TypeError, ValueError):
            if attribute.missing is None:
                row = int((codes == place).argmax())
                raise InvalidBatch(f"{attribute.name!r} must hold numbers", row=row) from None
            table[place] = np.nan
    return table[codes]
