"""Random bodies: never a 500, never a hang, and a valid batch is applied after each."""

from __future__ import annotations

import gzip
import io
import json
import signal
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from panstream.server.ingest.request_bodies import FORMATS
from tests.browser.serving import Serving, serving
from tests.server.fuzzed import CONFIG, EVENTS, EXAMPLES, ask, check, healthy

pytestmark = pytest.mark.slow
JSON, CSV, ARROW = FORMATS
COLUMNS = ("user", "n", "x", "page", "raw", "ok", "at", "day")
FUZZ = settings(max_examples=150 * EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
GOOD = (
    b'{"user": "u", "n": 5, "x": 1.5, "page": "a", "raw": "AA==", "ok": true, '
    b'"at": "2026-11-01T00:00:00Z", "day": "2026-11-01"}\n'
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("bodies"), config=CONFIG) as running:
        yield running
        healthy(running)
        code, said = running.stop()
        assert (code, "internal error" in said, "Traceback" in said) == (128 + signal.SIGTERM, False, False), said


def packed(body: bytes, encoding: str) -> bytes:
    if encoding == "gzip":
        return gzip.compress(body)
    return pa.compress(body, codec="zstd", asbytes=True) if encoding == "zstd" else body  # type: ignore[no-any-return]


def send(server: Serving, body: bytes, kind: str, encoding: str = "identity", **headers: str) -> Any:
    status, text = ask(server, "POST", EVENTS, body, Content_Type=kind, Content_Encoding=encoding, **headers)
    return status, check(status, text)


encodings = st.sampled_from(["identity", "gzip", "zstd"])
kinds = st.sampled_from(list(FORMATS))


@FUZZ
@given(st.binary(max_size=400), kinds, encodings, st.booleans())
@example(b"", JSON, "gzip", False)
@example(b"\x28\xb5\x2f\xfd" + bytes(40), ARROW, "zstd", False)
@example(b"\xff\xff\xff\xff\x10\x00\x00\x00" + bytes(16), ARROW, "identity", False)
@example(b"\xff\xff\xff\xff\xff\xff\xff\x7f", ARROW, "identity", False)
def test_any_bytes(server: Serving, body: bytes, kind: str, encoding: str, honest: bool) -> None:
    """As they are, or compressed as the header says."""
    send(server, packed(body, encoding) if honest else body, kind, encoding)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.integers(10**15, 10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
names = st.sampled_from(COLUMNS) | st.text(max_size=8)


@FUZZ
@given(
    st.lists(st.dictionaries(names, values, max_size=9) | values, max_size=6),
    encodings,
    st.sampled_from(["\n", "\r\n", "\r", "\n\n"]),
)
@example([{"n": 10**400}], "identity", "\n")
@example([{"at": "9999-12-31T23:59:59.999999999Z", "day": "0000-00-00", "n": -(2**63)}], "identity", "\n")
def test_json_of_any_shape(server: Serving, rows: list[Any], encoding: str, end: str) -> None:
    body = end.join(json.dumps(row, ensure_ascii=len(rows) % 2 == 0) for row in rows).encode("utf-8", "surrogatepass")
    status, said = send(server, packed(body, encoding), JSON, encoding)
    if status == 200:
        assert said["skipped"]["count"] <= said["rows"]


def test_deep_and_long_json(server: Serving) -> None:
    for body in (
        b"[" * 200_000,
        b'{"user":' * 100_000,
        b'{"user": "' + b"x" * 3_000_000 + b'"}',
        b"\n" * 500_000,
        GOOD[:-2],
    ):
        send(server, body, JSON)


cells = st.text(max_size=12) | st.sampled_from(
    ["", '"', '""', "1e400", "-0", "nan", "inf", "2026-13-45", "\x00", "true", "9" * 40]
)


@FUZZ
@given(st.lists(st.lists(cells, max_size=10), max_size=6), st.lists(names, max_size=9), encodings)
@example([], [], "identity")
@example([["1"]], ["user", "user"], "identity")
def test_csv_of_any_shape(server: Serving, rows: list[list[str]], header: list[str], encoding: str) -> None:
    body = "\n".join(",".join(line) for line in [header, *rows]).encode("utf-8", "surrogatepass")
    send(server, packed(body, encoding), CSV, encoding)


def stream_of(table: Any) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


TABLE = pa.table(
    {"user": ["a", None, "b" * 50], "n": [1, 2, None], "x": [1.0, float("nan"), 2.0], "page": ["a", "b", "c"]}
)
WHOLE = stream_of(TABLE)


@FUZZ
@given(
    st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(0, 255)), max_size=6),
    st.integers(0, len(WHOLE)),
    encodings,
)
def test_broken_arrow(server: Serving, changes: list[tuple[int, int]], length: int, encoding: str) -> None:
    """Bytes of a good stream changed, and its end cut off."""
    body = bytearray(WHOLE)
    for place, value in changes:
        body[place] = value
    send(server, packed(bytes(body[: length or len(body)]), encoding), ARROW, encoding)


ODD = [
    pa.table({"user": pa.array(["a", "b"]).dictionary_encode(), "n": [1, 2]}),
    pa.table({"user": pa.array([[1], [2]]), "n": [1, 2]}),
    pa.table({"user": pa.nulls(3)}),
    pa.table({"user": pa.array([b"\xff\xfe"]), "n": pa.array([2**63], pa.uint64())}),
    pa.table({"at": pa.array([2**62], pa.timestamp("ns", "Europe/Paris")), "day": pa.array([2**31 - 1], pa.date32())}),
    pa.table({"x": pa.array([1], pa.decimal128(38, 0)), "ok": pa.array([1], pa.int8())}),
    pa.table({"user": pa.array([], pa.string())}),
    pa.table({}),
    pa.table([pa.array(["a"]), pa.array(["b"])], names=["user", "user"]),
]


@pytest.mark.parametrize("number", range(len(ODD)))
def test_odd_arrow_types(server: Serving, number: int) -> None:
    send(server, stream_of(ODD[number]), ARROW)


@FUZZ
@given(st.text(max_size=80), st.text(max_size=25), kinds)
@example("a", "1e5", JSON)
@example("a", "99999999999999999999999", JSON)
@example("a", "-1", JSON)
@example("a", "\u0663", JSON)
def test_any_origin(server: Serving, producer: str, sequence: str, kind: str) -> None:
    """Producer and sequence headers of any letters that HTTP can carry."""
    fit = {"producer": producer, "sequence": sequence}
    headers = {name: value.encode("latin-1", "replace").decode("latin-1") for name, value in fit.items()}
    if any(ord(letter) < 32 or ord(letter) == 127 for value in headers.values() for letter in value):
        headers = {name: "?" for name in headers}
    body = GOOD if kind == JSON else b""
    send(server, body, kind, Panstream_Producer=headers["producer"], Panstream_Sequence=headers["sequence"])


def test_after_all_that_a_good_batch_is_taken(server: Serving) -> None:
    status, said = send(server, GOOD, JSON)
    assert (status, said["rows"], said["skipped"]["count"]) == (200, 1, 0)
