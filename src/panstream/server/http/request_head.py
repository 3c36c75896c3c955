"""Heads of requests that servers and proxies may read differently: the way to smuggle requests."""

from __future__ import annotations

import re

_FRAMING = re.compile(rb"(?im)^(content-length|transfer-encoding)[ \t]*:([^\n]*)")
_FOLDED = re.compile(rb"\n[ \t]")
_BARE = re.compile(rb"(?<!\r)\n")  # the end of a line, to some parsers


def is_ambiguous(data: bytearray, end: int) -> bool:
    """Return whether the head in ``data[:end]``, whole or not, may be read in more than one way.

    That is a head with a bare line feed, with more than one length or coding of the body, with a folded line, or of
    HTTP/1.0 with a coding.

    >>> head = bytearray(b"POST / HTTP/1.1\\r\\nContent-Length: 3\\r\\nTransfer-Encoding: chunked")
    >>> is_ambiguous(head, len(head))
    True
    """
    head = bytes(memoryview(data)[:end])
    framing = _FRAMING.findall(head)
    first = head.partition(b"\n")[0].rstrip(b"\r")
    coded = [name for name, _ in framing if name[:1] in b"tT"]
    lists = [value for _, value in framing if b"," in value]
    odd_lines = _BARE.search(head) or _FOLDED.search(head)
    return bool(odd_lines or len(framing) > 1 or lists or (coded and not first.endswith(b"HTTP/1.1")))
