"""Reading exactly the messages between two offsets of each partition, wherever they are read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from panstream.errors import import_optional

_CALL_MESSAGES = 5_000


def read_ranges(client: Any, topic: str, ranges: Mapping[int, tuple[int, int]], wait: float) -> Iterator[list[Any]]:
    """Yield the messages of ranges of offsets, and of errors; an empty list where none came for some time.

    Offsets may be missing: those of aborted transactions, or of messages that the broker has compacted away. So a range
    ends with a message behind it, which is dropped, or with the end of the partition.

    Args:
        client: A consumer with ``enable.partition.eof``; it is assigned these partitions.
        topic: The topic.
        ranges: Of every partition, the first offset and the one after the last.
        wait: Seconds to wait for messages.
    """
    kafka = import_optional("confluent_kafka", "Kafka", "kafka")
    ends = {partition: end for partition, (start, end) in ranges.items() if start < end}
    client.assign([kafka.TopicPartition(topic, partition, ranges[partition][0]) for partition in ends])
    while ends:
        messages: list[Any] = []
        for message in client.consume(_CALL_MESSAGES, wait):
            partition = message.partition()
            error = message.error()
            if error is not None and error.code() != kafka.KafkaError._PARTITION_EOF:
                messages.append(message)
            elif partition in ends:
                if error is None and message.offset() < ends[partition]:
                    messages.append(message)
                if message.offset() + (error is None) >= ends[partition]:
                    del ends[partition]
        yield messages
    client.unassign()
