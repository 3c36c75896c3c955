"""One key of the store, its block in the file, and the sectors of the ciphertext that it decrypts.

A block holds the generation, the key, and offset and size of the ciphertext, with a checksum or sealed by the
operator's key.

A disk writes sectors of 512 bytes atomically, in any order. Each sector holds 496 bytes of ciphertext and a mark of 16
bytes: eight that identify the commit, and eight that are a checksum of those. After a crash a sector has this commit's
mark, a valid mark of another commit, or is empty; any other content is damage. This distinguishes a torn write from
damage.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from panstream.engine.storage.sealed_box import KEY_BYTES, open_sealed, seal
from panstream.errors import StoreDamaged, TornWrite
from panstream.primitives.noise.entropy import system_entropy

BLOCK = 4096
_MAGIC = b"PANKEY01"
_WRAPPED = b"PANKEYO1"
_END = b"KEYENDS."  # written last in the block, so that a key without it was cut short
_FIELDS = struct.Struct("<8sQ32sQQ")  # magic, generation, key, offset, size
_DIGEST = 32
_PLAIN = _FIELDS.size + _DIGEST
_SEALED = len(_WRAPPED) + _PLAIN + 28
_LABEL = b"panstream key 1"
_SECTOR = 512
_MARK = 16
_CAPACITY = _SECTOR - _MARK  # bytes of ciphertext in a sector
_PIECE = 1 << 16  # sectors that are read and written at a time

_Bytes = NDArray[np.uint8]
_NO_KEY: _Bytes = np.empty(0, np.uint8)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class KeyRecord:
    """One key, and offset and size of its ciphertext. ``slot`` is the number of its block, 0 or 1."""

    generation: int
    slot: int
    key: _Bytes = field(repr=False)
    offset: int = 0
    size: int = 0

    @classmethod
    def after(cls, current: KeyRecord | None) -> KeyRecord:
        """Draw a new key for the commit after ``current``, in the other block."""
        key = np.empty(KEY_BYTES, np.uint8)
        system_entropy(key)
        if current is None:
            return cls(generation=1, slot=0, key=key)
        return cls(generation=current.generation + 1, slot=1 - current.slot, key=key)

    @classmethod
    def read(cls, data: bytes, slot: int, operator: _Bytes | None) -> KeyRecord | None:
        """Return the record in a block, None if the block is empty or overwritten.

        Raises:
            TornWrite: The block is incomplete, as a crash can leave it.
            StoreDamaged: It is damaged, or the operator's key is missing or wrong.
        """
        if not any(data[: len(_MAGIC)]):
            return None
        wrapped = data.startswith(_WRAPPED)
        if wrapped and operator is None:
            raise StoreDamaged("this store was sealed with an operator's key: supply it")
        if not wrapped and operator is not None and data.startswith(_MAGIC):
            raise StoreDamaged("this store was made without an operator's key: open it without one")
        has_end_mark = _END in (data[_PLAIN : _PLAIN + len(_END)], data[_SEALED : _SEALED + len(_END)])
        try:
            if wrapped and operator is not None:
                sealed = memoryview(data)[len(_WRAPPED) : _SEALED]
                data = bytes(open_sealed([sealed], len(sealed), operator, _LABEL))
            return _record(data, slot)
        except StoreDamaged as error:
            refused = str(error)
        raise StoreDamaged(refused) if has_end_mark else TornWrite(refused)

    def block(self, operator: _Bytes | None) -> bytes:
        """Return the content of the block that holds this key."""
        fields = _FIELDS.pack(_MAGIC, self.generation, self.key.tobytes(), self.offset, self.size)
        plain = fields + sha256(fields).digest()
        return (plain if operator is None else _WRAPPED + seal(plain, operator, _LABEL)) + _END

    def placed(self, size: int, current: KeyRecord | None, first: int) -> KeyRecord:
        """Return the record with an offset, ``first`` or later, that does not overlap the current ciphertext."""
        if current is None or current.offset - first >= _stored_size(size):
            return replace(self, offset=first, size=size)
        return replace(self, offset=-(-current.end // BLOCK) * BLOCK, size=size)

    @property
    def end(self) -> int:
        """Return the offset behind the ciphertext."""
        return self.offset + _stored_size(self.size)

    def without_key(self) -> KeyRecord:
        """Return the record without its key, which must not stay in memory between commits."""
        return replace(self, key=_NO_KEY)

    def sectors(self, ciphertext: memoryview) -> Iterator[tuple[memoryview, int]]:
        """Yield the sectors to write, in pieces, each with its offset in the file."""
        mark = self._mark()
        pos = 0
        for offset, _, size in self._pieces():
            data = np.frombuffer(ciphertext[pos : pos + size], np.uint8)
            full_sectors, rest = divmod(size, _CAPACITY)
            out = np.zeros((-(-size // _CAPACITY), _SECTOR), np.uint8)
            out[:full_sectors, :_CAPACITY] = data[: full_sectors * _CAPACITY].reshape(full_sectors, _CAPACITY)
            if rest:
                out[full_sectors, :rest] = data[full_sectors * _CAPACITY :]
            out[:, _CAPACITY:] = mark
            yield out.reshape(-1).data, self.offset + offset
            pos += size

    def ciphertext(self, read: Callable[[int, int], bytes]) -> Iterator[memoryview]:
        """Yield the ciphertext in pieces; ``read`` takes an offset and a size."""
        for offset, length, size in self._pieces():
            stored = _rows(read(self.offset + offset, length))
            yield np.ascontiguousarray(stored[:, :_CAPACITY]).reshape(-1)[:size].data

    def cut_short(self, read: Callable[[int, int], bytes]) -> bool:
        """Return whether a crash can have left the sectors so: some are empty or of another commit, none is damaged."""
        mark = self._mark()
        missing = False
        for offset, length, _ in self._pieces():
            stored = _rows(read(self.offset + offset, length))
            others = stored[(stored[:, _CAPACITY:] != mark).any(axis=1)]
            missing = missing or bool(others.size)
            for sector_mark in np.unique(others[others.any(axis=1)][:, _CAPACITY:], axis=0):
                if _check(sector_mark[: _MARK // 2].tobytes()) != sector_mark[_MARK // 2 :].tobytes():
                    return False
        return missing

    def _mark(self) -> _Bytes:
        """Return the mark of the commit that uses this key; a hash, so that the key cannot be computed from it."""
        key_mark = sha256(b"panstream sectors" + self.key.tobytes()).digest()[: _MARK // 2]
        return np.frombuffer(key_mark + _check(key_mark), np.uint8)

    def _pieces(self) -> Iterator[tuple[int, int, int]]:
        """Yield, per piece, offset and length in the file and length of the ciphertext."""
        for sector in range(0, -(-self.size // _CAPACITY), _PIECE):
            held = min(self.size - sector * _CAPACITY, _PIECE * _CAPACITY)
            yield sector * _SECTOR, _stored_size(held), held


def _record(plain: bytes, slot: int) -> KeyRecord:
    if len(plain) < _PLAIN or not plain.startswith(_MAGIC[:6]):
        raise StoreDamaged("the key is foreign or cut short")
    if not plain.startswith(_MAGIC):
        raise StoreDamaged("the key has a version that this release does not know")
    if sha256(plain[: _FIELDS.size]).digest() != plain[_FIELDS.size : _PLAIN]:
        raise StoreDamaged("the key is damaged")
    _, generation, key, offset, size = _FIELDS.unpack_from(plain)
    secret = np.frombuffer(bytearray(key), np.uint8)
    return KeyRecord(generation=generation, slot=slot, key=secret, offset=offset, size=size)


def _stored_size(size: int) -> int:
    """Return the bytes of the file that ``size`` bytes of ciphertext take."""
    return -(-size // _CAPACITY) * _SECTOR


def _rows(stored: bytes) -> _Bytes:
    return np.frombuffer(stored, np.uint8).reshape(-1, _SECTOR)


def _check(plain: bytes) -> bytes:
    return sha256(b"panstream mark" + plain).digest()[: _MARK // 2]
