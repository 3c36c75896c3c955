"""A cluster of real processes for the tests: started, killed, started again."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from panstream.primitives.certificates import Authority
from panstream.primitives.memory.process_hardening import ENVIRONMENT, MARK
from tests.ports import free_port
from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[3]
QUICK = {"DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP": "12s", "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "5s"}


def tls_settings(directory: Path) -> dict[str, str]:
    """Return Dask's settings for TLS with a certificate of an authority of their own, as environment variables."""
    identity = Authority(directory).issue("localhost")
    roles = ("CLIENT", "SCHEDULER", "WORKER")
    own = (("CERT", identity.certificate), ("KEY", identity.key))
    files = {"CA_FILE": identity.authority} | {f"{role}__{kind}": file for role in roles for kind, file in own}
    return {f"DASK_DISTRIBUTED__COMM__TLS__{name}": str(file) for name, file in files.items()}


class Processes:
    """Client of the fork server: starts, signals and stops processes by name."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log = directory / "processes.log"
        self.port = free_port()
        self.pids: dict[str, int] = {}
        self.said: list[str] = []
        self.lines: queue.Queue[str] = queue.Queue()
        self._errors = self.log.open("w")
        self.tls = tls_settings(directory)
        path = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        self._fork_server = subprocess.Popen(
            [sys.executable, "-u", str(Path(__file__).with_name("fork_server.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, **ENVIRONMENT, **QUICK, **self.tls, MARK: "1", "PYTHONPATH": os.pathsep.join(path)},
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def address(self) -> str:
        return f"tcp://127.0.0.1:{self.port}"

    def start(self, name: str, *command: str) -> None:
        assert self._fork_server.stdin
        self._fork_server.stdin.write(f"start {name} {' '.join(command)}\n")
        self._fork_server.stdin.flush()

    def stop(self, name: str) -> None:
        """End the process of a name for good, and forget what it said."""
        pid = self.wait_for(name)
        assert self._fork_server.stdin
        self._fork_server.stdin.write(f"stop {name}\n")
        self._fork_server.stdin.flush()
        deadline = time.monotonic() + PATIENCE
        while self.pids.get(name) == pid:
            assert time.monotonic() < deadline, f"{name} does not stop"
            threading.Event().wait(0.02)
        while not self.lines.empty():
            self.lines.get()

    def start_cluster(self, workers: int = 2) -> None:
        self.start("scheduler", "scheduler", str(self.port))
        for number in range(workers):
            self.start(f"worker-{number}", "worker", self.address, str(self.directory / f"scratch-{number}"))
        for name in ("scheduler", *(f"worker-{number}" for number in range(workers))):
            self.wait_for(name)

    def wait_for(self, name: str, *, other_than: int | None = None, seconds: float = PATIENCE) -> int:
        """Return the process of a name, once there is one, or once it is another one."""
        deadline = time.monotonic() + seconds
        while self.pids.get(name) in (None, other_than):
            assert time.monotonic() < deadline, f"{name} did not start\n{self.log.read_text()}"
            threading.Event().wait(0.02)
        return self.pids[name]

    def kill(self, name: str, number: int = signal.SIGKILL) -> int:
        """Send a signal to the process of a name; one that ends by itself at that moment is waited for anew."""
        pid = self.wait_for(name)
        while True:
            try:
                os.kill(pid, number)
                return pid
            except ProcessLookupError:
                pid = self.wait_for(name, other_than=pid)

    def next_said(self, seconds: float = PATIENCE) -> str:
        try:
            return self.lines.get(timeout=seconds)
        except queue.Empty:
            raise AssertionError(f"nothing was said for {seconds} s\n{self.log.read_text()[-3000:]}") from None

    def close(self) -> None:
        assert self._fork_server.stdin
        self._fork_server.stdin.close()
        try:
            self._fork_server.wait(timeout=PATIENCE)
        finally:
            self._fork_server.kill()
            self._fork_server.wait()
            self._reader.join()
            assert self._fork_server.stdout
            self._fork_server.stdout.close()
            self._errors.close()

    def _read(self) -> None:
        assert self._fork_server.stdout
        for line in self._fork_server.stdout:
            word, *rest = line.split()
            if word == "up":
                self.pids[rest[0]] = int(rest[1])
            elif word == "down":
                if self.pids.get(rest[0]) == int(rest[1]):
                    del self.pids[rest[0]]
            else:
                self.lines.put(line.strip())


@contextmanager
def processes(directory: Path) -> Iterator[Processes]:
    running = Processes(directory)
    try:
        yield running
    finally:
        running.close()
