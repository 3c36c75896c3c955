"""Start the fork server and send it jobs, one JSON object per line."""

from __future__ import annotations

import contextlib
import json
import os
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from panstream.errors import PanstreamError

_TIMEOUT = 120.0  # seconds for the process to end


@dataclass(slots=True)
class ForkServer:
    """The process that is forked for every run, and the file with the clock of all its forks."""

    _process: Any
    _clock: Path

    @classmethod
    @contextlib.contextmanager
    def started(cls, instrument: str | None = None) -> Iterator[Self]:
        """Start the process, for any number of audits.

        Args:
            instrument: A module whose ``inject_leaks`` injects leaks into forks; imported from this process's path.
        """
        command = [sys.executable, "-P", "-m", "panstream.audit.product.fork_server"]
        environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "200"}
        if instrument is not None:
            command += ["--instrument", instrument]
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        with tempfile.TemporaryDirectory(prefix="panstream-audit-") as folder:
            clock = Path(folder) / "clock"
            clock.write_bytes(struct.pack("<d", time.time()))
            process = subprocess.Popen(
                [*command, str(clock)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=environment,
                start_new_session=True,  # Ctrl-C is for the audit, which ends the run that it is in
            )
            try:
                yield cls(process, clock)
            finally:
                process.stdin.close()  # type: ignore[union-attr]
                process.wait(_TIMEOUT)
                process.stdout.close()  # type: ignore[union-attr]

    def set_clock(self, seconds: float) -> None:
        """Set the time of all forks, in seconds since 1970."""
        with open(self._clock, "r+b") as file:  # in place, since the processes have it mapped
            file.write(struct.pack("<d", seconds))

    def ask(self, job: dict[str, Any]) -> dict[str, Any]:
        """Send a job and return its result; raise PanstreamError if the process has ended."""
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise PanstreamError("the audited process ended by itself")
        return dict(json.loads(line))
