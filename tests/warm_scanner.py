"""Scans by a process that has its kernels loaded and is forked for each: an interpreter for each takes a second.

What runs in the fork is the shipped scanner; how that is started is left to the tests of ``panstream.testing``.
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

from panstream.start import load
from panstream.testing.memory import scanner
from panstream.testing.memory._launcher import Scan

BEFORE = Scan(
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
    """The process, and what stands in for ``_launcher._run``."""

    def __init__(self) -> None:
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.address = self.listening.getsockname()
        number = self.listening.fileno()
        self.process = subprocess.Popen([sys.executable, __file__, str(number)], pass_fds=[number])

    def run(self, order: Scan, timeout: float) -> dict[str, Any]:
        with socket.create_connection(self.address, timeout) as connection:
            connection.sendall(order.to_json().encode())
            connection.shutdown(socket.SHUT_WR)
            with connection.makefile("rb") as told:
                found: dict[str, Any] = json.loads(told.read())
        return found

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()
        self.listening.close()


def serve(number: int) -> None:
    load()
    scanner._answer(BEFORE)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # forks that ended are not waited for
    with socket.socket(fileno=number) as listening:
        while True:
            connection, _ = listening.accept()
            if os.fork() == 0:
                try:
                    with connection, connection.makefile("r") as sys.stdin, connection.makefile("w") as sys.stdout:
                        scanner._main()
                except BaseException:
                    traceback.print_exc()
                finally:
                    os._exit(0)
            connection.close()


if __name__ == "__main__":
    serve(int(sys.argv[1]))
