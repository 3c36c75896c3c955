"""Parquet files: rows, or a refusal."""

import tempfile
from pathlib import Path

import fuzzing

with fuzzing.instrumented():
    from panstream.engine.feeds.parquet import ParquetFile
    from panstream.engine.rows import RowSchema
    from panstream.errors import PanstreamError

_FILE = Path(tempfile.mkdtemp(prefix="panstream-fuzz-")) / "rows.parquet"
_SCHEMA = RowSchema(columns={"user": "string", "n": "int"}, user="user")


def test_one_input(data: bytes) -> None:
    _FILE.write_bytes(data)
    try:
        file = ParquetFile(_FILE, _SCHEMA, rows=1_000, ahead=False)
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
