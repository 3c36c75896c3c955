"""The HTTP parser, h11, refusing heads that it would read although another parser might see another body in them.

Relies on what h11 does not promise; ``protocol`` checks that when a server starts.
"""

from __future__ import annotations

import re
from typing import Any

import h11
from h11._readers import ContentLengthReader

from panstream.server.wiping import overwrite

_FRAMING = re.compile(rb"(?im)^(content-length|transfer-encoding)[ \t]*:([^\n]*)")
_FOLDED = re.compile(rb"\n[ \t]")


class Parser(h11.Connection):
    """A connection's parser."""

    def next_event(self) -> Any:
        """Return the next event, or raise ``RemoteProtocolError``."""
        if self.their_state is h11.IDLE and _is_ambiguous(self._receive_buffer._data):
            raise h11.RemoteProtocolError("the length of the body is given in more than one way")
        return super().next_event()

    def skip(self, count: int) -> bool:
        """Count bytes as read, if they are in the middle of a body of known length, and nothing waits before them."""
        reader = self._reader
        if type(reader) is not ContentLengthReader or self.our_state is h11.DONE:
            return False
        if count >= reader._remaining or self.trailing_data[0]:
            return False
        reader._remaining -= count
        return True

    def wipe(self) -> None:
        """Overwrite what was received and not read."""
        overwrite(self._receive_buffer._data)


def _is_ambiguous(data: bytearray) -> bool:
    """Return whether a whole head is there that servers and proxies may read differently: the way to smuggle requests.

    That is a head with more than one length or coding of the body, with a folded line, or of HTTP/1.0 with a coding.

    >>> _is_ambiguous(bytearray(b"POST / HTTP/1.1\\r\\nContent-Length: 3\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n"))
    True
    """
    ends = [end for end in (data.find(b"\n\r\n"), data.find(b"\n\n")) if end >= 0]
    if not ends:
        return False
    head = bytes(memoryview(data)[: min(ends)])
    framing = _FRAMING.findall(head)
    first = head.partition(b"\n")[0].rstrip(b"\r")
    coded = [name for name, _ in framing if name[:1] in b"tT"]
    lists = [value for _, value in framing if b"," in value]
    return bool(len(framing) > 1 or lists or _FOLDED.search(head) or (coded and not first.endswith(b"HTTP/1.1")))
