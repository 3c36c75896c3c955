"""Random values to search for, which cannot be in memory by chance."""

from __future__ import annotations

from typing import Literal, overload

import numpy as np
from numpy.typing import NDArray

from panstream.errors import InvalidParameter
from panstream.primitives.noise.entropy import system_entropy

Needle = bytes | str | int
"""Bytes, text, or an integer that fits 64 bits."""

LONGEST = 1024  # bytes


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

    A string is their hexadecimal text (default size 16). An integer (size 8, or 7) is positive with its second highest
    bit set, so it fits a signed integer of that size and has 8·size - 2 random bits.

    >>> len(make_needles(3)[0]), len(make_needles(3, "bytes", 8)[0]), make_needles(1, "int")[0].bit_length()
    (32, 8, 63)
    """
    if kind not in ("string", "bytes", "int"):
        raise InvalidParameter(f"kind must be 'string', 'bytes' or 'int', got kind={kind!r}")
    size = (8 if kind == "int" else 16) if size is None else size
    min_size, max_size = (7, 8) if kind == "int" else (6, LONGEST // 2)
    if not min_size <= size <= max_size:
        raise InvalidParameter(f"size must be in {min_size}..{max_size} for kind={kind!r}, got size={size}")
    entropy: NDArray[np.uint8] = np.empty((n, size), np.uint8)
    system_entropy(entropy.reshape(-1))
    rows = [row.tobytes() for row in entropy]
    if kind == "string":
        return [row.hex() for row in rows]
    if kind == "bytes":
        return rows
    top = 1 << (8 * size - 2)
    return [int.from_bytes(row, "little") % top + top for row in rows]
