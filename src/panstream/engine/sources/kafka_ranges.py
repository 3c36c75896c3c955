"""Kafka for several readers: one divides every tick into ranges of offsets, and others read the ranges."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

from panstream.engine.config.kafka import KafkaAddress, make_client
from panstream.engine.rows.row_batch import RowBatch, RowSchema
from panstream.engine.sources._kafka_ranges import read_ranges
from panstream.engine.sources._message_buffer import MessageBuffer
from panstream.engine.sources.coalescer import Coalescer
from panstream.engine.sources.formats.json_lines import JsonParser
from panstream.engine.sources.kafka import CLIENT_SETTINGS, KafkaSource
from panstream.errors import ConnectionLost

Ranges = Mapping[int, tuple[int, int]]
"""Of partitions, the first offset and the one after the last."""

_MAX_OUTAGE = 30.0  # seconds


class KafkaTicks(KafkaSource):
    """Ticks of a topic, whose messages are read elsewhere; the broker has the mark of a tick before it is yielded."""

    @property
    def producer(self) -> str:
        """The name under which positions are stored."""
        return self._producer

    def ticks(self) -> Iterator[tuple[int, Ranges]]:
        """Yield the position after each tick, and the ranges of the messages in it; first those that were begun."""
        self._open()
        try:
            for position, mark in self._repeated:
                yield position, self._advance(mark.offsets)
            while not self._stopped:
                self._sleep(self._length)
                self._check_partitions()
                ends = dict(self._offsets)
                if not self._marks.full:
                    share = max(1, self._rows // max(1, len(ends)))
                    for partition, start in self._offsets.items():
                        newest = self._retry(lambda partition=partition: self._edge(partition, oldest=False))  # type: ignore[misc]
                        ends[partition] = max(start, min(newest, start + share))
                ranges = self._advance(ends)
                while not self._store_offsets(any(start < end for start, end in ranges.values())):
                    continue
                yield self._marks.last.position(self._tick), ranges
        finally:
            self._client = None

    def _advance(self, ends: Mapping[int, int]) -> Ranges:
        ranges = {
            partition: (start, max(start, ends.get(partition, start))) for partition, start in self._offsets.items()
        }
        self._offsets = {partition: end for partition, (_, end) in ranges.items()}
        return ranges


class RangeReader:
    """Reads ranges of one topic; it is no member of a group and commits nothing.

    Args:
        url: The topic's address.
        schema: The columns to read.
    """

    def __init__(self, url: str, schema: RowSchema) -> None:
        self._address = KafkaAddress.parse(url)
        settings = {**CLIENT_SETTINGS, **self._address.settings(), "group.id": self._address.group}
        self._client: Any = make_client("Consumer", settings)
        self._schema = schema
        self._parser = JsonParser(schema)

    def read(self, ranges: Ranges) -> list[RowBatch]:
        """Return the rows of ranges by partition and offset, in one batch, or none; the caller wipes them.

        Raises:
            ConnectionLost: The broker has sent nothing for 30 seconds.
        """
        buffers = {partition: MessageBuffer(self._schema, "key") for partition in sorted(ranges)}
        coalescer = Coalescer(self._schema, rows=sys.maxsize, producer=None, label="kafka")
        last = time.monotonic()
        try:
            for messages in read_ranges(self._client, self._address.topic, ranges, 1.0):
                for message in messages:
                    if message.error() is None:
                        buffers[message.partition()].add(message.key(), message.value() or b"")
                        last = time.monotonic()
                if time.monotonic() - last > _MAX_OUTAGE:
                    raise ConnectionLost(f"the Kafka broker has sent nothing for {_MAX_OUTAGE:g} seconds")
            for buffer in buffers.values():
                if buffer.count:
                    list(coalescer.add(self._parser.parse(buffer.data, buffer.end)[0]))  # yields nothing
            return list(coalescer.flush())
        finally:
            coalescer.close()
            for buffer in buffers.values():
                buffer.forget(buffer.count, buffer.end)
