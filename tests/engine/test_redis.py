"""Redis Streams into an engine with a real server: what is durable is deleted there, and nothing counts twice."""

import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.streams import config, question
from panstream.engine.config import Config
from panstream.engine.engine import Engine
from panstream.engine.run import feed_source, source_of
from panstream.engine.select import Selector

QUERIES = (
    question("distinct", "SELECT COUNT(DISTINCT user) FROM s WHERE value > 1", universe=1000),
    question("count", "SELECT COUNT(*) FROM s", releases=2),
)


class Server:
    def __init__(self, directory: Path) -> None:
        self.path = directory / "redis.sock"
        self.process = subprocess.Popen(
            ["redis-server", "--port", "0", "--unixsocket", str(self.path), "--save", "", "--dir", str(directory)],
            stdout=subprocess.DEVNULL,
        )
        for _ in range(200):
            if self.path.exists():
                return
            threading.Event().wait(0.05)
        raise AssertionError("redis-server did not start")

    def ask(self, *words: object) -> bytes:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self.path))
            parts = [str(word).encode() for word in words]
            connection.sendall(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(p), p) for p in parts))
            return connection.recv(1 << 16)

    def add(self, start: int, count: int) -> None:
        for number in range(start, start + count):
            self.ask("XADD", "visits", "*", "user", number % 700, "value", 2)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    started = Server(tmp_path)
    yield started
    started.process.terminate()
    started.process.wait()


def feed(settings: Config, server: Server, rows: int, *, acknowledge: bool = True) -> Engine:
    """Feed until so many rows came; without ``acknowledge`` the run ends as in a crash after the commit."""
    source = source_of(settings, [f"unix://{server.path}#visits"])
    if not acknowledge:
        source.acknowledge = lambda token: None  # type: ignore[method-assign]
    engine = Engine(settings, zero_noise=True)
    with Selector(settings) as select:
        feed_source(engine, source, select, tick=lambda done, share: source.close() if done >= rows else None)
    return engine


def test_entries_are_deleted_when_durable_and_count_once(tmp_path: Path, server: Server) -> None:
    settings = config(*QUERIES, directory=tmp_path / "state")
    server.add(0, 120)
    feed(settings, server, 120, acknowledge=False).close()
    assert server.ask("XLEN", "visits") == b":120\r\n"
    server.add(120, 30)
    with feed(settings, server, 30) as engine:
        assert server.ask("XLEN", "visits") == b":0\r\n"
        assert engine.release("count")[0].record["value"] == 150
        assert engine.release("distinct")[0].record["value"] == pytest.approx(150)
