"""File descriptors of connections: how many there may be, and which have bytes to read."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterable
from pathlib import Path

_SPARE_FILES = 16  # descriptors for files that the server opens later


def readable(connections: Iterable[socket.socket]) -> list[socket.socket]:
    """Return the connections that have bytes to read, in this order, without reading; none where poll is missing."""
    if not hasattr(select, "poll"):  # on Windows
        return []
    poll = select.poll()
    by_number = {connection.fileno(): connection for connection in connections}
    for number in by_number:
        poll.register(number, select.POLLIN)
    ready = {number for number, events in poll.poll(0) if events & select.POLLIN}
    return [connection for number, connection in by_number.items() if number in ready]


def files_for_connections() -> int | None:
    """Return the number of file descriptors that connections may use; None if the system sets no limit."""
    try:
        import resource

        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        used = len(list(Path("/proc/self/fd").iterdir()))
    except ImportError:  # on Windows
        return None
    except OSError:
        used = _SPARE_FILES
    return None if limit == resource.RLIM_INFINITY else max(2, limit - used - _SPARE_FILES)
