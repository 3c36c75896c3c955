"""The client against a server that runs, and against one that fails in every way."""

import asyncio
import gzip
import inspect
import json
import socketserver
import threading
from collections.abc import Iterator
from concurrent.futures import wait
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

import panstream
from panstream.cli.app import app
from panstream.client.transport import RetryPolicy
from panstream.errors import BatchStatusUnknown, InvalidBatch, InvalidParameter, RequestRejected, ServerUnreachable
from panstream.primitives.certificates import Authority
from tests.server.ingest.test_batch_order import TIMED, timed
from tests.server.server_live import Live, csv, lines, served, write_config

QUICK = RetryPolicy(max_attempts=4, sleep=lambda seconds: None)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with served(write_config(tmp_path_factory.mktemp("client"))) as server:
        yield server


def client(live: Live, **settings: Any) -> panstream.Client:
    return panstream.Client(f"http://{live.host}:{live.port}", stream="visits", retry=QUICK, **settings)


COLUMNS = {"user": ["a", "b", "c"], "region": ["north", "south", "north"], "amount": [1.0, 2.0, 3.0]}


@pytest.mark.parametrize("compression", [None, "gzip", "zstd"])
@pytest.mark.parametrize(
    "rows",
    [
        COLUMNS,
        pa.table(COLUMNS),
        pa.record_batch(COLUMNS),
        pd.DataFrame(COLUMNS),
        pl.DataFrame(COLUMNS),
        [dict(zip(COLUMNS, row, strict=True)) for row in zip(*COLUMNS.values(), strict=True)],
    ],
    ids=["mapping", "table", "batch", "pandas", "polars", "dicts"],
)
def test_rows_of_every_kind(live: Live, rows: Any, compression: str | None) -> None:
    with client(live, compression=compression) as sender:
        sender.send(rows)
        assert sender.flush().rows == 3


def test_batches_of_the_asked_size(live: Live) -> None:
    before = live.rows()
    with client(live, batch_rows=70, connections=3) as sender:
        for start in range(0, 1000, 37):
            count = min(37, 1000 - start)
            sender.send({"user": [f"u{n}" for n in range(count)], "region": ["north"] * count, "amount": [0.5] * count})
        sent = sender.flush()
        assert (sent.rows, sent.batches) == (1000, 15)
    assert live.rows() - before == 1000


def test_reading(live: Live) -> None:
    with client(live) as reader:
        assert [query["name"] for query in reader.queries()["queries"]] == ["rows", "people", "by_region"]
        (release,) = reader.release("rows")
        assert reader.releases("rows", limit=1) == [release]
        assert next(reader.listen("rows"))["series"] == "rows"
        assert reader.ledger()["intrusions"] == reader.intrusions()["announced"]
        assert len(reader.announce_intrusion()["announced"]) == len(reader.ledger()["intrusions"])
        assert reader.announce_intrusion(just_now=True)["announced"][-1]["copied"] == "just now"
        known = "2001-01-01T00:00:00Z"
        assert reader.announce_intrusion(copied_at=known)["announced"][-1]["copied"] == known
        with pytest.raises(RequestRejected) as refused:
            reader.release("by_region")
        assert (refused.value.code, refused.value.status) == ("conflict", 409)


def test_awaited(live: Live) -> None:
    before = live.rows()

    async def work() -> int:
        url = f"http://{live.host}:{live.port}"
        async with panstream.AsyncClient(url, stream="visits", batch_rows=2) as sender:
            await sender.send(COLUMNS)
            await sender.flush()
            assert (await sender.queries())["stream"]["name"] == "visits"
            assert isinstance(await sender.releases("rows", limit=5), list)
            async for release in sender.listen("rows"):
                assert release["query"] == "rows"
                break
            return sender.sent.rows

    assert asyncio.run(work()) == 3
    assert live.rows() - before == 3


def test_what_is_refused_is_told_and_dropped(live: Live) -> None:
    with client(live) as sender:
        with pytest.raises(InvalidBatch):
            sender.send("text")
        sender.send_body(b"nonsense", "text/csv")
        with pytest.raises(RequestRejected) as refused:
            sender.flush()
        assert refused.value.code == "bad_body"
        sender.send(COLUMNS)
        assert sender.flush().rows == 3
    for wrong in ({"connections": 0}, {"batch_rows": 0}, {"compression": "lz4"}):
        with pytest.raises(InvalidParameter):
            client(live, **wrong)
    with pytest.raises(InvalidParameter):
        panstream.Client("ftp://x", stream="visits")


class Flaky(BaseHTTPRequestHandler):
    """Answers batches by a script: a status, or None to break the connection after the request was taken."""

    protocol_version = "HTTP/1.1"
    url: str
    script: list[int | None]
    taken: list[tuple[str, str]]
    calls: list[str]
    last = 100
    in_flight = 32
    new = True

    @classmethod
    def client(cls, **settings: Any) -> panstream.Client:
        return panstream.Client(cls.url, stream="s", retry=QUICK, **{"connections": 1, **settings})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.path.startswith("/v1/producers/"):
            self._reply(200, self._producer())
            return
        self.taken.append((self.headers["Panstream-Producer"], self.headers["Panstream-Sequence"]))
        status = self.script.pop(0) if self.script else 200
        if status is None:
            self.close_connection = True
            return
        nothing = {"count": 0, "rows": []}
        good = {"new": self.new, "rows": 3, "skipped": nothing, "late": nothing}
        code = "unknown_producer" if status == 409 else "unavailable"
        self._reply(status, good if status == 200 else {"error": {"code": code, "message": "later"}})

    def do_DELETE(self) -> None:
        self._reply(200, self._producer())

    def _producer(self) -> dict[str, Any]:
        self.calls.append(f"{self.command} {self.path}")
        name = self.path.rpartition("/")[2]
        return {"name": name, "id": f"{name}@{len(self.calls)}", "last": self.last, "in_flight": self.in_flight}

    def _reply(self, status: int, said: dict[str, Any]) -> None:
        body = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        return


@pytest.fixture
def flaky() -> Iterator[type[Flaky]]:
    handler = type("Scripted", (Flaky,), {"script": [], "taken": [], "calls": []})
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            handler.url = f"http://127.0.0.1:{server.server_address[1]}"
            yield handler
        finally:
            server.shutdown()
            thread.join()


def test_the_same_sequence_again_until_answered(flaky: type[Flaky]) -> None:
    flaky.script = [None, 503, 429, 200, 200]
    with flaky.client(producer="gate") as sender:
        sender.send(COLUMNS)
        sender.flush()
        sender.send(COLUMNS)
        sender.flush()
    assert flaky.taken == [("gate@1", "101")] * 4 + [("gate@1", "102")]
    assert flaky.calls == ["POST /v1/producers/gate"]


def test_what_was_not_answered_is_kept_for_the_next_flush(flaky: type[Flaky]) -> None:
    flaky.script = [503] * 4
    with flaky.client() as sender:
        sender.send(COLUMNS)
        with pytest.raises(ServerUnreachable, match="4 tries"):
            sender.flush()
        assert sender.flush().rows == 3
    assert len(set(flaky.taken)) == 1
    assert len(flaky.taken) == 5


def test_a_named_producer_goes_on_where_it_stopped(live: Live) -> None:
    """Whatever the clocks say: the server knows the last number. What the earlier client has under way is refused."""
    before = live.rows()
    with client(live, connections=1, producer="gate") as crashed:
        crashed.send(COLUMNS)
        assert crashed.flush().rows == 3
        with client(live, connections=1, producer="gate") as successor:
            assert successor.open() == 1
            successor.send(COLUMNS)
            assert (successor.flush().rows, successor.sent.repeated) == (3, 0)
            stale = live.post(lines(7), Panstream_Producer=crashed._sequence._id, Panstream_Sequence="3")
            assert stale.code == "unknown_producer"
    assert live.get("/v1/producers/gate").json["last"] == 2
    assert live.rows() - before == 6


def test_each_client_has_a_producer_of_its_own_and_gives_it_up(live: Live) -> None:
    before = {each["name"] for each in live.get("/v1/producers").json["producers"]}
    with client(live, connections=2) as one, client(live, connections=2) as two:
        for sender in (one, two):
            sender.open()
            sender.send(COLUMNS)
            assert sender.flush().rows == 3
        assert len(live.get("/v1/producers").json["producers"]) == len(before) + 2
    assert {each["name"] for each in live.get("/v1/producers").json["producers"]} == before


def test_a_batch_that_came_before_is_reported(flaky: type[Flaky]) -> None:
    """Its answer was lost: it counts once, and ``repeated`` tells."""
    flaky.script = [None, 200]
    flaky.new = False
    with flaky.client() as sender:
        sender.send(COLUMNS)
        assert (sender.flush().rows, sender.sent.repeated) == (3, 1)


def test_a_new_batch_that_the_server_takes_for_an_old_one_is_raised(flaky: type[Flaky]) -> None:
    flaky.new = False
    with flaky.client() as sender:
        sender.send(COLUMNS)
        with pytest.raises(BatchStatusUnknown, match="not counted"):
            sender.flush()
        assert (sender.sent.rows, sender.sent.uncertain) == (0, 1)


def test_a_producer_that_the_server_does_not_know_is_opened_again(flaky: type[Flaky]) -> None:
    flaky.script = [409, 200]
    with flaky.client(producer="gate") as sender:
        sender.send(COLUMNS)
        assert sender.flush().rows == 3
    assert flaky.taken == [("gate@1", "101"), ("gate@2", "101")]


def test_a_batch_of_unknown_fate_is_not_sent_again(flaky: type[Flaky]) -> None:
    """It was sent without an answer, and then the producer was closed: sending it again might count it twice."""
    flaky.script = [None, 409]
    with flaky.client(producer="gate") as sender:
        sender.send(COLUMNS)
        with pytest.raises(BatchStatusUnknown, match="may or may not have been counted"):
            sender.flush()
        assert (sender.sent.rows, sender.sent.uncertain) == (0, 1)
        sender.send(COLUMNS)
        assert sender.flush().rows == 3
    assert flaky.taken == [("gate@1", "101")] * 2 + [("gate@2", "101")]


def test_the_number_of_batches_at_a_pace_says_nothing_about_rows(live: Live) -> None:
    counts = {}
    for rows in (0, 1, 25):
        with client(live, connections=1, producer=f"paced-{rows}", pace=1e6, batch_rows=10) as sender:
            sender.send([{"user": f"u{n}", "region": "north", "amount": 1.0} for n in range(rows)])
            for _ in range(5):
                sender._tick()
            assert sender.flush().rows == rows
            counts[rows] = live.get(f"/v1/producers/paced-{rows}").json["last"]
            with pytest.raises(InvalidParameter, match="pace"):
                sender.send_body(b"", "text/csv")
    assert counts == {0: 5, 1: 5, 25: 5}
    with pytest.raises(InvalidParameter, match="pace"):
        client(live, pace=0.0)


def test_a_pace_is_kept(live: Live) -> None:
    """The pacing thread sends by itself; ``flush`` waits for it."""
    with client(live, connections=1, pace=0.01) as sender:
        sender.send(COLUMNS)
        assert sender.flush().rows == 3


def test_rows_that_do_not_fit_together_are_told_of_at_a_pace_too(live: Live) -> None:
    with client(live, connections=1, pace=1e6) as sender:
        sender.send({"user": ["a"], "region": ["north"], "amount": [1.0]})
        sender.send({"other": [1]})
        sender._tick()
        with pytest.raises(InvalidBatch):
            sender.send(COLUMNS)
        sender.send(COLUMNS)
        sender._tick()
        assert sender.flush().rows == 3


def test_rows_wait_for_a_pace(flaky: type[Flaky]) -> None:
    """When the server cannot be reached, rows stay where they are, and the next call tells."""
    flaky.script = [503] * 4
    with flaky.client(pace=1e6) as sender:
        sender._tick()
        wait(list(sender._under_way))
        with pytest.raises(ServerUnreachable):
            sender.send(COLUMNS)
        sender.send(COLUMNS)
        sender._failure = ServerUnreachable("still")
        sender._tick()
        assert sender._pending_rows == 3
        sender._send_again()
        sender._failure = None
        sender._tick()
        assert sender.flush().rows == 6


def arrow_stream(path: Path) -> None:
    table = pa.table(COLUMNS)
    with pa.ipc.new_stream(str(path), table.schema) as writer:
        writer.write_table(table)


def test_a_refusal_that_came_before_the_flush_is_raised_by_it(live: Live) -> None:
    """The batch is dropped, and the next call must raise its refusal, even if later batches were accepted."""
    with client(live, connections=1) as sender:
        sender.send_body(b"nonsense", "application/x-nonsense")
        wait(list(sender._under_way))
        sender._start(sender._wait_for_connection(), lines(5), {"Content-Type": "application/x-ndjson"})
        with pytest.raises(RequestRejected):
            sender.flush()
        assert sender.flush().rows == 5
        sender.send_body(b"nonsense", "application/x-nonsense")
        wait(list(sender._under_way))
        with pytest.raises(RequestRejected):
            sender.send([{"user": "u1", "region": "north", "amount": 1}])


@pytest.mark.slow
def test_the_command_sends_files_and_standard_input(live: Live, tmp_path: Path) -> None:
    url = f"http://{live.host}:{live.port}"
    before = live.rows()
    (tmp_path / "rows.csv").write_bytes(csv(300) + b'"quoted\nname",north,1\n')
    arrow_stream(tmp_path / "rows.arrows")
    (tmp_path / "rows.csv.gz").write_bytes(gzip.compress(csv(10)))
    parquet.write_table(pa.table(COLUMNS), tmp_path / "rows.parquet")
    run = CliRunner().invoke
    for command, given in (
        (["send", url, "visits", "--format", "json"], lines(200)),
        (["send", url, "visits"], lines(50)),
        (["send", url, "visits", str(tmp_path / "rows.csv"), "--producer", "desk"], None),
        (["send", url, "visits", str(tmp_path / "rows.csv.gz")], None),
        (["send", url, "visits", str(tmp_path / "rows.parquet")], None),
        (["send", url, "visits", str(tmp_path / "rows.arrows")], None),
    ):
        result = run(app, command, input=given)
        assert result.exit_code == 0, result.output
        assert "saved to disk on the server" in result.stderr
    assert live.rows() - before == 250 + 301 + 10 + 3 + 3
    assert run(app, ["send", url, "visits", str(tmp_path / "rows.tsv")]).exit_code == 2
    assert run(app, ["send", url, "visits", "--format", "xml"]).exit_code == 2
    assert run(app, ["send", url, "visits", str(tmp_path / "none.csv")]).exit_code == 2
    assert run(app, ["send", url, "other", "--format", "json"], input=lines(1)).exit_code == 1


def test_the_command_fails_if_no_row_can_be_used_and_tells_every_refusal(live: Live, tmp_path: Path) -> None:
    run = CliRunner().invoke
    url = f"http://{live.host}:{live.port}"
    bad = run(app, ["send", url, "visits"], input=b'{"user": 1}\n' * 5)
    assert bad.exit_code == 1
    assert "no row could be used" in bad.stderr
    other = pa.table({"nobody": [1, 2]})
    parquet.write_table(other, tmp_path / "other.parquet")
    refused = run(app, ["send", url, "visits", str(tmp_path / "other.parquet")])
    assert refused.exit_code == 1
    assert "1 batch refused: " in refused.stderr
    with client(live, connections=2) as sender:
        for _ in range(2):
            sender._start(sender._wait_for_connection(), b"nonsense", {"Content-Type": "application/x-nonsense"})
        for _ in range(2):
            with pytest.raises(RequestRejected):
                sender.flush()
        assert sender.flush().batches == 0


def test_late_rows_are_told_to_whoever_sent_them(tmp_path: Path) -> None:
    """Standard error is not a terminal here; late rows are reported all the same, and by the exit code."""
    with served(write_config(tmp_path, TIMED)) as server:
        send = ["send", f"http://{server.host}:{server.port}", "visits"]
        good = CliRunner().invoke(app, send, input=timed(60) + timed(120))
        assert (good.exit_code, good.stderr) == (0, "Sent; saved to disk on the server.\n")
        late = CliRunner().invoke(app, send, input=timed(30) + timed(180))
        assert late.exit_code == 1
        assert "error: 5 rows were late and left out of their window" in late.stderr
        assert "lateness" in late.stderr


@pytest.mark.slow
def test_rows_in_time_order_are_never_late(tmp_path: Path) -> None:
    """Every batch has a minute of its own; large and small ones alternate, and are parsed by different threads."""
    with served(write_config(tmp_path, TIMED)) as server:
        with panstream.Client(f"http://{server.host}:{server.port}", stream="visits", connections=8) as sender:
            for minute in range(1, 61):
                sender.send_body(timed(60 * minute, 30_000 if minute % 2 else 3), "application/x-ndjson")
            sent = sender.flush()
        assert (sent.batches, sent.late, sent.skipped) == (60, 0, 0)
        values = [round(each["value"]) for each in server.get("/v1/releases").json["releases"]]
        assert values == [30_000 if minute % 2 else 3 for minute in range(1, 60)]


def test_a_refused_batch_holds_up_none_behind_it(live: Live) -> None:
    """An empty batch takes its number, so that the server waits for nothing."""
    before = live.rows()
    refused = 0
    with client(live, connections=4, producer="mixed") as sender:
        calls = [partial(sender.send_body, b"nonsense" if n % 5 == 2 else csv(3), "text/csv") for n in range(12)]
        for call in [*calls, sender.flush]:
            while True:
                try:
                    call()
                    break
                except RequestRejected:
                    refused += 1
        assert (refused, sender.sent.batches, sender.sent.rows) == (2, 10, 30)
    assert live.get("/v1/producers/mixed").json["last"] == 12
    assert live.rows() - before == 30


def test_an_untrusted_certificate_is_told_at_once(tmp_path: Path) -> None:
    identity = Authority(tmp_path).issue("server")
    settings = {"certificate": identity.certificate, "private_key": identity.key}
    with served(write_config(tmp_path), **settings) as server:
        url = f"https://127.0.0.1:{server.port}"
        tried = CliRunner().invoke(app, ["send", url, "visits"], input=lines(1))
        assert tried.exit_code == 1
        assert "not trusted" in tried.stderr
        assert "--ca-file" in tried.stderr
    assert CliRunner().invoke(app, ["send", url, "visits", "--ca-file", "none.pem"], input=b"").exit_code == 2


def test_a_token_is_made_once_and_shown_once(tmp_path: Path) -> None:
    run = CliRunner().invoke
    made = run(app, ["token", str(tmp_path / "tokens"), "gate", "--scope", "ingest", "--scope", "read"])
    assert made.exit_code == 0
    assert made.stdout.startswith("pan_")
    assert (tmp_path / "tokens").read_text().startswith("gate ingest,read ")
    assert made.stdout.strip() not in (tmp_path / "tokens").read_text()
    assert run(app, ["token", str(tmp_path / "tokens"), "gate"]).exit_code == 2


@pytest.mark.parametrize("number", [0, 1])
def test_the_examples_of_the_readme_run(live: Live, number: int) -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text("utf-8")
    example = readme.split("<!-- run by tests/client: it needs a server -->\n```python\n")[number + 1].split("```")[0]
    assert "http://127.0.0.1:8080" in example
    exec(compile(example.replace("http://127.0.0.1:8080", f"http://{live.host}:{live.port}"), "README.md", "exec"), {})


def test_both_clients_take_the_same_settings() -> None:
    one, other = (inspect.signature(kind) for kind in (panstream.Client, panstream.AsyncClient))
    assert one == other
    for name in ("releases", "announce_intrusion"):
        assert list(inspect.signature(getattr(panstream.Client, name)).parameters) == list(
            inspect.signature(getattr(panstream.AsyncClient, name)).parameters
        )


def test_a_scheme_that_does_not_fit_the_server_is_named(live: Live, tmp_path: Path) -> None:
    secure = panstream.Client(f"https://{live.host}:{live.port}", stream="visits", retry=QUICK)
    with pytest.raises(ServerUnreachable, match="has no certificate, its address begins with http://"):
        secure.open()
    identity = Authority(tmp_path).issue("server")
    settings = {"certificate": identity.certificate, "private_key": identity.key}
    with served(write_config(tmp_path), **settings) as server:
        plain = panstream.Client(f"http://127.0.0.1:{server.port}", stream="visits", retry=QUICK)
        with pytest.raises(ServerUnreachable, match="has a certificate, its address begins with https://"):
            plain.open()
