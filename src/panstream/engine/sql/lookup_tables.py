"""Public lookup tables: a CSV or Parquet file that a configuration names, joined by a unique key.

Keys are unique, so a row of the stream matches at most one row of the table: the join is a function of one row.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from panstream.errors import ConfigError, translate_errors
from panstream.primitives.inputs.parquet_footer import CorruptParquet, read_footer


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupTable:
    """A public table with a unique ``key``; column types come from the file."""

    name: str
    key: str
    columns: Mapping[str, str]
    digest: str
    table: Any = field(repr=False, compare=False)

    @classmethod
    def read(cls, name: str, file: Path, key: str) -> LookupTable:
        """Read a table; raise ConfigError if it cannot be read, or a key is NULL or occurs twice."""
        from panstream.engine.arrow import kind_of

        label = f"[lookup.{name}]"
        table, data = _table(file, label)
        if key not in table.schema.names:
            raise ConfigError(f"{label}: key names column {key!r}, which {file.name} does not have")
        columns: dict[str, str] = {}
        for column_index, column in enumerate(table.schema.names):
            kind = kind_of(table.schema.types[column_index])
            if kind is None:
                raise ConfigError(f"{label}: column {column!r} of {file.name} has a type that no column can have")
            columns[column] = kind
        keys = table.column(key)
        if keys.null_count or len(keys.unique()) != len(keys):
            raise ConfigError(
                f"{label}: {key} must be a unique key of {file.name}: every row has one, and no two the same"
            )
        return cls(name=name, key=key, columns=columns, digest=hashlib.sha256(data).hexdigest(), table=table)


def read_group_keys(file: Path, column: str, label: str) -> list[Any]:
    """Return the group keys in a file: the column of that name, or the only one."""
    table, _ = _table(file, label)
    names = table.schema.names
    if column not in names and len(names) != 1:
        raise ConfigError(f"{label}: {file.name} must have a column {column!r}, or one column only")
    keys: list[Any] = table.column(column if column in names else names[0]).to_pylist()
    return keys


def _table(file: Path, label: str) -> tuple[Any, bytes]:
    from panstream.engine.arrow import pa

    def refusal(error: Exception) -> ConfigError:
        why = "there is no such file" if isinstance(error, FileNotFoundError) else "it cannot be read as a table"
        return ConfigError(f"{label}: {file.name}: {why}")

    def read() -> tuple[Any, bytes]:
        data = file.read_bytes()
        return _parsed(file, data).combine_chunks(), data

    if file.suffix not in (".csv", ".parquet"):
        raise ConfigError(f"{label}: the file must end in .csv or .parquet, got {file.name!r}")
    table, data = translate_errors(read, (OSError, pa.ArrowException, UnicodeDecodeError, CorruptParquet), refusal)
    if len(set(table.schema.names)) < len(table.schema.names):
        raise ConfigError(f"{label}: {file.name} has two columns of the same name")
    return table, data


def _parsed(file: Path, data: bytes) -> Any:
    from panstream.engine.arrow import pa

    if file.suffix == ".parquet":
        import pyarrow.parquet as parquet

        read_footer(file)
        return parquet.read_table(pa.BufferReader(data))
    import pyarrow.csv as csv

    options = csv.ConvertOptions(strings_can_be_null=True, null_values=[""], quoted_strings_can_be_null=False)
    return csv.read_csv(pa.BufferReader(data), convert_options=options)
