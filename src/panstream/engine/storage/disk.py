"""What the store asks of a disk, and nothing else does: so that a simulated one can stand in for it.

What was written may be on the disk or not, in any order, until ``sync`` returns; what was named, renamed or made in a
directory, until ``sync_directory`` does.
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
    """Turn the operating system's refusals, which have a reason or none, into a StoreError that says what to do."""
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
        """Make a directory for this user alone."""
        path.mkdir(exist_ok=True, mode=0o700)

    def exists(self, path: Path) -> bool:
        """Return whether there is a file or directory of this name."""
        return path.exists()

    def open(self, path: Path, *, create: bool = False) -> int:
        """Open a file to read and write; with ``create``, make it, empty, for this user alone."""
        create_flags = os.O_CREAT | os.O_TRUNC if create else 0
        return os.open(path, os.O_RDWR | os.O_CLOEXEC | create_flags, 0o600)

    def lock(self, path: Path) -> int:
        """Open a file that nobody else may open this way until it is closed."""
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
        """Close a file."""
        os.close(file)

    def size(self, file: int) -> int:
        """Return the size of a file."""
        return os.fstat(file).st_size

    def read(self, file: int, size: int, offset: int) -> bytes:
        """Return so many bytes, fewer only at the end of the file."""
        got = bytearray()
        while len(got) < size and (part := os.pread(file, size - len(got), offset + len(got))):
            got += part
        return bytes(got)

    def write(self, file: int, data: bytes | memoryview, offset: int) -> None:
        """Write all of the data."""
        view = memoryview(data)
        while view:
            done = os.pwrite(file, view, offset)
            view = view[done:]
            offset = offset + done

    def reserve(self, file: int, size: int) -> None:
        """Make a file at least so long, or raise if the disk has no room for it."""
        if size > self.size(file) and hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file, 0, size)

    def sync(self, file: int) -> None:
        """Wait until what was written to a file is on the disk; macOS has no fdatasync."""
        getattr(os, "fdatasync", os.fsync)(file)

    def replace(self, old: Path, new: Path) -> None:
        """Give a file another name, and do away with the file that had it."""
        os.replace(old, new)

    def remove(self, path: Path) -> None:
        """Do away with a file, if there is one."""
        path.unlink(missing_ok=True)

    def sync_directory(self, path: Path) -> None:
        """Wait until the names in a directory are on the disk."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def background(self) -> Executor:
        """Return where work is done beside the caller's, one thing after the other."""
        return ThreadPoolExecutor(1, "sync")
