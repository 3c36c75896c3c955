"""The process that is scanned: open, stop, read and resume it, and find the parts that can contain its data.

The latter are in ``/proc/PID/maps`` and ``/proc/PID/pagemap``.
"""

from __future__ import annotations

import mmap
import os
import re
import signal
import stat
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from panstream.errors import InvalidParameter, NotSupported, PanstreamError

_PAGE = mmap.PAGESIZE
_STOPPED_STATES = frozenset("TtZX")
_POLLS = 5000
_POLL_SECONDS = 0.002

_LINE = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S{4}) \S+ \S+ \S+ *(.*)")
_KERNEL = ("[vvar", "[vsyscall]", "[vdso]", "[uprobes]")
_SHARED_MEMORY = ("/dev/shm/", "/dev/zero", "/memfd:", "/SYSV", "[anon_shmem", "/anon_hugepage")
_BLOCK = 1 << 20  # pages whose state is read in one call

# Bits of an entry of /proc/PID/pagemap.
_PRESENT = np.uint64(1 << 63)
_SWAPPED = np.uint64(1 << 62)
_FILE = np.uint64(1 << 61)
_GUARD = np.uint64(1 << 58)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mapping:
    """One line of ``/proc/PID/maps``."""

    start: int
    end: int
    permissions: str
    path: str

    @property
    def label(self) -> str:
        """Return the name of the mapping in reports."""
        return self.path or "anon"

    @property
    def writable(self) -> bool:
        """Return whether the process may write to the mapping."""
        return "w" in self.permissions

    @property
    def anonymous(self) -> bool:
        """Return whether this is private memory without a file: heap, stacks, arenas."""
        return self.permissions[3] == "p" and not self.path.startswith("/")

    @property
    def shared_memory(self) -> bool:
        """Return whether this is memory shared with other processes and reachable by no file name."""
        return self.path.startswith(_SHARED_MEMORY) or self.path.endswith(" (deleted)")

    @property
    def secret(self) -> bool:
        """Return whether this is memory that the kernel hides from all other processes."""
        return self.path.startswith("/secretmem")

    @property
    def foreign(self) -> bool:
        """Return whether this belongs to the kernel or a device and has no data of the process."""
        if self.path.startswith(_KERNEL):
            return True
        try:
            return self.path.startswith("/dev/") and stat.S_ISCHR(os.stat(self.path).st_mode)
        except OSError:
            return False


class Target:
    """Another process's memory. A context manager that resumes a stopped process when the block ends."""

    __slots__ = ("_memory", "_pagemap", "_stopped", "pid", "secret_bytes", "unread_bytes")

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.unread_bytes = self.secret_bytes = 0
        self._stopped = False
        self._memory = self._open("mem")
        self._pagemap = self._open("pagemap")

    def __enter__(self) -> Target:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._stopped:
                os.kill(self.pid, signal.SIGCONT)
        except ProcessLookupError:
            pass  # it ended in the meantime, which the scan reports
        finally:
            os.close(self._memory)
            os.close(self._pagemap)

    def stop(self) -> None:
        """Stop every thread of the process and wait until all have stopped; raise PanstreamError after 10 seconds."""
        if self.is_stopped(self.pid):
            return
        self._stopped = True
        try:
            os.kill(self.pid, signal.SIGSTOP)
        except ProcessLookupError:
            raise self._ended() from None
        except PermissionError:
            raise self._forbidden() from None
        pause = threading.Event()
        for _ in range(_POLLS):
            if self.is_stopped(self.pid):
                return
            pause.wait(_POLL_SECONDS)
        raise PanstreamError(f"process {self.pid} did not stop within {_POLLS * _POLL_SECONDS:.0f} seconds")

    @staticmethod
    def is_stopped(pid: int) -> bool:
        """Return whether every thread of the process has stopped or ended."""
        try:
            threads = os.listdir(f"/proc/{pid}/task")
        except OSError:
            return False
        return all(_state(f"/proc/{pid}/task/{thread}/stat") in _STOPPED_STATES for thread in threads)

    def check_alive(self) -> None:
        """Raise InvalidParameter if the process has ended."""
        if _state(f"/proc/{self.pid}/stat") in "ZX":
            raise self._ended()

    def mappings(self) -> list[_Mapping]:
        """Return the mappings that can contain data of the process: all except those of the kernel and of devices.

        Secret memory is counted but not returned.
        """
        with open(self._open("maps"), encoding="utf-8", errors="surrogateescape") as file:
            try:
                lines = file.read().splitlines()
            except ProcessLookupError:
                raise self._ended() from None
        entries = [match.groups() for line in lines if (match := _LINE.fullmatch(line))]
        if not entries:
            raise self._ended()
        mappings = [
            _Mapping(start=int(start, 16), end=int(end, 16), permissions=permissions, path=path)
            for start, end, permissions, path in entries
        ]
        self.secret_bytes = sum(mapping.end - mapping.start for mapping in mappings if mapping.secret)
        return [mapping for mapping in mappings if not (mapping.foreign or mapping.secret)]

    def ranges(self, mapping: _Mapping, margin: int, *, read_only: bool) -> Iterator[tuple[int, int]]:
        """Yield the address ranges of ``mapping`` to read, rising and disjoint.

        Of private memory, the pages ever touched, and ``margin`` bytes around them, since a value may end with zeros in
        the next page; of shared memory, all; of mapped files, the pages in memory if the process may write to them (or
        ``read_only`` is set), and otherwise the private pages that it once wrote to. Other pages of a mapped file are
        identical to the file.
        """
        if mapping.shared_memory and not mapping.anonymous:
            yield mapping.start, mapping.end
            return
        only_written = not (mapping.anonymous or mapping.writable or read_only)
        around = -(-margin // _PAGE) if mapping.anonymous else 0

        def pieces() -> Iterator[tuple[int, int]]:
            for base in range(mapping.start, mapping.end, _BLOCK * _PAGE):
                held = self._touched(base, min(mapping.end, base + _BLOCK * _PAGE), only_written)
                edges = np.flatnonzero(np.diff(np.concatenate(([False], held, [False])).astype(np.int8)))
                for first, last in edges.reshape(-1, 2).tolist():
                    start = max(mapping.start, base + (first - around) * _PAGE)
                    yield start, min(mapping.end, base + (last + around) * _PAGE)

        yield from merge_ranges(pieces())

    def read(self, address: int, piece: memoryview) -> None:
        """Fill ``piece`` from ``address`` on; an unreadable page becomes zeros, and is counted if it exists."""
        done = 0
        while done < len(piece):
            next_address = address + done
            try:
                got = os.preadv(self._memory, [piece[done:]], next_address)
            except OSError:
                got = -1
            if got == 0:
                raise self._ended()
            if got < 0:
                got = min(len(piece) - done, next_address // _PAGE * _PAGE + _PAGE - next_address)
                piece[done : done + got] = bytes(got)
                if self._touched(next_address, next_address + 1, False).any():
                    self.unread_bytes += got
            done += got

    def _touched(self, start: int, end: int, only_written: bool) -> NDArray[np.bool_]:
        """Return for each page whether it has contents; with ``only_written``, contents that are in no file."""
        count = -(-(end - start) // _PAGE)
        data = os.pread(self._pagemap, count * 8, start // _PAGE * 8)
        entries = np.zeros(count, np.uint64)
        entries[: len(data) // 8] = np.frombuffer(data, np.uint64)
        held: NDArray[np.bool_] = ((entries & (_PRESENT | _SWAPPED)) != 0) & ((entries & _GUARD) == 0)
        return held & ((entries & _FILE) == 0) if only_written else held

    def _open(self, name: str) -> int:
        try:
            return os.open(f"/proc/{self.pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        except (FileNotFoundError, ProcessLookupError):
            raise self._ended() from None
        except PermissionError:
            self.check_alive()  # the /proc entries of a process that has ended belong to root
            raise self._forbidden() from None

    def _ended(self) -> InvalidParameter:
        return InvalidParameter(f"pid must name a process that runs until the scan is over, got pid={self.pid}")

    def _forbidden(self) -> NotSupported:
        return NotSupported(
            f"the memory of process {self.pid} may not be read by this user: scan as root or as the user of the "
            "process; if /proc/sys/kernel/yama/ptrace_scope is not 0, let the process call "
            "panstream.testing.memory.allow_scan()"
        )


def merge_ranges(ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the union of ascending ranges, with adjacent and overlapping ones merged."""
    low = 0
    high = 0
    for start, end in ranges:
        if start > high:
            if high > low:
                yield low, high
            low = start
        high = end
    if high > low:
        yield low, high


def _state(path: str) -> str:
    try:
        with open(path, "rb") as file:
            # The state follows the command's name in brackets, which may itself contain brackets and blanks.
            return chr(file.read().rpartition(b")")[2].split()[0][0])
    except (OSError, IndexError):
        return "X"
