"""Exactly one readable copy of the state on disk.

Every stored copy of the state is one that an attacker may take, so no history may exist. Each commit writes the new
state under a new key next to the old one, waits for the disk once, and overwrites the old key. Old ciphertext stays in
the file until it is overwritten, and cannot be decrypted without its key.

::

    directory/
      lock          held while open: one writer
      state.sealed  two blocks of 4096 bytes for keys, one of which is in use; then up to two ciphertexts

A key block also has its generation and the offset and size of its ciphertext. The current state is that of the newest
key with a complete ciphertext, so a crash at any moment leaves the old state or the new one, in whatever order the
disk wrote its blocks. The steps of a commit:

1. Write the ciphertext to unused sectors, with this commit's mark, and the new key to the unused block. A copy of the
   disk made from here until the end of step 3 holds both states, which reveal no more than one of them about users
   without rows in this commit (docs/proofs/joint-loss.md, "Memory ahead of disk").
2. Wait for the disk once. The new state is durable and may be acknowledged.
3. Overwrite the old key with zeros, and wait for the disk again, in the background.

When a file is opened that has two keys, and its newest state is complete, that state is written again and synced
before the old key is erased: a process that was killed in step 1 may have left it in the page cache only, where a
power failure would lose it.

While both keys exist, a newest state that cannot be decrypted means one of two things. After a crash in step 1, nothing
of it was acknowledged, and the old state is correct. After damage since step 2, the old state lacks acknowledged rows,
and its releases would be drawn twice. A crash leaves a key without its end mark, or sectors that are empty or have
another commit's mark; then the old state is opened. Everything else is damage and raises, unless the caller asks for
the previous state. Damage that empties complete sectors, or restores their old content, is taken for a crash. Once the
old key is erased, every fault is damage.

Rolling back a part of the file is detected. Not detected: rolling back all of it (a restored backup, a copied disk),
and old *key* blocks that an SSD or a journal retains; put the directory on an encrypted disk and keep it out of
backups.
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
_FIRST = 2 * BLOCK  # offset of the first ciphertext
_PIECE = 1 << 25  # bytes that are read at a time
_PREVIOUS = (
    "the newest state is damaged; the state before it is intact, but lacks what was acknowledged since, and its "
    "answers could be drawn twice: look for the cause, then restore that state with panstream recover"
)


class SnapshotStore:
    """The single copy of the state: ``load`` the current one, ``commit`` its replacement.

    Args:
        directory: Created if missing; locked while open.
        operator_key: 32 bytes, stored elsewhere by the operator, that seal the keys in the file: a copy of the disk
            reveals nothing then. Without it, a copy of the disk reveals the current state, which is the one intrusion
            that the claims cover.
        accept_previous: Return to the previous state if the newest is damaged and the previous one still exists.

    Raises:
        StoreLocked: Another process has the store open.
        LatestSnapshotDamaged: The newest state is damaged, and the previous one still exists.
        StoreDamaged: No state can be decrypted.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as directory, SnapshotStore(directory) as store:
    ...     store.commit({"query": b"noisy bits"})
    ...     store.load()
    {'query': b'noisy bits'}
    """

    disk: ClassVar[Disk] = Disk()  # replaced by simulations

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
        """Wait until the previous key is erased, and release the lock; the state stays on disk."""
        self._background.shutdown()
        self._finishing = None
        for descriptor in (self._file, self._lock):
            if descriptor >= 0:
                self._disk.close(descriptor)
        self._file = self._lock = -1
        if self._operator is not None:
            wipe(self._operator)

    def load(self) -> dict[str, bytes] | None:
        """Return the stored parts, None from an empty store; raise StoreDamaged without side effects."""
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
        """Return the number of commits so far."""
        return 0 if self._current is None else self._current.generation

    def commit(self, parts: Mapping[str, bytes | memoryview], *, durable: Callable[[], None] | None = None) -> None:
        """Replace the stored state by ``parts``; on return they are durable, and the old key is erased.

        Args:
            parts: The new state, by name.
            durable: Called as soon as ``parts`` are durable. The old key is then erased in the background, and the
                next commit or ``close`` waits for that.
        """
        if self._lock < 0:
            raise StoreError("the store is closed")
        record = KeyRecord.after(self._current)
        try:
            with self._explained():
                label = _LABEL + struct.pack("<Q", record.generation)
                sealed = self._sealer.seal(parts, record.key, label)
                self._finish()  # this commit reuses the slot of the previous key, so it must be erased by now
                placed = record.placed(len(sealed), self._current, _FIRST)
                if self._current is None:
                    self._create(placed, sealed)
                else:
                    self._replace(placed, sealed)
            # Commit point passed. A crash before the old key is erased leaves two complete states; the newest counts.
            previous = self._current
            self._current = placed.without_key()
            if previous is not None:
                with contextlib.suppress(OSError):  # _erase_key writes again, and reports the error
                    self._overwrite(previous.slot)
                self._finishing = self._background.submit(self._erase_key, previous.slot).result
            if durable is None:
                self._finish()
            else:
                durable()
        finally:
            wipe(record.key)

    def _make_directories(self) -> None:
        """Create the directory and its missing parents, each durable before the next is created in it."""
        existing = next(
            directory for directory in (self._directory, *self._directory.parents) if self._disk.exists(directory)
        )
        with contextlib.suppress(PermissionError):  # then this program did not create it
            self._disk.sync_directory(existing.parent)  # a killed process may have created it without syncing
        for name in self._directory.relative_to(existing).parts:
            existing = existing / name
            self._disk.make_directory(existing)
            self._disk.sync_directory(existing.parent)

    def _create(self, record: KeyRecord, sealed: memoryview) -> None:
        """Write the first state to a temporary file and rename it, so that ``state.sealed`` is always complete."""
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
        """Write state and key to unused blocks, and sync once; erase the new key if that fails."""
        self._disk.reserve(self._file, record.end)
        try:
            self._write_ciphertext(record, sealed)
        except BaseException:
            with contextlib.suppress(OSError):
                self._erase_key(record.slot)
            raise

    def _write_ciphertext(self, record: KeyRecord, sealed: memoryview) -> None:
        """Write a state and its key, and sync."""
        for data, offset in record.sectors(sealed):
            self._write(data, offset)
        self._write(record.block(self._operator), record.slot * BLOCK)
        self._disk.sync(self._file)

    def _write(self, data: bytes | memoryview, offset: int) -> None:
        self._disk.write(self._file, data, offset)

    def _overwrite(self, slot: int) -> None:
        self._write(bytes(BLOCK), slot * BLOCK)

    def _erase_key(self, slot: int) -> None:
        """Overwrite a key, and sync."""
        self._overwrite(slot)
        self._disk.sync(self._file)

    def _finish(self) -> None:
        """Wait until the previous key is erased; raise if that failed."""
        finishing = self._finishing
        self._finishing = None
        if finishing is not None:
            with self._explained():
                finishing()

    def _open(self, accept_previous: bool) -> None:
        """Find the newest complete state, and erase the key that a crash left of another one."""
        with self._explained():
            self._disk.remove(self._path.with_suffix(".new"))
            if not self._disk.exists(self._path):
                return
            self._disk.sync_directory(self._directory)  # a killed process may have renamed the file without syncing
            self._file = self._disk.open(self._path)
        records, damaged = self._keys()
        try:
            if damaged and not accept_previous:
                raise LatestSnapshotDamaged(_PREVIOUS)
            self._current = self._newest(records, accept_previous).without_key()
            other = 1 - self._current.slot
            if any(self._read(other * BLOCK, BLOCK)):
                with self._explained():
                    self._rewrite(self._current)
                    self._erase_key(other)
        finally:
            for record in records:
                wipe(record.key)

    def _rewrite(self, record: KeyRecord) -> None:
        """Write and sync a state that may be in the page cache only, before the key of the other state is erased."""
        for start, end in ((record.slot * BLOCK, (record.slot + 1) * BLOCK), (record.offset, record.end)):
            for offset in range(start, end, _PIECE):
                self._write(self._read(offset, min(_PIECE, end - offset)), offset)
        self._disk.sync(self._file)

    def _newest(self, records: list[KeyRecord], accept_previous: bool) -> KeyRecord:
        """Return the newest record whose ciphertext can be decrypted, or the previous one after a torn write."""
        if len(records) == 1:
            return records[0]  # load() reports whether it can be decrypted
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
        """Return the valid keys, newest first, and whether another is damaged; raise StoreDamaged without any."""
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
        """Return the decrypted state; raise TornWrite if a crash can have left it incomplete, else StoreDamaged."""
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
