"""Values to look for: unguessable ones made afresh, and the rules that given ones must meet."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, overload

import numpy as np
from numpy.typing import NDArray

from panstream.errors import InvalidParameter
from panstream.randomness.entropy import system_entropy

__all__ = ["LONGEST", "Needle", "checked", "make_needles"]

Needle = bytes | str | int
"""Bytes, text, or an integer that fits 64 bits."""

LONGEST = 1024
_BITS = 48


@overload
def make_needles(n: int, kind: Literal["string"] = "string", size: int | None = None) -> list[str]: ...
@overload
def make_needles(n: int, kind: Literal["bytes"], size: int | None = None) -> list[bytes]: ...
@overload
def make_needles(n: int, kind: Literal["int"], size: int | None = None) -> list[int]: ...
def make_needles(
    n: int, kind: Literal["string", "bytes", "int"] = "string", size: int | None = None
) -> list[str] | list[bytes] | list[int]:
    """Return ``n`` needles, each from ``size`` fresh random bytes.

    A string is their hexadecimal text (size 16 unless told otherwise). An integer (size 8, or 7) is positive with its
    last bit but one set, so it fits a signed integer of that size and has 8·size - 2 random bits.

    >>> len(make_needles(3)[0]), len(make_needles(3, "bytes", 8)[0]), make_needles(1, "int")[0].bit_length()
    (32, 8, 63)
    """
    if kind not in ("string", "bytes", "int"):
        raise InvalidParameter(f"kind must be 'string', 'bytes' or 'int', got kind={kind!r}")
    size = (8 if kind == "int" else 16) if size is None else size
    least, most = (7, 8) if kind == "int" else (6, LONGEST // 2)
    if not least <= size <= most:
        raise InvalidParameter(f"size must be in {least}..{most} for kind={kind!r}, got size={size}")
    entropy: NDArray[np.uint8] = np.empty((n, size), np.uint8)
    system_entropy(entropy.reshape(-1))
    rows = [row.tobytes() for row in entropy]
    if kind == "string":
        return [row.hex() for row in rows]
    if kind == "bytes":
        return rows
    top = 1 << (8 * size - 2)
    return [int.from_bytes(row, "little") % top + top for row in rows]


def checked(needles: Iterable[object], name: str) -> list[Needle]:
    """Return ``needles`` as plain values, or refuse the first that is too short, too long or of another type."""
    result = [_checked(needle, name, position) for position, needle in enumerate(needles)]
    if len(set(result)) != len(result):
        raise InvalidParameter(f"{name} must be distinct, got {len(result) - len(set(result))} repeated")
    return result


def _checked(needle: object, name: str, position: int) -> Needle:
    if isinstance(needle, bool) or not isinstance(needle, str | bytes | bytearray | int | np.integer):
        raise InvalidParameter(f"{name} must be str, bytes or int, got {type(needle).__name__} at {name}[{position}]")
    if isinstance(needle, int | np.integer):
        value = int(needle)
        if not -(1 << 63) <= value < 1 << 64 or abs(value).bit_length() < _BITS:
            raise InvalidParameter(
                f"integer {name} must have at least {_BITS} bits and fit in 64, "
                f"got {abs(value).bit_length()} bits at {name}[{position}]"
            )
        return value
    try:
        plain = str(needle) if isinstance(needle, str) else bytes(needle)
        size = len(plain.encode() if isinstance(plain, str) else plain)
    except UnicodeEncodeError:
        raise InvalidParameter(f"{name} must be valid Unicode, {name}[{position}] is not") from None
    if len(plain) * 8 < _BITS or size > LONGEST:
        raise InvalidParameter(
            f"{name} must have at least {_BITS} bits ({_BITS // 8} bytes or characters) and at most {LONGEST} bytes, "
            f"got {len(plain)} at {name}[{position}]"
        )
    return plain
