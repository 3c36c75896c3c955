"""Published answers in a Kafka topic: one message each, whose key tells answers apart.

How far the topic has them is noted in the store once the broker has confirmed them. A crash in between leaves answers
there of which nothing is noted: at the next start they are found behind the place that the note names, and are not
sent again. Only a message that the broker takes later than that can be there twice, with the same key and value.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from panstream.engine.config.kafka import KafkaAddress, make_client
from panstream.engine.sinks.release_rows import COLUMNS, WHOLE, rows_of
from panstream.engine.storage.release_log import Release, ReleaseLog
from panstream.errors import ConnectionLost, SinkError, import_optional, translate_errors

_NOTE = "sink.json"
_TIMEOUT = 5.0  # seconds to wait for an answer of the broker
_SENDING = 10.0  # seconds after which a message counts as not sent
_SILENT = "the Kafka broker does not answer"
_EMPTY: dict[str, Any] = {"sent": {}, "ends": {}}


class KafkaDestination:
    """The topic, and what is known of it."""

    error: type[Exception] = ConnectionLost

    def __init__(self, url: str, stream: str, series: Sequence[str], log: ReleaseLog, directory: Path) -> None:
        self._kafka = import_optional("confluent_kafka", "Kafka", "kafka")
        self._address = KafkaAddress.parse(url)
        self._stream = stream
        self._series = series
        self._log = log
        self._file = directory / _NOTE
        self._settings = {"message.timeout.ms": int(1000 * _SENDING), "acks": "all", "enable.idempotence": True}
        self._settings |= self._address.settings()
        self._producer: Any = None
        self._note: dict[str, Any] | None = None  # how far answers are there; None if that must be found out
        self._there: dict[bytes, bytes] = {}  # messages behind the place that the note names

    def copy(self) -> None:
        """Send what is missing there, and note it."""
        translate_errors(self._copy, self._kafka.KafkaException, lambda error: ConnectionLost(error.args[0].str()))

    def _copy(self) -> None:
        if self._producer is None:
            self._producer = make_client("Producer", self._settings)
        if self._note is None:
            self._note = self._found()
        sent = dict(self._note["sent"])
        new = [release for series in self._series for release in self._log.history(series, after=sent.get(series, 0))]
        messages = [message for release in new for message in self._messages(release)]
        missing = [message for message in messages if not self._is_there(*message)]
        if self._there:
            self._check_own()
        ends = self._send(missing)
        if new:
            sent |= {release.query: release.number for release in new}
            self._note = {"topic": self._address.topic, "sent": sent, "ends": self._note["ends"] | ends}
            self._write(self._note)

    def _check_own(self) -> None:
        """Refuse a topic that has answers of this stream which are not in the log."""
        expected = {
            key: value
            for series in self._series
            for release in self._log.history(series)
            for key, value in self._messages(release)
        }
        if not self._there.items() <= expected.items():
            raise SinkError(
                f"[sink] topic {self._address.topic} has answers of stream {self._stream!r} that are not of this "
                "store: name another topic"
            )
        self._there = {}

    def _write(self, note: dict[str, Any]) -> None:
        new = self._file.with_suffix(".new")
        with new.open("w") as file:
            json.dump(note, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, self._file)

    def _messages(self, release: Release) -> Iterator[tuple[bytes, bytes]]:
        for row in rows_of(self._stream, release):
            value = dict(zip(COLUMNS, row, strict=True))
            value |= {"claim": json.loads(value["claim"]), "group_key": json.loads(value["group_key"])}
            key = [value[name] for name in WHOLE]
            yield tuple(json.dumps(document, sort_keys=True, ensure_ascii=False).encode() for document in (key, value))  # type: ignore[misc]

    def _is_there(self, key: bytes, value: bytes) -> bool:
        """Return whether a message is behind the place that the note names, and forget it; other values stay there."""
        if self._there.get(key) != value:
            return False
        del self._there[key]
        return True

    def _send(self, messages: Sequence[tuple[bytes, bytes]]) -> dict[str, int]:
        """Send messages, and return where they end in each partition once all are confirmed."""
        ends: dict[str, int] = {}
        failed: list[Any] = []

        def told(error: Any, message: Any) -> None:
            if error is not None:
                failed.append(error)
            else:
                partition = str(message.partition())
                ends[partition] = max(ends.get(partition, 0), message.offset() + 1)

        for key, value in messages:
            send = partial(self._producer.produce, self._address.topic, value, key, on_delivery=told)
            try:
                send()
            except BufferError:
                self._producer.flush(2 * _SENDING)
                send()
        unsent = self._producer.flush(2 * _SENDING)
        if failed or unsent:
            self._producer = self._note = None  # some may be there all the same
            raise ConnectionLost(failed[0].str() if failed else _SILENT)
        return ends

    def _found(self) -> dict[str, Any]:
        """Return what is noted of this topic, and read what lies behind it there."""
        note = json.loads(self._file.read_bytes()) if self._file.exists() else _EMPTY
        if note.get("topic") != self._address.topic:
            note = _EMPTY
        settings = {**self._address.settings(), "group.id": "panstream-sink", "enable.auto.commit": False}
        settings.pop("enable.idempotence", None)
        reader = make_client("Consumer", settings)
        self._there = {}
        ends = {}
        for partition in self._partitions():
            topic_partition = self._kafka.TopicPartition(self._address.topic, partition)
            low, high = reader.get_watermark_offsets(topic_partition, timeout=_TIMEOUT)
            topic_partition.offset = max(low, note["ends"].get(str(partition), 0))
            self._there |= self._read(reader, topic_partition, high)
            ends[str(partition)] = high
        return {**note, "ends": ends}

    def _partitions(self) -> list[int]:
        """Return the partitions of the topic; a broker that makes topics on demand makes it now, in a moment."""
        until = time.monotonic() + _TIMEOUT
        while True:
            topic = self._producer.list_topics(self._address.topic, timeout=_TIMEOUT).topics[self._address.topic]
            if topic.error is None and topic.partitions:
                return sorted(topic.partitions)
            if time.monotonic() > until:
                raise ConnectionLost(_SILENT if topic.error is None else topic.error.str())
            time.sleep(0.1)

    def _read(self, reader: Any, topic_partition: Any, end: int) -> dict[bytes, bytes]:
        """Return our messages of one partition, from a place on."""
        messages: dict[bytes, bytes] = {}
        reader.assign([topic_partition])
        offset = topic_partition.offset
        while offset < end:
            message = reader.poll(_TIMEOUT)
            if message is None:
                raise ConnectionLost(_SILENT)
            if message.error() is not None:
                raise ConnectionLost(message.error().str())
            offset = message.offset() + 1
            if self._is_ours(message.key()):
                messages[message.key()] = message.value()
        return messages

    def _is_ours(self, key: bytes | None) -> bool:
        try:
            parts = json.loads(key or b"")
        except ValueError:
            return False
        return isinstance(parts, list) and len(parts) == len(WHOLE) and parts[0] == self._stream
