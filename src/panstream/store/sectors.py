"""Ciphertext in sectors that say which commit wrote them, so that a write cut short by a crash is told from damage.

A disk writes sectors of 512 bytes as wholes, in any order. Each holds 496 bytes of ciphertext and a mark of 16: eight that
are the commit's own, and eight that are computed from those. After a crash a sector has the commit's mark, or another
commit's, or is empty; anything else no write has left there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from panstream.store.sealed import digest

__all__ = ["SECTOR", "cut_short", "mark_of", "pieces", "stored_size", "with_marks", "without_marks"]

SECTOR = 512
_MARK = 16
_ROOM = SECTOR - _MARK
_PIECE = 1 << 16  # sectors that are read and written at a time

Bytes = NDArray[np.uint8]


def stored_size(size: int) -> int:
    """Return how many bytes of the file so many bytes of ciphertext take."""
    return -(-size // _ROOM) * SECTOR


def mark_of(key: Bytes) -> Bytes:
    """Return the mark of the one commit that uses this key; the key cannot be had from it."""
    own = digest(b"panstream sectors" + key.tobytes())[: _MARK // 2]
    return np.frombuffer(own + _check(own), np.uint8)


def pieces(size: int) -> Iterator[tuple[int, int, int]]:
    """Yield offset and length in the file, and length of the ciphertext, of every piece of so many bytes of ciphertext."""
    for sector in range(0, -(-size // _ROOM), _PIECE):
        held = min(size - sector * _ROOM, _PIECE * _ROOM)
        yield sector * SECTOR, stored_size(held), held


def with_marks(part: memoryview, mark: Bytes) -> Bytes:
    """Return a piece of ciphertext as the sectors to write."""
    data = np.frombuffer(part, np.uint8)
    whole, rest = divmod(data.size, _ROOM)
    out = np.zeros((-(-data.size // _ROOM), SECTOR), np.uint8)
    out[:whole, :_ROOM] = data[: whole * _ROOM].reshape(whole, _ROOM)
    if rest:
        out[whole, :rest] = data[whole * _ROOM :]
    out[:, _ROOM:] = mark
    return out


def without_marks(stored: bytes, size: int) -> Bytes:
    """Return the ciphertext in some sectors."""
    return np.ascontiguousarray(_sectors(stored)[:, :_ROOM]).reshape(-1)[:size]


def cut_short(stored: Iterable[bytes], mark: Bytes) -> bool:
    """Return whether sectors that do not open were left by a crash: some of another commit, or empty, and none damaged."""
    missing = False
    for piece in stored:
        sectors = _sectors(piece)
        others = sectors[(sectors[:, _ROOM:] != mark).any(axis=1)]
        missing = missing or bool(others.size)
        for found in np.unique(others[others.any(axis=1)][:, _ROOM:], axis=0):
            if _check(found[: _MARK // 2].tobytes()) != found[_MARK // 2 :].tobytes():
                return False
    return missing


def _sectors(stored: bytes) -> Bytes:
    return np.frombuffer(stored, np.uint8).reshape(-1, SECTOR)


def _check(own: bytes) -> bytes:
    return digest(b"panstream mark" + own)[: _MARK // 2]
