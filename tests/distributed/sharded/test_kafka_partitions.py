"""Workers read their own partitions of a topic: each message counts once, by ticks, workers and partitions."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from panstream.distributed.sharded import session
from panstream.distributed.sharded._coordinator import ClusterEngine
from panstream.distributed.sharded._kafka_feed import PartReading, TickPart, TickRunner, feed_ticks
from panstream.distributed.sharded._ordered_feed import Reading, TaskLost
from panstream.distributed.sharded._ordered_reading import OrderedTask
from panstream.distributed.sharded._tick_names import tick_of
from panstream.distributed.sharded._transport import InProcessShardTransport, ShardCall
from panstream.distributed.sharded._worker_reading import ReadPlan
from panstream.engine.config.config import Config
from panstream.engine.rows.row_batch import RowSchema
from panstream.engine.sources.kafka_ranges import KafkaTicks, RangeReader, Ranges
from panstream.errors import NotSupported, SourceError
from tests.distributed.sharded.ordered_tasks import NOW, Records, records, run_alone, without_claims
from tests.distributed.sharded.test_live_sources import ROWS, rows, stream
from tests.distributed.sharded.test_ordered_reading import Crash, CrashingTransport
from tests.engine.sources.kafka_broker import Broker

Applied = dict[int, tuple[int, Ranges]]  # of every tick, by position: the number of parts, and the ranges


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    running = Broker()
    yield running
    running.stop()


class LocalPart(PartReading):
    """A part that is read in this process."""

    def __init__(self, runner: LocalTicks) -> None:
        self._part = TickPart(runner.plan, runner.url)
        self._runner = runner

    def fetch(self, ranges: Ranges, now: float) -> Any:
        return partial(self._part.fetch, ranges, now)

    def decide(self, task: OrderedTask) -> Any:
        return partial(self._part.decide, task)

    def section(self, number: int) -> Any:
        return self._part.section(number)

    def deliver(self, number: int, names: Sequence[str], whole_number: int, *, last: bool) -> None:
        self._runner.lose()
        arguments = self._part.shard_arguments(number, names, whole_number, last)
        self._runner.transport.send([ShardCall(shard, "apply_section", own) for shard, own in enumerate(arguments)])

    def close(self) -> None:
        self._part.wipe()


class LocalTicks(TickRunner):
    """Reads ticks in this process, as so many workers."""

    def __init__(
        self, plan: ReadPlan, url: str, transport: InProcessShardTransport, *, workers: int, applied: Applied, lost: int
    ) -> None:
        super().__init__(plan, url)
        self.transport = transport
        self.applied = applied
        self._workers = workers
        self._lost = lost

    @property
    def workers(self) -> int:
        return self._workers

    def start(self, task: OrderedTask) -> Reading:
        tick = tick_of(task.names[0])
        assert tick is not None
        own = (len(task.names), dict(self.ranges))
        assert self.applied.setdefault(tick.position, own) == own, "a tick has other messages when it comes again"
        return super().start(task)

    def lose(self) -> None:
        """Lose a worker at the n-th call."""
        self._lost -= 1
        if not self._lost:
            raise TaskLost

    def _remote_part(self, rank: int) -> PartReading:
        return LocalPart(self)

    def _local_part(self) -> PartReading:
        return LocalPart(self)

    def recover(self, attempts: int, shards: Sequence[int]) -> None:
        pass


def read_once(
    chosen: Config, transport: InProcessShardTransport, url: str, applied: Applied, *, workers: int, lost: int = 0
) -> Records:
    """Read a topic until all rows were applied; return the answers."""
    clock = partial(next, itertools.count(NOW, 0.001))
    with ClusterEngine(chosen, transport, positions=True, zero_noise=True, clock=clock) as engine:
        engine.declare("kafka")
        plan = ReadPlan(config=engine.config, shards=transport.shards, zero_noise=True)
        schema = RowSchema.of(chosen.stream, chosen.needed_columns)
        source = KafkaTicks(url, schema, batch_time=0.001, poll=0.001, batch_rows=60)

        def stop(*_: Any) -> None:
            if sum(end - start for _, ranges in applied.values() for start, end in ranges.values()) >= ROWS:
                source.close()

        runner = LocalTicks(plan, url, transport, workers=workers, applied=applied, lost=lost)
        if feed_ticks(engine, runner, source, stop).interrupted:
            engine.commit()  # as ``panstream run`` does
            return {}
        assert [name for name in engine.positions() if "@" in name] == []
        engine.finish()
        return without_claims(records(engine))


def published(broker: Broker) -> tuple[str, list[list[str]]]:
    """Publish the rows; return the topic, and the messages of every partition."""
    topic = broker.topic()
    messages = [json.dumps(row) for row in rows()]
    broker.publish(topic, messages)
    return topic, [messages[number::4] for number in range(4)]


def expected(messages: list[list[str]], applied: Applied, folder: Path) -> Records:
    """Return what one process answers to the same rows in the same order."""
    lines = [
        line
        for _, (parts, ranges) in sorted(applied.items())
        for rank in range(parts)
        for partition in sorted(ranges)
        if partition % parts == rank
        for line in messages[partition][slice(*ranges[partition])]
    ]
    assert sorted(lines) == sorted(itertools.chain(*messages)), "each message once"
    folder.mkdir()
    (folder / "rows.jsonl").write_text("\n".join(lines) + "\n")
    return without_claims(run_alone(stream(None), folder)[0])


@pytest.mark.parametrize(
    ("shards", "workers"), [(3, 2), *(pytest.param(n, w, marks=pytest.mark.slow) for n, w in ((1, 1), (2, 3), (7, 5)))]
)
def test_answers_are_those_of_one_process(broker: Broker, tmp_path: Path, shards: int, workers: int) -> None:
    topic, messages = published(broker)
    applied: Applied = {}
    transport = InProcessShardTransport(shards)
    found = read_once(stream(None), transport, broker.url(topic), applied, workers=workers, lost=4)
    assert found == expected(messages, applied, tmp_path / "alone")
    assert sum(broker.committed(topic, "panstream")) == ROWS


@pytest.mark.parametrize("point", [23, *(pytest.param(point, marks=pytest.mark.slow) for point in range(5, 70, 6))])
def test_messages_count_once_wherever_the_coordinator_ends(broker: Broker, tmp_path: Path, point: int) -> None:
    topic, messages = published(broker)
    url = broker.url(topic)
    applied: Applied = {}
    chosen = stream(tmp_path / "state")
    with pytest.raises(Crash):
        read_once(chosen, CrashingTransport(2, point), url, applied, workers=2)
    found = read_once(chosen, InProcessShardTransport(2), url, applied, workers=3)
    assert found == expected(messages, applied, tmp_path / "alone")


def test_messages_count_once_where_the_user_interrupts_after_a_tick(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, messages = published(broker)
    applied: Applied = {}
    chosen = stream(tmp_path / "state")
    wipe = TickPart.wipe
    wiped = itertools.count(1)

    def interrupted(part: TickPart) -> None:
        wipe(part)
        if next(wiped) == 3:  # the second tick is applied, and its first part overwritten
            raise KeyboardInterrupt

    monkeypatch.setattr(TickPart, "wipe", interrupted)
    assert read_once(chosen, InProcessShardTransport(2), broker.url(topic), applied, workers=2) == {}
    found = read_once(chosen, InProcessShardTransport(2), broker.url(topic), applied, workers=3)
    assert found == expected(messages, applied, tmp_path / "alone")


def test_shards_and_store_hold_the_last_position_only(broker: Broker, tmp_path: Path) -> None:
    topic, _ = published(broker)
    transport = InProcessShardTransport(2)
    read_once(stream(tmp_path / "state"), transport, broker.url(topic), {}, workers=2)
    with ClusterEngine(stream(tmp_path / "state"), InProcessShardTransport(2), zero_noise=True) as engine:
        assert [tick_of(name) for name in engine.positions()] == [None]
        assert engine.partitions_in_progress() == set(), "shards forget ticks that are recorded"


class EndsInATick(InProcessShardTransport):
    """Ends the process when the first shard has a section, and the second does not."""

    def send(self, calls: Sequence[ShardCall]) -> list[Any]:
        if calls[0].method == "apply_section":
            super().send(calls[:1])
            raise Crash
        return super().send(calls)


def test_the_coordinator_does_not_go_on_where_workers_were_interrupted(broker: Broker, tmp_path: Path) -> None:
    topic, _ = published(broker)
    chosen = stream(tmp_path / "state")
    with pytest.raises(Crash):
        read_once(chosen, EndsInATick(2), broker.url(topic), {}, workers=2)
    with ClusterEngine(chosen, InProcessShardTransport(2), zero_noise=True) as engine:
        assert engine.task_in_progress is not None
        with pytest.raises(NotSupported, match="workers were reading"):
            session.refuse_other_reader(engine)


def test_ranges_end_where_they_should(broker: Broker) -> None:
    topic = broker.topic()
    broker.publish(topic, [f'{{"n": {n}}}' for n in range(40)])
    reader = RangeReader(broker.url(topic), RowSchema(columns={"n": "int"}, user="n"))
    (batch,) = reader.read({0: (2, 5), 1: (0, 10), 2: (7, 7), 3: (9, 10)})
    assert batch.columns.column("n").to_pylist() == [8, 12, 16, *range(1, 41, 4), 39]
    (batch,) = reader.read({0: (5, 10)})
    assert batch.columns.column("n").to_pylist() == [20, 24, 28, 32, 36]
    assert reader.read({2: (3, 3)}) == []


def test_messages_that_are_gone_end_the_run(broker: Broker) -> None:
    part = TickPart(ReadPlan(config=stream(None), shards=1), "kafka://127.0.0.1:1/none?config=/nowhere")
    assert "config of the Kafka address" in str(part.fetch({0: (0, 1)}, NOW).refused)
    with pytest.raises(SourceError):
        RangeReader("kafka://127.0.0.1:1/none?config=/nowhere", RowSchema(columns={"n": "int"}, user="n"))
