"""Messages a second from a Kafka topic to rows, as a ratio to the client alone with ``json.loads``, in the same run.

The broker is the one inside the client library, in this process: ``python -m benchmarks.speed.kafka_speed``.
"""

from __future__ import annotations

import json
import time

from confluent_kafka import Consumer, TopicPartition

from panstream.engine.rows.row_batch import RowSchema
from panstream.engine.sources import KafkaSource
from tests.engine.sources.kafka_broker import Broker

MESSAGES = 200_000  # the broker forgets the oldest if there are many more
SCHEMA = RowSchema(columns={"user": "int", "n": "int"}, user="user")


def plain(broker: Broker, topic: str) -> float:
    settings = {"group.id": "plain", "enable.auto.commit": False, "queued.max.messages.kbytes": 4_096}
    reader = Consumer({**broker.settings, **settings, "fetch.queue.backoff.ms": 5})
    reader.assign([TopicPartition(topic, partition, 0) for partition in range(4)])
    begun = time.perf_counter()
    read = 0
    while read < MESSAGES:
        for message in reader.consume(5_000, 0.05):
            if message.error() is None:
                json.loads(message.value())
                read += 1
    return MESSAGES / (time.perf_counter() - begun)


def ours(broker: Broker, topic: str, group: str) -> float:
    feed = KafkaSource(broker.url(topic, f"group={group}"), SCHEMA, poll=0.05)
    stream = feed.batches()
    first = read = len(next(stream) or ())  # the rest of what it takes to open a group is not measured
    begun = time.perf_counter()
    while read < MESSAGES:
        batch = next(stream)
        assert batch is not None
        read += len(batch)
        batch.wipe()
        feed.acknowledge(batch.token)
    return (MESSAGES - first) / (time.perf_counter() - begun)


def main() -> None:
    broker = Broker()
    topic = broker.topic()
    broker.publish(topic, (json.dumps({"user": n, "n": n}) for n in range(MESSAGES)))
    for turn in range(5):
        peer = plain(broker, topic)
        own = ours(broker, topic, f"turn-{turn}")
        print(f"client and json.loads {peer:>9,.0f}/s   rows {own:>9,.0f}/s   ratio {own / peer:.2f}", flush=True)


if __name__ == "__main__":
    main()
