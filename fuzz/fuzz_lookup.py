"""Lookup tables and lists of groups, CSV and Parquet: a table with a unique key, or a refusal."""

import tempfile
from pathlib import Path

import fuzzing

with fuzzing.instrumented():
    from panstream.engine.sql.lookup_tables import LookupTable, read_group_keys
    from panstream.errors import PanstreamError

_FOLDER = Path(tempfile.mkdtemp(prefix="panstream-fuzz-"))


def test_one_input(data: bytes) -> None:
    file = _FOLDER / ("table.parquet" if data.startswith(b"PAR1") else "table.csv")
    file.write_bytes(data)
    try:
        read_group_keys(file, "page", "[groups]")
    except PanstreamError:
        pass
    try:
        found = LookupTable.read("pages", file, "page")
    except PanstreamError:
        return
    assert len(found.table.column("page").unique()) == len(found.table)


if __name__ == "__main__":
    fuzzing.run(test_one_input)
