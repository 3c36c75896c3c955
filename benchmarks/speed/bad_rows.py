"""How many bad rows a second are read and set aside, for every declared type: files by ``run``, bodies as the server
parses them.

Every row is bad in one column and good in the other. For comparison: the same rows without a fault. Seconds are of CPU
time, over all threads, so that other processes do not count: files are read by a second thread, and take less time than
that.

    python -m benchmarks.speed.bad_rows [ROWS]
"""

from __future__ import annotations

import io
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from panstream.engine.config.config import Config, read_config
from panstream.engine.rows.row_batch import RowBatch, RowSchema
from panstream.engine.runtime.engine import Engine
from panstream.engine.runtime.ingest import ingest
from panstream.engine.runtime.selector import Selector
from panstream.server.auth import Limits, QuotaTracker
from panstream.server.ingest.request_bodies import RequestBody, parse

GOOD = {
    "int": "5",
    "double": "1.5",
    "bool": "true",
    "timestamp": "2024-03-01 12:00:00",
    "date": "2024-03-01",
    "string": "a",
}
BAD = {
    "int": ["x", "1.5", "99999999999999999999"],
    "double": ["x", "NaN", "1e999"],
    "bool": ["yes", "2", "tRue"],
    "timestamp": ["2024-31-12 00:00:00", "12/31/2024", "2024-02-30"],  # a day and a month swapped, ...
    "date": ["2024-31-12", "31.12.2024", "2024-02-30"],
    "string": ["\udcff", "a\udcc3", "\udced\udca0\udc80"],
}
CSV = "csv"
LINES = "json"
ARROW = "arrow"


def config(kind: str) -> Config:
    stream = {"name": "s", "columns": {"u": "int", "x": kind}, "user": "u"}
    query = {"name": "q", "sql": "SELECT COUNT(*) FROM s WHERE x IS NOT NULL", "epsilon": 1.0}
    return read_config({"stream": stream, "query": [query]})


def cells(kind: str, rows: int, *, bad: bool) -> list[str]:
    return (BAD[kind] if bad else [GOOD[kind]]) * (rows // (len(BAD[kind]) if bad else 1))


def csv(values: list[str]) -> bytes:
    return ("u,x\n" + "".join(f"{n},{value}\n" for n, value in enumerate(values))).encode("utf-8", "surrogateescape")


def lines(kind: str, values: list[str]) -> bytes:
    raw = kind in ("int", "double", "bool")

    def cell(value: str) -> str:
        plain = raw and value in ("1.5", "99999999999999999999", "NaN", "1e999", "2", "5", "true")
        return value if plain else json.dumps(value, ensure_ascii=False)

    text = "".join(f'{{"u": {n}, "x": {cell(value)}}}\n' for n, value in enumerate(values))
    return text.encode("utf-8", "surrogateescape")


def arrow(kind: str, rows: int, *, bad: bool) -> bytes | None:
    values: Any
    if kind == "int":
        values = pa.array(np.full(rows, 1.5 if bad else 5.0))
    elif kind == "double":
        values = pa.array(np.full(rows, np.nan if bad else 1.5))
    elif kind == "bool":
        return None  # every Arrow boolean is one
    else:
        texts = pa.array([each.encode("utf-8", "surrogateescape") for each in cells(kind, rows, bad=bad)], pa.binary())
        values = pa.Array.from_buffers(pa.string(), len(texts), texts.buffers())
    sink = io.BytesIO()
    batch = pa.RecordBatch.from_arrays([pa.array(np.arange(len(values))), values], names=["u", "x"])
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def by_file(settings: Config, path: Path, rows: int, *, bad: bool) -> float:
    with Engine(settings) as engine:
        begin = time.process_time()
        fed = ingest(engine, [str(path)])
        spent = time.process_time() - begin
    assert (fed.rows, fed.skipped_count) == (rows, rows if bad else 0)
    return rows / spent


def by_body(settings: Config, data: bytes, form: str, rows: int, *, bad: bool) -> float:
    """Parse a body and apply it, as the server does."""
    schema = RowSchema.of(settings.stream, settings.needed_columns)
    gate = QuotaTracker(Limits(rows=1 << 30, body=1 << 30, unpacked=1 << 30, memory=1 << 31))
    with Engine(settings) as engine, Selector(settings) as select:
        body = RequestBody(gate, form, "identity")
        body.append(data)
        begin = time.process_time()
        batch = parse(body, schema)
        assert isinstance(batch, RowBatch)
        applied = engine.apply(select(batch))
        spent = time.process_time() - begin
        select.wipe()
        batch.wipe()
        body.wipe()
    assert len(applied.skipped) == (rows if bad else 0)
    return rows / spent


def measured(kind: str, rows: int, folder: Path, *, bad: bool) -> list[float | None]:
    settings = config(kind)
    values = cells(kind, rows, bad=bad)
    rows = len(values)
    texts = {"csv": csv(values), "jsonl": lines(kind, values)}
    found: list[float | None] = []
    for ending, data in texts.items():
        path = folder / f"rows.{ending}"
        path.write_bytes(data)
        found.append(max(by_file(settings, path, rows, bad=bad) for _ in range(2)))
    stream = arrow(kind, rows, bad=bad)
    for form, body in ((CSV, texts["csv"]), (LINES, texts["jsonl"]), (ARROW, stream)):
        count = rows if form != ARROW else len(cells(kind, rows, bad=bad))
        found.append(None if body is None else max(by_body(settings, body, form, count, bad=bad) for _ in range(2)))
    return found


def main() -> None:
    rows = 3 * (int(sys.argv[1]) // 3 if len(sys.argv) > 1 else 200_000)
    print(f"{rows:,} rows of which every one is bad, millions a second of CPU time (in brackets: of which none is)")
    heads = ("run CSV", "run JSON", "body CSV", "body JSON", "body Arrow")
    print(f"{'':10}" + "".join(f"{head:>16}" for head in heads))
    with tempfile.TemporaryDirectory() as folder:
        for kind in GOOD:
            measured(kind, 300, Path(folder), bad=True)  # compiled code is loaded
            bad, good = (measured(kind, rows, Path(folder), bad=each) for each in (True, False))
            shown = [
                f"{one / 1e6:.1f} ({other / 1e6:.1f})" if one is not None and other is not None else "-"
                for one, other in zip(bad, good, strict=True)
            ]
            print(f"{kind:10}" + "".join(f"{each:>16}" for each in shown), flush=True)


if __name__ == "__main__":
    main()
