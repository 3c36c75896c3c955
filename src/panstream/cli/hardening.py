"""Process hardening: re-execute the command with an allocator that overwrites freed memory.

Python and Arrow free memory without overwriting it. glibc overwrites it if an environment variable is set before the
process starts, hence the re-execution. It costs about a tenth of the speed. Without it, ids of past rows may stay
readable in freed memory until that is reused, those of Parquet files among them, which pyarrow decodes; the claims
about the *state* hold either way.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from panstream.primitives.interrupts import block_signals
from panstream.primitives.memory.process_hardening import ENVIRONMENT, MARK, disable_core_dumps

__all__ = ["ENVIRONMENT", "lock_memory", "reexec_hardened"]

_CURRENT_AND_FUTURE = 7  # MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT: pages are locked when they are first used
_CAP_IPC_LOCK = 14
_NOT_LOCKED = "note: memory is not locked (no permission), so it may be swapped; encrypt or disable swap"


def reexec_hardened() -> None:
    """Re-execute this command with a wiping allocator, once, on Linux; and disable core dumps."""
    if sys.platform != "linux" or not _is_command():
        return
    disable_core_dumps()  # does not survive execve, so the re-executed process does it again
    if os.environ.get(MARK) != "1":
        block_signals()  # execve would lose a signal that Python has received and not yet handled
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, **ENVIRONMENT, MARK: "1"})
    from panstream.primitives.memory.secret_memory import enable_secret_memory

    enable_secret_memory()


def lock_memory() -> None:
    """Lock all present and future memory of this process, so that it is not swapped; print a note if not permitted."""
    if not _memory_is_locked():
        print(_NOT_LOCKED, file=sys.stderr, flush=True)


def _memory_is_locked() -> bool:
    if sys.platform != "linux":
        return False
    import ctypes
    import resource

    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    held = re.search(r"^CapEff:\s*(\w+)", Path("/proc/self/status").read_text(), re.MULTILINE)
    capable = held is not None and int(held[1], 16) >> _CAP_IPC_LOCK & 1
    if limit != resource.RLIM_INFINITY and not capable:
        return False  # a limit would make later allocations fail
    return bool(ctypes.CDLL(None, use_errno=True).mlockall(_CURRENT_AND_FUTURE) == 0)


def _is_command() -> bool:
    """Return whether this process is the command itself, not a program that imports it."""
    started = Path(sys.argv[0])
    return started.stem == "panstream" or started.parts[-3:] == ("panstream", "cli", "__main__.py")
