"""Redis Streams with a real server: entries are gone once applied, come again after a crash, and never twice into
the state.
"""

import itertools
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from panstream.engine.rows.row_batch import RowBatch, RowSchema
from panstream.engine.sources import RedisStreamSource
from panstream.engine.sources._redis_protocol import PASSWORD, RedisConnection
from panstream.engine.sources.redis_streams import _entry_number
from panstream.errors import ConnectionLost, InvalidParameter, RedisCommandError, SourceError
from tests.engine.runtime.streams import good
from tests.ports import free_port

SCHEMA = RowSchema(columns={"ip": "string", "n": "int"}, user="ip")
STREAM = "visits"


class Server:
    """A private redis-server on a socket of its own; stopped by its process, started again with the same data."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.path = directory / "redis.sock"
        self.directory = directory
        self.options = options
        self.start()

    def start(self) -> None:
        program = shutil.which("redis-server")
        assert program is not None, "redis-server is needed: apt-get install redis-server"
        arguments = ["--port", "0", "--unixsocket", str(self.path), "--dir", str(self.directory), "--save", ""]
        self.process = subprocess.Popen(
            [program, *arguments, *self.options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if "eady to accept connections" in line or "now ready to accept" in line:
                break
        # Nobody reads what comes later; a full pipe must not stop the server.
        threading.Thread(target=self.process.stdout.read, daemon=True).start()

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    @property
    def url(self) -> str:
        return f"unix://{self.path}"

    def client(self) -> redis.Redis:
        return redis.Redis(unix_socket_path=str(self.path))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server(tmp_path_factory.mktemp("redis"))
    yield running
    running.stop()


@pytest.fixture
def peer(server: Server) -> Iterator[redis.Redis]:
    """An independent client, emptied between tests."""
    with server.client() as client:
        client.flushall()
        yield client


def source(server: Server, **settings: object) -> RedisStreamSource:
    return RedisStreamSource(server.url, STREAM, SCHEMA, **{"poll": 0.001, "batch_time": 0.0, **settings})  # type: ignore[arg-type]


def add(peer: redis.Redis, numbers: range) -> list[bytes]:
    return [peer.xadd(STREAM, {"ip": f"u{n}", "n": n, "other": "x" * 50}) for n in numbers]


def take(running: Iterator[RowBatch | None], rows: int) -> list[RowBatch]:
    """Read on until ``rows`` rows have come."""
    batches: list[RowBatch] = []
    for batch in itertools.islice(running, 10_000):
        batches += [batch] if batch is not None else []
        if sum(len(batch) for batch in batches) >= rows:
            return batches
    raise AssertionError("the rows did not come")


def numbers(batches: list[RowBatch]) -> list[int]:
    return [n for batch in batches for n in good(batch).column("n").to_pylist()]


def pending(peer: redis.Redis) -> int:
    return int(peer.xpending(STREAM, "panstream")["pending"])


def test_entries_are_gone_once_acknowledged(server: Server, peer: redis.Redis) -> None:
    entries = add(peer, range(2500))
    reading = source(server, batch_rows=1000)
    stream = reading.batches()
    batches = take(stream, 2000)
    assert numbers(batches) == list(range(2000))
    assert [len(batch) for batch in batches] == [1000, 1000]
    assert batches[0].sequence == _entry_number(entries[999])
    assert batches[0].producer == "redis:visits:panstream"
    assert batches[0].columns.column("ip").to_pylist()[:2] == ["u0", "u1"]
    assert (peer.xlen(STREAM), pending(peer)) == (2500, 2000)
    reading.acknowledge(batches[0].token)
    assert (peer.xlen(STREAM), pending(peer)) == (1500, 1000)
    reading.acknowledge(batches[0].token)  # once more does no harm
    (last,) = take(stream, 500)
    reading.acknowledge(batches[1].token)
    reading.acknowledge(last.token)
    assert (peer.xlen(STREAM), pending(peer)) == (0, 0)
    assert reading.progress() is None
    reading.close()
    assert list(stream) == []


def test_entries_come_again_after_a_crash(server: Server, peer: redis.Redis) -> None:
    """Crashed before the commit: all again. Crashed between commit and acknowledgement: not one again, but deleted."""
    add(peer, range(10))
    before = source(server, batch_rows=4).batches()
    (first, second) = take(before, 8)
    before.close()  # type: ignore[attr-defined]
    assert pending(peer) == 8
    again = source(server, batch_rows=100)
    stream = again.batches()
    assert numbers(take(stream, 10)) == list(range(10))
    stream.close()  # type: ignore[attr-defined]
    after = source(server, batch_rows=100)
    after.resume({"redis:visits:panstream": first.sequence or 0, "other": 5})
    stream = after.batches()
    rest = take(stream, 6)
    assert numbers(rest) == [4, 5, 6, 7, 8, 9]
    assert numbers([second]) == [4, 5, 6, 7]
    assert (peer.xlen(STREAM), pending(peer)) == (6, 6)
    for batch in rest:
        after.acknowledge(batch.token)
    assert (peer.xlen(STREAM), pending(peer)) == (0, 0)
    stream.close()  # type: ignore[attr-defined]


def test_exactly_once_under_crashes_at_every_step(server: Server, peer: redis.Redis) -> None:
    """An engine that keeps (sum, sequence) in one commit, killed before or after it, or after acknowledging."""
    add(peer, range(30))
    total = 0
    applied = dict[str, int]()
    step = 0
    while peer.xlen(STREAM):
        reading = source(server, batch_rows=3)
        reading.resume(applied)
        stream = reading.batches()
        for batch in stream:
            if batch is None:
                if not peer.xlen(STREAM):
                    break
                continue
            step += 1
            if step % 3 == 0:
                break
            total += sum(batch.columns.column("n").to_pylist())
            applied = {batch.producer or "": batch.sequence or 0}
            if step % 3 == 1 and step % 2:
                break
            reading.acknowledge(batch.token)
        stream.close()  # type: ignore[attr-defined]
    assert total == sum(range(30))


def test_bad_entries(server: Server, peer: redis.Redis) -> None:
    entries = [
        peer.xadd(STREAM, fields)
        for fields in (
            {"ip": "a", "n": "1"},
            {"ip": "secret", "n": "many"},
            {"n": "3"},
            {"ip": b"\xff", "n": "4"},
            {"x": "y"},
            {"ip": "b"},
            {"ip": "", "n": " 7 "},
        )
    ]
    reading = source(server)
    stream = reading.batches()
    (batch,) = take(stream, 7)
    assert good(batch).to_pydict() == {"ip": ["a", "b", ""], "n": [1, None, 7]}
    assert [(bad.row, bad.reason) for bad in batch.bad_rows(SCHEMA)] == [
        (2, f"entry {entries[1].decode()}: column n is not a whole number of 64 bits"),
        (3, f"entry {entries[2].decode()}: column ip, the user, is missing"),
        (4, f"entry {entries[3].decode()}: column ip is not a string of valid UTF-8"),
        (5, f"entry {entries[4].decode()}: column ip, the user, is missing"),
    ]
    reading.acknowledge(batch.token)
    assert peer.xlen(STREAM) == 0
    stream.close()  # type: ignore[attr-defined]


def test_entries_that_somebody_deleted(server: Server, peer: redis.Redis) -> None:
    entries = add(peer, range(4))
    stream = source(server).batches()
    take(stream, 4)
    stream.close()  # type: ignore[attr-defined]
    peer.xdel(STREAM, entries[1])
    reading = source(server)
    stream = reading.batches()
    assert numbers(take(stream, 3)) == [0, 2, 3]
    assert pending(peer) == 3
    stream.close()  # type: ignore[attr-defined]


def test_new_entries_while_running(server: Server, peer: redis.Redis) -> None:
    reading = source(server)
    stream = reading.batches()
    assert next(stream) is None
    assert next(stream) is None
    add(peer, range(3))
    assert numbers(take(stream, 3)) == [0, 1, 2]
    assert next(stream) is None
    stream.close()  # type: ignore[attr-defined]


def test_time_lets_a_batch_go(server: Server, peer: redis.Redis) -> None:
    now = [0.0]
    add(peer, range(3))
    stream = source(server, batch_time=5.0, clock=lambda: now[0]).batches()
    assert [next(stream) for _ in range(3)] == [None] * 3
    now[0] = 5.0
    assert numbers(take(stream, 3)) == [0, 1, 2]
    stream.close()  # type: ignore[attr-defined]


def test_large_values_and_names(server: Server, peer: redis.Redis) -> None:
    """Replies longer than the buffer, values with line ends of the protocol, awkward names."""
    big = b"x\r\n$5\r\n" * 30_000
    schema = RowSchema(columns={"ü ber": "binary"})
    peer.xadd("st réam", {"ü ber": big, "n": 1})
    peer.xadd("st réam", {"ü ber": b"", "ü berx": b"no"})
    reading = RedisStreamSource(server.url, "st réam", schema, group="g 1", consumer="c 1", batch_time=0.0, poll=0.001)
    stream = reading.batches()
    (batch,) = take(stream, 2)
    assert batch.columns.column(0).to_pylist() == [big, b""]
    reading.acknowledge(batch.token)
    assert peer.xlen("st réam") == 0
    assert not any(reading._connection.data)
    stream.close()  # type: ignore[attr-defined]


def test_another_consumer(server: Server, peer: redis.Redis) -> None:
    add(peer, range(2))
    take(source(server, consumer="one").batches(), 2)
    with pytest.raises(SourceError, match="pending for another consumer"):
        next(source(server, consumer="two").batches())
    assert numbers(take(source(server, consumer="two", group="second").batches(), 2)) == [0, 1]


def test_a_server_that_restarts(tmp_path: Path) -> None:
    """The connection breaks; what was on its way comes again, once."""
    own = Server(tmp_path, "--appendonly", "yes", "--appendfsync", "always")
    actions: list[Callable[[], object]] = [lambda: None, own.start]
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if actions:
            actions.pop(0)()

    with own.client() as client:
        add(client, range(4))
    reading = source(own, batch_rows=2, sleep=sleep)
    stream = reading.batches()
    (first,) = take(stream, 2)
    own.stop()
    reading.acknowledge(first.token)
    assert slept == [0.1, 0.2]
    assert numbers(take(stream, 2)) == [2, 3]
    own.stop()
    reading._connection.close()
    with pytest.raises(ConnectionLost, match="Redis could not be reached"):
        list(stream)
    assert len(slept) == 2 + 5


def test_passwords_and_databases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = Server(tmp_path, "--requirepass", "pass word")
    for url, words in ((own.url, "NOAUTH"), (f"unix://:wrong@{own.path}", "WRONGPASS|invalid")):
        with pytest.raises(RedisCommandError, match=words) as caught:
            next(RedisStreamSource(url, STREAM, SCHEMA).batches())
        assert "pass word" not in str(caught.value)
        assert "wrong" not in str(caught.value).lower().replace("wrongpass", "")
    with redis.Redis(unix_socket_path=str(own.path), password="pass word", db=3) as client:
        add(client, range(2))
        reading = RedisStreamSource(f"unix://:pass%20word@{own.path}?db=3", STREAM, SCHEMA, batch_time=0.0, poll=0.001)
        stream = reading.batches()
        assert numbers(take(stream, 2)) == [0, 1]
        stream.close()  # type: ignore[attr-defined]
        named = RedisConnection(f"unix://default:pass%20word@{own.path}")
        named.connect()
        assert named.command("PING") == b"PONG"
        named.close()
        (tmp_path / "password").write_text("pass word\n")
        for url in (f"{own.url}?password_file={tmp_path / 'password'}", own.url):
            by_file = RedisConnection(url)
            by_file.connect()
            assert by_file.command("PING") == b"PONG"
            by_file.close()
            monkeypatch.setenv(PASSWORD, "pass word")
    own.stop()
    with pytest.raises(SourceError, match="password_file of the Redis address cannot be read: No such file"):
        RedisConnection(f"{own.url}?password_file={tmp_path / 'nothing'}")


@pytest.mark.slow
def test_over_tcp_and_tls(tmp_path: Path) -> None:
    """A free port of the loopback; TLS with a certificate made for the test."""
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost"),
            *("-keyout", str(tmp_path / "key"), "-out", str(tmp_path / "crt")),
        ],
        check=True,
        capture_output=True,
    )
    plain = free_port()
    tls = free_port()
    files = ["--tls-cert-file", str(tmp_path / "crt"), "--tls-key-file", str(tmp_path / "key")]
    ports = ["--port", str(plain), "--tls-port", str(tls), "--bind", "127.0.0.1"]
    own = Server(tmp_path, *ports, *files, "--tls-ca-cert-file", str(tmp_path / "crt"), "--tls-auth-clients", "no")
    for url in (f"redis://localhost:{plain}/1", f"rediss://localhost:{tls}/1?ca={tmp_path / 'crt'}"):
        connection = RedisConnection(url)
        connection.connect()
        assert connection.command("PING") == b"PONG"
        connection.close()
    with pytest.raises(ConnectionLost, match="Redis could not be reached"):
        RedisConnection(f"rediss://localhost:{tls}").connect()
    own.stop()


def test_addresses() -> None:
    for url in ("http://localhost", "localhost:6379"):
        with pytest.raises(InvalidParameter, match="url must begin with"):
            RedisConnection(url)
    with pytest.raises(InvalidParameter, match="whole number"):
        RedisConnection("redis://localhost/x")
    with pytest.raises(ConnectionLost, match="Redis could not be reached"):
        RedisConnection("unix:///nowhere/redis.sock").connect()


def test_a_key_that_is_no_stream(server: Server, peer: redis.Redis) -> None:
    peer.set(STREAM, "x")
    with pytest.raises(RedisCommandError, match="WRONGTYPE"):
        next(source(server).batches())


def test_a_lost_connection_in_the_middle_of_a_reply(server: Server, peer: redis.Redis) -> None:
    """The entries of the reply that was lost are asked for again, behind those already received."""
    add(peer, range(6))
    reading = source(server, batch_rows=2, sleep=lambda seconds: None)
    stream = reading.batches()
    (first,) = take(stream, 2)
    real = reading._connection.span
    calls = itertools.count()

    def breaking(length: int) -> tuple[int, int]:
        if next(calls) == 5:
            reading._connection.close()
            raise ConnectionLost("the connection to Redis was lost")
        return real(length)

    reading._connection.span = breaking  # type: ignore[method-assign]
    assert numbers([first, *take(stream, 4)]) == list(range(6))
    stream.close()  # type: ignore[attr-defined]
