"""Exactly one readable copy of the state on disk.

A stored copy of the state is an intrusion, so history must not exist. Each commit writes the new state under a new key,
then replaces the key file (the commit point), overwrites the old key and deletes the old ciphertext. Whatever blocks of old ciphertext
survive on the medium cannot be read without a key that is gone.

::

    directory/
      lock            held while open: one writer
      key             generation, key of the current ciphertext, its digest; replaced atomically
      state-N.sealed  ciphertext of generation N

Rolling back one of the two files is detected. Not detected: rolling back both together (a restored backup, a copied
disk), and old *key* blocks that an SSD or a journal keeps; put the directory on an encrypted disk and keep it
out of backups.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from panstream.errors import InvalidParameter, StoreDamaged, StoreError, StoreLocked
from panstream.store.sealed import KEY_BYTES, digest, fresh_key, open_sealed, pack, seal, unpack, wipe_key

__all__ = ["SnapshotStore"]

T = TypeVar("T")

_MAGIC = b"PANKEY01"
_RECORD = struct.Struct("<8sQ32s32s")  # magic, generation, key, digest of the ciphertext
_LABEL = b"panstream state 1"
_KEY_LABEL = b"panstream key 1"


class SnapshotStore:
    """The one copy of the state. Open it, ``load`` what is there, ``commit`` what replaces it.

    With ``operator_key`` (32 bytes from the operator, kept elsewhere) the key file itself is sealed: a thief of the disk
    reads nothing. Without it, a thief of the whole disk reads the current state, which is the one intrusion that the claims cover.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as directory, SnapshotStore(directory) as store:
    ...     store.commit({"query": b"noisy bits"})
    ...     store.load()
    {'query': b'noisy bits'}
    """

    def __init__(self, directory: str | os.PathLike[str], *, operator_key: bytes | None = None) -> None:
        if operator_key is not None and len(operator_key) != KEY_BYTES:
            raise InvalidParameter(f"operator_key must have {KEY_BYTES} bytes, got {len(operator_key)}")
        self._directory = Path(directory)
        self._syncer: ThreadPoolExecutor | None = None
        self._finishing: Future[None] | None = None
        self._operator = None if operator_key is None else np.frombuffer(bytearray(operator_key), np.uint8)
        with _explained(self._directory):
            self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = _lock(self._directory / "lock")
        try:
            record = self._read_key()
            self._generation = 0 if record is None else record[0]
            wipe_key(None if record is None else record[1])
            self._sweep()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Give up the lock; the state stays on disk."""
        if self._syncer is not None:
            self._syncer.shutdown()  # after the state before is unreadable
            self._syncer = self._finishing = None
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
        wipe_key(self._operator)

    def load(self) -> dict[str, bytes] | None:
        """Return the stored parts, ``None`` from an empty store, or raise StoreDamaged without side effects."""
        record = self._read_key()
        if record is None:
            return None
        generation, key, expected = record
        try:
            sealed = self._read(self._sealed(generation))
            if sealed is None:
                raise StoreDamaged("the state file is missing or older than its key: was one of the two rolled back?")
            if digest(sealed) != expected:
                raise StoreDamaged("the state file does not fit its key file: it was altered or cut short")
            return unpack(open_sealed(sealed, key, _LABEL + struct.pack("<Q", generation)))
        finally:
            wipe_key(key)

    def commit(self, parts: Mapping[str, bytes], *, durable: Callable[[], None] | None = None) -> None:
        """Replace the stored state by ``parts``; when this returns, they are durable and the old ones unreadable.

        With ``durable``, that is called and this returns as soon as they are durable, while the old ones are being made
        unreadable; the next commit waits for that, as does ``close``.
        """
        if self._lock < 0:
            raise StoreError("the store is closed")
        self._finish()
        generation, key = self._generation + 1, fresh_key()
        target, key_file, new_key_file = self._sealed(generation), self._directory / "key", self._directory / "key.new"
        try:
            with _explained(self._directory):
                sealed = seal(pack(parts), key, _LABEL + struct.pack("<Q", generation))
                self._write_durably((target, sealed), (new_key_file, self._key_record(generation, key, digest(sealed))))
                with contextlib.ExitStack() as opened:
                    old = opened.enter_context(_opened(key_file))
                    os.replace(new_key_file, key_file)  # the commit point: from here on only the new state counts
                    self._generation = generation
                    _sync_directory(self._directory)
                    kept = opened.pop_all()
                self._finishing = self._in_background(self._bury, kept, old, generation - 1)
                if durable is None:
                    self._finish()
                else:
                    durable()
        except BaseException:
            if self._generation != generation:
                with contextlib.suppress(OSError):
                    target.unlink(missing_ok=True)
                    new_key_file.unlink(missing_ok=True)
            raise
        finally:
            wipe_key(key)

    def _bury(self, kept: contextlib.ExitStack, old: int | None, generation: int) -> None:
        """Overwrite the old key and remove what it opened."""
        with kept:
            _overwrite(old)
        self._sealed(generation).unlink(missing_ok=True)

    def _finish(self) -> None:
        """Wait until the state before is unreadable."""
        finishing, self._finishing = self._finishing, None
        if finishing is not None:
            with _explained(self._directory):
                finishing.result()

    def _in_background(self, work: Callable[..., T], *given: Any) -> Future[T]:
        if self._syncer is None:
            self._syncer = ThreadPoolExecutor(1, "sync")
        return self._syncer.submit(work, *given)

    def _write_durably(self, *files: tuple[Path, bytes]) -> None:
        """Write files and wait for the disk once, not once for each."""
        with contextlib.ExitStack() as opened:
            written = [opened.enter_context(_written(path, data)) for path, data in files]
            others = [self._in_background(os.fsync, descriptor) for descriptor in written[1:]]
            try:
                os.fsync(written[0])
            finally:
                wait(others)
            for other in others:
                other.result()

    def _key_record(self, generation: int, key: NDArray[np.uint8], expected: bytes) -> bytes:
        record = bytearray(_RECORD.pack(_MAGIC, generation, key.tobytes(), expected))
        plain = bytes(record) + digest(bytes(record))
        return plain if self._operator is None else b"PANKEYOP" + seal(plain, self._operator, _KEY_LABEL)

    def _read_key(self) -> tuple[int, NDArray[np.uint8], bytes] | None:
        data = self._read(self._directory / "key")
        if data is None:
            return None
        wrapped = data.startswith(b"PANKEYOP")
        if wrapped and self._operator is None:
            raise StoreDamaged("this store was sealed with an operator's key: supply it")
        if not wrapped and self._operator is not None:
            raise StoreDamaged("this store was made without an operator's key: open it without one")
        if wrapped and self._operator is not None:
            data = open_sealed(data[8:], self._operator, _KEY_LABEL)
        if len(data) != _RECORD.size + 32 or not data.startswith(_MAGIC[:6]):
            raise StoreDamaged("the key file is foreign or cut short")
        if not data.startswith(_MAGIC):
            raise StoreDamaged("the key file has a version that this release does not know")
        if digest(data[:-32]) != data[-32:]:
            raise StoreDamaged("the key file is damaged")
        _, generation, key, expected = _RECORD.unpack_from(data)
        return generation, np.frombuffer(bytearray(key), np.uint8), expected

    def _read(self, path: Path) -> bytes | None:
        with _explained(self._directory):
            return path.read_bytes() if path.exists() else None

    def _sealed(self, generation: int) -> Path:
        return self._directory / f"state-{generation}.sealed"

    def _sweep(self) -> None:
        """Remove what a crash left: ciphertexts that the key file does not name, and a key that was never committed."""
        keep = self._sealed(self._generation)
        for leftover in [*self._directory.glob("state-*.sealed"), self._directory / "key.new"]:
            if leftover != keep:
                leftover.unlink(missing_ok=True)


@contextlib.contextmanager
def _explained(directory: Path) -> Iterator[None]:
    """Turn the operating system's refusals into a StoreError that says what to do."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or "input/output error"
        message = f"cannot use the store in {directory.name!r}: {reason}; what was stored before is intact"
    else:
        return
    raise StoreError(message)


def _lock(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if os.name == "posix":
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        else:
            import msvcrt

            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
    except OSError:
        os.close(descriptor)
    else:
        return descriptor
    raise StoreLocked("another process has this store open")


@contextlib.contextmanager
def _written(path: Path, data: bytes) -> Iterator[int]:
    """Write a file and hold it open, not yet on disk."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int | None]:
    """Hold the old key file open, so that its blocks can be overwritten after it was replaced."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC) if path.exists() else None
    try:
        yield descriptor
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _overwrite(descriptor: int | None) -> None:
    if descriptor is not None:
        os.pwrite(descriptor, bytes(os.fstat(descriptor).st_size), 0)
        os.fsync(descriptor)


def _sync_directory(directory: Path) -> None:
    if os.name == "posix":
        descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
