"""What the scanner is asked, as bytes: a magic word, the settings as JSON, then the needles, each with its length."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from panstream.errors import InvalidBytes
from panstream.testing.memory.needles import Needle

__all__ = ["Request", "read_request", "write_request"]

_MAGIC = b"panscan1"
_LENGTH = struct.Struct("<I")
_ITEM = struct.Struct("<cI")
_KINDS = {str: b"s", bytes: b"b", int: b"i"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One scan: where to look, for what, and how."""

    pid: int | None
    stop: bool
    read_only: bool
    chunk_bytes: int
    files: Sequence[str]
    encodings: Sequence[str]
    needles: Sequence[Needle]
    decoys: Sequence[Needle]
    control: bytes | None


def write_request(request: Request) -> bytes:
    """Return the bytes that :func:`read_request` turns back into ``request``."""
    settings = {
        "pid": request.pid,
        "stop": request.stop,
        "read_only": request.read_only,
        "chunk_bytes": request.chunk_bytes,
        "files": list(request.files),
        "encodings": list(request.encodings),
    }
    header = json.dumps(settings).encode()
    parts = [_MAGIC, _LENGTH.pack(len(header)), header]
    for values in (request.needles, request.decoys, () if request.control is None else (request.control,)):
        parts.append(_LENGTH.pack(len(values)))
        for value in values:
            data = value if isinstance(value, bytes) else str(value).encode()
            parts += [_ITEM.pack(_KINDS[type(value)], len(data)), data]
    return b"".join(parts)


def read_request(data: bytes) -> Request:
    """Return the request that :func:`write_request` wrote."""
    if data[: len(_MAGIC)] != _MAGIC:
        raise InvalidBytes("a scan request must start with its magic word; it does not")
    try:
        (length,) = _LENGTH.unpack_from(data, len(_MAGIC))
        at = len(_MAGIC) + _LENGTH.size
        settings = json.loads(data[at : at + length])
        lists: list[list[Needle]] = []
        at += length
        for _ in range(3):
            (count,) = _LENGTH.unpack_from(data, at)
            at += _LENGTH.size
            values = []
            for value, after in _values(data, at, count):
                values.append(value)
                at = after
            lists.append(values)
        needles, decoys, controls = lists
    except (struct.error, ValueError) as error:
        raise InvalidBytes("a scan request must be whole; it is cut short or damaged") from error
    control = controls[0] if controls else None
    if at != len(data) or not isinstance(control, bytes | None):
        raise InvalidBytes("a scan request must be whole; it is cut short or damaged")
    return Request(**settings, needles=needles, decoys=decoys, control=control)


def _values(data: bytes, at: int, count: int) -> Iterator[tuple[Needle, int]]:
    for _ in range(count):
        kind, length = _ITEM.unpack_from(data, at)
        at += _ITEM.size
        item = data[at : at + length]
        at += length
        yield (item if kind == b"b" else int(item) if kind == b"i" else item.decode()), at
