"""A stream with every type of column, for the fuzzers; and what every answer must look like."""

from __future__ import annotations

import http.client
import json
import os
from typing import Any

from panstream.server.errors import CODES
from tests.browser.serving import Serving

CONFIG = """
[stream]
name = "all"
user = "user"
time = "at"
lateness = "1 hour"

[stream.columns]
user = "string"
n = "int"
x = "double"
page = "string"
raw = "binary"
ok = "bool"
at = "timestamp"
day = "date"

[[query]]
name = "people"
sql = "SELECT COUNT(DISTINCT user) FROM all WHERE n > 3 AND page = 'a'"
epsilon = 1.0
releases = 1000
memory = 512

[[query]]
name = "rich"
sql = "SELECT COUNT(DISTINCT user) FROM all WHERE page LIKE 'a%' OR length(page) > 3 AND ok"
epsilon = 1.0
releases = 2
memory = 512

[[query]]
name = "sum"
sql = "SELECT SUM(x) FROM all WHERE ok AND day > DATE '2026-01-01'"
epsilon = 1.0
lower = 0
upper = 100
every = "1 minute"
horizon = 1000000

[[query]]
name = "windows"
sql = "SELECT page, COUNT(*) FROM all GROUP BY page"
epsilon = 1.0
window = "1 hour"
groups = { page = ["a", "b", "c"] }
"""
EXAMPLES = int(os.environ.get("PANSTREAM_FUZZ", "1"))  # times as many as usual
STATUSES = {status for status, _ in CODES.values()} - {500}
HANG = 60  # seconds: far more than any answer takes on a busy machine
EVENTS = "/v1/streams/all/events"


def ask(server: Serving, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, bytes]:
    """Send a request that may be anything; HANG seconds without an answer are a hang."""
    host, port = server.address.removeprefix("http://").rsplit(":", 1)
    connection = http.client.HTTPConnection(host, int(port), timeout=HANG)
    try:
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def check(status: int, text: bytes) -> Any:
    """Return what was answered: a success, or a refusal in the one shape that refusals have."""
    said = json.loads(text)
    assert status == 200 or status in STATUSES, said
    if status != 200:
        assert set(said) == {"error"}
        assert set(said["error"]) == {"code", "message"}
        assert CODES[said["error"]["code"]][0] == status
    return said


def healthy(server: Serving) -> None:
    """The server is up, of the same process, and had no fault of its own."""
    assert server.process.poll() is None
    status, text = ask(server, "GET", "/healthz")
    assert (status, json.loads(text)["status"]) == (200, "ok")
