"""Sniff the dialect and column types of the first bytes of a text, in a separate process.

DuckDB's sniffer parses rows, and its allocator leaves their content in freed memory; that memory ends with this
process. ::

    python -m panstream.engine.dialect_sniffer csv . < the first bytes
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from base64 import b64encode
from typing import Any

from panstream.primitives.memory.process_hardening import disable_core_dumps

__all__: list[str] = []

_INTEGERS = ("BIGINT", "INTEGER", "SMALLINT", "TINYINT")
_TYPES = {**dict.fromkeys(_INTEGERS, "int"), "DOUBLE": "double", "FLOAT": "double", "BOOLEAN": "bool", "DATE": "date"}
_TYPES |= {"TIMESTAMP": "timestamp", "TIMESTAMP WITH TIME ZONE": "timestamp"}
_SNIFF = "SELECT Delimiter, Quote, SkipRows, HasHeader, Columns FROM sniff_csv({})"
_DEVICE = "/proc/self/fd" if sys.platform == "linux" else "/dev/fd"


def _text(sample: bytes, decimal: str) -> dict[str, Any]:
    import duckdb

    in_memory = sys.platform == "linux"
    with open(os.memfd_create("sample"), "w+b") if in_memory else tempfile.TemporaryFile() as file:
        file.write(sample)
        file.flush()
        file.seek(0)
        connection = duckdb.connect(":memory:")
        connection.execute("SET threads = 1; SET temp_directory = ''")
        arguments = f"'{_DEVICE}/{file.fileno()}', sample_size=-1, decimal_separator='{decimal}'"
        try:
            dialect_row = connection.execute(_SNIFF.format(arguments)).fetchall()[0]
        except duckdb.Error:  # one of the first rows has another number of columns
            dialect_row = connection.execute(
                _SNIFF.format(f"{arguments}, strict_mode=false, ignore_errors=true")
            ).fetchall()[0]
    delimiter, quote, skipped, header, columns = dialect_row
    return {
        "delimiter": delimiter if len(delimiter) == 1 else ",",
        "quote": quote if len(quote) == 1 else '"',
        "skipped": skipped,
        "header": bool(header),
        "columns": {column["name"]: _TYPES.get(column["type"], "string") for column in columns},
    }


def _lines(sample: bytes, decimal: str) -> dict[str, Any]:
    import pyarrow as pa
    from pyarrow import json as lines

    options = lines.ReadOptions(block_size=len(sample) + 1, use_threads=False)
    schema = lines.read_json(pa.BufferReader(sample), options).schema
    return {"schema": b64encode(schema.serialize()).decode()}


if __name__ == "__main__":
    disable_core_dumps()
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115  (an error may quote values)
    json.dump((_lines if sys.argv[1] == "json" else _text)(sys.stdin.buffer.read(), sys.argv[2]), sys.stdout)
