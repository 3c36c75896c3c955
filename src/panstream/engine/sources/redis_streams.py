"""Redis Streams: entries are read through a consumer group, and acknowledged and deleted once the state is durable.

An entry is one row, its fields are columns. Entries that were delivered but not acknowledged are delivered again after
a crash; those up to the last applied one are acknowledged without being applied again. This relies on one consumer that
reads the group in order, so a group that another consumer reads, too, is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Unpack

import numpy as np

from panstream.engine.rows.row_batch import RowBatch, RowSchema
from panstream.engine.sources._redis_protocol import RedisConnection, Reply
from panstream.engine.sources.base import EventSource, SourceSettings
from panstream.engine.sources.coalescer import Coalescer
from panstream.engine.sources.formats.text_columns import columns_from_spans
from panstream.errors import ConnectionLost, RedisCommandError, SourceError

_CALL_ROWS = 5_000  # entries per request
_CALL_IDS = 1_000  # entries per acknowledgement


def _entry_number(entry: bytes) -> int:
    """Return an entry's id as one number in the order of ids.

    >>> _entry_number(b"3-1") == (3 << 64) + 1
    True
    """
    moment, _, counter = entry.partition(b"-")
    return (int(moment) << 64) + int(counter or 0)


class RedisStreamSource(EventSource):
    """Entries of one Redis stream."""

    def __init__(
        self,
        url: str,
        stream: str,
        schema: RowSchema,
        *,
        group: str = "panstream",
        consumer: str = "panstream",
        retries: int = 5,
        **settings: Unpack[SourceSettings],
    ) -> None:
        super().__init__(schema, **settings)
        self._connection = RedisConnection(url)
        self._stream = stream
        self._group = group
        self._consumer = consumer
        self.name = f"redis:{stream}"
        self._producer = f"{self.name}:{group}"
        self._retries = retries
        self._cursor = b"0-0"  # the last entry received; later ones that are pending were lost with a connection
        self._catching_up = True
        self._running = False

    def batches(self) -> Iterator[RowBatch | None]:
        """Yield rows as entries arrive, without end; ``None`` while there are none."""
        waiting: list[bytes] = []
        self._running = True
        coalescer = Coalescer(
            self._schema,
            rows=self._rows,
            producer=self._producer,
            label=self._producer,
            seconds=self._seconds,
            clock=self._clock,
        )
        try:
            self._open()
            while not self._stopped:
                remaining = coalescer.remaining()
                max_entries = min(_CALL_ROWS, self._rows - len(waiting))
                wait = self._poll if remaining is None else min(self._poll, remaining)
                received = self._read(max_entries, wait)
                waiting += received.entries
                ready = list(coalescer.add(received.rows)) if received.entries else []
                if not ready and coalescer.remaining() == 0.0:
                    ready = list(coalescer.flush())
                for batch in ready:
                    yield self._labelled(batch, waiting)
                    waiting = []
                if not received.entries:
                    yield None
        finally:
            coalescer.close()
            self._connection.close()
            self._running = False

    def acknowledge(self, token: object) -> None:
        """Acknowledge and delete the entries of a batch, now that the state that holds them is durable."""
        entries = list(token) if isinstance(token, tuple) else []
        for start in range(0, len(entries), _CALL_IDS):
            self._retried(lambda some=entries[start : start + _CALL_IDS]: self._delete(some))  # type: ignore[misc]

    def close(self) -> None:
        """Let ``batches`` end after its current step; unapplied entries are delivered again in the next run."""
        super().close()
        if not self._running:
            self._connection.close()

    def _labelled(self, batch: RowBatch, entries: list[bytes]) -> RowBatch:
        """Set sequence, token and, for the report of bad rows, labels from the ids of the entries."""
        batch.labels = tuple(f"entry {entry.decode()}" for entry in entries) if batch.codes.any() else ()
        batch.sequences = tuple(map(_entry_number, entries))
        batch.sequence = batch.sequences[-1]
        batch.token = tuple(entries)
        return batch

    def _open(self) -> None:
        try:
            self._command("XGROUP", "CREATE", self._stream, self._group, "0", "MKSTREAM")
        except RedisCommandError as error:
            if "BUSYGROUP" not in str(error):
                raise
        summary = self._command("XPENDING", self._stream, self._group)
        holders = summary[3] if isinstance(summary, list) else None
        for holder in holders if isinstance(holders, list) else []:
            if isinstance(holder, list) and holder[0] != self._consumer.encode():
                raise SourceError(
                    f"group {self._group!r} has entries pending for another consumer; give every engine its own group"
                )

    def _read(self, count: int, wait: float) -> _RedisReply:
        """Return the next entries: first those that are pending, then new ones."""
        received: _RedisReply = self._retried(lambda: self._ask(count, wait))
        if received.deleted:
            self.acknowledge(tuple(received.deleted))
        return received

    def _ask(self, count: int, wait: float) -> _RedisReply:
        block = () if self._catching_up else ("BLOCK", max(1, int(1000 * wait)))
        last_id = self._cursor if self._catching_up else b">"
        self._connection.send(
            "XREADGROUP", "GROUP", self._group, self._consumer, "COUNT", count, *block, "STREAMS", self._stream, last_id
        )
        received = _RedisReply(self._connection, self._schema, self._applied.get(self._producer, -1))
        received.receive(wait)
        self._connection.forget()
        if received.last is None:
            self._catching_up = False
        else:
            self._cursor = received.last
        return received

    def _delete(self, entries: list[bytes]) -> None:
        self._connection.command("MULTI")
        self._connection.command("XACK", self._stream, self._group, *entries)
        self._connection.command("XDEL", self._stream, *entries)
        self._connection.command("EXEC")

    def _command(self, *words: str | bytes | int) -> Reply:
        reply: Reply = self._retried(lambda: self._connection.command(*words))
        return reply

    def _retried(self, call: Callable[[], Any]) -> Any:
        """Call; after a lost connection reconnect and call again, starting with the pending entries."""
        for attempt in range(self._retries + 1):
            try:
                if not self._connection.is_open:
                    self._connection.connect()
                return call()
            except ConnectionLost:
                if self._stopped or attempt == self._retries:
                    raise
            self._catching_up = True
            self._sleep(min(2.0, 0.1 * 2**attempt))
        raise AssertionError("unreachable")


class _RedisReply:
    """One reply: ids and rows of its entries, and the ids of entries that are not to be applied (``deleted``)."""

    def __init__(self, connection: RedisConnection, schema: RowSchema, applied: int) -> None:
        self._connection = connection
        self._schema = schema
        self._applied = applied
        self._positions = {column.encode(): position for position, column in enumerate(schema.columns)}
        self.entries: list[bytes] = []
        self.deleted: list[bytes] = []  # applied by an earlier run, or deleted by another client
        self.last: bytes | None = None
        self.rows = RowBatch.none(schema)

    def receive(self, wait: float) -> None:
        """Parse the reply and copy the declared fields out of the buffer."""
        from panstream.primitives.kernels.sources.csv_fields import copy_spans

        connection = self._connection
        spans: list[list[tuple[int, int]]] = [[] for _ in self._schema.columns]
        _, streams, _ = connection.head(wait=wait)
        for _ in range(streams):
            connection.head()
            connection.span(connection.head()[1])  # the stream's name
            for _ in range(connection.head()[1]):
                self._entry(spans)
        if not self.entries:
            return
        data = np.frombuffer(connection.data, np.uint8)
        span_array = np.array(spans, np.int64)
        starts, stops = np.ascontiguousarray(np.moveaxis(span_array, 2, 0))

        def copy(column: int, offsets: Any, out: Any) -> None:
            copy_spans(data, starts[column], stops[column], offsets, out)

        self.rows = columns_from_spans(
            data, self._schema, np.zeros(len(self.entries), np.uint16), (starts, stops), starts >= 0, copy
        )

    def _entry(self, spans: list[list[tuple[int, int]]]) -> None:
        connection = self._connection
        connection.head()
        begin, end = connection.span(connection.head()[1])
        entry = self.last = bytes(connection.data[begin:end])
        words = connection.head()[1]
        field_spans = [(-1, -1)] * len(spans)
        for _ in range(max(0, words) // 2):
            begin, end = connection.span(connection.head()[1])
            position = self._positions.get(bytes(connection.data[begin:end]))
            value = connection.span(connection.head()[1])
            if position is not None:
                field_spans[position] = value
        if words < 0 or _entry_number(entry) <= self._applied:
            self.deleted.append(entry)
            return
        self.entries.append(entry)
        for column, value in zip(spans, field_spans, strict=True):
            column.append(value)
