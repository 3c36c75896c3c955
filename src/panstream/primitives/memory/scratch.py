"""Working memory that is overwritten before it is given back.

Coins, hashes and cell indices of a batch must not be found in memory once a step is over. Arrays from `Scratch`
come from a per-thread pool and are zeroed when the ``with`` block ends, however it ends; registers and the stack below
are cleared then too (`clear_registers`).

>>> with Scratch() as scratch:
...     hashes = scratch.array(1000, np.uint64)
...     hashes[:] = 7
>>> int(hashes.sum())
0
"""

from __future__ import annotations

import ctypes
import functools
import sys
import threading
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

P = ParamSpec("P")
T = TypeVar("T")

_POOL = threading.local()
_KEEP_BYTES = 1 << 22  # a larger buffer is zeroed and returned to the system
_TINY = 512  # bytes that NumPy overwrites without giving other threads a turn
_SMALL = 1 << 17  # bytes that are overwritten sooner than another thread would give way again
_WORD = (1 << 64) - 1
_MARGIN = 1 << 14  # bytes at the end of a stack that are left alone
_HEADER = bytes.__basicsize__ - 1  # of a bytes object, before its contents
_Byte = ctypes.c_char  # asking an array for its address takes several times as long
_set_at_once = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)(
    ctypes.cast(ctypes.memset, ctypes.c_void_p).value or 0
)


def wipe(data: NDArray[Any] | bytearray) -> None:
    """Overwrite an array or a bytearray with zeros in place."""
    array = np.frombuffer(data, np.uint8) if isinstance(data, bytearray) else data
    flags = array.flags
    if flags.c_contiguous and flags.writeable and _TINY <= array.nbytes <= _SMALL:
        wipe_at(ctypes.addressof(_Byte.from_buffer(array.view(np.uint8).data)), array.nbytes)
    else:
        array.view(np.uint8).fill(0) if flags.c_contiguous else array.fill(0)


def wipe_at(address: int, size: int) -> None:
    """Overwrite ``size`` bytes of memory with zeros; other threads get no turn while it is little."""
    (_set_at_once if size <= _SMALL else ctypes.memset)(address, 0, size)


def wipe_bytes(data: bytes) -> None:
    """Overwrite a bytes object in place. Only for one that nobody else refers to, and that is no constant."""
    if len(data) > 1:  # shorter ones are shared by everybody
        wipe_at(id(data) + _HEADER, len(data))


def clear_registers() -> None:
    """Clear every register that a function may change, and the stack below this call, where earlier calls stored them.

    Called when a step is over and its memory has been overwritten: the last bytes of what was copied are still in
    registers then, and the next function that is called for the first time would have the dynamic linker write them to
    the stack.
    """
    try:
        clear, where = _POOL.registers
    except AttributeError:
        clear, where = _POOL.registers = _registers()
    clear(where)


def clears_registers(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function that is a whole step, so that registers and the stack are cleared after it.

    The end of a ``with`` block is a call of its own, with a frame that lies on the stack of the calls before it. Here
    nothing does.
    """

    @functools.wraps(function)
    def step(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        finally:
            clear_registers()

    return step


def _registers() -> tuple[Callable[[int], None], int]:
    """Return the compiled function and what to call it with in this thread."""
    from panstream.primitives.kernels.register_clearing import clear, kind_of_registers

    arguments = _POOL.given = np.array([kind_of_registers() & _WORD, *_stack()], np.uint64)
    return clear, arguments.ctypes.data


def _stack() -> tuple[int, int]:
    """Return the lowest address of this thread's stack that may be written, and its highest; where unknown, an
    empty range.
    """
    nowhere = _WORD, 0
    if sys.platform != "linux":
        return nowhere
    system = ctypes.CDLL(None)
    system.pthread_self.restype = ctypes.c_ulong
    attributes = (ctypes.c_ulong * 16)()
    if system.pthread_getattr_np(ctypes.c_ulong(system.pthread_self()), attributes):
        return nowhere
    lowest = ctypes.c_size_t()
    size = ctypes.c_size_t()
    system.pthread_attr_getstack(attributes, ctypes.byref(lowest), ctypes.byref(size))
    system.pthread_attr_destroy(attributes)
    return lowest.value + _MARGIN, lowest.value + size.value


class Scratch:
    """A set of temporary arrays, all zeroed together at the end of the ``with`` block."""

    __slots__ = ("_spare", "_used")

    def __init__(self) -> None:
        self._used: list[tuple[NDArray[np.uint8], int]] = []
        self._spare: list[tuple[NDArray[np.uint8], int]] = []  # to be handed out again; how much of it was written to

    def __enter__(self) -> Scratch:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def array(self, size: int, dtype: DTypeLike = np.uint8) -> NDArray[Any]:
        """Return an uninitialised array of ``size`` elements that lives until the block ends."""
        if size == 0:
            return np.empty(0, dtype)
        item = np.dtype(dtype)
        nbytes = size * item.itemsize
        raw, written = self._reuse_block(nbytes) if self._spare else (self._take(nbytes), nbytes)
        self._used.append((raw, written))
        return raw[:nbytes].view(item)

    @property
    def mark(self) -> int:
        """Return how many arrays were taken, for `rewind`."""
        return len(self._used)

    def rewind(self, since: int) -> None:
        """Let the arrays that were taken since then make room for the next ones; all are zeroed when the block ends."""
        self._spare += self._used[since:]
        del self._used[since:]

    def _reuse_block(self, nbytes: int) -> tuple[NDArray[np.uint8], int]:
        for position, (raw, written) in enumerate(self._spare):
            if raw.nbytes >= nbytes:
                del self._spare[position]
                return raw, max(written, nbytes)
        return self._take(nbytes), nbytes

    def close(self) -> None:
        """Zero every array handed out and return its memory to the pool."""
        # The pool keeps memory that has been zeroed: memory given back to the system may be somebody's as it was.
        free: list[NDArray[np.uint8]] = _POOL.__dict__.setdefault("free", [])
        for raw, nbytes in self._used + self._spare:
            raw[:nbytes].fill(0)
            if raw.nbytes <= _KEEP_BYTES and len(free) < 16:
                free.append(raw)
        self._used.clear()
        self._spare.clear()
        clear_registers()

    @staticmethod
    def _take(nbytes: int) -> NDArray[np.uint8]:
        free: list[NDArray[np.uint8]] = _POOL.__dict__.setdefault("free", [])
        for position, raw in enumerate(free):
            if raw.nbytes >= nbytes:
                return free.pop(position)
        capacity = 1 << max(8, (nbytes - 1).bit_length()) if nbytes else 256
        return np.empty(capacity, np.uint8)
