"""Starting the process that is forked for every run (``fork_server``), and talking to it: one JSON job a line."""

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

_PATIENCE = 120.0  # seconds for the process to end


@dataclass(slots=True)
class ForkServer:
    """The process with everything loaded that is forked for every run, and the clock that all its forks see."""

    _process: Any
    _clock: Path

    @classmethod
    @contextlib.contextmanager
    def started(cls, instrument: str | None = None) -> Iterator[Self]:
        """Start the process, for any number of audits.

        Args:
            instrument: A module whose ``inject_leaks`` puts leaks into forks; found where this process finds it.
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
            )
            try:
                yield cls(process, clock)
            finally:
                process.stdin.close()  # type: ignore[union-attr]
                process.wait(_PATIENCE)
                process.stdout.close()  # type: ignore[union-attr]

    def set_clock(self, seconds: float) -> None:
        """Set the time that every process sees."""
        with open(self._clock, "r+b") as file:  # in place: others have it mapped
            file.write(struct.pack("<d", seconds))

    def ask(self, job: dict[str, Any]) -> dict[str, Any]:
        """Have the process do something; return its answer."""
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise PanstreamError("the audited process ended by itself")
        return dict(json.loads(line))
