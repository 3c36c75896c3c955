"""Entropy of the operating system, written into a buffer that we own and can overwrite.

``os.urandom`` returns immutable bytes, which cannot be wiped; so ``getrandom`` is called on our own memory.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray


def _getrandom() -> Callable[[int, int, int], int] | None:
    if sys.platform != "linux":
        return None
    try:
        function = ctypes.CDLL(None, use_errno=True).getrandom
    except (OSError, AttributeError):
        return None
    function.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint)
    function.restype = ctypes.c_ssize_t
    call: Callable[[int, int, int], int] = function
    return call


_GETRANDOM = _getrandom()


def system_entropy(buffer: NDArray[np.uint8]) -> None:
    """Fill ``buffer`` (contiguous bytes) with entropy from the kernel; blocks until the kernel's pool is ready."""
    filled = 0
    while filled < buffer.nbytes:
        if _GETRANDOM is not None:
            # Linux completes any request of at most 256 bytes; longer ones may be interrupted by a signal.
            got = _GETRANDOM(buffer.ctypes.data + filled, buffer.nbytes - filled, 0)
        else:
            got = _read_device(buffer.data[filled:])
        if got < 0 and ctypes.get_errno() not in (0, 4):  # 4 is EINTR: interrupted by a signal, retry
            raise OSError(ctypes.get_errno(), "the operating system gave no entropy")
        filled += max(got, 0)


def random_id(size: int) -> bytes:
    """Return a random identifier of ``size`` bytes. Not for keys: bytes cannot be wiped."""
    drawn = np.empty(size, np.uint8)
    system_entropy(drawn)
    return drawn.tobytes()


def _read_device(target: memoryview) -> int:
    if os.path.exists("/dev/urandom"):
        with open("/dev/urandom", "rb", buffering=0) as device:
            return device.readinto(target) or 0
    # Only platforms without both (Windows): one immutable copy stays in memory until it is collected.
    target[:] = os.urandom(len(target))
    return len(target)
