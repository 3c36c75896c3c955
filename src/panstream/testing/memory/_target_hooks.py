"""What the target of a scan does itself: hold a control value, and let the scanner read it."""

from __future__ import annotations

import ctypes
import sys

from panstream.primitives.memory.process_hardening import allow_memory_reads

_PLANTED: list[bytearray] = []
_PR_SET_PTRACER = 0x59616D61
_ANY = ctypes.c_ulong(-1)


def plant_control(marker: bytes) -> bytearray:
    """Keep ``marker`` in this process's heap for good, and return the copy that is kept."""
    planted = bytearray(marker)
    _PLANTED.append(planted)
    return planted


def allow_scan() -> None:
    """Let any process of the same user read this one's memory, where hardening or the Yama security module would forbid
    it.

    Only children of the reader may otherwise be read if ``/proc/sys/kernel/yama/ptrace_scope`` is 1. For tests only.
    """
    allow_memory_reads()
    if sys.platform == "linux":
        # Without Yama the kernel does not know the option and refuses it, and nothing is needed.
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PTRACER, _ANY, 0, 0, 0)
