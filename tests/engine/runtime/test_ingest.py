"""Feeding a source to an engine: order, acknowledgements, errors, interruption, and what is wiped."""

import contextlib
import os
import signal
import threading
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from panstream.engine.config.config import Config
from panstream.engine.rows.row_batch import RowBatch
from panstream.engine.runtime.engine import Engine
from panstream.engine.runtime.ingest import ingest_all, open_configured_source
from panstream.engine.runtime.selector import Selector
from panstream.engine.sources import _read_ahead as _ahead
from panstream.engine.sources.formats.parquet.file import ParquetFile
from panstream.engine.sources.schema_guess import infer_schema
from panstream.errors import ConfigError, SourceError
from panstream.primitives.interrupts import _InterruptGuard
from tests.engine.runtime.streams import COUNT, DISTINCT, config, question
from tests.waiting import PATIENCE


class Listed:
    """A source of prepared batches; an exception among them is raised, a callable is called."""

    def __init__(self, steps: list[Any]) -> None:
        self.steps = steps
        self.acknowledged: list[object] = []
        self.resumed: Mapping[str, int] = {}
        self.closed = False

    def resume(self, applied: Mapping[str, int], ahead: Mapping[str, Collection[int]] | None = None) -> None:
        self.resumed = applied

    def batches(self) -> Iterator[RowBatch | None]:
        for step in self.steps:
            if isinstance(step, Exception):
                raise step
            if callable(step):
                step()
            else:
                yield step

    def acknowledge(self, token: object) -> None:
        self.acknowledged.append(token)

    def progress(self) -> float | None:
        return None

    def close(self) -> None:
        self.closed = True


def batch(number: int, size: int = 10) -> RowBatch:
    columns = pa.RecordBatch.from_pydict({"user": list(range(number * size, (number + 1) * size))})
    return RowBatch(columns=columns, producer="p", sequence=number + 1, token=number)


def run(settings: Config, source: Listed) -> tuple[Any, list[float]]:
    with Selector(settings) as select, Engine(settings, zero_noise=True) as engine:
        fed = ingest_all(engine, source, select)
        engine.finish()
        return fed, [release.record["value"] for release in engine.log.history("count")]


def test_all_batches_in_order(tmp_path: Path) -> None:
    batches = [batch(number) for number in range(8)]
    source = Listed([*batches, batch(3)])
    fed, values = run(config(COUNT, DISTINCT, directory=tmp_path), source)
    assert (fed.rows, values) == (90, [80])
    assert source.acknowledged == [0, 1, 2, 3, 4, 5, 6, 7, 3]
    assert source.closed
    assert not any(any(each.columns.column(0).to_pylist()) for each in batches), "batches are wiped"
    source = Listed([])
    run(config(COUNT, DISTINCT, directory=tmp_path), source)
    assert source.resumed == {"p": 8}


def test_an_error_of_the_source_ends_the_run_and_keeps_what_was_applied(tmp_path: Path) -> None:
    settings = config(COUNT, directory=tmp_path)
    source = Listed([batch(0), SourceError("cut off")])
    with pytest.raises(SourceError, match="cut off"):
        run(settings, source)
    assert source.closed
    with Engine(settings, zero_noise=True) as engine:
        assert engine.last_sequence("p") == 1


def test_an_interruption_stops_between_two_steps(tmp_path: Path) -> None:
    settings = config(COUNT, directory=tmp_path)
    before = signal.getsignal(signal.SIGINT)
    source = Listed([batch(0), batch(1), lambda: os.kill(os.getpid(), signal.SIGTERM), *map(batch, range(2, 50))])
    with Selector(settings) as select, Engine(settings, zero_noise=True) as engine:
        fed = ingest_all(engine, source, select)
        assert fed.interrupted
        done = engine.last_sequence("p")
        assert done < 50
        assert fed.rows == 10 * done
    assert signal.getsignal(signal.SIGINT) is before
    with Engine(settings, zero_noise=True) as engine:
        assert engine.last_sequence("p") == done
        engine.finish()
        assert [release.record["value"] for release in engine.log.history()] == [10 * done]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_run_whose_reader_is_stuck(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(_ahead, "_JOIN_TIMEOUT", 0.01)
    released = threading.Event()

    def pieces(file: ParquetFile) -> Iterator[RowBatch]:
        os.kill(os.getpid(), number)
        assert released.wait(PATIENCE)
        yield from ()

    monkeypatch.setattr(ParquetFile, "pieces", pieces)
    pq.write_table(pa.table({"user": [1, 2]}), tmp_path / "rows.parquet")
    settings = config(COUNT)
    with Selector(settings) as select, Engine(settings, zero_noise=True) as engine:
        try:
            assert ingest_all(
                engine, open_configured_source(settings, [str(tmp_path / "rows.parquet")]), select
            ).interrupted
        finally:
            released.set()


@pytest.mark.parametrize("name", ["rows.csv", "rows.json", "rows.arrow", "rows.parquet"])
def test_a_fifo_is_refused_before_it_is_opened(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(SourceError, match="not a regular file"):
        open_configured_source(config(COUNT), [str(tmp_path / name)])
    with pytest.raises(SourceError, match="not a regular file"):
        infer_schema([str(tmp_path / name)])


def test_only_what_is_durable_is_acknowledged(tmp_path: Path) -> None:
    source = Listed([batch(0), batch(1)])
    settings = config(COUNT, directory=tmp_path, durability="interval", interval="1 hour")
    with Selector(settings) as select, Engine(settings, clock=lambda: 0.0) as engine:
        ingest_all(engine, source, select)
        assert source.acknowledged == []
        assert not engine.durable


@pytest.mark.parametrize(
    ("sql", "settings", "message"),
    [
        ("SELECT COUNT(*) FROM s WHERE value", {}, "is not a condition"),
        ("SELECT SUM(region) FROM s", {"lower": 0, "upper": 1}, "is not a number"),
        ("SELECT COUNT(*) FROM s WHERE user + 1 > 5", {}, "user column"),
        ("SELECT COUNT(*) FROM s GROUP BY region", {"groups": {"region": [1, 2]}}, "groups.region"),
    ],
)
def test_expressions_are_checked_before_anything_is_charged(sql: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=rf"query\]\] q: .*{message}"):
        Selector(config(question("q", sql, **settings)))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_that_somebody_swallows_is_noticed_before_the_next_step(number: int) -> None:
    """Python drops what is raised in a weak reference's callback or in __del__, wherever the signal happens to find
    it.
    """
    steps = 0
    with pytest.raises(KeyboardInterrupt), _InterruptGuard().handling() as guard:
        with contextlib.suppress(KeyboardInterrupt):
            os.kill(os.getpid(), number)
        for _ in range(3):
            with guard.step():
                steps += 1
    assert steps == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_within_a_step_comes_after_it(number: int) -> None:
    done = []
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), _InterruptGuard().handling() as guard:
        with guard.step():
            os.kill(os.getpid(), number)
            done.append("whole")
        done.append("next")
    assert done == ["whole"]
    assert signal.getsignal(number) is before


def test_an_interrupt_that_nobody_noticed_comes_at_the_end() -> None:
    interrupts = _InterruptGuard()
    with pytest.raises(KeyboardInterrupt), interrupts.handling(), contextlib.suppress(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
    with interrupts.handling() as guard, guard.step():
        pass  # once noticed, it is over
