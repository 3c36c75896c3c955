"""Nothing but noisy cells depends on what rows hold: not what shards and coordinator store, nor the sizes of what
travels.

Neighbouring streams are run and all that an intruder or a listener sees beside the cells is compared, byte for byte.
"""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from distributed.protocol.core import dumps
from distributed.protocol.serialize import to_serialize

from panstream.distributed.sharded._coordinator import ClusterEngine
from panstream.distributed.sharded._partition_tasks import ingest_partitions
from panstream.distributed.sharded._transport import InProcessShardTransport
from panstream.distributed.sharded._worker_reading import Partition, ReadPlan
from panstream.distributed.sharded.dask_setup import apply_hardened_config
from panstream.engine.rows.row_batch import QuerySelection, RowBatch
from panstream.engine.runtime.ingest import ingest
from panstream.engine.storage.snapshot_store import SnapshotStore
from tests.engine.runtime.streams import config, question

USERS = 700
BATCHES = 6
SIZE = 5
HOUR = 3600.0
QUERIES: dict[str, dict[str, Any]] = {
    "bits": question("bits", "SELECT COUNT(DISTINCT user) FROM s WHERE w > 0", universe=USERS, releases=9),
    "bitmap": question("bitmap", "SELECT COUNT(DISTINCT user) FROM s WHERE w > 0", expected=1000, memory=2500),
    "grouped": question(
        "grouped",
        "SELECT region, COUNT(DISTINCT user) FROM s WHERE w > 0 GROUP BY region",
        universe=USERS,
        groups={"region": ["a", "b", "c"]},
    ),
    "cropped": question("cropped", "SELECT CROPPED_SUM(user, w, 3) FROM s WHERE w > 0", universe=USERS),
    "named": question(
        "named", "SELECT name, COUNT(*) FROM s WHERE w > 0 GROUP BY name", max_item_bytes=4, memory=300_000
    ),
    "count": question("count", "SELECT COUNT(*) FROM s WHERE w > 0"),
    "hourly": question("hourly", "SELECT COUNT(DISTINCT user) FROM s WHERE w > 0", universe=USERS, window="1 hour"),
    "often": question(
        "often", "SELECT COUNT(DISTINCT user) FROM s WHERE w > 0", universe=USERS, every=HOUR, horizon=20
    ),
}

Hit = tuple[int, int]  # batch and row that the WHERE clause selects
NEIGHBOURS: dict[str, dict[Hit, tuple[int, int]]] = {  # user and group of every hit
    "no hit": {},
    "a hit": {(2, 1): (5, 0)},
    "a hit in another batch": {(4, 1): (5, 0)},
    "a hit of another shard": {(2, 1): (6, 0)},
    "a hit of another group": {(2, 1): (5, 2)},
    "everything": {(batch, row): (17 * batch + row, row % 3) for batch in range(BATCHES) for row in range(SIZE)},
    "always the same user": {(batch, row): (9, 1) for batch in range(BATCHES) for row in range(SIZE)},
}


def stream(hits: dict[Hit, tuple[int, int]], names: list[str]) -> Iterator[RowBatch]:
    for number in range(BATCHES):
        rows = np.zeros(SIZE, bool)
        groups = np.zeros(SIZE, np.int64)
        ids = np.arange(SIZE) + 100
        for (batch, row), (user, group) in hits.items():
            if batch == number:
                rows[row] = True
                ids[row] = user
                groups[row] = group
        chosen = {
            name: QuerySelection.select_all(
                SIZE,
                rows=rows,
                weights=np.ones(SIZE, np.int64) if name == "cropped" else None,
                groups=groups if name == "grouped" else None,
                names=pa.array([f"{user}/{'x' * user}" for user in ids.tolist()]) if name == "named" else None,
            )
            for name in names
        }
        times = (number + np.arange(SIZE) / SIZE) * 0.4 * HOUR
        yield RowBatch(count=SIZE, queries=chosen, ids=ids, times=times, producer="p", sequence=number)


class Listener(InProcessShardTransport):
    """Notes the size of everything that goes to a shard, as Dask would send it, and of the answers."""

    def __init__(self, shards: int) -> None:
        super().__init__(shards)
        self.heard: list[tuple[int, str, int, int]] = []
        self.cut_at = -1

    def send(self, calls: Any) -> list[Any]:
        self.cut_at -= 1
        if self.cut_at == 0:
            super().send(calls[:1])
            raise KeyboardInterrupt
        sizes = [size(call.arguments) for call in calls]
        answers = super().send(calls)
        for call, sent, answer in zip(calls, sizes, answers, strict=True):
            self.heard.append((call.shard, call.method, sent, size(answer)))
        return answers


def size(what: Any) -> int:
    apply_hardened_config()
    return sum(memoryview(frame).nbytes for frame in dumps([to_serialize(what)]))


def stored(directory: Path) -> dict[str, Any]:
    """Return what is in a store beside the cells: the public part, names and sizes, and how often it was written."""
    with SnapshotStore(directory) as store:
        parts = store.load()
        assert parts is not None
        meta = json.loads(parts["meta"])
        for drawn in meta.get("drawn", ()):
            drawn[2:] = []  # an answer is noisy, and so is the number of its digits
        return {
            "meta": meta,
            "parts": [(name, len(data)) for name, data in parts.items() if name != "meta"],
            "records": [data for name, data in parts.items() if name.endswith(("bits", "hourly")) and "state/" in name],
            "generation": store.generation,
            "file": (directory / "state.sealed").stat().st_size if "drawn" not in meta else None,
        }


def everything(directory: Path, link: Listener) -> dict[str, Any]:
    found = {f"shard {number}": stored(directory / f"shards-2/shard-{number}") for number in range(2)}
    return {**found, "coordinator": stored(directory), "heard": link.heard}


def run(directory: Path, hits: dict[Hit, tuple[int, int]], *, crash: int = -1) -> dict[str, Any]:
    names = list(QUERIES)
    settings = config(*QUERIES.values(), directory=directory, time="at")
    link = Listener(2)
    engine = ClusterEngine(settings, link, clock=lambda: 7e5)
    link.cut_at = crash
    try:
        with engine:
            for rows in stream(hits, names):
                engine.apply(rows)
            engine.release("bits")
    except KeyboardInterrupt:
        again = Listener(2)
        again.heard = link.heard
        with ClusterEngine(settings, again, clock=lambda: 7e5) as engine:
            for rows in stream(hits, names):
                engine.apply(rows)
        link = again
    return everything(directory, link)


@pytest.mark.slow
@pytest.mark.parametrize("crash", [-1, 4, 9])
def test_metadata_and_sizes_do_not_depend_on_rows(crash: int, tmp_path: Path) -> None:
    found = {name: run(tmp_path / name, hits, crash=crash) for name, hits in NEIGHBOURS.items()}
    first = found["no hit"]
    assert first["shard 0"]["meta"]["step"] > BATCHES
    assert len(first["heard"]) > 2 * BATCHES
    for name, other in found.items():
        for place, seen in first.items():
            assert other[place] == seen, f"{place} shows: {name}"


def test_an_empty_step_looks_like_one_with_rows(tmp_path: Path) -> None:
    """Steps follow a clock: whether rows came in one shows in nothing but the position of their producer."""
    heard = []
    for name, empty in (("rows", False), ("empty", True)):
        link = Listener(2)
        with ClusterEngine(config(QUERIES["bits"], directory=tmp_path / name), link, clock=lambda: 7e5) as engine:
            engine.declare("http")
            for rows in stream(NEIGHBOURS["everything"], ["bits"]):
                if not empty:
                    engine.apply(replace(rows, times=None, producer=None), commit=False)
                    engine.apply(replace(rows, times=None, producer=None), commit=False)
                engine.step()
        heard.append(everything(tmp_path / name, link))
    for found in heard:
        assert len(found["heard"]) == 2 * (BATCHES + 2), (
            "one message to each shard and step, beside the two of the start"
        )
    assert heard[0] == heard[1]


@pytest.mark.slow
def test_no_number_of_rows_of_a_live_source_is_stored(tmp_path: Path) -> None:
    """Two streams that differ in how many rows their batches have, cut by the end of an hour, stopped at any
    message.
    """
    for crash in range(1, 12):
        found = []
        for copies in (1, 3):
            directory = tmp_path / f"{crash}-{copies}"
            link = Listener(2)
            engine = ClusterEngine(config(*QUERIES.values(), directory=directory, time="at"), link, clock=lambda: 7e5)
            link.cut_at = crash
            try:
                with engine:
                    for rows in stream({}, list(QUERIES)):
                        engine.apply(repeated(rows, copies))
            except KeyboardInterrupt:
                pass
            found.append(everything(directory, link))
        assert found[0] == found[1], f"stopped at message {crash}"


def repeated(rows: RowBatch, copies: int) -> RowBatch:
    """Return the batch with every row several times."""
    assert rows.times is not None
    return RowBatch(
        count=copies * rows.count,
        queries={
            name: QuerySelection.select_all(
                copies * rows.count,
                rows=np.repeat(each.rows, copies),
                weights=None if each.weights is None else np.repeat(each.weights, copies),
                groups=None if each.groups is None else np.repeat(each.groups, copies),
                names=None if each.names is None else each.names.take(np.repeat(np.arange(rows.count), copies)),
            )
            for name, each in rows.queries.items()
        },
        ids=np.repeat(rows.ids, copies),
        times=np.repeat(rows.times, copies),
        producer=rows.producer,
        sequence=rows.sequence,
    )


def test_a_row_that_cannot_be_read_shows_as_little_as_any_other(tmp_path: Path) -> None:
    """Batches of 257 rows, the first number that is sent as 512: in one of them a value is not a number."""
    found = []
    for name, odd in (("fine", "1"), ("empty", ""), ("text", "x"), ("too large", "9" * 30)):
        (tmp_path / name).mkdir()
        rows = [f"{number},1,1970-01-01T00:{number % 60:02d}:00" for number in range(257)]
        rows[40] = f"5,{odd},1970-01-01T00:40:00"
        (tmp_path / name / "part.csv").write_text("user,w,at\n" + "\n".join(rows) + "\n")
        settings = config(
            *(QUERIES[each] for each in ("cropped", "often")), directory=tmp_path / name / "state", time="at"
        )
        link = Listener(2)
        with (
            contextlib.chdir(tmp_path / name),
            ClusterEngine(settings, link, positions=True, clock=lambda: 7e5) as engine,
        ):
            ingest(engine, ["part.csv"])
        found.append(everything(tmp_path / name / "state", link))
    for other in found[1:]:
        assert other == found[0]


class Heard:
    """A shard called as an actor is, with the size of what it was sent."""

    def __init__(self, shard: Any, heard: list[Any]) -> None:
        self._shard = shard
        self._heard = heard

    def call(self, method: str, arguments: Any) -> Any:
        self._heard.append((self._shard.number, method, size(arguments)))
        getattr(self._shard, method)(*arguments)
        return self

    def result(self) -> tuple[str, None]:
        return "ok", None


@pytest.mark.slow
@pytest.mark.parametrize("format", ["parquet", "csv"])
@pytest.mark.parametrize("rows", [40, 5000])  # places are listed, and marked
def test_what_leaves_a_worker_that_reads_does_not_depend_on_rows(format: str, rows: int, tmp_path: Path) -> None:
    names = ("bits", "bitmap", "grouped", "cropped", "named", "count")
    found = []
    for name, hit in (
        ("no hit", None),
        ("a hit", (3, 5)),
        ("later", (30, 5)),
        ("another shard", (3, 6)),
        ("bad", (3, -1)),
    ):
        folder = tmp_path / name
        folder.mkdir()
        users = np.arange(100, 100 + rows) % 600
        weights = np.zeros(rows, np.int64)
        if hit is not None:
            users[hit[0]] = hit[1]
            weights[hit[0]] = 1
        spelled = [f"{user}/{'x' * user}" for user in users.tolist()]
        table = pa.table({"user": users, "w": weights, "region": ["a"] * rows, "name": spelled})
        write = pq.write_table if format == "parquet" else pyarrow.csv.write_csv
        write(table, folder / f"part.{format}")
        settings = config(*(QUERIES[each] for each in names), directory=folder / "state")
        link = Listener(2)
        heard = []
        with ClusterEngine(settings, link, clock=lambda: 7e5) as engine:
            parts = [replace(part, name="part") for part in Partition.of([str(folder / f"part.{format}")])]
            actors = {shard: Heard(link.open_shards[shard], heard) for shard in range(2)}
            answer = ingest_partitions(ReadPlan(name=name, config=settings, shards=2), parts, actors)
            assert answer.refused is None
            heard.append(size(answer))
            engine.record_partitions(["part"], answer.totals)
            engine.commit()
        found.append({**everything(folder / "state", link), "read": heard})
    for other in found[1:]:
        assert other == found[0]
