"""Detection of request heads that servers and proxies may parse differently, as used to smuggle requests."""

from __future__ import annotations

import re

_FRAMING = re.compile(rb"(?im)^(content-length|transfer-encoding)[ \t]*:([^\n]*)")
_FOLDED = re.compile(rb"\n[ \t]")
_LONE_LF = re.compile(rb"(?<!\r)\n")  # the end of a line for some parsers only


def is_ambiguous(data: bytearray, end: int) -> bool:
    """Return whether parsers may disagree about the head in ``data[:end]``, complete or not.

    That is a head with a line feed without carriage return, with more than one length or coding of the body, with a
    folded line, or of HTTP/1.0 with a coding.

    >>> head = bytearray(b"POST / HTTP/1.1\\r\\nContent-Length: 3\\r\\nTransfer-Encoding: chunked")
    >>> is_ambiguous(head, len(head))
    True
    """
    head = bytes(memoryview(data)[:end])
    framing = _FRAMING.findall(head)
    first = head.partition(b"\n")[0].rstrip(b"\r")
    coded = [name for name, _ in framing if name[:1] in b"tT"]
    lists = [value for _, value in framing if b"," in value]
    odd_lines = _LONE_LF.search(head) or _FOLDED.search(head)
    return bool(odd_lines or len(framing) > 1 or lists or (coded and not first.endswith(b"HTTP/1.1")))
