"""Arrow bodies made by an enemy: read in a process of its own, since what they are after is its end, or its memory."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

ROOT = Path(__file__).parents[2]
BODIES = 3000 * int(os.environ.get("PANSTREAM_FUZZ", "1"))
READ = """
import json, sys
import numpy as np
from panstream.errors import SourceError
from panstream.primitives.inputs import items
from panstream.engine.rows.row_batch import RowSchema

from panstream.errors import SourceError
from panstream.primitives.hashing import derive
from panstream.primitives.hashing.items import hash_items
from panstream.server.ingest.request_bodies import _read_arrow
for name, body in json.load(sys.stdin).items():
    for user in ("x", None):
        print(name, end=": ", flush=True)
        try:
            schema = RowSchema(columns={"x": "string"}, user=user)
            piece = _read_arrow(memoryview(bytearray.fromhex(body)), schema, rows=1000)
        except SourceError as error:
            print("refused", flush=True)
            continue
        ids = items(piece.columns.column("x"))
        hash_items(ids, derive(0, "test"), np.empty(len(ids), np.uint64))
        print(piece.columns.column("x").to_pylist(), flush=True)
"""


def stream(array: pa.Array) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, pa.schema([("x", array.type)])) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays([array], ["x"]))
    return sink.getvalue()


def view(length: int, buffer: int, offset: int, prefix: bytes = b"secr") -> bytes:
    return (
        length.to_bytes(4, "little")
        + prefix
        + buffer.to_bytes(4, "little", signed=True)
        + offset.to_bytes(4, "little", signed=True)
    )


def views(*rows: bytes) -> pa.Array:
    data = [None, pa.py_buffer(b"".join(rows)), pa.py_buffer(b"secrets that are longer than twelve letters")]
    return pa.Array.from_buffers(pa.string_view(), len(rows), data)


def words(offsets: list[int]) -> pa.Array:
    places = np.zeros(len(offsets), np.int32)
    array = pa.Array.from_buffers(pa.string(), len(offsets) - 1, [None, pa.py_buffer(places), pa.py_buffer(b"abcdef")])
    places[:] = offsets  # pyarrow would not make it so
    return array


def coded(codes: list[int], entries: pa.Array) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), entries, safe=False)


ENEMIES = {
    "a view far away": views(view(20, 0, 2**30), view(20, 0, 0)),
    "a view just behind": views(view(20, 0, 30)),
    "a view of another buffer": views(view(20, 5, 0)),
    "a view before its buffer": views(view(20, 0, -64)),
    "a view of much": views(view(2**31 - 1, 0, 0)),
    "a view of a negative length": views(view(2**32 - 5, 0, 0)),
    "a word far away": coded([0, 1], words([0, 2**30, 6])),
    "a word behind": coded([0, 1], words([0, 70, 6])),
    "a word that goes back": coded([0, 1], words([0, 5, 2, 6])),
    "a code outside": coded([0, 7], words([0, 3, 6])),
    "a code far outside": coded([0, 2**31 - 1], words([0, 3, 6])),
    "a negative code": coded([0, -(2**31)], words([0, 3, 6])),
    "a code without words": coded([0], words([0])),
    "a view among the words": coded([0], views(view(20, 0, 2**30))),
    "an offset far away": words([0, 2**30, 6]),
}


@pytest.mark.slow
def test_what_points_elsewhere_is_refused() -> None:
    """Not followed: that ends the process, or makes an id of its memory."""
    bodies = {name: stream(array).hex() for name, array in ENEMIES.items()}
    done = subprocess.run(
        [sys.executable, "-c", READ], input=json.dumps(bodies), capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines() == [f"{name}: refused" for name in ENEMIES for _ in range(2)], done.stderr
    assert done.returncode == 0


@pytest.mark.slow
def test_bodies_that_are_nearly_right() -> None:
    """Thousands of bent streams of every type, by the tool that runs a hundred thousand: no crash, no hang, no
    wrong row.
    """
    command = [sys.executable, "-m", "benchmarks.soak.fuzz_bodies", "--bodies", str(BODIES), "--seed", "7"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 wrong, 0 crashes, 0 hangs" in done.stdout
