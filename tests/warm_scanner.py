"""Memory scans by forks of a process with loaded kernels: a new interpreter per scan takes a second.

The fork runs the shipped scanner; the tests of ``panstream.testing`` cover how it is started.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import traceback
from typing import Any

from panstream.primitives.fast_import import import_without_gc
from panstream.testing.memory import scanner
from panstream.testing.memory._launcher import ScanRequest

BEFORE = ScanRequest(
    pid=None,
    needles=[b"a needle in no file"],
    decoys=[b"another one"],
    control=None,
    encodings=("raw",),
    files=[__file__],
    stop=False,
    read_only=False,
    chunk_bytes=1 << 16,
)


class WarmScanner:
    """The process, and a replacement of ``_launcher._run``."""

    def __init__(self) -> None:
        self.control, theirs = socket.socketpair()
        with theirs:
            number = theirs.fileno()
            self.process = subprocess.Popen([sys.executable, __file__, str(number)], pass_fds=[number])

    def run(self, order: ScanRequest, timeout: float) -> dict[str, Any]:
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                socket.send_fds(self.control, [b"!"], [theirs.fileno()])
            ours.settimeout(timeout)
            ours.sendall(order.to_json().encode())
            ours.shutdown(socket.SHUT_WR)
            with ours.makefile("rb") as reply:
                report: dict[str, Any] = json.loads(reply.read())
        return report

    def close(self) -> None:
        self.control.close()
        self.process.wait()


def serve(number: int) -> None:
    import_without_gc()
    scanner._answer(BEFORE)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # finished forks are reaped by the kernel
    with socket.socket(fileno=number) as control:
        while descriptors := socket.recv_fds(control, 1, 1)[1]:  # until the other end is closed
            with socket.socket(fileno=descriptors[0]) as connection:
                if os.fork() == 0:
                    try:
                        with connection.makefile("r") as sys.stdin, connection.makefile("w") as sys.stdout:
                            scanner._main()
                    except BaseException:
                        traceback.print_exc()
                    finally:
                        os._exit(0)


if __name__ == "__main__":
    serve(int(sys.argv[1]))
