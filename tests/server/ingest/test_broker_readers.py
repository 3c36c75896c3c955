"""Redis, MQTT and Kafka read by the server itself: every row counts once, whatever fails."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from panstream.engine.rows.row_batch import BatchResult, RowBatch, RowSchema
from panstream.engine.runtime.engine import Engine
from panstream.engine.sources import MqttSource
from panstream.engine.storage.snapshot_store import SnapshotStore
from panstream.errors import InvalidParameter, RedisCommandError, SourceError
from panstream.server.auth import Limits
from panstream.server.server import ServerSettings, make_server
from tests.engine.sources.kafka_broker import Broker
from tests.engine.sources.mosquitto import Mosquitto
from tests.engine.sources.test_redis import Server as Redis
from tests.server.server_live import CONFIG, Live, lines, served, write_config
from tests.waiting import until

ROW = {"region": "north", "amount": "1"}
HASTY = CONFIG.replace("releases = 40", "releases = 400")


def entries(redis: Redis, numbers: range) -> None:
    with redis.client() as client:
        for number in numbers:
            client.xadd("visits", {"user": f"u{number}", **ROW})


def waiting(redis: Redis) -> int:
    with redis.client() as client:
        return int(client.xlen("visits"))


def messages(numbers: range) -> list[str]:
    return [json.dumps({"user": f"u{number}", "region": "north", "amount": 1}) for number in numbers]


def has_counted(server: Live, rows: int) -> bool:
    """Whether the engine has counted so many rows; more than that fails at once."""
    counted = server.rows()
    assert counted <= rows
    return counted == rows


def source_up(server: Live) -> bool | None:
    found = [line for line in server.get("/metrics").body.splitlines() if line.startswith(b"panstream_source_up")]
    return bool(float(found[0].split()[-1])) if found else None


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Redis]:
    running = Redis(tmp_path)
    yield running
    running.stop()


@pytest.fixture
def failing_disk(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """While the list is not empty, commits that hold rows fail; each one that did takes an entry away."""
    failures = list[bool]()
    commit = SnapshotStore.commit

    def full(store: SnapshotStore, parts: Any, **options: Any) -> None:
        if failures:
            failures.pop()
            raise OSError(28, "No space left on device")
        commit(store, parts, **options)

    monkeypatch.setattr(SnapshotStore, "commit", full)
    return failures


@pytest.fixture
def applied_rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of all batches applied to an engine with a store."""
    sizes = list[int]()
    apply = Engine.apply

    def noting(engine: Engine, rows: RowBatch, **options: Any) -> BatchResult:
        result = apply(engine, rows, **options)
        if engine.config.directory is not None:  # not the one that warms up
            sizes.append(len(rows))
        return result

    monkeypatch.setattr(Engine, "apply", noting)
    return sizes


def test_redis_entries_are_deleted_once_they_are_stored(
    tmp_path: Path, redis: Redis, failing_disk: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = write_config(tmp_path / "served", HASTY)
    applied = list[int]()
    apply = Engine.apply

    def failing_after(engine: Engine, rows: Any, **options: Any) -> Any:
        result = apply(engine, rows, **options)
        if rows.producer is not None and not applied:
            failing_disk.extend([True] * 3)
        applied.extend([waiting(redis)] * (rows.producer is not None))
        return result

    monkeypatch.setattr(Engine, "apply", failing_after)
    with served(config, follow=(f"{redis.url}#visits",)) as server:
        entries(redis, range(30))
        until(lambda: len(applied) > 1 and not failing_disk and not waiting(redis))
        assert has_counted(server, 30)
        assert applied[0] == 30, "no entry is deleted while the state that has it is not stored"
        assert server.post(lines(5)).status == 200, "rows may come both ways"
        facts = server.get("/v1/queries").json["queries"][0]["claim"]["public"]
        assert "the id of the last entry that was read" in facts
    entries(redis, range(10))
    with served(config, follow=(f"{redis.url}#visits",)) as server:
        until(lambda: not waiting(redis))
        assert has_counted(server, 45)


def test_the_server_outlives_its_broker(tmp_path: Path, redis: Redis, capfd: pytest.CaptureFixture[str]) -> None:
    with served(write_config(tmp_path / "served", HASTY), follow=(f"{redis.url}#visits",)) as server:
        entries(redis, range(3))
        until(lambda: not waiting(redis))
        assert has_counted(server, 3)
        assert source_up(server) is True
        redis.stop()
        until(lambda: source_up(server) is False, every=0.1)
        assert server.get("/healthz").json["status"] == "ok"
        assert server.post(lines(2)).status == 200
        redis.start()
        until(lambda: source_up(server) is True, every=0.1)
        entries(redis, range(4))
        until(lambda: not waiting(redis))
        assert has_counted(server, 9)
    told = capfd.readouterr().err
    assert told.count("redis:visits: ") == 1
    assert told.count("redis:visits is back") == 1


def test_a_broker_that_refuses_stops_the_server(tmp_path: Path) -> None:
    redis = Redis(tmp_path, "--requirepass", "secret")
    settings = ServerSettings(port=0, limits=Limits(), follow=(f"{redis.url}#visits",))
    with pytest.raises(RedisCommandError, match="NOAUTH"):
        make_server(write_config(tmp_path / "served"), settings).run_until_stopped()
    redis.stop()


def test_mqtt_messages_count_once(tmp_path: Path, applied_rows: list[int]) -> None:
    """The session of an earlier reader has ten messages, and ten more come while the server runs."""
    broker = Mosquitto(tmp_path)
    earlier = MqttSource(broker.url("visits/#"), RowSchema(columns={"user": "string"}), poll=0.01).batches()
    assert next(earlier) is None
    earlier.close()  # type: ignore[attr-defined]
    broker.publish([("visits/a", text) for text in messages(range(10))])
    with served(write_config(tmp_path / "served", HASTY), follow=(broker.url("visits/#"),)) as server:
        until(lambda: sum(applied_rows) == 10)
        broker.publish([("visits/b", text) for text in messages(range(10))])
        until(lambda: sum(applied_rows) == 20)
        assert has_counted(server, 20)
        assert source_up(server) is True
    broker.stop()


@pytest.fixture(scope="module")
def kafka() -> Iterator[Broker]:
    running = Broker()
    yield running
    running.stop()


def test_kafka_messages_count_once(
    tmp_path: Path, kafka: Broker, failing_disk: list[bool], applied_rows: list[int]
) -> None:
    config = write_config(tmp_path / "served", HASTY)
    topic = kafka.topic()
    kafka.publish(topic, messages(range(40)))
    with served(config, follow=(kafka.url(topic),)) as server:
        until(lambda: sum(applied_rows) >= 40)
        assert has_counted(server, 40)
        failing_disk.extend([True] * 3)
        kafka.publish(topic, messages(range(20)))
        until(lambda: not failing_disk)
        until(lambda: server.get("/healthz").json["status"] == "ok" and has_counted(server, 60), every=1.0)
        claim = server.get("/v1/queries").json["queries"][0]["claim"]
        assert any("Kafka partition" in fact for fact in claim["public"])
    kafka.publish(topic, messages(range(5)))
    with served(config, follow=(kafka.url(topic),)) as server:
        until(lambda: has_counted(server, 65), every=1.0)


@pytest.mark.parametrize(
    ("inputs", "format", "words"),
    [
        (("redis://127.0.0.1/0#visits", "redis://127.0.0.2/0#visits"), None, "two inputs are called redis:visits"),
        (("redis://127.0.0.1/0",), None, "named after #"),
        (("redis://127.0.0.1/0#visits",), "csv", "no format"),
    ],
)
def test_wrong_addresses_are_refused_before_the_server_listens(
    tmp_path: Path, inputs: tuple[str, ...], format: str | None, words: str
) -> None:
    settings = ServerSettings(port=0, limits=Limits(), follow=inputs, format=format)
    with pytest.raises((InvalidParameter, SourceError), match=words):
        make_server(write_config(tmp_path), settings)
