"""What the way in makes public, and live sources that are stored by the clock: how many rows came shows nowhere."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from panstream.engine.config.config import Config, read_config
from panstream.engine.planner.public_facts import LIVE, CommitTimer, ingestion_paths, public_facts, step_length
from panstream.engine.planner.query_plan import plan_all
from panstream.engine.reporting.explain import explain
from panstream.engine.rows.row_batch import RowBatch
from panstream.engine.runtime import ingest as run
from panstream.engine.runtime.engine import Engine
from panstream.engine.runtime.selector import Selector
from panstream.engine.storage.snapshot_store import SnapshotStore
from panstream.errors import ConfigError

BATCHES = "the number and the times of batches"


def config(directory: Path | None = None, *, sql: str = "SELECT COUNT(*) FROM s", **given: Any) -> Config:
    store = {} if directory is None else {"directory": str(directory)}
    stream = {"name": "s", "user": "user", "columns": {"user": "int", "at": "int"}, **given.pop("stream", {})}
    query = {"name": "q", "sql": sql, "epsilon": 1.0, **given.pop("query", {})}
    return read_config({"stream": stream, "query": [query], "store": {**store, **given}})


class Scripted:
    """A live source: at every second of the clock what a script says, as batches of so many rows."""

    def __init__(self, clock: list[float], seconds: list[list[int]]) -> None:
        self._clock = clock
        self._seconds = seconds
        self.acknowledged: list[object] = []

    def resume(self, applied: Any, ahead: Any = None) -> None: ...

    def batches(self) -> Iterator[RowBatch | None]:
        for second in self._seconds:
            for rows in second:
                columns = pa.RecordBatch.from_pydict({"user": pa.array(range(rows), pa.int64())})
                yield RowBatch(columns=columns, token=rows)
            self._clock[0] += 1.0
            yield None

    def acknowledge(self, token: object) -> None:
        self.acknowledged.append(token)

    def progress(self) -> float | None:
        return None

    def close(self) -> None: ...


def seen_after(directory: Path, seconds: list[list[int]], patch: pytest.MonkeyPatch) -> list[Any]:
    """What every commit holds besides noise."""
    clock = [1e9]
    commits = list[Any]()
    real = SnapshotStore.commit

    def commit(store: SnapshotStore, parts: Any, **options: Any) -> None:
        meta = json.loads(parts["meta"])
        meta["drawn"] = [(query, number, time) for query, number, time, _ in meta["drawn"]]
        commits.append((meta, {name: len(data) for name, data in parts.items() if name != "meta"}))
        real(store, parts, **options)

    patch.setattr(SnapshotStore, "commit", commit)
    patch.setattr(run, "CommitTimer", lambda length: CommitTimer(length, lambda: clock[0]))
    loaded = config(directory, step="1 second", query={"every": "2 seconds", "horizon": 8})
    with Engine(loaded, clock=lambda: clock[0]) as engine, Selector(loaded) as select:
        engine.declare("pipe")
        source = Scripted(clock, seconds)
        run.ingest_all(engine, source, select)
        engine.finish()
        assert len(source.acknowledged) == sum(map(len, seconds))
    return commits


@pytest.mark.parametrize(
    "other", [[[4], [], [2, 1]], [[1, 1, 1], [], [3]], [[3], [1], [2, 1]], [[], [], []], [[3], [], []]], ids=str
)
def test_a_live_run_shows_no_number_of_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: Any) -> None:
    with monkeypatch.context() as patch:
        one = seen_after(tmp_path / "one", [[3], [], [2, 1]], patch)
    with monkeypatch.context() as patch:
        assert seen_after(tmp_path / "other", other, patch) == one
    assert len(one) == 1 + 1 + 3 + 1 + 1  # opened, begun, three seconds, the end of the input, the last answers


def test_windows_open_by_the_clock_where_arrival_counts(tmp_path: Path) -> None:
    """Whether anybody came must not show in the number of answers."""
    clock = [1e9]
    loaded = config(tmp_path, step="1 second", query={"window": "10 seconds"})
    with Engine(loaded, clock=lambda: clock[0]) as engine:
        engine.declare("http")
        for _ in range(35):
            clock[0] += 1.0
            engine.step()
        assert [release.number for release in engine.log.history()] == [1, 2, 3]


def test_facts_follow_the_way_in(tmp_path: Path) -> None:
    loaded = config(stream={"time": "at"}, query={"window": "1 day"})
    query = loaded.queries[0]
    common = public_facts(loaded.stream, query, (), by_clock=True)
    assert common == (
        "the schedule of releases",
        "the newest time of any row so far, even of a row that cannot be used",
        "which windows have a row",
    )
    for intake in LIVE:
        facts = public_facts(loaded.stream, query, [intake], by_clock=True)
        assert BATCHES not in facts
        assert BATCHES in public_facts(loaded.stream, query, [intake], by_clock=False)
    assert "how far every file was read" in public_facts(loaded.stream, query, ["files"], by_clock=True)
    assert public_facts(loaded.stream, query, ["pipe"], by_clock=True) == common


def test_claims_remember_every_way_in(tmp_path: Path) -> None:
    """What was stored of files stays in the store when the stream is served later."""
    loaded = config(tmp_path)
    with Engine(loaded) as engine:
        engine.declare("files")
        engine.commit()
        assert not engine.by_clock
    with Engine(loaded) as engine:
        engine.declare("http")
        assert engine.by_clock
        public = engine.plans[0].claim.public
    assert "how far every file was read" in public
    assert any("the number of batches of each producer that numbers them" in fact for fact in public)
    assert BATCHES not in public


def test_steps_grow_with_the_state() -> None:
    small = config()
    set_by_hand = config(step="20 ms")
    none = config(step="none")
    assert step_length(small, plan_all(small)) == 0.2
    assert step_length(set_by_hand, plan_all(set_by_hand)) == 0.02
    assert step_length(none, plan_all(none)) == 0.0
    large = config(sql="SELECT DENSITY(user) FROM s", query={"universe": 1 << 28})
    assert step_length(large, plan_all(large)) == pytest.approx((1 << 28) / 8 / (8 << 20), rel=0.1)
    with pytest.raises(ConfigError, match="step"):
        config(step="soon")


@pytest.mark.parametrize(
    ("sql", "given", "warned"),
    [
        ("SELECT COUNT(*) FROM s", {}, ["files", "one row", "a copy of memory shows how many messages there were"]),
        ("SELECT COUNT(*) FROM s", {"step": "none"}, ["files", "http, one row"]),
        ("SELECT COUNT(*) FROM s WHERE user > 3", {}, []),
        ("SELECT SUM(at) FROM s", {"query": {"lower": 0, "upper": 1}}, []),
    ],
)
def test_explain_warns_where_a_public_fact_gives_the_answer_away(sql: str, given: Any, warned: list[str]) -> None:
    explained = explain(config(sql=sql, **given))
    warnings = explained.warnings()
    assert bool(warnings) == bool(warned)
    text = explained.text()
    for words in warned:
        assert words.rpartition(", ")[2] in text
    if given.get("step") == "none":
        assert any("http" in warning and "the number of batches is public" in warning for warning in warnings)
        assert "as they arrive" in text
    assert explained.to_json()["warnings"] == warnings


def test_inputs_as_given() -> None:
    assert ingestion_paths(["-"]) == ("pipe",)
    assert ingestion_paths(["a.csv", "redis://host/0#s"]) == ("files", "redis")
    assert ingestion_paths(["a.csv"], follow=True) == ("growing files",)


def test_a_step_that_took_too_long_is_not_made_up_for() -> None:
    now = [0.0]
    pace = CommitTimer(1.0, lambda: now[0])
    assert pace.remaining() == 1.0
    now[0] = 3.4
    assert pace.remaining() == 0.0
    pace.next()
    assert pace.remaining() == pytest.approx(0.6)
