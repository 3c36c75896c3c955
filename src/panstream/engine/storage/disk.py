"""All file operations of the store, behind one class that tests replace by a simulated disk.

Until ``sync`` returns, written data may be on the disk or not, in any order. The same holds for files and directories
that were created, renamed or removed, until ``sync_directory`` returns.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path

from panstream.errors import StoreError, StoreLocked


@contextlib.contextmanager
def wrap_os_errors(message: Callable[[str | None], str]) -> Iterator[None]:
    """Re-raise OSError as StoreError(message(strerror)).

    It is raised outside of the except block, so that no traceback holds the original error and its path.
    """
    try:
        yield
    except OSError as error:
        refused = message(error.strerror)
    else:
        return
    raise StoreError(refused)


class Disk:
    """The operating system's files."""

    def make_directory(self, path: Path) -> None:
        """Create a directory that only this user can access."""
        path.mkdir(exist_ok=True, mode=0o700)

    def exists(self, path: Path) -> bool:
        """Return whether a file or directory has this name."""
        return path.exists()

    def open(self, path: Path, *, create: bool = False) -> int:
        """Open a file to read and write; with ``create``, a new and empty one that only this user can access."""
        create_flags = os.O_CREAT | os.O_TRUNC if create else 0
        return os.open(path, os.O_RDWR | os.O_CLOEXEC | create_flags, 0o600)

    def lock(self, path: Path) -> int:
        """Open and lock a file until it is closed; raise StoreLocked if another process has it locked."""
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

    def close(self, file: int) -> None:
        """Close a file, and release its lock."""
        os.close(file)

    def size(self, file: int) -> int:
        """Return the size of a file in bytes."""
        return os.fstat(file).st_size

    def read(self, file: int, size: int, offset: int) -> bytes:
        """Return ``size`` bytes from ``offset``, fewer only at the end of the file."""
        data = bytearray()
        while len(data) < size and (part := os.pread(file, size - len(data), offset + len(data))):
            data += part
        return bytes(data)

    def write(self, file: int, data: bytes | memoryview, offset: int) -> None:
        """Write all of the data at ``offset``; it is not durable before ``sync``."""
        view = memoryview(data)
        while view:
            done = os.pwrite(file, view, offset)
            view = view[done:]
            offset = offset + done

    def reserve(self, file: int, size: int) -> None:
        """Allocate a file of at least ``size`` bytes, so that a full disk is noticed before anything is overwritten."""
        if size > self.size(file) and hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file, 0, size)

    def sync(self, file: int) -> None:
        """Wait until everything written to a file is on the disk."""
        getattr(os, "fdatasync", os.fsync)(file)  # macOS has no fdatasync

    def replace(self, old: Path, new: Path) -> None:
        """Rename a file, replacing a file that has the new name."""
        os.replace(old, new)

    def remove(self, path: Path) -> None:
        """Delete a file, if it exists."""
        path.unlink(missing_ok=True)

    def sync_directory(self, path: Path) -> None:
        """Wait until the entries of a directory are on the disk."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def background(self) -> Executor:
        """Return an executor of one thread, for work that the caller does not wait for."""
        return ThreadPoolExecutor(1, "sync")
