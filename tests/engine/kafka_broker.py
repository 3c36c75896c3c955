"""A Kafka to test against: the one in librdkafka, which lives in this process, or a real one.

``PANSTREAM_KAFKA`` names a real one by host:port, and ``PANSTREAM_KAFKA_CONFIG`` the settings that it needs, as
``make kafka`` does.
"""

import itertools
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

REAL = os.environ.get("PANSTREAM_KAFKA")
CONFIG = os.environ.get("PANSTREAM_KAFKA_CONFIG")
_topics = itertools.count()


class Broker:
    """The broker, while it is held."""

    def __init__(self) -> None:
        self._owner: Any = None
        self.server = REAL
        if self.server is None:
            self._owner = Producer({"bootstrap.servers": "none:1", "test.mock.num.brokers": 1, "log_level": 0})
            (found,) = self._owner.list_topics(timeout=10).brokers.values()
            self.server = f"{found.host}:{found.port}"
        self.settings: dict[str, Any] = {"bootstrap.servers": self.server, "log_level": 0}
        if CONFIG is not None:
            lines = (line.split("=") for line in Path(CONFIG).read_text().splitlines())
            self.settings |= {name.strip(): value.strip() for name, value in lines}
        self._producer = Producer(self.settings)

    def topic(self) -> str:
        """Return a topic that nobody has used, with a message in none of its four partitions."""
        name = f"visits-{os.getpid()}-{next(_topics)}"
        while not (found := self._producer.list_topics(name, timeout=10).topics[name].partitions):
            pass
        assert len(found) == 4
        return name

    def url(self, topic: str, options: str = "") -> str:
        given = [each for each in (options, "" if CONFIG is None else f"config={CONFIG}") if each]
        return f"kafka://{self.server}/{topic}" + ("?" + "&".join(given) if given else "")

    def publish(self, topic: str, messages: Iterable[Any], *, partition: int | None = None) -> None:
        """Send values, or pairs of key and value, and wait until the broker has them; by turns to all partitions."""
        for at, message in enumerate(messages):
            key, value = message if isinstance(message, tuple) else (None, message)
            place = at % 4 if partition is None else partition
            while True:
                try:
                    self._producer.produce(topic, value, key, partition=place)
                    break
                except BufferError:
                    self._producer.poll(0.1)
        assert self._producer.flush(30) == 0

    def everything(self, topic: str) -> list[tuple[bytes | None, bytes]]:
        """Return keys and values of all messages of a topic."""
        reader = Consumer({**self.settings, "group.id": "everything", "enable.partition.eof": True})
        reader.assign([TopicPartition(topic, partition, 0) for partition in range(4)])
        found, ends = [], 0
        while ends < 4:
            message = reader.poll(10)
            assert message is not None
            if message.error() is None:
                found.append((message.key(), message.value()))
            else:
                ends += 1
        return found

    def commit(self, topic: str, group: str, text: str) -> None:
        """Overwrite what a group has left beside its offsets."""
        other = Consumer({**self.settings, "group.id": group})
        places = [TopicPartition(topic, partition, 0, text) for partition in range(4)]
        assert other.commit(offsets=places, asynchronous=False)

    def committed(self, topic: str, group: str) -> list[int]:
        """Return the offsets that a group has committed."""
        other = Consumer({**self.settings, "group.id": group})
        places = [TopicPartition(topic, partition) for partition in range(4)]
        return [place.offset for place in other.committed(places, timeout=10)]

    def stop(self) -> None:
        self._producer = self._owner = None
