"""A Kafka to test against: the one in librdkafka, which lives in this process, or a real one.

``PANSTREAM_KAFKA`` names a real one by host:port, and ``PANSTREAM_KAFKA_CONFIG`` the settings that it needs, as
``make kafka`` does.
"""

import contextlib
import itertools
import os
import socket
import struct
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.waiting import PATIENCE

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
            (found,) = self._owner.list_topics(timeout=PATIENCE).brokers.values()
            self.server = f"{found.host}:{found.port}"
        self.settings: dict[str, Any] = {"bootstrap.servers": self.server, "log_level": 0}
        if CONFIG is not None:
            lines = (line.split("=") for line in Path(CONFIG).read_text().splitlines())
            self.settings |= {name.strip(): value.strip() for name, value in lines}
        self._producer = Producer(self.settings)

    def topic(self) -> str:
        """Return a topic that nobody has used, with a message in none of its four partitions."""
        name = f"visits-{os.getpid()}-{next(_topics)}"
        while not (found := self._producer.list_topics(name, timeout=PATIENCE).topics[name].partitions):
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
        found = []
        ends = 0
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
        return [place.offset for place in other.committed(places, timeout=PATIENCE)]

    def stop(self) -> None:
        self._producer = self._owner = None


class DescribingBroker:
    """Answers three kinds of requests, of which the simulated cluster lacks the last: versions, topics, settings.

    It is one broker with one topic of one partition. The layout of requests and answers is that of
    https://kafka.apache.org/protocol, versions 0 and 1.
    """

    _VERSIONS = 18
    _METADATA = 3
    _DESCRIBE_CONFIGS = 32
    _UNSUPPORTED_VERSION = 35

    def __init__(self, topic: str, compression: str) -> None:
        self._topic = topic
        self._compression = compression
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._port = self._listener.getsockname()[1]
        self.server = f"127.0.0.1:{self._port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection, connection.makefile("rb") as requests:
            while len(size := requests.read(4)) == 4:
                request = requests.read(struct.unpack(">i", size)[0])
                api, version, correlation = struct.unpack(">hhi", request[:8])
                answer = struct.pack(">i", correlation) + self._answer(api, version)
                connection.sendall(struct.pack(">i", len(answer)) + answer)

    def _answer(self, api: int, version: int) -> bytes:
        topic = _text(self._topic)
        if api == self._VERSIONS:
            error = self._UNSUPPORTED_VERSION if version else 0
            known = [(self._VERSIONS, 0, 0), (self._METADATA, 1, 1), (self._DESCRIBE_CONFIGS, 1, 1)]
            return struct.pack(">hi", error, len(known)) + b"".join(struct.pack(">hhh", *each) for each in known)
        if api == self._METADATA:
            no_rack = struct.pack(">h", -1)
            brokers = struct.pack(">ii", 1, 1) + _text("127.0.0.1") + struct.pack(">i", self._port) + no_rack
            partition = struct.pack(">hiiiiii", 0, 0, 1, 1, 1, 1, 1)  # its leader, replicas and those in sync
            controller = 1
            topics = 1
            no_error = 0
            internal = False
            head = struct.pack(">iih", controller, topics, no_error) + topic + struct.pack(">?i", internal, 1)
            return brokers + head + partition
        assert api == self._DESCRIBE_CONFIGS
        read_only = False
        default = 5
        sensitive = False
        synonyms = 0
        setting = _text("compression.type") + _text(self._compression)
        setting += struct.pack(">?b?i", read_only, default, sensitive, synonyms)
        throttle = 0
        resources = 1
        no_error = 0
        no_message = -1
        is_topic = 2
        head = struct.pack(">iihhb", throttle, resources, no_error, no_message, is_topic)
        return head + topic + struct.pack(">i", 1) + setting


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()
