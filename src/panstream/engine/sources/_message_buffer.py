"""Messages of a broker as JSON lines, in one buffer that is overwritten after use."""

from __future__ import annotations

import json

import numpy as np

from panstream.engine.rows.row_batch import RowSchema
from panstream.engine.rows.wiping import grow_buffer
from panstream.errors import SourceError
from panstream.primitives.memory.scratch import wipe

_FULL = 1 << 22  # bytes of messages that end a batch
_MAX_BYTES = 1 << 26  # of messages that wait for the broker's confirmation
_NOT_A_ROW = b"!\n"


class MessageBuffer:
    """Messages that are not parsed yet: JSON objects, or single values, which become the column ``payload``.

    The column ``name``, where it is declared, is the message's topic (MQTT) or key (Kafka).
    """

    def __init__(self, schema: RowSchema, name: str) -> None:
        self.data = bytearray(1 << 16)
        self.end = 0
        self.count = 0
        self._name = name if name in schema.columns else None
        self._payload = schema.columns.get("payload")

    def full(self, rows: int) -> bool:
        """Return whether the messages are enough for a batch of ``rows`` rows, or too many bytes."""
        return self.count >= rows or self.end >= _FULL

    def add(self, name: str | bytes | None, payload: bytes) -> None:
        """Add a message; one that cannot be a row becomes a line that no parser accepts."""
        try:
            line = self._line(name, payload)
        except (UnicodeDecodeError, ValueError):
            line = _NOT_A_ROW
        while self.end + len(line) > len(self.data):
            self._grow()
        self.data[self.end : self.end + len(line)] = line
        self.end += len(line)
        self.count += 1

    def forget(self, count: int, end: int) -> None:
        """Overwrite the first ``count`` messages, which end at ``end``, and move the others to the front."""
        rest = self.end - end
        self.data[:rest] = self.data[end : self.end]
        wipe(np.frombuffer(self.data, np.uint8)[rest : self.end])
        self.end = rest
        self.count = self.count - count

    def _line(self, name: str | bytes | None, payload: bytes) -> bytes:
        value = payload.replace(b"\n", b" ").strip()
        head = "{"
        if self._name is not None:
            text = name.decode() if isinstance(name, bytes) else name
            head = f"{{{json.dumps(self._name)}:{json.dumps(text)}"
        if value.startswith(b"{"):
            if self._name is None:
                return value + b"\n"
            inner = value[1:].lstrip()
            return head.encode() + (b"" if inner.startswith(b"}") else b",") + inner + b"\n"
        if self._payload is None:
            return _NOT_A_ROW
        if self._payload not in ("int", "double", "bool"):
            value = json.dumps(value.decode()).encode()
        return head.encode() + (b"," if self._name else b"") + b'"payload":' + (value or b"null") + b"}\n"

    def _grow(self) -> None:
        if len(self.data) >= _MAX_BYTES:
            raise SourceError(f"more than {_MAX_BYTES} bytes of messages came before the broker answered")
        self.data = grow_buffer(self.data, self.end, 2 * len(self.data))
