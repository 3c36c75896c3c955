"""The same in a real PostgreSQL, started for the test, and away for a while."""

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from panstream.errors import SinkError
from tests.engine.sinks.sinks import READ, answer, copy, logged, plain, write

psycopg = pytest.importorskip("psycopg")


class Postgres:
    """A cluster of its own, reached by a socket of its own. PostgreSQL does not run as root."""

    def __init__(self, folder: Path) -> None:
        programs = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
        assert programs, "PostgreSQL is needed: apt-get install postgresql"
        self._folder = folder
        self._programs = programs[-1]
        self._user = None if os.getuid() else pwd.getpwnam("postgres").pw_name
        if self._user:
            shutil.chown(folder, self._user)
        self._run("initdb", "--auth=trust", "--username=sink", "--no-sync", "-D", str(folder / "data"))
        self.start()

    @property
    def url(self) -> str:
        return f"postgresql://sink@/postgres?host={self._folder}"

    def start(self) -> None:
        settings = f"-c listen_addresses='' -c fsync=off -k {self._folder}"
        log = str(self._folder / "log")
        self._run("pg_ctl", "start", "-w", "-D", str(self._folder / "data"), "-l", log, "-o", settings)

    def stop(self) -> None:
        self._run("pg_ctl", "stop", "-w", "-m", "immediate", "-D", str(self._folder / "data"))

    def _run(self, program: str, *options: str) -> None:
        subprocess.run(
            [self._programs / program, *options],
            user=self._user,
            cwd=self._folder,
            check=True,
            stdout=subprocess.DEVNULL,
        )

    def rows(self) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url) as database:
            return plain(database.execute(READ).fetchall())


@pytest.fixture
def postgres() -> Iterator[Postgres]:
    # No directory of pytest's: every other run of pytest that starts closes those to other users.
    with tempfile.TemporaryDirectory(prefix="panstream-postgres-") as folder:
        running = Postgres(Path(folder))
        yield running
        with contextlib.suppress(subprocess.CalledProcessError):
            running.stop()


@pytest.mark.slow
def test_answers_in_postgresql(tmp_path: Path, postgres: Postgres) -> None:
    path = write(tmp_path, postgres.url)
    said = list[str]()
    answer(path, 2, said)
    copy(path)
    assert postgres.rows() == logged(tmp_path)
    assert len(logged(tmp_path)) == 6
    postgres.stop()
    with pytest.raises(SinkError, match="the answers are in the store"):
        answer(path, 1, said)
    assert len(said) == 1
    postgres.start()
    answer(path, 1, said)
    assert postgres.rows() == logged(tmp_path)
    with psycopg.connect(postgres.url) as database:
        zone = database.execute("SELECT pg_typeof(time)::text, count(*) FROM panstream_answers GROUP BY 1").fetchall()
    assert zone == [("timestamp with time zone", 12)]
