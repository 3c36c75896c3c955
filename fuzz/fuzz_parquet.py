"""Parquet files: rows, or a refusal."""

import tempfile
from pathlib import Path

import fuzzing

with fuzzing.instrumented():
    from panstream.engine.rows.row_batch import RowSchema
    from panstream.engine.sources.formats.parquet.file import ParquetFile
    from panstream.errors import PanstreamError

_FILE = Path(tempfile.mkdtemp(prefix="panstream-fuzz-")) / "rows.parquet"
_COLUMNS = {"user": "string", "n": "int"}


def test_one_input(data: bytes) -> None:
    _FILE.write_bytes(data)
    for user in (None, *_COLUMNS):
        _read(RowSchema(columns=_COLUMNS, user=user))


def _read(schema: RowSchema) -> None:
    try:
        file = ParquetFile(_FILE, schema, rows=1_000)
    except PanstreamError:
        return
    try:
        for rows in file.pieces():
            rows.wipe()
    except PanstreamError:
        pass
    finally:
        file.close()


if __name__ == "__main__":
    fuzzing.run(test_one_input)
