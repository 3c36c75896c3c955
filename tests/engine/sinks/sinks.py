"""A stream whose answers go to a database, and what must be there: what the log has, once."""

import json
import sqlite3
from pathlib import Path
from typing import Any

from panstream.engine.config.config import load_config
from panstream.engine.runtime.engine import Engine
from panstream.engine.sinks.sink import open_sink
from tests.browser.serving import serving

CONFIG = """
[stream]
name = "clinic"
columns = {{ user = "int", region = "string" }}
user = "user"

[[query]]
name = "visitors"
sql = "SELECT COUNT(DISTINCT user) FROM clinic"
epsilon = 1.0
releases = 50

[[query]]
name = "by region"
sql = "SELECT region, COUNT(*) FROM clinic GROUP BY region"
epsilon = 1.0
releases = 50
groups = {{ region = ["north", "south"] }}

[store]
directory = "state"

[sink]
url = "{url}"
"""
SERVED = """
[stream]
name = "clinic"
columns = {{ user = "string" }}
user = "user"
[[query]]
name = "visits"
sql = "SELECT COUNT(*) FROM clinic"
epsilon = 1.0
every = "1 second"
horizon = 3600
[store]
directory = "state"
[sink]
url = "{url}"
"""
READ = "SELECT query, group_key, number, value, low, high, epsilon, unit, claim FROM panstream_answers"


class Crash(BaseException):
    """As if the process were gone: nothing handles it."""


def write(folder: Path, url: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "panstream.toml"
    path.write_text(CONFIG.format(url=url))
    return path


def answer(path: Path, times: int = 1, said: list[str] | None = None) -> None:
    """Answer every question so many times, with the sink at work."""
    with Engine(load_config(path)) as engine, open_sink(engine, [].append if said is None else said.append):
        for _ in range(times):
            engine.release("visitors")
            engine.release("by region")


def copy(path: Path) -> None:
    """Open everything again, and ask nothing."""
    answer(path, 0)


def logged(folder: Path) -> list[tuple[Any, ...]]:
    """Return what the log has, read without the library."""
    rows = sqlite3.connect(folder / "state" / "releases.sqlite").execute("SELECT query, number, record FROM releases")
    found = []
    for series, number, text in rows:
        record = json.loads(text)
        query, _, _ = series.partition(" [")
        group = json.dumps(record.get("group", {}))
        figures = (record["value"], *record["interval"], record["epsilon"], record["claim"]["unit"])
        found.append((query, group, number, *figures, record["claim"]))
    return sorted(found, key=str)


def plain(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(((*row[:-1], json.loads(row[-1])) for row in rows), key=str)


def serve_and_kill(folder: Path, url: str) -> None:
    """Kill -9 a server three times while answers are drawn every second and copied."""
    with serving(folder, config=SERVED.format(url=url)) as server:

        def wait_for_releases(count: int) -> None:
            while len(server.ask("GET", "/v1/releases")["releases"]) < count:
                pass

        for count in (2, 4, 6):
            wait_for_releases(count)
            server.kill()
            server.start()
        wait_for_releases(7)
