"""Copy published answers to a Kafka topic: one message each, whose key identifies the answer.

The progress is written to a file in the store once the broker has confirmed the messages. A crash in between leaves
messages in the topic that the file does not mention: at the next start they are read from the recorded offsets on, and
are not sent again. Only a message that the broker accepts after that can be in the topic twice, with the same key and
value.
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
from panstream.engine.sinks.release_rows import COLUMNS, KEY_COLUMNS, rows_of
from panstream.engine.storage.release_log import Release, ReleaseLog
from panstream.errors import ConnectionLost, SinkError, import_optional, translate_errors

_PROGRESS_FILE = "sink.json"
_TIMEOUT = 5.0  # seconds to wait for an answer of the broker
_SENDING = 10.0  # seconds after which a message counts as not sent
_SILENT = "the Kafka broker does not answer"
_NO_PROGRESS: dict[str, Any] = {"sent": {}, "ends": {}}


class KafkaDestination:
    """A topic, and the progress of copying to it."""

    error: type[Exception] = ConnectionLost

    def __init__(self, url: str, stream: str, series: Sequence[str], log: ReleaseLog, directory: Path) -> None:
        self._kafka = import_optional("confluent_kafka", "Kafka", "kafka")
        self._address = KafkaAddress.parse(url)
        self._stream = stream
        self._series = series
        self._log = log
        self._file = directory / _PROGRESS_FILE
        self._settings = {"message.timeout.ms": int(1000 * _SENDING), "acks": "all", "enable.idempotence": True}
        self._settings |= self._address.settings()
        self._producer: Any = None
        self._progress: dict[str, Any] | None = None  # None: must be read from the file and the topic
        self._unrecorded: dict[bytes, bytes] = {}  # our messages in the topic that the progress file does not mention

    def copy(self) -> None:
        """Send the missing answers, and record the progress."""
        translate_errors(self._copy, self._kafka.KafkaException, lambda error: ConnectionLost(error.args[0].str()))

    def _copy(self) -> None:
        if self._producer is None:
            self._producer = make_client("Producer", self._settings)
        if self._progress is None:
            self._progress = self._read_progress()
        sent = dict(self._progress["sent"])
        new = [release for series in self._series for release in self._log.history(series, after=sent.get(series, 0))]
        messages = [message for release in new for message in self._messages(release)]
        missing = [message for message in messages if not self._was_sent(*message)]
        if self._unrecorded:
            self._check_own()
        ends = self._send(missing)
        if new:
            sent |= {release.query: release.number for release in new}
            self._progress = {"topic": self._address.topic, "sent": sent, "ends": self._progress["ends"] | ends}
            self._write_progress(self._progress)

    def _check_own(self) -> None:
        """Raise SinkError if the topic has answers of this stream that are not in the log."""
        expected = {
            key: value
            for series in self._series
            for release in self._log.history(series)
            for key, value in self._messages(release)
        }
        if not self._unrecorded.items() <= expected.items():
            raise SinkError(
                f"[sink] topic {self._address.topic} has answers of stream {self._stream!r} that are not of this "
                "store: name another topic"
            )
        self._unrecorded = {}

    def _write_progress(self, progress: dict[str, Any]) -> None:
        new = self._file.with_suffix(".new")
        with new.open("w") as file:
            json.dump(progress, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, self._file)

    def _messages(self, release: Release) -> Iterator[tuple[bytes, bytes]]:
        for row in rows_of(self._stream, release):
            value = dict(zip(COLUMNS, row, strict=True))
            value |= {"claim": json.loads(value["claim"]), "group_key": json.loads(value["group_key"])}
            key = [value[name] for name in KEY_COLUMNS]
            yield tuple(json.dumps(document, sort_keys=True, ensure_ascii=False).encode() for document in (key, value))  # type: ignore[misc]

    def _was_sent(self, key: bytes, value: bytes) -> bool:
        """Return whether a message is among the unrecorded ones, and remove it from them."""
        if self._unrecorded.get(key) != value:
            return False
        del self._unrecorded[key]
        return True

    def _send(self, messages: Sequence[tuple[bytes, bytes]]) -> dict[str, int]:
        """Send messages; once all are confirmed, return the offset behind the last in each partition."""
        ends: dict[str, int] = {}
        failed: list[Any] = []

        def on_delivery(error: Any, message: Any) -> None:
            if error is not None:
                failed.append(error)
            else:
                partition = str(message.partition())
                ends[partition] = max(ends.get(partition, 0), message.offset() + 1)

        for key, value in messages:
            send = partial(self._producer.produce, self._address.topic, value, key, on_delivery=on_delivery)
            try:
                send()
            except BufferError:
                self._producer.flush(2 * _SENDING)
                send()
        unsent = self._producer.flush(2 * _SENDING)
        if failed or unsent:
            self._producer = self._progress = None  # some messages may have been written nevertheless
            raise ConnectionLost(failed[0].str() if failed else _SILENT)
        return ends

    def _read_progress(self) -> dict[str, Any]:
        """Return the recorded progress, and read our messages behind it from the topic."""
        progress = json.loads(self._file.read_bytes()) if self._file.exists() else _NO_PROGRESS
        if progress.get("topic") != self._address.topic:
            progress = _NO_PROGRESS
        settings = {**self._address.settings(), "group.id": "panstream-sink", "enable.auto.commit": False}
        settings.pop("enable.idempotence", None)
        reader = make_client("Consumer", settings)
        self._unrecorded = {}
        ends = {}
        for partition in self._partitions():
            topic_partition = self._kafka.TopicPartition(self._address.topic, partition)
            low, high = reader.get_watermark_offsets(topic_partition, timeout=_TIMEOUT)
            topic_partition.offset = max(low, progress["ends"].get(str(partition), 0))
            self._unrecorded |= self._read_messages(reader, topic_partition, high)
            ends[str(partition)] = high
        return {**progress, "ends": ends}

    def _partitions(self) -> list[int]:
        """Return the partitions of the topic; wait for a broker that creates topics on demand."""
        until = time.monotonic() + _TIMEOUT
        while True:
            topic = self._producer.list_topics(self._address.topic, timeout=_TIMEOUT).topics[self._address.topic]
            if topic.error is None and topic.partitions:
                return sorted(topic.partitions)
            if time.monotonic() > until:
                raise ConnectionLost(_SILENT if topic.error is None else topic.error.str())
            time.sleep(0.1)

    def _read_messages(self, reader: Any, topic_partition: Any, end: int) -> dict[bytes, bytes]:
        """Return our messages of one partition, from its offset up to ``end``."""
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
        return isinstance(parts, list) and len(parts) == len(KEY_COLUMNS) and parts[0] == self._stream
