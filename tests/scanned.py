"""A new interpreter that executes one line at a time, and a scan of its memory.

A program starts after ``BEFORE`` and reads its input into its own buffers, without any further copy.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from panstream.testing.memory import ScanReport, make_needles, scan

__all__ = ["Scanned"]

BEFORE = """
import os
from panstream.testing.memory import allow_scan, plant_control
allow_scan()
def line():
    text = b""
    while not text.endswith(b"\\n"):
        text += os.read(0, 1) or os._exit(1)  # the sender has exited
    return text.strip()
def fill(buffer):
    view = memoryview(buffer)
    while len(view):
        view = view[os.readv(0, [view]) or os._exit(1):]
def answer():
    os.write(1, b"ready\\n")
plant_control(bytes.fromhex(line().decode()))
"""


class Scanned:
    """The process; ``close`` kills it."""

    def __init__(self, program: str, environment: Mapping[str, str] | None = None) -> None:
        (self.control,) = make_needles(1, "bytes")
        self.process = subprocess.Popen(
            [sys.executable, "-c", BEFORE + program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env={**os.environ, **(environment or {})},
        )
        self.pid = self.process.pid
        self.send(self.control.hex().encode() + b"\n")

    def send(self, data: bytes) -> None:
        assert self.process.stdin
        view = memoryview(data)
        while view:
            view = view[self.process.stdin.write(view) :]

    def wait_ready(self) -> None:
        assert self.process.stdout
        assert self.process.stdout.readline() == b"ready\n"

    def scan(self, needles: Sequence[Any], **options: Any) -> ScanReport:
        options = {"decoys": make_needles(100), "control": self.control} | options
        return scan(self.pid, needles, **options)

    def close(self) -> None:
        assert self.process.stdin
        assert self.process.stdout
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()
