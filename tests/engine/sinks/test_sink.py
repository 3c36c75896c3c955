"""Answers in a database: those of the log, each once, whatever breaks in between."""

import contextlib
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest

from panstream.engine.config.config import load_config, read_config
from panstream.engine.runtime.engine import Engine
from panstream.engine.sinks import sink
from panstream.errors import ConfigError, SinkError
from panstream.server.service import metrics
from tests.engine.sinks.sinks import READ, Crash, answer, copy, logged, plain, serve_and_kill, write


def rows(folder: Path, kind: str = "sqlite") -> list[tuple[Any, ...]]:
    connect = sqlite3.connect if kind == "sqlite" else duckdb.connect
    with contextlib.closing(connect(str(folder / "answers.db"))) as database:
        return plain(database.execute(READ).fetchall())


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_every_answer_is_there_once(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path, f"{kind}:answers.db")
    answer(path, 3)
    assert len(logged(tmp_path)) == 9
    assert rows(tmp_path, kind) == logged(tmp_path)
    answer(path, 2)
    copy(path)
    assert rows(tmp_path, kind) == logged(tmp_path)
    assert len(logged(tmp_path)) == 15


class Crashing:
    """A connection that is cut off before a statement."""

    def __init__(self, real: Any, left: list[int]) -> None:
        self._real = real
        self._left = left

    def execute(self, *given: Any) -> Any:
        self._left[0] -= 1
        if self._left[0] < 0:
            raise Crash
        return self._real.execute(*given)

    def close(self) -> None:
        self._real.close()


def test_a_crash_before_any_statement_loses_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, "sqlite:answers.db")
    real = sqlite3.connect
    left = [10**9]
    crashes = 0

    def connect(database: Any, **options: Any) -> Any:
        opened = real(database, **options)
        return Crashing(opened, left) if Path(str(database)).name == "answers.db" else opened

    with Engine(load_config(path)) as engine:
        for _ in range(3):
            engine.release("visitors")
            engine.release("by region")
    monkeypatch.setattr(sink.sqlite3, "connect", connect)
    for statement in range(100):
        (tmp_path / "answers.db").unlink(missing_ok=True)
        left[0] = statement
        try:
            copy(path)
        except Crash:
            crashes += 1
        else:
            break
        left[0] = 10**9
        copy(path)
        assert rows(tmp_path) == logged(tmp_path), f"after a crash before statement {statement}"
    assert crashes >= 9 + 3, "before every row, and around the transaction"


def test_a_database_that_is_away_holds_up_nothing(tmp_path: Path) -> None:
    path = write(tmp_path, "sqlite:later/answers.db")
    said = list[str]()
    with pytest.raises(SinkError, match="the answers are in the store, and will be copied at the next start"):
        answer(path, 2, said)
    assert said == ["[sink] cannot be written to: unable to open database file; it will be tried again"]
    (tmp_path / "later").mkdir()
    answer(path, 1, said)
    assert len(said) == 1
    (tmp_path / "later" / "answers.db").rename(tmp_path / "answers.db")
    assert rows(tmp_path) == logged(tmp_path)
    assert len(logged(tmp_path)) == 9


def test_whether_it_works_is_a_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, "sqlite:later/answers.db")
    monkeypatch.setattr(sink.time, "time", lambda: 1_800_000_000.0)

    def figures(engine: Engine) -> list[str]:
        text = metrics(engine, failed=False).decode()
        return [line for line in text.splitlines() if line.startswith("panstream_sink_")]

    with Engine(load_config(path)) as engine:
        assert figures(engine) == [], "nothing is configured to copy them"
        with pytest.raises(SinkError), sink.open_sink(engine, lambda text: None):
            assert figures(engine) == ["panstream_sink_up 0.0", "panstream_sink_copied_time_seconds NaN"]
        (tmp_path / "later").mkdir()
        with sink.open_sink(engine, lambda text: None):
            assert figures(engine) == ["panstream_sink_up 1.0", "panstream_sink_copied_time_seconds 1.8e+09"]


def test_answers_of_another_store_are_not_mixed_in(tmp_path: Path) -> None:
    answer(write(tmp_path / "one", f"sqlite:{tmp_path}/answers.db"))
    other = write(tmp_path / "other", f"sqlite:{tmp_path}/answers.db")
    before = rows(tmp_path)
    with pytest.raises(SinkError, match="has answers of 'visitors' that are not of this store: name another table"):
        for _ in range(2):
            answer(other)
            copy(other)
    assert rows(tmp_path) == before


NAMES = """
[stream]
name = "shop"
columns = { page = "string" }
[[query]]
name = "popular"
sql = "SELECT page, COUNT(*) FROM shop GROUP BY page"
epsilon = 4.0
delta = 1e-6
max_item_bytes = 8
[store]
directory = "state"
[sink]
url = "sqlite:answers.db"
"""


@pytest.mark.slow
def test_names_are_rows_too(tmp_path: Path) -> None:
    (tmp_path / "panstream.toml").write_text(NAMES)
    (tmp_path / "rows.csv").write_text("page\n" + "/apples\n" * 900 + "/pears\n" * 500)
    command = [sys.executable, "-m", "panstream.cli", "run", "panstream.toml", "rows.csv"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    found = {group: value for _, group, _, value, *_ in rows(tmp_path)}
    unusable = {'{"unusable": false}', '{"unusable": true}'}  # the share of rows that could not be used
    assert set(found) == {"{}", '{"page": "/apples"}', '{"page": "/pears"}'} | unusable
    assert found['{"page": "/apples"}'] == pytest.approx(900, abs=100)


@pytest.mark.slow
def test_a_server_that_is_killed_again_and_again(tmp_path: Path) -> None:
    """Afterwards the table is the log."""
    serve_and_kill(tmp_path, "sqlite:answers.db")
    assert rows(tmp_path) == logged(tmp_path)
    assert [row[2] for row in sorted(rows(tmp_path), key=lambda row: row[2])] == list(range(1, len(rows(tmp_path)) + 1))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"url": "mysql://host/db"}, r'\[sink\] url must begin with "postgresql://"'),
        ({"url": "sqlite:"}, r"\[sink\] url must begin"),
        ({"url": "sqlite:a.db", "table": "a; drop"}, r"\[sink\] table must be a name of small letters"),
        ({"url": "sqlite:a.db", "tabel": "a"}, r"\[sink\]: unknown key 'tabel', did you mean 'table'\?"),
        ({}, r"\[sink\]: url is missing"),
        ({"url": "kafka://host"}, r"\[sink\] url: a Kafka topic is given as kafka://host:port/topic"),
        ({"url": "kafka://me:secret@host/t"}, r"\[sink\] url: credentials for Kafka go into the file"),
        ({"url": "kafka://host/t", "table": "a"}, r"\[sink\] table, group and begin have no meaning"),
        ({"url": "kafka://host/t?group=a"}, r"\[sink\] table, group and begin have no meaning"),
        ({"url": "sqlite:a.db", "directory": None}, r"\[sink\] needs \[store\] directory"),  # a log that lasts
    ],
)
def test_settings_are_checked(settings: dict[str, Any], said: str) -> None:
    stream = {"name": "s", "columns": {"user": "int"}, "user": "user"}
    query = {"name": "q", "sql": "SELECT COUNT(DISTINCT user) FROM s", "epsilon": 1.0}
    store = {} if "directory" in settings else {"directory": "x"}
    settings = {key: value for key, value in settings.items() if value is not None}
    with pytest.raises(ConfigError, match=said) as caught:
        read_config({"stream": stream, "query": [query], "sink": settings, "store": store})
    assert "secret" not in str(caught.value)
