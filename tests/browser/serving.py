"""A real server process for tests: started, killed, started again on the same port, always reaped."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.waiting import PATIENCE

CONFIG = """
[stream]
name = "clinic"
columns = { user = "string", page = "string", region = "string", wait = "double" }
user = "user"

[stream.budget]
event = 20.0

[[query]]
name = "visitors"
sql = "SELECT COUNT(DISTINCT user) FROM clinic WHERE page = 'self-test'"
epsilon = 3.0
releases = 3
memory = 1536

[[query]]
name = "visits"
sql = "SELECT COUNT(*) FROM clinic"
epsilon = 8.0
every = "1 second"
horizon = 3600

[[query]]
name = "visits by region"
sql = "SELECT region, COUNT(*) FROM clinic GROUP BY region"
epsilon = 4.0
every = "2 seconds"
horizon = 3600
groups = { region = ["north", "south", "east", "west"] }

[[query]]
name = "waiting time"
sql = "SELECT AVG(wait) FROM clinic"
epsilon = 1.0
lower = 0
upper = 120
releases = 2

[store]
directory = "state"
"""


class Serving:
    """``panstream serve`` as a process of its own."""

    def __init__(self, folder: Path, *options: str, config: str = CONFIG) -> None:
        self.folder = folder
        self.options = options
        (folder / "panstream.toml").write_text(config)
        self.address = ""
        self.start()

    def start(self) -> None:
        """Start, or start again on the port of before."""
        port = self.address.rpartition(":")[2] or "0"
        command = [sys.executable, "-m", "panstream.cli", "serve", str(self.folder / "panstream.toml"), "--port", port]
        self.process = subprocess.Popen(
            [*command, *self.options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ}
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.search(r"https?://\S+", line)
        if found is None:
            raise AssertionError(f"the server did not start: {line}{self.process.communicate()[1]}")
        self.address = found.group()

    def kill(self) -> None:
        """Kill -9."""
        self.process.kill()
        self.process.communicate()

    def stop(self) -> tuple[int, str]:
        """End it in order; return its exit code and what it said on standard error."""
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                said = self.process.communicate(timeout=PATIENCE)[1]
            except subprocess.TimeoutExpired:
                self.kill()
                raise
            return self.process.returncode, said
        return self.process.returncode, ""

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Any:
        """Send a request; return the JSON that comes back."""
        request = urllib.request.Request(self.address + path, body, method=method)
        for name, value in headers.items():
            request.add_header(name.replace("_", "-"), value)
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return json.load(answer)

    def send(self, rows: int, *, first: int = 0, **headers: str) -> Any:
        """Send rows of as many different users, a quarter in each region."""
        regions = ("north", "south", "east", "west")
        lines = [f"user {first + i},self-test,{regions[i % 4]},{i % 60}" for i in range(rows)]
        text = "\n".join(["user,page,region,wait", *lines]).encode()
        return self.ask("POST", "/v1/streams/clinic/events", text, Content_Type="text/csv", **headers)


@contextmanager
def serving(folder: Path, *options: str, config: str = CONFIG) -> Iterator[Serving]:
    """Serve for the time of a test."""
    server = Serving(folder, *options, config=config)
    try:
        yield server
    finally:
        server.stop()
