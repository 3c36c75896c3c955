"""An incremental parser of HTTP/1 requests: h11, after a check that the head is unambiguous.

Only h11's documented interface is used. Received bytes are in a buffer of our own, which can be wiped: h11 is given a
head when it is complete, and the body as it comes, of which it holds nothing but an unfinished line between chunks.
Every request has an ``h11.Connection`` of its own, so an idle connection has none, and a pipelined request is checked
like the first.
"""

from __future__ import annotations

from typing import TypeAlias

import h11

from panstream.server.http.request_head import is_ambiguous
from panstream.server.ingest.buffer_wiping import wipe_bytearray

ParserEvent: TypeAlias = h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]

_HEAD_END = b"\r\n\r\n"
_UNREPEATABLE = frozenset((b"host", b"origin", b"authorization", b"panstream-producer", b"panstream-sequence"))


class RequestParser:
    """Parses one request after the other; refuses heads that are too long or that proxies might parse differently.

    Args:
        max_head: Maximum size of a head in bytes.
    """

    def __init__(self, max_head: int) -> None:
        self._max_head = max_head
        self._unread = bytearray()
        self.connection: h11.Connection | None = None  # of the current request; it frames the response too
        self.body_complete = False  # of that request
        self.head_too_long = False

    @property
    def between_requests(self) -> bool:
        """Whether a request begins with the next byte that is received."""
        return self.connection is None and not self._unread

    @property
    def has_part_of_head(self) -> bool:
        """Whether a request has begun whose head is not complete."""
        return self.connection is None and bool(self._unread)

    def receive(self, data: bytes | memoryview) -> None:
        """Append received bytes, which ``next_event`` parses."""
        self._unread += data

    def next_event(self) -> ParserEvent:
        """Return the next part of a request, as ``h11.Connection.next_event`` does.

        Returns:
            ``h11.PAUSED`` if the request is complete and bytes of the next one were received.

        Raises:
            h11.RemoteProtocolError: if this is not HTTP/1, or not unambiguously so.
        """
        if self.connection is None:
            return self._read_head()
        if self.body_complete:
            return h11.PAUSED if self._unread else h11.NEED_DATA
        if self._unread:
            self.connection.receive_data(bytes(self._unread))
            wipe_bytearray(self._unread)
        event = self.connection.next_event()
        if isinstance(event, h11.EndOfMessage):
            self.body_complete = True
            self._unread += self.connection.trailing_data[0]
        return event

    def next_request(self) -> None:
        """Prepare for the next request, after one that is complete and answered."""
        self.connection = None
        self.body_complete = False

    def wipe(self) -> None:
        """Wipe the bytes that were received and not parsed, and drop the current request."""
        wipe_bytearray(self._unread)
        self.next_request()

    def _read_head(self) -> ParserEvent:
        end = self._unread.find(_HEAD_END)
        size = len(self._unread) if end < 0 else end + len(_HEAD_END)
        self.head_too_long = size > self._max_head
        if self.head_too_long:
            raise h11.RemoteProtocolError("the head is too long")
        if is_ambiguous(self._unread, len(self._unread) if end < 0 else end):
            raise h11.RemoteProtocolError("the head could be read in more than one way")
        if self._unread and self._unread[0] <= 0x20:  # not HTTP: do not wait for the head's end
            raise h11.RemoteProtocolError("the head begins with no method")
        if end < 0:
            return h11.NEED_DATA
        self.connection = h11.Connection(h11.SERVER, self._max_head)
        self.connection.receive_data(self._take(size))
        event = self.connection.next_event()
        if isinstance(event, h11.Request):
            names = [name for name, _ in event.headers if name in _UNREPEATABLE]
            if len(set(names)) < len(names):
                raise h11.RemoteProtocolError("a header that may be given once is given twice")
        return event

    def _take(self, size: int) -> bytes:
        """Return the first ``size`` bytes. The rest is copied: ``del`` would leave them in the bytearray's memory."""
        unread = self._unread
        self._unread = self._unread[size:]
        taken = bytes(unread[:size])
        wipe_bytearray(unread)
        return taken
