"""How many rows and posts there were shows nowhere: not in the store, the number of commits, /metrics or the release
log.

The clock is the test's own. Neighbouring inputs go through a worker as a server runs it; everything is compared that an
intruder or a reader sees, except noise.
"""

import asyncio
import json
import re
import threading
from pathlib import Path
from typing import Any

import pytest

from panstream.engine.runtime.engine import Engine
from panstream.engine.storage.snapshot_store import SnapshotStore
from panstream.server.auth import Limits, QuotaTracker
from panstream.server.http.query_json import queries_json
from panstream.server.ingest.engine_thread import EngineThread
from panstream.server.ingest.jobs import Job
from panstream.server.ingest.request_bodies import RequestBody
from panstream.server.service import metrics
from tests.server.server_live import arrow, lines, write_config
from tests.waiting import PATIENCE

CONFIG = """
[stream]
name = "visits"
user = "user"
{stream}
[stream.columns]
user = "string"
region = "string"
amount = "double"
at = "int"
[[query]]
name = "everyone"
sql = "SELECT COUNT(*) FROM visits"
epsilon = 1.0
every = "2 seconds"
horizon = 10
[[query]]
name = "people"
sql = "SELECT COUNT(DISTINCT user) FROM visits WHERE region = 'north'"
epsilon = 1.0
expected = 1000
[[query]]
name = "windows"
sql = "SELECT SUM(amount) FROM visits"
epsilon = 1.0
lower = 0.0
upper = 1.0
window = "2 seconds"
[store]
directory = "state"
step = "1 second"
durability = "{durability}"
"""
Post = tuple[bytes, str]
BASE: list[list[Post]] = [[(lines(3), "json")], [], [(lines(2), "json"), (arrow(1), "arrow")], [(lines(1), "json")], []]
NEIGHBOURS: dict[str, list[list[Post]]] = {
    "one row more": [[(lines(4), "json")], *BASE[1:]],
    "one post more": [BASE[0], [(lines(1), "json")], *BASE[2:]],
    "one post less": [*BASE[:3], [], []],
    "other posts for the same rows": [[(lines(1, at), "json") for at in range(3)], *BASE[1:]],
    "a bad row": [[(lines(3) + b'{"user": 1\n', "json")], *BASE[1:]],
    "a post that is refused": [[*BASE[0], (b"nonsense", "arrow")], *BASE[1:]],
    "an empty post": [[*BASE[0], (b"", "json")], *BASE[1:]],
    "three hundred posts": [BASE[0], [(lines(1, at), "json") for at in range(300)], *BASE[2:]],
    "nothing at all": [[] for _ in BASE],
}
NOISED = ("value", "unclipped", "standard_error", "interval")


class ByHand:
    """Steps that end when the test says so."""

    def __init__(self) -> None:
        self.due = False
        self.over = threading.Event()

    def remaining(self) -> float:
        return 0.0 if self.due else 3600.0

    def next(self) -> None:
        self.due = False
        self.over.set()


def masked(parts: dict[str, bytes]) -> dict[str, Any]:
    """What a commit holds besides noise: sizes of states, and everything else."""
    meta = json.loads(parts["meta"])
    meta["drawn"] = [[*rest, {k: v for k, v in record.items() if k not in NOISED}] for *rest, record in meta["drawn"]]
    return {name: len(data) for name, data in parts.items() if name != "meta"} | {"meta": meta}


def seen_after(
    directory: Path, text: str, steps: list[list[Post]], patch: pytest.MonkeyPatch, now: float = 1e9
) -> dict[str, Any]:
    """Everything public after some steps, each with its posts."""
    clock = [now]
    commits = list[Any]()
    real = SnapshotStore.commit

    def commit(store: SnapshotStore, parts: Any, **options: Any) -> None:
        commits.append(masked(parts))
        real(store, parts, **options)

    patch.setattr(SnapshotStore, "commit", commit)
    config = write_config(directory, text)

    async def work() -> dict[str, Any]:
        worker = EngineThread(lambda: Engine(config, clock=lambda: clock[0]))
        pace = ByHand()
        worker._timer = pace  # type: ignore[assignment]
        worker.run()
        gate = QuotaTracker(Limits())
        shown = list[str]()
        for posts in steps:
            outcomes: list[Any] = []
            for data, kind in posts:
                body = RequestBody(gate, kind, "identity")
                body.append(data)
                worker.submit(
                    Job(body, on_done=lambda result, refusal, outcomes=outcomes: outcomes.append(refusal or result))
                )
            for _ in range(30_000):
                if len(worker._held) + len(outcomes) == len(posts):
                    break
                await asyncio.sleep(0.01)
            else:
                raise AssertionError("not all posts were applied")
            clock[0] += 1.0
            pace.over.clear()
            pace.due = True
            worker._jobs.put(Job(call=lambda engine: None))  # wakes it
            assert await asyncio.to_thread(pace.over.wait, PATIENCE)
            await asyncio.sleep(0)
            assert len(outcomes) == len(posts)
            figures = (await worker.call(lambda engine: metrics(engine, failed=worker.failed))).decode()
            shown.append(FIGURES.sub(r"\1 noised", figures))
            shown.append(json.dumps(await worker.call(queries_json)))
        log = await worker.call(lambda engine: [(r.query, r.number, r.time) for r in engine.log.history()])
        generation = worker.engine._store.generation  # type: ignore[union-attr]
        assert gate._memory == 0
        await worker.stop()
        return {"commits": commits, "shown": shown, "log": log, "generation": generation}

    with patch.context():
        return asyncio.run(work())


FIGURES = re.compile(r"^(panstream_answer(?:_low|_high)?\{.*\}) .*$", re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize("durability", ["batch", "interval", "none"])
@pytest.mark.parametrize("neighbour", NEIGHBOURS)
def test_nobody_sees_how_many_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, neighbour: str, durability: str
) -> None:
    text = CONFIG.format(stream="", durability=durability)
    with monkeypatch.context() as patch:
        one = seen_after(tmp_path / "one", text, BASE, patch)
    with monkeypatch.context() as patch:
        other = seen_after(tmp_path / "other", text, NEIGHBOURS[neighbour], patch)
    for field in one:
        assert other[field] == one[field], field
    assert {name for name, _, _ in one["log"]} == {"everyone", "windows"}
    if durability == "batch":
        closings = 2  # of windows of two steps: their end is committed before the next is opened
        assert len(one["commits"]) == 3 + len(BASE) + closings  # at the start and at the stop too


def test_as_they_come_the_number_of_batches_shows_and_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the comparison above would see, were batches stored as they come: it can fail."""
    text = CONFIG.format(stream="", durability="batch").replace('step = "1 second"', 'step = "none"')
    commits: list[Any] = []
    real = SnapshotStore.commit
    monkeypatch.setattr(
        SnapshotStore, "commit", lambda store, parts, **options: (commits.append(parts), real(store, parts, **options))
    )

    async def work() -> tuple[str, ...]:
        worker = EngineThread(lambda: Engine(write_config(tmp_path, text)))
        worker.run()
        for _ in range(3):
            body = RequestBody(QuotaTracker(Limits()), "json", "identity")
            body.append(lines(1).ljust(100))
            await worker.take(Job(body))
        public = worker.engine.plans[0].claim.public
        await worker.stop()
        return tuple(public)

    assert "the number and the times of batches" in asyncio.run(work())
    assert len(commits) >= 5


def test_numbered_batches_are_said(tmp_path: Path) -> None:
    async def work() -> tuple[str, ...]:
        worker = EngineThread(lambda: Engine(write_config(tmp_path, CONFIG.format(stream="", durability="batch"))))
        worker.run()
        await worker.stop()
        return tuple(worker.engine.plans[0].claim.public)

    public = asyncio.run(work())
    assert any("the number of batches of each producer that numbers them" in fact for fact in public)
    assert not any("rows" in fact or "times of batches" in fact for fact in public)
