"""The same rows in every Arrow type that can hold them, and the queries whose answers must not depend on it."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Collection
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

ROWS = 60
NOON = datetime.datetime(2024, 3, 1, 12)
CANONICAL = {
    "int": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "bool": pa.bool_(),
    "timestamp": pa.timestamp("us"),
    "date": pa.date32(),
}
CONDITIONS = {  # one that pyarrow evaluates, and one that DuckDB must
    "int": ("{} >= 30", "{} % 3 = 1"),
    "double": ("{} > 7.25", "{} * 2 > 21"),
    "string": ("{} = 'w3'", "length({}) > 2"),
    "binary": ("{} IS NOT NULL", "CAST({} AS VARCHAR) < 'w'"),
    "bool": ("{}", "CASE WHEN {} THEN 1 ELSE 0 END = 0"),
    "timestamp": ("{} >= TIMESTAMP '2024-03-02 00:00:00'", "hour({}) >= 13"),
    "date": ("{} >= DATE '2024-03-20'", "day({}) > 25"),
}


def value(kind: str, row: int) -> Any:
    """Return what stands in a row."""
    word = f"w{row % 5}" if row % 4 else f"a word of more than twelve letters, {row % 3}"
    return {
        "int": row,
        "double": row / 4,
        "string": word,
        "binary": word.encode(),
        "bool": row % 3 == 0,
        "timestamp": NOON + datetime.timedelta(hours=row),
        "date": NOON.date() + datetime.timedelta(days=row),
    }[kind]


def values(kind: str, *, nulls: bool) -> list[Any]:
    """Return a column; every seventh is missing where there are ``nulls``."""
    return [None if nulls and row % 7 == 0 else value(kind, row) for row in range(ROWS)]


@dataclass(frozen=True)
class Form:
    """A column: declared as ``kind``, found as ``build`` makes it of the canonical array."""

    kind: str
    build: Callable[[pa.Array], pa.Array]


def _dictionary(index: Any, words: Any) -> Callable[[pa.Array], pa.Array]:
    def build(array: pa.Array) -> pa.Array:
        coded = array.cast(words).dictionary_encode()
        return pa.DictionaryArray.from_arrays(coded.indices.cast(index), coded.dictionary)

    return build


def _nulls_in_dictionary(array: pa.Array) -> pa.Array:
    return array.dictionary_encode(null_encoding="encode")


def _extension(array: pa.Array) -> pa.Array:
    return pa.ExtensionArray.from_storage(pa.opaque(array.type, "t", "v"), array)


def _text(array: pa.Array) -> pa.Array:
    return array.cast(pa.string())


def _zulu(array: pa.Array) -> pa.Array:
    return pa.array([None if v is None else v.isoformat() + "Z" for v in array.to_pylist()])


def cast(to: Any) -> Callable[[pa.Array], pa.Array]:
    return lambda array: array.cast(to)


_WHOLE = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
_INDEX = _WHOLE
_DECIMALS = [pa.decimal32(6, 2), pa.decimal64(12, 2), pa.decimal128(20, 2), pa.decimal256(50, 2)]
_ZONES = {"none": None, "utc": "UTC", "paris": "Europe/Paris", "fixed": "+05:30"}
FORMS: dict[str, Form] = {
    **{f"int_{kind}": Form("int", cast(kind)) for kind in _WHOLE},
    **{f"int_{kind}": Form("int", cast(kind)) for kind in (pa.float16(), pa.float32(), pa.float64())},
    **{f"int_decimal{kind.bit_width}": Form("int", lambda a, k=kind: _decimals(a, k)) for kind in _DECIMALS},  # type: ignore[misc]
    "int_dictionary": Form("int", lambda array: array.dictionary_encode()),
    "int_extension": Form("int", _extension),
    **{f"double_{kind}": Form("double", cast(kind)) for kind in (pa.float16(), pa.float32(), pa.float64())},
    **{f"double_decimal{kind.bit_width}": Form("double", lambda a, k=kind: _decimals(a, k)) for kind in _DECIMALS},  # type: ignore[misc]
    "double_dictionary": Form("double", lambda array: array.dictionary_encode()),
    **{f"string_{kind}": Form("string", cast(kind)) for kind in (pa.string(), pa.large_string(), pa.string_view())},
    **{f"string_by_{index}": Form("string", _dictionary(index, pa.string())) for index in _INDEX},
    "string_by_large": Form("string", _dictionary(pa.int32(), pa.large_string())),
    "string_by_null": Form("string", _nulls_in_dictionary),
    "string_extension": Form("string", _extension),
    **{f"binary_{kind}": Form("binary", cast(kind)) for kind in (pa.binary(), pa.large_binary(), pa.binary_view())},
    **{
        f"binary_{kind}": Form("binary", lambda a, k=kind: a.cast(pa.string()).cast(k))  # type: ignore[misc]
        for kind in (pa.string(), pa.large_string(), pa.string_view())
    },
    "binary_dictionary": Form("binary", _dictionary(pa.int16(), pa.binary())),
    "binary_extension": Form("binary", _extension),
    "bool_bool": Form("bool", lambda array: array),
    "bool_extension": Form("bool", _extension),
    **{
        f"timestamp_{unit}_{word}": Form("timestamp", lambda a, u=unit, z=zone: _moment(a, u, z))  # type: ignore[misc]
        for unit in ("s", "ms", "us", "ns")
        for word, zone in _ZONES.items()
    },
    "timestamp_dictionary": Form("timestamp", lambda array: array.dictionary_encode()),
    "timestamp_text": Form("timestamp", lambda array: _text(array)),
    "timestamp_zulu": Form("timestamp", lambda array: _zulu(array)),
    "timestamp_zulu_large": Form("timestamp", lambda array: _zulu(array).cast(pa.large_string())),
    "date_date32": Form("date", lambda array: array),
    "date_date64": Form("date", cast(pa.date64())),
    "date_text": Form("date", lambda array: _text(array)),
    "date_text_view": Form("date", lambda array: _text(array).cast(pa.string_view())),
    "date_dictionary": Form("date", lambda array: array.dictionary_encode()),
}
REFUSED: dict[str, tuple[str, pa.Array]] = {
    "int_text": ("int", pa.array(["1"])),
    "int_bool": ("int", pa.array([True])),
    "int_time": ("int", pa.array([datetime.time(1)])),
    "int_duration": ("int", pa.array([datetime.timedelta(1)])),
    "int_list": ("int", pa.array([[1]])),
    "int_run_ends": ("int", pa.RunEndEncodedArray.from_arrays([1], [5])),
    "int_struct": ("int", pa.array([{"a": 1}])),
    "int_map": ("int", pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))),
    "int_union": ("int", pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])])),
    "double_text": ("double", pa.array(["1"])),
    "string_int": ("string", pa.array([1])),
    "string_binary": ("string", pa.array([b"a"])),
    "string_fixed": ("string", pa.array([b"a"], pa.binary(1))),
    "string_run_ends": ("string", pa.RunEndEncodedArray.from_arrays([1], ["a"])),
    "string_list": ("string", pa.array([["a"]])),
    "string_list_view": ("string", pa.array([["a"]], pa.list_view(pa.string()))),
    "binary_list": ("binary", pa.array([[b"a"]])),
    "binary_run_ends": ("binary", pa.RunEndEncodedArray.from_arrays([1], [b"a"])),
    "binary_struct": ("binary", pa.array([{"binary": b"a"}])),
    "bool_int": ("bool", pa.array([1])),
    "timestamp_int": ("timestamp", pa.array([1])),
    "timestamp_time": ("timestamp", pa.array([datetime.time(1)])),
    "date_timestamp": ("date", pa.array([NOON])),
    "date_int": ("date", pa.array([1])),
    "string_tensor": (
        "string",
        pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.int8(), [1]), pa.array([[1]], pa.list_(pa.int8(), 1))),
    ),
}


def _decimals(array: pa.Array, kind: Any) -> pa.Array:
    return pa.array([None if v is None else Decimal(str(v)) for v in array.to_pylist()], kind)


def _moment(array: pa.Array, unit: str, zone: str | None) -> pa.Array:
    moved = array.cast(pa.timestamp(unit))
    return moved if zone is None else moved.cast(pa.int64()).cast(pa.timestamp(unit, zone))


def arrays(form: Form, variant: str) -> list[pa.Array]:
    """Return the chunks of a column; sliced ones are the middle of a longer array."""
    nulls = variant != "plain"
    canonical = pa.array(values(form.kind, nulls=nulls), CANONICAL[form.kind])
    if variant == "sliced":
        longer = form.build(pa.concat_arrays([canonical.slice(1, 11), canonical, canonical.slice(5, 9)]))
        return [longer.slice(11, ROWS)]
    whole = form.build(canonical)
    return (
        [whole.slice(0, 7), whole.slice(7, 0), whole.slice(7, 30), whole.slice(37)] if variant == "chunked" else [whole]
    )


def table(names: list[str], variant: str, canonical: Collection[str] = ()) -> pa.Table:
    """Return the rows with a user and a column of each form; some of them in the usual type of their kind."""
    plain = {name: Form(FORMS[name].kind, lambda array: array) for name in canonical}
    columns = {name: pa.chunked_array(arrays(plain.get(name, FORMS[name]), variant)) for name in names}
    users = [f"u{row % 23}" for row in range(ROWS)]
    return pa.table({"u": users, **columns})


def questions(names: list[str]) -> list[dict[str, Any]]:
    """Return the queries about all columns: by both kernels, and a sum of numbers."""
    found = [query("people", "SELECT COUNT(DISTINCT u) FROM s", universe=[f"u{n}" for n in range(23)])]
    for name in names:
        for number, condition in enumerate(CONDITIONS[FORMS[name].kind]):
            found.append(query(f"{name}_{number}", f"SELECT COUNT(*) FROM s WHERE {condition.format(name)}"))
        if FORMS[name].kind in ("int", "double"):
            found.append(query(f"{name}_sum", f"SELECT SUM({name}) FROM s WHERE {name} IS NOT NULL", lower=0, upper=64))
    return found


def query(name: str, sql: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "sql": sql, "epsilon": 1.0, **more}


def expected(names: list[str], variant: str) -> dict[str, float]:
    """Return DuckDB's answers on the canonical columns."""
    nulls = variant != "plain"
    kinds = {name: FORMS[name].kind for name in names}
    columns = {name: pa.array(values(kind, nulls=nulls), CANONICAL[kind]) for name, kind in kinds.items()}
    rows = pa.table({"u": [f"u{row % 23}" for row in range(ROWS)], **columns})
    with duckdb.connect() as connection:
        connection.register("s", rows)
        return {each["name"]: float(connection.execute(each["sql"]).fetchall()[0][0] or 0) for each in questions(names)}


def same(one: pa.Table, other: pa.Table) -> bool:
    """Return whether two tables hold the same values, NaN included."""
    return one.equals(other) or bool(
        np.all([str(a) == str(b) for a, b in zip(one.columns, other.columns, strict=True)])
    )
