"""Starting again with an allocator that overwrites what is freed, so that ids do not linger in memory.

Python and Arrow free memory without overwriting it. glibc overwrites it if told to before the process starts, hence the
second start. What this costs: about a tenth of the speed. What is lost without it: ids of past rows may stay readable
in freed memory until it is used again; claims about the *state* are not touched by that.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from panstream.hardened import ENVIRONMENT, MARK, forbid_dumps
from panstream.interrupts import block

__all__ = [
    "ENVIRONMENT",
    "harden",
]


def harden() -> None:
    """Start this command again with a wiping allocator, once, on Linux; and leave no core dumps."""
    if sys.platform != "linux" or not _is_command():
        return
    forbid_dumps()  # in force until the next start, so it is done again there
    if os.environ.get(MARK) != "1":
        block()  # a signal that Python has noted and not yet handled would be lost with this program
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, **ENVIRONMENT, MARK: "1"})


def _is_command() -> bool:
    """Return whether this process is the command itself, not a program that calls it."""
    started = Path(sys.argv[0])
    return started.stem == "panstream" or started.parts[-3:] == ("panstream", "cli", "__main__.py")
