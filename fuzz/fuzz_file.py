"""Files of rows, CSV, TSV, JSON lines and Arrow, plain and packed: rows, or a refusal that names the file."""

import contextlib
import tempfile
from pathlib import Path

import fuzzing

with fuzzing.instrumented():
    from panstream.engine.rows.row_batch import RowSchema
    from panstream.engine.sources.files import FileSource
    from panstream.errors import PanstreamError

_FOLDER = Path(tempfile.mkdtemp(prefix="panstream-fuzz-"))
_NAMES = ("r.csv", "r.json", "r.arrow", "r.feather", "r.tsv", "r.csv.gz", "r.json.zst", "r.csv.bz2", "r.json.xz")
_SCHEMA = RowSchema(columns={"user": "string", "n": "int", "x": "double", "at": "timestamp"}, user="user")


def test_one_input(data: bytes) -> None:
    """The first byte chooses the file's name."""
    if not data:
        return
    file = _FOLDER / _NAMES[data[0] % len(_NAMES)]
    file.write_bytes(data[1:])
    try:
        source = FileSource([str(file)], _SCHEMA, batch_rows=100)
        (input_file,) = source._files
        batches = source._file_batches(input_file, len(data) - 1)  # without the thread that reads ahead
        with contextlib.closing(batches):
            for rows in batches:
                if rows is not None:
                    rows.wipe()
    except PanstreamError:
        pass


if __name__ == "__main__":
    fuzzing.run(test_one_input)
