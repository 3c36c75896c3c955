"""The byte patterns by which a needle may lie in memory.

===========  ===============  ============================================================================
name         of               pattern
===========  ===============  ============================================================================
raw          str, bytes       UTF-8, or the bytes themselves
latin-1      str              one byte a character, as Python keeps text below U+0100
utf-16-le    str, int         text (of an integer: its decimal digits)
utf-32-le    str, int         text
base64       str, bytes, int  the characters that the needle alone decides, for each of three alignments
base64url    str, bytes, int  the same in the URL-safe alphabet
hex          str, bytes, int  lower-case digits (of an integer: of its 8 bytes, in both orders)
hex-upper    str, bytes, int  upper-case digits
json         str              as ``json.dumps`` writes it, with and without ``ensure_ascii``
json-u       str              every character as ``\\uXXXX``, lower and upper case
percent      str, bytes       percent-encoding, lower and upper case, and the form encoding of blanks
decimal      int              decimal digits
int64-le     int              8 bytes, little endian, two's complement
int64-be     int              8 bytes, big endian
python-int   int              30-bit digits in 32-bit words, as Python keeps integers
float64      int              the nearest double
===========  ===============  ============================================================================

A form that equals an earlier one of the same needle is left out, so an occurrence is counted under one name.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from urllib.parse import quote_from_bytes

__all__ = ["ENCODINGS", "SHORTEST", "forms"]

SHORTEST = 6
_BASE64_FIRST = (0, 2, 3)  # the first character that k bytes before the needle do not touch
_URLSAFE = bytes.maketrans(b"+/", b"-_")

_Value = str | bytes | int


def _data(needle: _Value) -> bytes:
    if isinstance(needle, bytes):
        return needle
    return str(needle).encode()


def _raw(needle: _Value) -> Iterable[bytes]:
    return () if isinstance(needle, int) else (_data(needle),)


def _latin_1(needle: _Value) -> Iterable[bytes]:
    if isinstance(needle, str) and max(needle) <= "\xff":
        yield needle.encode("latin-1")


def _utf_16(needle: _Value) -> Iterable[bytes]:
    return () if isinstance(needle, bytes) else (str(needle).encode("utf-16-le"),)


def _utf_32(needle: _Value) -> Iterable[bytes]:
    return () if isinstance(needle, bytes) else (str(needle).encode("utf-32-le"),)


def _base64(needle: _Value) -> Iterable[bytes]:
    data = _data(needle)
    for before, first in enumerate(_BASE64_FIRST):
        yield base64.b64encode(bytes(before) + data)[first : (before + len(data)) * 8 // 6]


def _base64url(needle: _Value) -> Iterable[bytes]:
    return (pattern.translate(_URLSAFE) for pattern in _base64(needle))


def _hex(needle: _Value) -> Iterable[bytes]:
    if isinstance(needle, int):
        big = f"{needle & 0xFFFF_FFFF_FFFF_FFFF:016x}"
        return big.encode(), bytes.fromhex(big)[::-1].hex().encode()
    return (_data(needle).hex().encode(),)


def _hex_upper(needle: _Value) -> Iterable[bytes]:
    return (pattern.upper() for pattern in _hex(needle))


def _json(needle: _Value) -> Iterable[bytes]:
    if isinstance(needle, str):
        yield json.dumps(needle, ensure_ascii=False)[1:-1].encode()
        yield json.dumps(needle)[1:-1].encode()


def _json_u(needle: _Value) -> Iterable[bytes]:
    if isinstance(needle, str):
        units = needle.encode("utf-16-be")
        yield b"\\u" + units.hex("\\", 2).replace("\\", "\\u").encode()
        yield b"\\u" + units.hex("\\", 2).upper().replace("\\", "\\u").encode()


def _percent(needle: _Value) -> Iterable[bytes]:
    if isinstance(needle, int):
        return
    upper = quote_from_bytes(_data(needle), safe="")
    yield upper.encode()
    if "%" in upper:
        lower = "%".join(part[:2].lower() + part[2:] if i else part for i, part in enumerate(upper.split("%")))
        yield lower.encode()
        yield upper.replace("%20", "+").encode()
        yield lower.replace("%20", "+").encode()


def _decimal(needle: _Value) -> Iterable[bytes]:
    return (str(needle).encode(),) if isinstance(needle, int) else ()


def _int64_le(needle: _Value) -> Iterable[bytes]:
    return (struct.pack("<Q", needle & 0xFFFF_FFFF_FFFF_FFFF),) if isinstance(needle, int) else ()


def _int64_be(needle: _Value) -> Iterable[bytes]:
    return (struct.pack(">Q", needle & 0xFFFF_FFFF_FFFF_FFFF),) if isinstance(needle, int) else ()


def _python_int(needle: _Value) -> Iterable[bytes]:
    if isinstance(needle, int):
        size = abs(needle)
        digits = [size >> shift & 0x3FFF_FFFF for shift in range(0, size.bit_length(), 30)]
        yield struct.pack(f"<{len(digits)}I", *digits)


def _float64(needle: _Value) -> Iterable[bytes]:
    return (struct.pack("<d", float(needle)),) if isinstance(needle, int) else ()


_FORMS: dict[str, Callable[[_Value], Iterable[bytes]]] = {
    "raw": _raw,
    "latin-1": _latin_1,
    "utf-16-le": _utf_16,
    "utf-32-le": _utf_32,
    "base64": _base64,
    "base64url": _base64url,
    "hex": _hex,
    "hex-upper": _hex_upper,
    "json": _json,
    "json-u": _json_u,
    "percent": _percent,
    "decimal": _decimal,
    "int64-le": _int64_le,
    "int64-be": _int64_be,
    "python-int": _python_int,
    "float64": _float64,
}

ENCODINGS: tuple[str, ...] = tuple(_FORMS)
"""All names, in the order in which equal forms are attributed."""


def forms(needle: _Value, encodings: Sequence[str] = ENCODINGS) -> Iterator[tuple[str, bytes]]:
    """Yield (encoding, pattern) for every distinct form of ``needle``."""
    seen: list[bytes] = []
    for encoding in encodings:
        for pattern in _FORMS[encoding](needle):
            if pattern not in seen:
                seen.append(pattern)
                yield encoding, pattern
