"""The block that holds one key of the store: generation, key, and where the ciphertext stands; checked, or sealed by the operator."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from panstream.errors import StoreDamaged, StoreTorn
from panstream.store.sealed import digest, fresh_key, open_sealed, seal
from panstream.store.sectors import stored_size

__all__ = ["BLOCK", "Record", "fresh_record", "key_block", "read_block"]

BLOCK = 4096
_MAGIC, _WRAPPED = b"PANKEY03", b"PANKEYO3"
_MAGIC_2, _WRAPPED_2 = b"PANKEY02", b"PANKEYO2"  # ciphertext without marks, and no end
_END = b"KEYENDS."  # written last in the block, so that a key without it was cut short
_FIELDS = struct.Struct("<8sQ32sQQ")  # magic, generation, key, place, size
_DIGEST = 32
_PLAIN = _FIELDS.size + _DIGEST
_SEALED = len(_WRAPPED) + _PLAIN + 28
_LABEL = b"panstream key 2"
_NO_KEY: NDArray[np.uint8] = np.empty(0, np.uint8)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Record:
    """One key and what it opens. ``slot`` is which of the two blocks holds it; ``marked``, whether sectors have marks."""

    generation: int
    slot: int
    key: NDArray[np.uint8] = field(repr=False)
    place: int = 0
    size: int = 0
    marked: bool = True

    def placed(self, place: int, size: int) -> Record:
        """Return the same with the place of the ciphertext."""
        return replace(self, place=place, size=size)

    @property
    def end(self) -> int:
        """Return where the ciphertext ends in the file."""
        return self.place + (stored_size(self.size) if self.marked else self.size)

    def without_key(self) -> Record:
        """Return what may be remembered."""
        return replace(self, key=_NO_KEY)


def fresh_record(current: Record | None) -> Record:
    """Return a new key for the state after ``current``, for the other block."""
    if current is None:
        return Record(generation=1, slot=0, key=fresh_key())
    return Record(generation=current.generation + 1, slot=1 - current.slot, key=fresh_key())


def key_block(record: Record, operator: NDArray[np.uint8] | None) -> bytes:
    """Return a record as bytes of its block."""
    fields = _FIELDS.pack(_MAGIC, record.generation, record.key.tobytes(), record.place, record.size)
    plain = fields + digest(fields)
    return (plain if operator is None else _WRAPPED + seal(plain, operator, _LABEL)) + _END


def read_block(data: bytes, slot: int, operator: NDArray[np.uint8] | None) -> Record | None:
    """Return the record in a block, None from an empty or overwritten one, or raise: StoreTorn if a crash can have left it so."""
    if not any(data[: len(_MAGIC)]):
        return None
    wrapped = data.startswith((_WRAPPED, _WRAPPED_2))
    if wrapped and operator is None:
        raise StoreDamaged("this store was sealed with an operator's key: supply it")
    if not wrapped and operator is not None and data.startswith((_MAGIC, _MAGIC_2)):
        raise StoreDamaged("this store was made without an operator's key: open it without one")
    whole = _END in (data[_PLAIN : _PLAIN + len(_END)], data[_SEALED : _SEALED + len(_END)])
    try:
        if wrapped and operator is not None:
            data = open_sealed(data[len(_WRAPPED) : _SEALED], operator, _LABEL)
        return _record(data, slot)
    except StoreDamaged as error:
        refused = str(error)
    raise StoreDamaged(refused) if whole else StoreTorn(refused)


def _record(plain: bytes, slot: int) -> Record:
    if len(plain) < _PLAIN or not plain.startswith(_MAGIC[:6]):
        raise StoreDamaged("the key is foreign or cut short")
    if not plain.startswith((_MAGIC, _MAGIC_2)):
        raise StoreDamaged("the key has a version that this release does not know")
    if digest(plain[: _FIELDS.size]) != plain[_FIELDS.size : _PLAIN]:
        raise StoreDamaged("the key is damaged")
    magic, generation, key, place, size = _FIELDS.unpack_from(plain)
    secret = np.frombuffer(bytearray(key), np.uint8)
    return Record(generation=generation, slot=slot, key=secret, place=place, size=size, marked=magic == _MAGIC)
