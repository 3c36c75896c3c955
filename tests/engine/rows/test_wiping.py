"""Unguessable ids through files and the engine in a process of its own: what a scan of its memory and of its store
finds.
"""

import gzip
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from panstream.cli.hardening import ENVIRONMENT
from panstream.testing.memory import ScanReport, make_needles, scan

IDS = 14_000
BATCH = 500
ROW_BYTES = 34  # of text, at least: an id and what separates it from the next
BLOCK_BYTES = {"csv.gz": 5 << 15}  # a decompressor has buffers of its own; others hold one block or page
CONFIG = f"""
[stream]
name = "s"
user = "id"
[stream.columns]
id = "string"
kind = "string"
[[query]]
name = "all"
sql = "SELECT COUNT(DISTINCT id) FROM s"
epsilon = 1.0
expected = {IDS}
[[query]]
name = "some"
sql = "SELECT COUNT(DISTINCT id) FROM s WHERE kind = 'a'"
epsilon = 1.0
expected = {IDS}
[[query]]
name = "bounded"
sql = "SELECT kind, COUNT(*) FROM s WHERE upper(kind) LIKE 'A%' GROUP BY kind"
epsilon = 1.0
contributions = 3
groups = {{ kind = ["a", "b"] }}
[store]
directory = "state"
batch_rows = {BATCH}
"""
CHILD = """
import sys, json
from panstream.primitives.fast_import import import_without_gc
import_without_gc("panstream.engine.runtime.ingest")
from panstream.testing.memory import allow_scan, plant_control
from panstream.engine.config.config import load_config
from panstream.engine.runtime.engine import Engine
from panstream.engine.runtime.ingest import ingest
allow_scan()
plant_control(bytes.fromhex(sys.stdin.readline().strip()))
half = [int(sys.stdin.readline())]
def pause(rows, share):
    if half and rows >= half[0]:
        half.clear()
        print("half", flush=True)
        sys.stdin.readline()
with Engine(load_config("panstream.toml")) as engine:
    fed = ingest(engine, [sys.argv[1]], on_batch=pause)
    engine.finish()
    print("done", fed.rows, flush=True)
    sys.stdin.readline()
"""


def write(path: Path, table: pa.Table, kind: str) -> None:
    """Write the rows so that no format's unit of reading is larger than a micro-batch."""
    text = io.BytesIO()
    if kind == "csv":
        pyarrow.csv.write_csv(table, path)
    elif kind == "csv.gz":
        pyarrow.csv.write_csv(table, text)
        path.write_bytes(gzip.compress(text.getvalue(), 1))
    elif kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    elif kind == "log":
        line = '{id} - - [01/Aug/1995:00:00:01 -0400] "{kind} / HTTP/1.0" 200 -\n'
        path.write_text("".join(line.format(**row) for row in table.to_pylist()))
    elif kind == "arrow":
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=BATCH)
    elif kind == "dictionary.parquet":
        pyarrow.parquet.write_table(table, path, row_group_size=BATCH)
    else:
        pyarrow.parquet.write_table(table, path, use_dictionary=False, data_page_size=1 << 15)


def drill(directory: Path, kind: str, needles: Sequence[str]) -> tuple[ScanReport, ScanReport]:
    """Return the reports of a scan in the middle of the run and of one after it."""
    names = {"id": "host", "kind": "method"} if kind == "log" else {}
    (directory / "panstream.toml").write_text(
        re.sub(r"\b(id|kind)\b", lambda found: names.get(found[1], found[1]), CONFIG)
    )
    table = pa.table({"id": list(needles), "kind": ["a" if i % 2 else "b" for i in range(len(needles))]})
    path = directory / f"rows.{kind}"
    write(path, table, kind)
    (control,) = make_needles(1, "bytes")
    decoys = make_needles(1000)
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, path.name],
        cwd=directory,
        env={**os.environ, **ENVIRONMENT},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdin
    assert child.stdout
    reports = []
    try:
        child.stdin.write(f"{control.hex()}\n{len(needles) // 2}\n")
        child.stdin.flush()
        for word in ("half", "done"):
            assert child.stdout.readline().startswith(word)
            reports.append(scan(child.pid, needles, decoys=decoys, control=control, files=[directory / "state"]))
            child.stdin.write("\n")
            child.stdin.flush()
    finally:
        child.communicate()
    return reports[0], reports[1]


KINDS = ["csv", "csv.gz", "jsonl", "log", "arrow", "dictionary.parquet", "plain.parquet"]


@pytest.mark.slow
@pytest.mark.usefixtures("warm_scanner")
@pytest.mark.parametrize("kind", KINDS)
def test_ids_do_not_linger(tmp_path: Path, kind: str) -> None:
    needles = make_needles(IDS)
    during, after = drill(tmp_path, kind, needles)
    assert during.valid, during
    assert after.valid, after
    block = BLOCK_BYTES.get(kind, 2 << 15) // ROW_BYTES
    in_flight = 3 * BATCH + block  # one micro-batch in work, one ready, one being made, and what the reader holds
    assert in_flight < IDS // 2
    # A page, a row group or what was decompressed at once may begin with rows that were applied.
    applied = {finding.needle for finding in during.found if finding.needle < IDS // 2}
    assert len(applied) <= {"csv.gz": (2 << 15) // ROW_BYTES}.get(kind, BATCH if "parquet" in kind else 0), during
    assert during.found_needles <= in_flight, during
    assert after.found_needles == 0, after
