"""The process that is scanned: opened, stopped, read, and set going again."""

from __future__ import annotations

import os
import signal
import threading
from types import TracebackType

from panstream.errors import InvalidParameter, NotSupported, PanstreamError
from panstream.testing.memory.mappings import PAGE, Mapping, parse_mappings, touched

__all__ = ["Target", "is_stopped"]

_STANDING = frozenset("TtZX")
_POLLS, _POLL_SECONDS = 5000, 0.002


class Target:
    """Another process's memory. A context manager: a process that was stopped goes on when the block ends."""

    __slots__ = ("_memory", "_stopped", "pagemap", "pid", "unread_bytes")

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.unread_bytes = 0
        self._stopped = False
        self._memory = self._open("mem")
        self.pagemap = self._open("pagemap")

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
            os.close(self.pagemap)

    def stop(self) -> None:
        """Stop every thread of the process and wait until they stand still."""
        if is_stopped(self.pid):
            return
        self._stopped = True
        try:
            os.kill(self.pid, signal.SIGSTOP)
        except ProcessLookupError:
            raise self._gone() from None
        except PermissionError:
            raise _forbidden(self.pid) from None
        pause = threading.Event()
        for _ in range(_POLLS):
            if is_stopped(self.pid):
                return
            pause.wait(_POLL_SECONDS)
        raise PanstreamError(f"process {self.pid} did not stop within {_POLLS * _POLL_SECONDS:.0f} seconds")

    def mappings(self) -> list[Mapping]:
        """Return the mappings that can hold data of the process."""
        descriptor = self._open("maps")
        with open(descriptor, encoding="utf-8", errors="surrogateescape") as file:
            try:
                mappings = parse_mappings(file.read())
            except ProcessLookupError:
                raise self._gone() from None
        if not mappings:
            raise self._gone()
        return mappings

    def read(self, address: int, piece: memoryview) -> None:
        """Fill ``piece`` from ``address`` on; a page that cannot be read becomes zeros, and is counted if it exists."""
        done = 0
        while done < len(piece):
            try:
                got = os.preadv(self._memory, [piece[done:]], address + done)
            except OSError:
                got = -1
            if got == 0:
                raise self._gone()
            if got < 0:
                page_end = (address + done) // PAGE * PAGE + PAGE
                got = min(len(piece) - done, page_end - address - done)
                piece[done : done + got] = bytes(got)
                if touched(self.pagemap, address + done):
                    self.unread_bytes += got
            done += got

    def check_alive(self) -> None:
        """Raise if the process has ended."""
        if _state(f"/proc/{self.pid}/stat") in "ZX":
            raise self._gone()

    def _open(self, name: str) -> int:
        try:
            return os.open(f"/proc/{self.pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        except (FileNotFoundError, ProcessLookupError):
            raise self._gone() from None
        except PermissionError:
            self.check_alive()  # what is left of a process that has ended belongs to root
            raise _forbidden(self.pid) from None

    def _gone(self) -> InvalidParameter:
        return InvalidParameter(f"pid must name a process that runs until the scan is over, got pid={self.pid}")


def is_stopped(pid: int) -> bool:
    """Return whether every thread of the process stands still (also: has ended)."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return False
    return all(_state(f"/proc/{pid}/task/{thread}/stat") in _STANDING for thread in threads)


def _state(path: str) -> str:
    try:
        with open(path, "rb") as file:
            # The command's name, in brackets, may itself hold brackets and blanks.
            return chr(file.read().rpartition(b")")[2].split()[0][0])
    except (OSError, IndexError):
        return "X"


def _forbidden(pid: int) -> NotSupported:
    return NotSupported(
        f"the memory of process {pid} may not be read by this user: scan as root or as the user of the process; if "
        "/proc/sys/kernel/yama/ptrace_scope is not 0, let the process call panstream.testing.memory.permit_scan()"
    )
