"""Exactly one readable copy of the state on disk.

A stored copy of the state is an intrusion, so history must not exist. Each commit writes the new state under a new key
beside the old one, then the new key beside the old key, waits for the disk once, and overwrites the old key. Old
ciphertext stays until it is written over, and cannot be read without a key that is gone.

::

    directory/
      lock          held while open: one writer
      state.sealed  two blocks of 4096 bytes for keys, one of which is in use; then room for two ciphertexts

A key stands with its generation and with the place of its ciphertext. What counts is the newest key whose ciphertext is
whole, so that a crash at any moment leaves the old state or the new one, in whatever order the disk wrote its blocks.
The order of a commit:

1. ciphertext, where nothing is in use, in sectors that bear this commit's mark; the new key, in the block that is not
in use;
2. one wait for the disk: from here on the new state is durable, and may be acknowledged;
3. zeros over the old key at once, and in the background another wait for the disk.

Who opens a file with two keys, and finds the newest state whole, writes it again and waits for the disk before the old
key goes: a process that was killed in 1 left the new state in the system's cache, where a loss of power takes it.

While both keys are there, a newest state that does not open can mean a crash in 1, and then nothing of it was
acknowledged and the old one is right; or damage after 2, and then the old one lacks what was acknowledged and its
answers would be drawn twice. What a crash leaves is a key without its end, or sectors that are empty or bear another
commit's mark: then the old state is opened. Any other fault is damage, and is refused unless the caller asks for the
state before. Not told from a crash: damage that leaves whole sectors empty or as they were before. Once the old key is
gone, a fault is always damage.

Rolling back a part of the file is detected. Not detected: rolling back all of it (a restored backup, a copied disk),
and old *key* blocks that an SSD or a journal keeps; put the directory on an encrypted disk and keep it out of backups.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ClassVar, Self

import numpy as np

from panstream.engine.storage._key_record import BLOCK, KeyRecord
from panstream.engine.storage.disk import Disk, wrap_os_errors
from panstream.engine.storage.sealed_box import KEY_BYTES, Sealer, open_sealed, unpack
from panstream.errors import InvalidParameter, LatestSnapshotDamaged, StoreDamaged, StoreError, TornWrite
from panstream.primitives.memory.scratch import wipe

_LABEL = b"panstream state 1"
_FIRST = 2 * BLOCK  # where ciphertext begins
_PIECE = 1 << 25  # bytes that are read at a time
_PREVIOUS = (
    "the newest state is damaged; the state before it is whole, but lacks what was acknowledged since, and its answers "
    "could be drawn twice: look for the cause, and go back to it with panstream recover"
)


class SnapshotStore:
    """The one copy of the state. Open it, ``load`` what is there, ``commit`` what replaces it.

    With ``operator_key`` (32 bytes from the operator, kept elsewhere) the keys in the file are sealed: a thief of the
    disk reads nothing. Without it, a thief of the whole disk reads the current state, which is the one intrusion that
    the claims cover. ``accept_previous`` goes back to the state before if the newest is damaged and that one is still
    there.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as directory, SnapshotStore(directory) as store:
    ...     store.commit({"query": b"noisy bits"})
    ...     store.load()
    {'query': b'noisy bits'}
    """

    disk: ClassVar[Disk] = Disk()  # a simulation puts its own in place of it

    def __init__(
        self, directory: str | os.PathLike[str], *, operator_key: bytes | None = None, accept_previous: bool = False
    ) -> None:
        if operator_key is not None and len(operator_key) != KEY_BYTES:
            raise InvalidParameter(f"operator_key must have {KEY_BYTES} bytes, got {len(operator_key)}")
        self._directory = Path(directory)
        self._path = self._directory / "state.sealed"
        self._disk = self.disk
        self._background = self._disk.background()
        self._finishing: Callable[[], None] | None = None
        self._operator = None if operator_key is None else np.frombuffer(bytearray(operator_key), np.uint8)
        self._sealer = Sealer()
        self._file = -1
        self._current: KeyRecord | None = None
        with self._explained():
            self._make_directories()
            self._lock = self._disk.lock(self._directory / "lock")
        try:
            self._open(accept_previous)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Give up the lock; the state stays on disk."""
        self._background.shutdown()  # after the state before is unreadable
        self._finishing = None
        for descriptor in (self._file, self._lock):
            if descriptor >= 0:
                self._disk.close(descriptor)
        self._file = self._lock = -1
        if self._operator is not None:
            wipe(self._operator)

    def load(self) -> dict[str, bytes] | None:
        """Return the stored parts, ``None`` from an empty store, or raise StoreDamaged without side effects."""
        if self._current is None:
            return None
        records, _ = self._keys()
        try:
            record = next((candidate for candidate in records if candidate.generation == self.generation), None)
            if record is None:
                raise StoreDamaged("the key of the state is gone: was the file altered?")
            payload = self._opened(record)
            parts = unpack(payload)
            wipe(np.frombuffer(payload, np.uint8))
            return parts
        finally:
            for candidate in records:
                wipe(candidate.key)

    @property
    def generation(self) -> int:
        """Return the number of the stored state: how many commits there were."""
        return 0 if self._current is None else self._current.generation

    def commit(self, parts: Mapping[str, bytes | memoryview], *, durable: Callable[[], None] | None = None) -> None:
        """Replace the stored state by ``parts``; when this returns, they are durable and the old ones unreadable.

        With ``durable``, that is called and this returns as soon as they are durable, while the old ones are being made
        unreadable; the next commit waits for that, as does ``close``.
        """
        if self._lock < 0:
            raise StoreError("the store is closed")
        record = KeyRecord.after(self._current)
        try:
            with self._explained():
                label = _LABEL + struct.pack("<Q", record.generation)
                sealed = self._sealer.seal(parts, record.key, label)
                self._finish()  # there are two slots: the one before must be gone before its place is written
                placed = record.placed(len(sealed), self._current, _FIRST)
                if self._current is None:
                    self._create(placed, sealed)
                else:
                    self._replace(placed, sealed)
            # Only now may the old key go: a crash before this leaves two whole states, and the newest is opened.
            previous = self._current
            self._current = placed.without_key()
            if previous is not None:
                with contextlib.suppress(OSError):  # then burying it tells
                    self._overwrite(previous.slot)
                self._finishing = self._background.submit(self._erase_key, previous.slot).result
            if durable is None:
                self._finish()
            else:
                durable()
        finally:
            wipe(record.key)

    def _make_directories(self) -> None:
        """Make the directory and those above it that are missing, each durable before there is one in it."""
        existing = next(
            directory for directory in (self._directory, *self._directory.parents) if self._disk.exists(directory)
        )
        with contextlib.suppress(PermissionError):  # then it is not one of those
            self._disk.sync_directory(existing.parent)  # a process that was killed may not have come to it
        for name in self._directory.relative_to(existing).parts:
            existing = existing / name
            self._disk.make_directory(existing)
            self._disk.sync_directory(existing.parent)

    def _create(self, record: KeyRecord, sealed: memoryview) -> None:
        """Write the first state to a file of another name, so that a file of this name is always whole."""
        new = self._path.with_suffix(".new")
        self._file = self._disk.open(new, create=True)
        try:
            self._write(bytes(_FIRST), 0)
            self._write_ciphertext(record, sealed)
            self._disk.replace(new, self._path)
            self._disk.sync_directory(self._directory)
        except BaseException:
            descriptor = self._file
            self._file = -1
            self._disk.close(descriptor)
            with contextlib.suppress(OSError):
                self._disk.remove(new)
            raise

    def _replace(self, record: KeyRecord, sealed: memoryview) -> None:
        """Write state and key to blocks that are not in use, and wait for the disk once."""
        self._disk.reserve(self._file, record.end)
        try:
            self._write_ciphertext(record, sealed)
        except BaseException:
            with contextlib.suppress(OSError):
                self._erase_key(record.slot)
            raise

    def _write_ciphertext(self, record: KeyRecord, sealed: memoryview) -> None:
        """Write a state and its key, and wait for the disk."""
        for data, offset in record.sectors(sealed):
            self._write(data, offset)
        self._write(record.block(self._operator), record.slot * BLOCK)
        self._disk.sync(self._file)

    def _write(self, data: bytes | memoryview, offset: int) -> None:
        self._disk.write(self._file, data, offset)

    def _overwrite(self, slot: int) -> None:
        self._write(bytes(BLOCK), slot * BLOCK)

    def _erase_key(self, slot: int) -> None:
        """Overwrite a key, and wait until it is gone from the disk."""
        self._overwrite(slot)
        self._disk.sync(self._file)

    def _finish(self) -> None:
        """Wait until the state before is unreadable."""
        finishing = self._finishing
        self._finishing = None
        if finishing is not None:
            with self._explained():
                finishing()

    def _open(self, accept_previous: bool) -> None:
        """Find the newest whole state, and overwrite what a crash left of others."""
        with self._explained():
            self._disk.remove(self._path.with_suffix(".new"))
            if not self._disk.exists(self._path):
                return
            self._disk.sync_directory(self._directory)  # the same for the file's name
            self._file = self._disk.open(self._path)
        records, damaged = self._keys()
        try:
            if damaged and not accept_previous:
                raise LatestSnapshotDamaged(_PREVIOUS)
            self._current = self._newest(records, accept_previous).without_key()
            other = 1 - self._current.slot
            if any(self._read(other * BLOCK, BLOCK)):
                with self._explained():
                    self._write_again(self._current)
                    self._erase_key(other)
        finally:
            for record in records:
                wipe(record.key)

    def _write_again(self, record: KeyRecord) -> None:
        """Make what was read durable before the only other state goes: a process that was killed before it waited for
        the disk, or that the disk refused, may have left it in the system's cache alone.
        """
        for start, end in ((record.slot * BLOCK, (record.slot + 1) * BLOCK), (record.offset, record.end)):
            for offset in range(start, end, _PIECE):
                self._write(self._read(offset, min(_PIECE, end - offset)), offset)
        self._disk.sync(self._file)

    def _newest(self, records: list[KeyRecord], accept_previous: bool) -> KeyRecord:
        """Return the newest record that opens its ciphertext: the one before it counts if a crash came in between."""
        if len(records) == 1:
            return records[0]  # load tells whether it opens
        newest, previous = records
        try:
            self._opened(newest)
        except StoreDamaged as error:
            torn = isinstance(error, TornWrite)
        else:
            return newest
        self._opened(previous)
        if not torn and not accept_previous:
            raise LatestSnapshotDamaged(_PREVIOUS)
        return previous

    def _keys(self) -> tuple[list[KeyRecord], bool]:
        """Return the keys in the file, newest first, and whether one is damaged; raise StoreDamaged if none can be
        read.
        """
        records = []
        refused = StoreDamaged("the file holds no key: it is foreign, damaged or cut short")
        damaged = False
        for slot in (0, 1):
            try:
                record = KeyRecord.read(self._read(slot * BLOCK, BLOCK), slot, self._operator)
            except StoreDamaged as error:
                refused = error
                damaged = damaged or not isinstance(error, TornWrite)
            else:
                records += [] if record is None else [record]
        if not records:
            raise refused
        return sorted(records, key=lambda record: record.generation, reverse=True), damaged

    def _opened(self, record: KeyRecord) -> memoryview:
        """Return the plain state; raise StoreDamaged, or TornWrite where a crash can have left it so."""
        if self._disk.size(self._file) < record.end:
            raise TornWrite("the state does not fit its key: it was cut short")
        label = _LABEL + struct.pack("<Q", record.generation)
        try:
            return open_sealed(record.ciphertext(self._read), record.size, record.key, label)
        except StoreDamaged as error:
            refused = str(error)
        raise TornWrite(refused) if record.cut_short(self._read) else StoreDamaged(refused)

    def _explained(self) -> contextlib.AbstractContextManager[None]:
        problem = f"cannot use the store in {self._directory.name!r}"
        intact = "what was stored before is intact"
        return wrap_os_errors(lambda reason: f"{problem}: {reason or 'input/output error'}; {intact}")

    def _read(self, offset: int, size: int) -> bytes:
        with self._explained():
            return self._disk.read(self._file, size, offset)
