"""The head of a request for the busiest route, read without the general parser when there is nothing unusual in it.

Whatever is unusual is left to that parser: which requests are refused, and how, is decided in one place.
"""

from __future__ import annotations

import re

__all__ = ["is_ambiguous", "read_head"]

_END = b"\r\n\r\n"
_LINES = re.compile(rb"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\x20-\x7e\t]*\r\n)+")
_PAIRS = re.compile(r"([^:]+):[ \t]*([^\r]*)\r\n")  # of lines that fit
_UNUSUAL = frozenset(("transfer-encoding", "expect", "upgrade", "te", "trailer", "keep-alive", "proxy-connection"))
_FRAMING = re.compile(rb"(?im)^(content-length|transfer-encoding)[ \t]*:([^\n]*)")
_FOLDED = re.compile(rb"\n[ \t]")
_LENGTH = re.compile(r"0|[1-9][0-9]{0,17}")


def read_head(data: bytearray, size: int, first: bytes) -> tuple[dict[str, str], int] | None:
    """Return the headers, by their names in small letters, and where the body begins; None if anything is unusual.

    ``first`` is the line that the request must begin with; ``size`` bytes of ``data`` are looked at.

    >>> request = bytearray(b"POST /x HTTP/1.1\\r\\nHost: a\\r\\nContent-Length: 3\\r\\n\\r\\n{}\\n")
    >>> read_head(request, len(request), b"POST /x HTTP/1.1\\r\\n")
    ({'host': 'a', 'content-length': '3'}, 48)
    """
    if not data.startswith(first, 0, size):
        return None
    end = data.find(_END, len(first), size)
    if end < 0:
        return None
    head = bytes(memoryview(data)[len(first) : end + 2])
    if _LINES.fullmatch(head) is None:
        return None
    headers: dict[str, str] = {}
    pairs = _PAIRS.findall(head.decode("ascii"))
    for name, value in pairs:
        headers[name.lower()] = value.rstrip(" \t")
    if len(headers) < len(pairs) or not _UNUSUAL.isdisjoint(headers):
        return None
    if headers.get("connection", "keep-alive").lower() != "keep-alive":
        return None
    if "host" not in headers or _LENGTH.fullmatch(headers.get("content-length", "")) is None:
        return None
    return headers, end + len(_END)


def is_ambiguous(data: bytearray) -> bool:
    """Return whether a whole head is there that servers and proxies may read differently: the way to smuggle requests.

    That is a head with more than one length or coding of the body, with a folded line, or of HTTP/1.0 with a coding.

    >>> is_ambiguous(bytearray(b"POST / HTTP/1.1\\r\\nContent-Length: 3\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n"))
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
