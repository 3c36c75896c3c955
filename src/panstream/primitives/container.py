"""The container of states and messages: a JSON header followed by raw bytes, read strictly. Nothing is executed.

::

    8 bytes   magic; the last byte is the version of the container
    4 bytes   length of the header
    header    JSON object
    body      as described by the header or by the protocol
    32 bytes  SHA-256 of everything before; zeros where a channel or a store authenticates it
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Sequence
from typing import Any, TypeAlias

from panstream.errors import InvalidBytes

STATE = b"PANSTRM1"
MESSAGE = b"PANMESG1"
MAX_MESSAGE_HEADER = 1 << 24
_LENGTH = struct.Struct("<I")
_START = len(STATE) + _LENGTH.size
_CHECKSUM_BYTES = 32

Buffer: TypeAlias = bytes | bytearray | memoryview


def to_pieces(magic: bytes, header: bytes, body: Sequence[Buffer], *, checksum: bool = True) -> list[Buffer]:
    """Return the parts of a container, to be joined in memory of the caller's choice.

    Args:
        magic: Kind of the container.
        header: A JSON object.
        body: Bytes that follow the header.
        checksum: False writes zeros, for containers that a channel or a store authenticates.
    """
    pieces = [magic, _LENGTH.pack(len(header)), header, *body]
    if not checksum:
        return [*pieces, bytes(_CHECKSUM_BYTES)]
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return [*pieces, digest.digest()]


def read_container(
    data: Buffer, magic: bytes, *, checksum: bool = True, max_header: int | None = None, constants: bool = False
) -> tuple[dict[str, Any], memoryview]:
    """Read a container from an untrusted source.

    Args:
        data: The bytes; the returned body is a view of them.
        magic: Required kind of the container.
        checksum: Whether to compare the checksum.
        max_header: Largest header in bytes.
        constants: Whether numbers of the header may be infinite or NaN.

    Returns:
        The header and the body.

    Raises:
        InvalidBytes: The bytes are damaged, or not what `to_pieces` writes.
    """
    if len(data) < _START + _CHECKSUM_BYTES or data[: len(magic) - 1] != magic[:-1]:
        raise InvalidBytes("these are not panstream bytes of this kind, or they are cut short")
    if data[len(magic) - 1] != magic[-1]:
        raise InvalidBytes("these bytes have a container version that this release does not know")
    content = memoryview(data)[:-_CHECKSUM_BYTES]
    if checksum and hashlib.sha256(content).digest() != data[-_CHECKSUM_BYTES:]:
        raise InvalidBytes("the checksum does not match: the bytes are damaged or cut short")
    (length,) = _LENGTH.unpack_from(data, len(magic))
    if length > len(content) - _START or (max_header is not None and length > max_header):
        raise InvalidBytes("the header is cut short, or too long")
    try:
        text = str(content[_START : _START + length], "utf-8")
        header = (_WITH_CONSTANTS if constants else _FINITE).decode(text)
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict):
        raise InvalidBytes("the header cannot be read: it must be a JSON object without duplicate keys")
    return header, content[_START + length :]


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number is infinite or NaN")
    return number


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    if len(unique) != len(pairs):
        raise ValueError("a key is given twice")
    return unique


_WITH_CONSTANTS = json.JSONDecoder(object_pairs_hook=_unique)
_FINITE = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_finite, parse_float=_finite)
