"""The byte patterns in which a needle may be in memory.

===========  ===============  ============================================================================
name         of               pattern
===========  ===============  ============================================================================
raw          str, bytes       UTF-8, or the bytes themselves
latin-1      str              one byte a character, as Python stores text below U+0100
utf-16-le    str, int         text (of an integer: its decimal digits)
utf-32-le    str, int         text
base64       str, bytes, int  the characters that only the needle determines, for each of three alignments
base64url    str, bytes, int  the same in the URL-safe alphabet
hex          str, bytes, int  lower-case digits (of an integer: of its 8 bytes, in both orders)
hex-upper    str, bytes, int  upper-case digits
json         str              as ``json.dumps`` writes it, with and without ``ensure_ascii``
json-u       str              every character as ``\\uXXXX``, lower and upper case
percent      str, bytes       percent-encoding, lower and upper case, and the form encoding of blanks
decimal      int              decimal digits
int64-le     int              8 bytes, little endian, two's complement
int64-be     int              8 bytes, big endian
python-int   int              30-bit digits in 32-bit words, as Python stores integers
float64      int              the nearest double
===========  ===============  ============================================================================

A form that equals an earlier one of the same needle is omitted, so that an occurrence is counted under one name.
"""

from __future__ import annotations

import json
import struct
from binascii import b2a_base64
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import quote_from_bytes

SHORTEST = 6
_BASE64_FIRST = (0, 2, 3)  # the first character that does not depend on k bytes before the needle
_64_BITS = (1 << 64) - 1
_URLSAFE = bytes.maketrans(b"+/", b"-_")

_Forms = Callable[[Any], Iterable[bytes]]


def _text(encoding: str) -> _Forms:
    return lambda needle: (str(needle).encode(encoding),)


def _word(layout: str) -> _Forms:
    return lambda needle: (struct.pack(layout, needle & _64_BITS),)


def _changed(forms: _Forms, change: Callable[[bytes], bytes]) -> _Forms:
    return lambda needle: [change(pattern) for pattern in forms(needle)]


def _base64(needle: str | bytes | int) -> Iterable[bytes]:
    data = needle if isinstance(needle, bytes) else str(needle).encode()
    return [
        b2a_base64(bytes(k) + data, newline=False)[first : (k + len(data)) * 8 // 6]
        for k, first in enumerate(_BASE64_FIRST)
    ]


def _hex(needle: str | bytes) -> Iterable[bytes]:
    return ((needle if isinstance(needle, bytes) else needle.encode()).hex().encode(),)


def _hex_integer(needle: int) -> Iterable[bytes]:
    return [struct.pack(layout, needle & _64_BITS).hex().encode() for layout in (">Q", "<Q")]


def _json(needle: str) -> Iterable[bytes]:
    return json.dumps(needle, ensure_ascii=False)[1:-1].encode(), json.dumps(needle)[1:-1].encode()


def _json_u(needle: str) -> Iterable[bytes]:
    units = needle.encode("utf-16-be").hex("\\", 2)
    return [b"\\u" + digits.replace("\\", "\\u").encode() for digits in (units, units.upper())]


def _percent(needle: str | bytes) -> Iterable[bytes]:
    upper = quote_from_bytes(needle if isinstance(needle, bytes) else needle.encode(), safe="")
    if "%" not in upper:
        return (upper.encode(),)
    first, *rest = upper.split("%")
    lower = "%".join([first, *(part[:2].lower() + part[2:] for part in rest)])
    return [text.encode() for case in (upper, lower) for text in (case, case.replace("%20", "+"))]


def _python_int(needle: int) -> Iterable[bytes]:
    size = abs(needle)
    digits = [size >> shift & 0x3FFF_FFFF for shift in range(0, size.bit_length(), 30)]
    return (struct.pack(f"<{len(digits)}I", *digits),)


_FORMS: dict[str, dict[str, _Forms]] = {
    "raw": {"str": _text("utf-8"), "bytes": lambda needle: (needle,)},
    "latin-1": {"str": lambda needle: (needle.encode("latin-1"),) if max(needle) <= "\xff" else ()},
    "utf-16-le": dict.fromkeys(("str", "int"), _text("utf-16-le")),
    "utf-32-le": dict.fromkeys(("str", "int"), _text("utf-32-le")),
    "base64": dict.fromkeys(("str", "bytes", "int"), _base64),
    "base64url": dict.fromkeys(("str", "bytes", "int"), _changed(_base64, lambda text: text.translate(_URLSAFE))),
    "hex": {"str": _hex, "bytes": _hex, "int": _hex_integer},
    "hex-upper": {
        kind: _changed(form, bytes.upper) for kind, form in (("str", _hex), ("bytes", _hex), ("int", _hex_integer))
    },
    "json": {"str": _json},
    "json-u": {"str": _json_u},
    "percent": {"str": _percent, "bytes": _percent},
    "decimal": {"int": _text("utf-8")},
    "int64-le": {"int": _word("<Q")},
    "int64-be": {"int": _word(">Q")},
    "python-int": {"int": _python_int},
    "float64": {"int": lambda needle: (struct.pack("<d", float(needle)),)},
}

ENCODINGS: tuple[str, ...] = tuple(_FORMS)
"""All names; a form that equals an earlier one is counted under the earlier name."""


def forms(needle: str | bytes | int, encodings: Sequence[str] = ENCODINGS) -> Iterator[tuple[str, bytes]]:
    """Yield (encoding, pattern) for every distinct form of ``needle``."""
    seen: list[bytes] = []
    for encoding, function in _functions(type(needle).__name__, tuple(encodings)):
        for pattern in function(needle):
            if pattern not in seen:
                seen.append(pattern)
                yield encoding, pattern


@lru_cache
def _functions(kind: str, encodings: tuple[str, ...]) -> list[tuple[str, _Forms]]:
    return [(encoding, _FORMS[encoding][kind]) for encoding in encodings if kind in _FORMS[encoding]]
