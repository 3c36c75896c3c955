"""Clients number the rows of one person, and no sequence of events makes a server count more than K in a window."""

import asyncio
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from typer.testing import CliRunner

import panstream
from panstream.cli.app import app
from panstream.client._row_counts import RowCounts
from panstream.client.transport import RetryPolicy
from panstream.errors import InvalidBatch, InvalidParameter, StoreDamaged, StoreError, StoreLocked
from panstream.primitives.sender_counts import COLUMN
from tests.engine.runtime.test_sender_bounds import DAY, START, K, bounded, config, exactly
from tests.server.server_live import EXACT, Live, served, write_config
from tests.window_vectors import WINDOWS

QUICK = RetryPolicy(max_attempts=2, sleep=lambda seconds: None)
CAPS = {"1 day": K}
LONG = {"1000 days": K}  # a window that does not end while a test runs
CONFIG = f"""
[stream]
name = "visits"
[stream.columns]
region = "string"
amount = "double"
sender_counts = "string"
[[query]]
name = "rows"
sql = "SELECT COUNT(*) FROM visits"
epsilon = {EXACT}
releases = 40
[[query]]
name = "numbered"
sql = "SELECT COUNT(*) FROM visits WHERE sender_counts LIKE 'row:86400000:%' AND amount > 0"
epsilon = {EXACT}
releases = 40
[[query]]
name = "bounded"
sql = "SELECT COUNT(*) FROM visits"
epsilon = {EXACT}
window = "1 day"
contributions = {K}
bounded_by = "sender"
[store]
directory = "state"
step = "5 ms"
"""
ROWS = {"region": ["north"] * 5, "amount": [1.0] * 5}


class Clock:
    """Seconds since 1970, as a test sets them."""

    def __init__(self, now: float = START) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with served(write_config(tmp_path_factory.mktemp("counts"), CONFIG)) as server:
        yield server


def client(live: Live, **more: Any) -> panstream.Client:
    return panstream.Client(f"http://{live.host}:{live.port}", stream="visits", retry=QUICK, **more)


def counted(live: Live) -> tuple[int, int]:
    """Return how many rows there were, and how many of them had a number."""
    answers = [live.ask("POST", f"/v1/queries/{name}/release").json["releases"][0] for name in ("rows", "numbered")]
    return round(answers[0]["value"]), round(answers[1]["value"])


def new(live: Live, before: tuple[int, int]) -> tuple[int, int]:
    after = counted(live)
    return after[0] - before[0], after[1] - before[1]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("send"), st.integers(1, 4)),
            st.tuples(st.just("sender's clock"), st.sampled_from([-2 * DAY, -DAY, -1, 1, DAY // 2, DAY, 30 * DAY])),
            st.tuples(st.just("server's clock"), st.sampled_from([1, DAY // 2, DAY])),
            st.tuples(st.sampled_from(["restart", "kill before sending"]), st.integers(1, 4)),
        ),
        max_size=30,
    )
)
def test_no_sequence_of_sends_restarts_and_clock_steps_counts_more_than_k(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    path = tmp_path_factory.mktemp("sender") / "counts"
    clock = Clock()
    server = START
    counts = RowCounts(CAPS, path, clock)
    sent: list[tuple[float, list[str | None]]] = []
    for step, amount in steps:
        if step == "send":
            sent.append((server, [*counts.numbers(amount)]))
        elif step == "sender's clock":
            clock.now = max(0.0, clock.now + amount)
        elif step == "server's clock":
            server += amount
        else:
            if step == "kill before sending":
                counts.numbers(amount)
            counts.close()
            counts = RowCounts(CAPS, path, clock)
    counts.close()
    used = Counter(entry for _, rows in sent for entry in rows if entry)
    assert all(times == 1 for times in used.values())
    found, _ = exactly(config(bounded()), *sent)
    assert all(count <= K for count in found["bounded"])


@pytest.mark.parametrize(("milliseconds", "length", "number"), WINDOWS)
def test_windows_are_those_of_the_server(tmp_path: Path, milliseconds: int, length: int, number: int) -> None:
    counts = RowCounts({f"{length} seconds": 1}, tmp_path / "counts", Clock(milliseconds / 1000))
    assert counts.numbers(2) == [f"row:{length}:{number}:1", ""]


def test_the_file_holds_windows_and_counts_only(tmp_path: Path) -> None:
    path = tmp_path / "counts"
    counts = RowCounts({"1 day": 3, "7 days": 9}, path, Clock())
    for rows, text in ((2, "86400 20000 r2;604800 2857 r2"), (5, "86400 20000 r3;604800 2857 r7")):
        counts.numbers(rows)
        assert path.read_text() == text.ljust(512)
    assert path.stat().st_mode & 0o777 == 0o600
    counts.close()


def test_without_a_file_numbers_begin_with_the_next_window() -> None:
    clock = Clock()
    counts = RowCounts(CAPS, None, clock)
    assert counts.numbers(1) == [""]
    clock.now += DAY
    assert counts.numbers(1) == [f"row:{DAY}:20001:1"]


def test_counts_that_cannot_be_stored_give_no_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = RowCounts(CAPS, tmp_path / "counts", Clock())

    def full(file: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(StoreError, match="the rows were not sent: No space left"):
        counts.numbers(1)
    counts.close()


def test_a_file_is_for_one_client_and_not_for_another_text(tmp_path: Path) -> None:
    first = RowCounts(CAPS, tmp_path / "counts")
    with pytest.raises(StoreLocked, match="a file for each person"):
        RowCounts(CAPS, tmp_path / "counts")
    first.close()
    (tmp_path / "other").write_text("my notes")
    (tmp_path / "torn").write_text("86400 20".ljust(512))
    for name in ("other", "torn"):
        with pytest.raises(StoreDamaged, match="delete it to begin again"):
            RowCounts(CAPS, tmp_path / name)
    with pytest.raises(StoreError, match="cannot be opened: No such file"):
        RowCounts(CAPS, tmp_path / "nowhere" / "counts")


@pytest.mark.parametrize("contributions", [{"1 day": 0}, {"1 day": True}, {"half a day": 3}, {"0.5 s": 3}])
def test_what_is_no_number_of_rows_in_a_window_is_refused(contributions: dict[str, int]) -> None:
    with pytest.raises(InvalidParameter):
        RowCounts(contributions, None)


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_rows_reach_the_server_with_their_numbers(live: Live, tmp_path: Path, compression: str | None) -> None:
    before = counted(live)
    with client(live, contributions=LONG, counts_file=tmp_path / "counts", compression=compression) as sender:
        for _ in range(2):
            sender.send(ROWS)
            sender.flush()
    assert new(live, before) == (10, K)
    with client(live, contributions=LONG, counts_file=tmp_path / "counts") as again:
        again.send(ROWS)
    assert new(live, before) == (15, K)


def test_the_asynchronous_client_counts_as_well(live: Live, tmp_path: Path) -> None:
    before = counted(live)

    async def run() -> None:
        url = f"http://{live.host}:{live.port}"
        options = {"contributions": LONG, "counts_file": tmp_path / "counts", "retry": QUICK}
        async with panstream.AsyncClient(url, stream="visits", **options) as sender:
            await sender.send(ROWS)
            await sender.flush()

    asyncio.run(run())
    assert new(live, before) == (5, K)


def test_rows_that_were_not_stored_are_sent_later(live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = counted(live)
    with client(live, contributions=LONG, counts_file=tmp_path / "counts") as sender:
        sender.send(ROWS)
        with monkeypatch.context() as patch:
            patch.setattr("panstream.client._row_counts._write", _refuse)
            with pytest.raises(StoreError):
                sender.flush()
        sender.flush()
    assert new(live, before)[0] == 5


def _refuse(file: int, text: str) -> None:
    raise StoreError("no")


def test_numbers_are_not_given_twice(live: Live) -> None:
    forwarded = {**ROWS, COLUMN: [f"row:{1000 * DAY}:1:1"] * 5}
    with client(live, contributions=LONG) as sender:
        with pytest.raises(InvalidBatch, match="leave contributions out where rows are forwarded"):
            sender.send(forwarded)
        with pytest.raises(InvalidBatch, match="forwarded"):
            sender.send_body(b"region,sender_counts\nnorth,x\n", "text/csv")
        with pytest.raises(InvalidParameter, match="CSV or JSON lines"):
            sender.send_body(b"", "application/vnd.apache.arrow.stream")
    before = counted(live)
    with client(live) as gateway:  # passes on what the senders of several people have numbered
        gateway.send(forwarded)
    assert new(live, before) == (5, 5)
    with pytest.raises(InvalidParameter, match="counts_file needs contributions"):
        client(live, counts_file=Path("counts"))


def test_bodies_are_numbered_record_by_record() -> None:
    clock = Clock(START - DAY)
    counts = RowCounts({"1 day": 2}, None, clock)
    clock.now = START
    body = b'region,amount\r\n"nor\nth, ""x""",1\r\n\r\nsouth,2\neast,3'
    assert counts.numbered_body(body, "text/csv", None) == (
        b'region,amount,sender_counts\n"nor\nth, ""x""",1,row:86400:20000:1\nsouth,2,row:86400:20000:2\neast,3,\n'
    )
    clock.now += DAY
    lines = b'{"region": "north"}\n{}\nbroken\n{"a": 1 }\n'
    assert counts.numbered_body(lines, "application/x-ndjson", None) == (
        b'{"region": "north", "sender_counts": "row:86400:20001:1"}\n{"sender_counts": "row:86400:20001:2"}\n'
        b'broken\n{"a": 1, "sender_counts": ""}\n'
    )
    with pytest.raises(InvalidBatch, match="a quote is not closed"):
        counts.numbered_body(b'a\n"' + b'""' * 5000, "text/csv", None)


@pytest.mark.parametrize("format", ["csv", "json", "parquet"])
def test_the_command_numbers_what_it_sends(live: Live, tmp_path: Path, format: str) -> None:
    path = tmp_path / f"rows.{format}"
    if format == "parquet":
        parquet.write_table(pa.table(ROWS), path)
    else:
        row = {"csv": "north,1.0\n", "json": '{"region": "north", "amount": 1.0}\n'}[format]
        path.write_text(("region,amount\n" if format == "csv" else "") + row * 5)
    before = counted(live)
    command = ["send", f"http://{live.host}:{live.port}", "visits", str(path), "--contributions", f"1000 days={K}"]
    for _ in range(2):
        result = CliRunner().invoke(app, [*command, "--counts-file", str(tmp_path / "counts")])
        assert result.exit_code == 0, result.output
    assert new(live, before) == (10, K)
    refused = CliRunner().invoke(app, command)
    assert refused.exit_code != 0
    assert "--contributions and --counts-file go together" in refused.output
    unclear = CliRunner().invoke(app, [*command[:-1], "1 day", "--counts-file", str(tmp_path / "counts")])
    assert "contributions must be positive numbers" in unclear.output
