"""Kafka: a message is one row, a JSON object or a single value, counted exactly once; the store holds no offset.

Every tick of the clock yields a batch, even an empty one, so that what is stored does not depend on when messages come.
If a tick has messages, a mark with their offsets is committed to the broker first. After a restart, reading resumes at
the mark of the stored state: messages in the state are not read again, and all others are.

Shards of a cluster may be ahead of the stored state. The messages up to their marks are read again in the same batches,
and in the same order: by partition and offset.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Unpack

from panstream.engine.config.kafka import KafkaAddress, make_client, topic_compression
from panstream.engine.rows.row_batch import RowBatch, RowSchema
from panstream.engine.sources._kafka_offsets import OffsetMark, OffsetMarks
from panstream.engine.sources._kafka_ranges import read_ranges
from panstream.engine.sources._message_buffer import MessageBuffer
from panstream.engine.sources.base import EventSource, SourceSettings
from panstream.engine.sources.coalescer import Coalescer
from panstream.engine.sources.formats.json_lines import JsonParser
from panstream.errors import ConnectionLost, SourceError, import_optional

_CALL_ROWS = 5_000  # messages per call of the client
_TIMEOUT = 5.0  # seconds to wait for the broker
_PARTITION_CHECK_SECONDS = 30.0  # between checks for new partitions, which also renew the marks
_PERMANENT_ERRORS = (
    *("_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED", "_SSL", "TOPIC_AUTHORIZATION_FAILED"),
    *("GROUP_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED", "OFFSET_METADATA_TOO_LARGE"),
    *("UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION"),  # another client reads as this group
)
CLIENT_SETTINGS: dict[str, Any] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",  # the oldest would count messages twice, the newest would skip some
    "isolation.level": "read_committed",
    "queued.min.messages": 10_000,  # what is read ahead stays in the client's memory
    "queued.max.messages.kbytes": 4_096,
    "fetch.queue.backoff.ms": 5,  # by default, the client pauses fetching for a second once that is full
    "socket.timeout.ms": int(1000 * _TIMEOUT),
    "session.timeout.ms": 2_000,  # there is no session, but a commit searches its coordinator for as long
    "heartbeat.interval.ms": 500,
}


def gzip_warning(url: str) -> str | None:
    """Return a warning if messages may be compressed with gzip; raise SourceError if the topic's setting is gzip."""
    address = KafkaAddress.parse(url)
    if address.allows_gzip:
        return f"topic {address.topic!r}: with gzip=allow no copy of memory is covered"
    consumer = make_client("Consumer", {**CLIENT_SETTINGS, **address.settings(), "group.id": address.group})
    compression = topic_compression(address, consumer, _TIMEOUT)
    if compression == "gzip":
        raise _refused_gzip(address)
    advice = (
        "the claim assumes that none compresses with gzip; set compression.type of the topic to zstd, lz4, snappy or "
        "uncompressed"
    )
    if compression is None:
        return f"topic {address.topic!r}: the Kafka broker does not say how producers compress, and {advice}"
    if compression == "producer":
        return f"topic {address.topic!r}: producers compress as they like (compression.type = producer), and {advice}"
    return None


def _refused_gzip(address: KafkaAddress) -> SourceError:
    return SourceError(
        f"topic {address.topic!r} is compressed with gzip (compression.type), of which the Kafka client leaves up to "
        "512 bytes of the last messages in memory. Give the topic another compression; or add gzip=allow to the "
        "address, and no copy of memory is covered"
    )


@dataclass(slots=True)
class _Messages:
    """Messages of a tick, and their partitions and offsets."""

    buffer: MessageBuffer
    positions: list[tuple[int, int]] = field(default_factory=list)

    def add(self, message: Any) -> None:
        self.buffer.add(message.key(), message.value() or b"")
        self.positions.append((message.partition(), message.offset()))

    def parse(self, parser: JsonParser) -> RowBatch:
        rows, _ = parser.parse(self.buffer.data, self.buffer.end)
        return rows

    def forget(self) -> None:
        """Overwrite the messages."""
        self.buffer.forget(self.buffer.count, self.buffer.end)
        self.positions.clear()


class KafkaSource(EventSource):
    """Messages of all partitions of one topic.

    The column ``key``, where it is declared, is the message's key. A broker that does not answer for ``max_outage``
    seconds raises ConnectionLost. ``wall`` is the clock of ticks, for tests.
    """

    def __init__(
        self,
        url: str,
        schema: RowSchema,
        *,
        max_outage: float = 30.0,
        wall: Callable[[], float] = time.time,
        **settings: Unpack[SourceSettings],
    ) -> None:
        super().__init__(schema, **settings)
        self._kafka = import_optional("confluent_kafka", "Kafka", "kafka")
        self._address = KafkaAddress.parse(url)
        self._settings = {**CLIENT_SETTINGS, **self._address.settings(), "group.id": self._address.group}
        self._parser = JsonParser(schema)
        self._length = max(self._seconds, self._poll)
        self._max_outage = max_outage
        self._wait = min(_TIMEOUT, max_outage)
        self._wall = wall
        self.name = f"kafka:{self._address.topic}"
        self._producer = f"{self.name}:{self._address.group}"
        self._client: Any = None
        # In one buffer as they come, or, where shards of a cluster need one order, in one for every partition.
        self._messages: dict[int, _Messages] = {}
        self._repeated: list[tuple[int, OffsetMark]] = []  # positions that shards had reached, and their marks
        self._marks = OffsetMarks([])  # as committed to the broker
        self._offsets = dict[int, int]()  # the next to read, per partition
        self._tick = 0
        self._unreachable_since: float | None = None  # by the clock; None while the broker answers
        self._partitions_checked = 0.0
        self._refused: str | None = None

    def batches(self) -> Iterator[RowBatch | None]:
        """Yield a batch per tick, without end; ``None`` while the broker does not answer."""
        coalescer = Coalescer(self._schema, rows=sys.maxsize, producer=None, label="kafka")
        self._parser.parse(bytearray(b"{}\n"), 3)[0].wipe()  # compiles the kernels before the first tick
        try:
            self._open()
            for position, mark in self._repeated:
                self._gather_up_to(mark)
                yield self._batch(coalescer, position)
            self._assign()
            while not self._stopped:
                self._gather()
                if self._store_offsets(any(messages.positions for messages in self._messages.values())):
                    yield self._batch(coalescer, self._marks.last.position(self._tick))
                else:
                    yield None
        finally:
            for messages in self._messages.values():
                messages.forget()
            self._client = None  # close() would wait for a group that we are not a member of
            coalescer.close()

    def acknowledge(self, token: object) -> None:
        """Drop the marks before that of a tick, whose state is on disk now."""
        assert isinstance(token, int)
        self._marks = self._marks.since(token)

    def _open(self) -> None:
        """Connect, find the mark of the stored state, and commit only that one: later marks belong to no state."""
        self._client = make_client("Consumer", {**self._settings, "error_cb": self._on_error})
        partitions = self._retry(self._partitions)
        self._partitions_checked = self._clock()
        if not self._address.allows_gzip and topic_compression(self._address, self._client, self._wait) == "gzip":
            raise _refused_gzip(self._address)
        topic_partitions = [self._kafka.TopicPartition(self._address.topic, partition) for partition in partitions]
        committed = self._retry(lambda: self._client.committed(topic_partitions, timeout=self._wait))
        marks, known_partitions = OffsetMarks.parse({entry.partition: entry.metadata for entry in committed})
        position = self._applied.get(self._producer)
        if position is None and all(entry.offset < 0 for entry in committed):
            edge = partial(self._edge, oldest=self._address.from_beginning)
            self._marks = OffsetMarks.begin(
                {partition: self._retry(partial(edge, partition)) for partition in partitions}
            )
        else:
            mark = self._known_mark(marks, position)
            for new in partitions[known_partitions:]:
                mark.offsets[new] = self._retry(partial(self._edge, new, oldest=True))
            ahead = [] if self._ahead is None else self._ahead.get(self._producer, [])
            later = [after for after in ahead if position is None or after > position]
            self._repeated = [(after, self._known_mark(marks, after)) for after in later]
            self._marks = OffsetMarks([*dict.fromkeys((mark, *(own for _, own in self._repeated)))])
            self._tick = max(position or 0, *later, 0) >> 64  # of what comes again, too: later ticks follow it
        self._offsets = dict(self._marks.first.offsets)
        while not self._commit_marks(self._marks):
            self._check()

    def _known_mark(self, marks: OffsetMarks | None, position: int | None) -> OffsetMark:
        mark = None if marks is None else marks.explaining(position)
        if mark is None:
            raise SourceError(
                f"group {self._address.group!r} has no mark of this store: something else has read it, or the "
                "broker has lost the mark. To start over, give another ?group=NAME, and ?begin=newest unless all "
                "messages of the topic are to be counted into this store"
            )
        return mark

    def _assign(self) -> None:
        self._client.assign([self._topic_partition(partition, offset) for partition, offset in self._offsets.items()])

    def _gather_up_to(self, mark: OffsetMark) -> None:
        """Receive the messages before a mark, and no others."""
        ranges = {partition: (start, mark.offsets.get(partition, start)) for partition, start in self._offsets.items()}
        for messages in read_ranges(self._client, self._address.topic, ranges, self._wait):
            for message in messages:
                self._take(message)
            if not messages:
                self._check()
        self._offsets |= {partition: max(start, end) for partition, (start, end) in ranges.items()}

    def _gather(self) -> None:
        """Receive messages until the tick is over, or the buffer or the marks are full."""
        end = self._clock() + self._length
        self._check_partitions()
        while True:
            remaining = max(0.0, end - self._clock())
            count = sum(messages.buffer.count for messages in self._messages.values())
            full = any(messages.buffer.full(self._rows) for messages in self._messages.values())
            if full or count >= self._rows or self._marks.full:
                self._sleep(remaining)
                return
            for message in self._client.consume(min(_CALL_ROWS, self._rows - count), remaining):
                self._take(message)
            if self._refused is not None:
                raise SourceError(f"the Kafka broker refused: {self._refused}")
            if self._clock() >= end:
                return

    def _take(self, message: Any) -> None:
        if (error := message.error()) is not None:
            if error.code() in (self._kafka.KafkaError._AUTO_OFFSET_RESET, self._kafka.KafkaError.OFFSET_OUT_OF_RANGE):
                raise SourceError(
                    "the next messages are no longer on the broker: they were deleted before they were read, or lost. "
                    "To go on with new messages, give another ?group=NAME and ?begin=newest"
                )
            if error.code() != self._kafka.KafkaError._PARTITION_EOF:
                self._on_error(error)
            return
        self._unreachable_since = None
        partition = message.partition()
        number = 0 if self._ahead is None else partition
        if number not in self._messages:
            self._messages[number] = _Messages(MessageBuffer(self._schema, "key"))
        self._messages[number].add(message)
        self._offsets[partition] = message.offset() + 1

    def _store_offsets(self, has_messages: bool) -> bool:
        """Begin the next tick; if it has messages, commit its mark first. Return whether that succeeded."""
        length = max(1, int(1000 * self._length))
        tick = max(self._tick + 1, int(1000 * self._wall()) // length * length)
        if has_messages:
            marks = self._marks.add(tick, self._offsets)
            if not self._commit_marks(marks):
                self._check()
                return False
            self._marks = marks
        self._tick = tick
        return True

    def _batch(self, coalescer: Coalescer, position: int) -> RowBatch:
        """Return the rows of a tick, and overwrite its messages."""
        positions: list[tuple[int, int]] = []
        for _, messages in sorted(self._messages.items()):
            if messages.positions:
                list(coalescer.add(messages.parse(self._parser)))  # yields nothing: a tick has no most rows
                positions += messages.positions
                messages.forget()
        batch = next(coalescer.flush(), None)
        batch = replace(
            RowBatch.none(self._schema) if batch is None else batch,
            producer=self._producer,
            sequence=position,
            token=position >> 64,
        )
        if batch.codes.any():
            batch.labels = tuple(f"partition {partition}, offset {offset}" for partition, offset in positions)
        return batch

    def _commit_marks(self, marks: OffsetMarks) -> bool:
        """Commit marks to the broker; return whether it confirmed all."""
        read = marks.last.offsets
        topic_partitions = [
            self._topic_partition(partition, offset, marks.text(partition, len(read)))
            for partition, offset in read.items()
        ]
        try:
            done = self._client.commit(offsets=topic_partitions, asynchronous=False)
        except self._kafka.KafkaException as error:
            self._on_error(error.args[0])
            return False
        for partition in done:
            if partition.error is not None:
                self._on_error(partition.error)
                return False
        self._unreachable_since = None
        return True

    def _check_partitions(self) -> None:
        """Read added partitions from their beginning, and commit the marks again: brokers expire old commits."""
        if self._clock() - self._partitions_checked < _PARTITION_CHECK_SECONDS:
            return
        self._partitions_checked = self._clock()
        try:
            new = {
                partition: self._edge(partition, oldest=True)
                for partition in self._partitions()
                if partition not in self._offsets
            }
        except self._kafka.KafkaException as error:
            self._on_error(error.args[0])
            self._partitions_checked -= _PARTITION_CHECK_SECONDS
            self._check()
            return
        self._unreachable_since = None
        self._commit_marks(self._marks)
        if new:
            self._offsets |= new
            self._client.incremental_assign(
                [self._topic_partition(partition, offset) for partition, offset in new.items()]
            )

    def _partitions(self) -> list[int]:
        metadata = self._client.list_topics(self._address.topic, timeout=self._wait)
        topic = metadata.topics[self._address.topic]
        if topic.error is not None:
            raise SourceError(f"the Kafka broker has no topic {self._address.topic!r} for us: {topic.error.str()}")
        return sorted(topic.partitions)

    def _edge(self, partition: int, *, oldest: bool) -> int:
        low, high = self._client.get_watermark_offsets(self._topic_partition(partition), timeout=self._wait)
        return int(low if oldest else high)

    def _retry(self, call: Callable[[], Any]) -> Any:
        """Call until the broker answers, for at most ``max_outage`` seconds."""
        while True:
            try:
                answer = call()
            except self._kafka.KafkaException as error:
                self._on_error(error.args[0])
            else:
                self._unreachable_since = None
                return answer
            self._check()

    def _check(self) -> None:
        """Wait before the next attempt; raise if the broker refused, or has not answered for too long."""
        if self._refused is not None:
            raise SourceError(f"the Kafka broker refused: {self._refused}")
        if self._unreachable_since is None:
            self._unreachable_since = self._clock()
        if self._stopped or self._clock() - self._unreachable_since > self._max_outage:
            raise ConnectionLost(f"the Kafka broker has not answered for {self._max_outage:g} seconds")
        self._sleep(0.05)

    def _on_error(self, error: Any) -> None:
        """Record an error that will last; the client retries all others."""
        if error.fatal() or error.name() in _PERMANENT_ERRORS:
            self._refused = error.name().strip("_").replace("_", " ").lower()
        elif error.name() == "_ALL_BROKERS_DOWN":
            self._partitions_checked = -_PARTITION_CHECK_SECONDS  # check at once whether the broker is back

    def _topic_partition(self, partition: int, offset: int = 0, text: str = "") -> Any:
        return self._kafka.TopicPartition(self._address.topic, partition, offset, text)
