"""Answers in a Kafka topic: those of the log, each once, whatever breaks in between."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from panstream.engine.sinks.kafka import KafkaDestination
from panstream.errors import SinkError
from tests.engine.sinks.sinks import Crash, answer, copy, logged, serve_and_kill, write
from tests.engine.sources.kafka_broker import Broker


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    running = Broker()
    yield running
    running.stop()


def rows(broker: Broker, topic: str) -> list[tuple[Any, ...]]:
    """Return what the topic has, as the log has it."""
    found = []
    for key, value in broker.everything(topic):
        record = json.loads(value)
        stream, query, group, number = json.loads(key or b"")
        assert (stream, query, group, number) == ("clinic", record["query"], record["group_key"], record["number"])
        figures = [record[name] for name in ("value", "low", "high", "epsilon", "unit", "claim")]
        found.append((query, json.dumps(group), number, *figures))
    return sorted(found, key=str)


def test_every_answer_is_there_once(tmp_path: Path, broker: Broker) -> None:
    topic = broker.topic()
    path = write(tmp_path, broker.url(topic))
    answer(path, 3)
    assert len(logged(tmp_path)) == 9
    assert rows(broker, topic) == logged(tmp_path)
    answer(path, 2)
    copy(path)
    assert rows(broker, topic) == logged(tmp_path)
    assert len(logged(tmp_path)) == 15


def test_a_crash_between_sending_and_noting_doubles_nothing(
    tmp_path: Path, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each message, and after all of them and before the note."""
    topic = broker.topic()
    path = write(tmp_path, broker.url(topic))
    real = KafkaDestination._send
    crashed = 0

    def dying(sink: KafkaDestination, messages: Any) -> dict[str, int]:
        nonlocal crashed
        if not messages:
            return real(sink, messages)
        real(sink, messages[:crashes])
        crashed += 1
        raise Crash

    for crashes in range(5):
        with monkeypatch.context() as patch:
            patch.setattr(KafkaDestination, "_send", dying)
            with pytest.raises(Crash):
                answer(path)
        copy(path)
        assert rows(broker, topic) == logged(tmp_path), f"after a crash behind message {crashes}"
    assert crashed >= 5
    assert len(logged(tmp_path)) == 15
    copy(path)
    assert rows(broker, topic) == logged(tmp_path)


def test_a_broker_that_is_away_holds_up_nothing(
    tmp_path: Path, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = broker.topic()
    said = list[str]()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    path = write(tmp_path, f"kafka://127.0.0.1:{port}/{topic}")
    with monkeypatch.context() as patch:
        patch.setattr("panstream.engine.sinks.kafka._TIMEOUT", 0.5)
        with pytest.raises(SinkError, match="the answers are in the store, and will be copied at the next start"):
            answer(path, 2, said)
    assert len(said) == 1
    assert said[0].startswith("[sink] cannot be written to: ")
    assert said[0].endswith("; it will be tried again")
    answer(write(tmp_path, broker.url(topic)), 1, said)
    assert len(said) == 1
    assert rows(broker, topic) == logged(tmp_path)
    assert len(logged(tmp_path)) == 9


def test_answers_of_another_store_are_not_mixed_in(tmp_path: Path, broker: Broker) -> None:
    topic = broker.topic()
    answer(write(tmp_path / "one", broker.url(topic)))
    before = rows(broker, topic)
    with pytest.raises(
        SinkError, match="has answers of stream 'clinic' that are not of this store: name another topic"
    ):
        answer(write(tmp_path / "other", broker.url(topic)))
    assert rows(broker, topic) == before


def test_other_messages_of_the_topic_are_none_of_ours(tmp_path: Path, broker: Broker) -> None:
    topic = broker.topic()
    other = [(b"no json", b"x"), (None, b"y"), (b'["another stream", "visitors", {}, 1]', b"{}"), (b"[1]", b"")]
    broker.publish(topic, other)
    answer(write(tmp_path, broker.url(topic)))
    assert len(broker.everything(topic)) == len(other) + 3


@pytest.mark.slow
def test_a_server_that_is_killed_again_and_again(tmp_path: Path, broker: Broker) -> None:
    """Afterwards the topic is the log."""
    topic = broker.topic()
    serve_and_kill(tmp_path, broker.url(topic))
    assert rows(broker, topic) == logged(tmp_path)
