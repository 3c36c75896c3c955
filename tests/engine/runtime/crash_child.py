"""A process under load: applies numbered batches without noise, and says on standard output what was acknowledged.

Batch k holds the users k·10 .. k·10+9, each twice, with value 1 a row. The count per 5 batches is a continual query
with noise, whose answers must never change once published.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np

from panstream.engine.config.config import Config
from panstream.engine.rows.row_batch import QuerySelection, RowBatch
from panstream.engine.runtime.engine import Engine
from panstream.engine.runtime.ingest import ingest
from panstream.engine.storage.release_log import Release
from tests.engine.runtime.streams import config, question

USERS = 100_000
SIZE = 10
QUERIES = (
    question("distinct", "SELECT COUNT(DISTINCT user) FROM s", universe=USERS, releases=1_000_000),
    question("sum", "SELECT SUM(value) FROM s", lower=0, upper=1, every=5, horizon=1_000_000),
)
NOISY = question("noisy", "SELECT COUNT(*) FROM s", every=5, horizon=1_000_000)
RETAINED = question(
    "retained", "SELECT RETENTION(user, 2) FROM s", window="5 seconds", expected=1000, epsilon=4.0, horizon=1_000_000
)
PUBLISHED = question("sketches", "SELECT SKETCH(user) FROM s", window="5 seconds", expected=1000)
NOISY_QUERIES = (NOISY, RETAINED, PUBLISHED)


def batch(number: int, names: list[str]) -> RowBatch:
    ids = np.repeat(np.arange(number * SIZE, (number + 1) * SIZE), 2)
    chosen = QuerySelection.select_all(ids.size, values=np.ones(ids.size))
    return RowBatch(
        count=ids.size,
        queries=dict.fromkeys(names, chosen),
        ids=ids,
        times=np.full(ids.size, float(number)),
        producer="load",
        sequence=number,
    )


def sharing(directory: Path, rows: int = SIZE) -> Config:
    """Return the settings of a run over a file, in which five micro-batches share a commit."""
    queries = (
        question("distinct", "SELECT COUNT(DISTINCT user) FROM s", universe=USERS),
        question("sum", "SELECT SUM(value) FROM s", lower=0, upper=1),
    )
    return config(*queries, directory=directory / "state", batch_rows=rows, commit_rows=5 * rows)


def file_of(directory: Path) -> Path:
    """Return the file, in which every user has one row of value 1."""
    path = directory / "rows.csv"
    if not path.exists():
        path.write_text("user,value\n" + "".join(f"{user},1\n" for user in range(USERS)))
    return path


def load_file(directory: Path) -> None:
    """Feed the file, going on where the stored state stands, and say after every micro-batch how many rows are in
    memory.
    """
    with Engine(sharing(directory), zero_noise=True) as engine:
        say(f"open {sum(engine.positions().values())}")
        ingest(engine, [str(file_of(directory))], on_batch=lambda rows, _: say(f"fed {rows}"))


def say(line: str) -> None:
    os.write(1, line.encode() + b"\n")


def load(directory: str, noisy: str) -> None:
    """Apply batch after batch, going on where the stored state stands."""

    def published(release: Release) -> None:
        say(f"published {release.query} {release.number} {release.record['value']!r}")

    queries = NOISY_QUERIES if noisy == "noisy" else QUERIES
    settings = config(*queries, directory=Path(directory), time="at")
    with Engine(settings, zero_noise=noisy != "noisy", publish=published) as engine:
        say("open")
        names = [query["name"] for query in queries]
        for number in range(engine.last_sequence("load") + 1, USERS // SIZE):
            engine.apply(batch(number, names))
            say(f"applied {number}")


def main(directory: str, noisy: str) -> None:
    """Fork a process under load for every line on standard input: a fork saves the time to import everything anew."""
    for _ in sys.stdin:
        child = os.fork()
        if child == 0:
            try:
                load_file(Path(directory)) if noisy == "file" else load(directory, noisy)
            finally:
                os._exit(1)
        say(f"child {child}")
        os.waitpid(child, 0)
        say("end")


if __name__ == "__main__":
    main(*sys.argv[1:])
