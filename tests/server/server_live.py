"""A server that runs in a thread of the test, and small ways to talk to it."""

import contextlib
import http.client
import io
import json
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa

from panstream.engine.config.config import Config, load_config
from panstream.engine.runtime.engine import Engine
from panstream.server.auth import Limits
from panstream.server.server import ServerSettings, make_server
from tests.waiting import PATIENCE

CSV = "text/csv"
LINES = "application/x-ndjson"
ARROW = "application/vnd.apache.arrow.stream"
EVENTS = "/v1/streams/visits/events"
EXACT = 200.0  # an epsilon so large that counts are exact, in these tests of plumbing
CONFIG = f"""
[stream]
name = "visits"
user = "user"
[stream.columns]
user = "string"
region = "string"
amount = "double"
[stream.budget]
event = 500.0
[[query]]
name = "rows"
sql = "SELECT COUNT(*) FROM visits WHERE region <> 'nowhere'"
epsilon = {EXACT}
releases = 40
[[query]]
name = "people"
sql = "SELECT COUNT(DISTINCT user) FROM visits WHERE region = 'north'"
epsilon = 1.0
expected = 1000
[[query]]
name = "by_region"
sql = "SELECT region, SUM(amount) FROM visits GROUP BY region"
epsilon = 1.0
lower = 0.0
upper = 1.0
every = "1 hour"
horizon = 10
groups = {{ region = ["north", "south"] }}
[store]
directory = "state"
step = "5 ms"
"""
AS_THEY_COME = CONFIG.replace('step = "5 ms"', 'step = "none"')


@dataclass
class Answer:
    status: int
    body: bytes
    headers: http.client.HTTPMessage

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The error's code; checks that the error has the one shape."""
        assert set(self.json) == {"error"}
        assert set(self.json["error"]) == {"code", "message"}
        return str(self.json["error"]["code"])


@dataclass
class Live:
    host: str
    port: int
    running: Any

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE)
        with contextlib.closing(connection):
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # refused before the body was read
                connection.request(
                    method, path, body, {name.replace("_", "-"): value for name, value in headers.items()}
                )
            response = connection.getresponse()
            return Answer(response.status, response.read(), response.headers)

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, **headers)

    def post(self, body: Any, kind: str = LINES, path: str = EVENTS, **headers: str) -> Answer:
        return self.ask("POST", path, body, Content_Type=kind, **headers)

    def opened(self, name: str, **headers: str) -> str:
        """Open a producer, or take it over, and return its id."""
        answer = self.ask("POST", f"/v1/producers/{name}", **headers)
        assert answer.status == 200, answer.body
        return str(answer.json["id"])

    def rows(self) -> int:
        """How many rows the engine has counted; uses up a release."""
        return round(self.ask("POST", "/v1/queries/rows/release").json["releases"][0]["value"])

    def raw(self, data: bytes, *, end: bool = False) -> bytes:
        """Send bytes, and return what comes back until the server closes."""
        with socket.create_connection((self.host, self.port), timeout=PATIENCE) as connection:
            connection.sendall(data)
            if end:
                connection.shutdown(socket.SHUT_WR)
            found = b""
            with contextlib.suppress(ConnectionResetError):
                while piece := connection.recv(65536):
                    found += piece
            return found


def write_config(directory: Path, text: str = CONFIG) -> Config:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "panstream.toml").write_text(text)
    return load_config(directory / "panstream.toml")


@contextlib.contextmanager
def served(
    config: Config, limits: Limits | None = None, *, engine: Callable[..., Engine] | None = None, **settings: Any
) -> Iterator[Live]:
    ready = threading.Event()
    server_settings = ServerSettings(port=0, limits=limits or Limits(), **settings)
    running = make_server(config, server_settings, on_started=lambda address: ready.set(), engine=engine)
    thread = threading.Thread(target=running.run_until_stopped)
    thread.start()
    try:
        assert ready.wait(PATIENCE)
        place = urlsplit(running.address)
        yield Live(place.hostname or "", place.port or 0, running)
    finally:
        running.stop()
        thread.join(PATIENCE)
        assert not thread.is_alive()


def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds, half a minute at most."""
    pause = threading.Event()
    for _ in range(3000):
        if condition():
            return
        pause.wait(0.01)
    raise AssertionError("it did not happen")


def lines(count: int, start: int = 0, region: str = "north") -> bytes:
    return "".join(
        f'{{"user": "u{n}", "region": "{region}", "amount": 1}}\n' for n in range(start, start + count)
    ).encode()


def csv(count: int) -> bytes:
    return ("user,region,amount\n" + "".join(f"u{n},north,1\n" for n in range(count))).encode()


def arrow(count: int, batches: int = 1, **options: Any) -> bytes:
    users = [f"u{n}" for n in range(count)]
    table = pa.table(
        {"user": users, "region": pa.array(["north"] * count).dictionary_encode(), "amount": [1.0] * count}
    )
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for batch in table.to_batches(max_chunksize=max(1, count // batches)):
            writer.write_batch(batch)
    return sink.getvalue()
