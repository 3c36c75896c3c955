"""The fuzzers on their seeds, and on seeds bent a little: what they find at length is kept away by a test each."""

import contextlib
import importlib
import os
import random
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from panstream.algorithms.continual_users import ContinualDensity
from panstream.algorithms.density import DworkPair
from panstream.engine.reporting.point_queries import parse_name_condition
from panstream.engine.rows.row_batch import RowSchema
from panstream.engine.sources._redis_protocol import RedisConnection
from panstream.engine.sources.files import FileSource
from panstream.engine.sources.formats.parquet.file import ParquetFile
from panstream.engine.sql.lookup_tables import LookupTable
from panstream.engine.sql.parser import parse
from panstream.errors import ConfigError, ConnectionLost, InvalidBatch, InvalidParameter, PanstreamError, SourceError
from panstream.primitives.inputs.table_files import read_columns

FUZZ = Path(__file__).parents[2] / "fuzz"
NAMES = sorted(path.stem.removeprefix("fuzz_") for path in FUZZ.glob("fuzz_*.py"))
BENT = 40  # inputs made of each corpus


def bent(data: bytes, chance: random.Random) -> bytes:
    body = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(body) + 1)
        size = chance.randrange(9)
        body[at : at + size] = chance.choice([b"", bytes(size), chance.randbytes(size), body[:size]])
    return bytes(body)


@pytest.mark.parametrize("name", NAMES)
def test_seeds_and_what_is_near_them(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = [path.read_bytes() for path in sorted((FUZZ / "corpus" / name).iterdir())]
    monkeypatch.syspath_prepend(str(FUZZ))
    target = importlib.import_module(f"fuzz_{name}").test_one_input
    chance = random.Random(name)
    for data in [b"", *seeds, *(bent(chance.choice(seeds), chance) for _ in range(BENT))]:
        target(data)
    sys.modules.pop(f"fuzz_{name}")


PLANTED = """
import numpy as np
from numba import njit
from panstream.primitives.kernels import machine_words, simd_byte_search

item = njit(lambda data, at: data[at])
word = njit(lambda data, at: machine_words.load_word(data, at))
mask = njit(lambda data, at: simd_byte_search.equal_64(data, at, 7))
data = np.zeros(100, np.uint8)
for kernel, size in ((item, 1), (word, 8), (mask, 64)):
    kernel(data, 0), kernel(data, data.size - size)
    for at in (data.size - size + 1, -1 if size > 1 else 1000):
        try:
            kernel(data, at)
        except IndexError:
            continue
        raise SystemExit(f"{size} bytes at {at} are out of bounds")
"""


@pytest.mark.slow
def test_fuzzed_kernels_check_every_index(tmp_path: Path) -> None:
    """As ``make fuzz`` compiles them; a control: those that are shipped do not."""
    recipe = (FUZZ.parent / "Makefile").read_text()
    assert "fuzz: export NUMBA_BOUNDSCHECK = 1" in recipe and "fuzz: export NUMBA_CACHE_DIR" in recipe
    checked = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    assert subprocess.run([sys.executable, "-c", PLANTED], env=checked).returncode == 0
    shipped = {**os.environ, "NUMBA_BOUNDSCHECK": "0", "NUMBA_CACHE_DIR": str(tmp_path / "shipped")}
    found = subprocess.run([sys.executable, "-c", PLANTED], env=shipped, capture_output=True, text=True)
    assert "out of bounds" in found.stderr


@pytest.mark.parametrize(
    "reply", [b":x\r\n", b"$1e3\r\n", b"*1\r\n" * 100_000, b"*9999999999999999999999\r\n", b"$-\r\n"], ids=range(5)
)
def test_a_reply_that_redis_never_sends_ends_the_connection(reply: bytes) -> None:
    ours, theirs = socket.socketpair()

    def send() -> None:
        with theirs, contextlib.suppress(OSError):  # it may be closed before everything is read
            theirs.sendall(reply)

    sender = threading.Thread(target=send)
    with ours:
        connection = RedisConnection("redis://localhost", timeout=30.0)
        connection._socket = ours
        sender.start()
        with pytest.raises(ConnectionLost):
            connection.reply()
    sender.join()


def test_a_pair_of_coins_that_does_not_exist_is_refused_at_once() -> None:
    with pytest.raises(InvalidParameter, match="below 4"):
        DworkPair(universe=10, epsilon=4.0)


@pytest.mark.parametrize("levels", [0, -1, 25])
def test_a_tree_of_ticks_without_levels_or_with_too_many_is_refused(levels: int) -> None:
    chosen = ContinualDensity(universe=100, epsilon=1.0, horizon=100)
    with pytest.raises(InvalidParameter, match="levels must be in 1..24"):
        replace(chosen, levels=levels)


@pytest.mark.parametrize("text", ["(" * 5000, "NOT " * 5000 + "ok", "- " * 5000 + "1"], ids=range(3))
def test_sql_nested_too_deeply_is_refused(text: str) -> None:
    with pytest.raises(PanstreamError):
        parse(f"SELECT COUNT(*) FROM s WHERE {text}", columns={"ok": "bool"}, user=None, stream="s")
    with pytest.raises(PanstreamError):
        parse_name_condition(f"page = {text}")


def test_a_parquet_file_whose_column_has_no_readable_name_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    parquet.write_table(pa.table({"user": ["ann"], "other": [1]}), path)
    path.write_bytes(path.read_bytes().replace(b"other", b"\xe5the\xff"))
    with pytest.raises(SourceError, match="could not be read"):
        ParquetFile(path, RowSchema(columns={"user": "string"}, user="user"), rows=10)


def test_a_lookup_table_whose_column_has_no_readable_name_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "pages.parquet"
    parquet.write_table(pa.table({"page": ["/a"], "other": [1]}), path)
    path.write_bytes(path.read_bytes().replace(b"other", b"\xe5the\xff"))
    with pytest.raises(ConfigError, match="cannot be read as a table"):
        LookupTable.read("pages", path, "page")
    with pytest.raises(InvalidBatch, match="cannot be read as a table"):
        read_columns(path, ["page"])


def test_a_lookup_table_with_a_column_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "pages.csv"
    path.write_text("page,page\n/a,/b\n")
    with pytest.raises(ConfigError, match="two columns of the same name"):
        LookupTable.read("pages", path, "page")


@pytest.mark.parametrize("length", [(1 << 62).to_bytes(8, "little"), (1 << 40).to_bytes(8, "little")], ids=range(2))
def test_an_arrow_stream_that_claims_to_be_larger_than_memory_is_refused(tmp_path: Path, length: bytes) -> None:
    path = tmp_path / "rows.arrow"
    table = pa.table({"user": ["ann"] * 100})
    with pa.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table)
    whole = path.read_bytes()
    _, batch = pa.ipc.MessageReader.open_stream(whole)
    at = whole.index(batch.body.size.to_bytes(8, "little"))
    path.write_bytes(whole[:at] + length + whole[at + 8 :])
    feed = FileSource([str(path)], RowSchema(columns={"user": "string"}, user="user"))
    with pytest.raises(SourceError, match="could not be read"):
        list(feed.batches())
