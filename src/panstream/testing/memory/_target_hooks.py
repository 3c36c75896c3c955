"""Functions that the target of a scan calls itself: plant a control value, and permit the scan."""

from __future__ import annotations

import ctypes
import sys

from panstream.primitives.memory.process_hardening import allow_memory_reads

_PLANTED: list[bytearray] = []
_PR_SET_PTRACER = 0x59616D61
_ANY = ctypes.c_ulong(-1)


def plant_control(marker: bytes) -> bytearray:
    """Store a copy of ``marker`` in this process's heap until it ends, and return that copy."""
    planted = bytearray(marker)
    _PLANTED.append(planted)
    return planted


def allow_scan() -> None:
    """Let any process of the same user read this one's memory, despite hardening and the Yama security module.

    If ``/proc/sys/kernel/yama/ptrace_scope`` is 1, only an ancestor may otherwise read a process. For tests only.
    """
    allow_memory_reads()
    if sys.platform == "linux":
        # Without Yama the kernel rejects the option, which is then not needed.
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PTRACER, _ANY, 0, 0, 0)
