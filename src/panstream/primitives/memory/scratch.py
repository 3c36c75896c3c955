"""Working memory that is overwritten before it is released.

Coins, hashes and cell indices of a batch must not be in memory after the step. Arrays from `Scratch` come from a
per-thread pool and are zeroed when the ``with`` block ends, also by an exception; registers and the stack below the
caller are cleared then too (`clear_registers`).

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
_MAX_POOLED_BYTES = 1 << 22  # a larger buffer is zeroed and returned to the system
_TINY = 512  # bytes up to which NumPy overwrites without releasing the GIL
_SMALL = 1 << 17  # bytes that are overwritten faster than the GIL would come back once released
_WORD = (1 << 64) - 1
_MARGIN = 1 << 14  # bytes at the lowest end of a stack that are not overwritten
_HEADER = bytes.__basicsize__ - 1  # bytes of a bytes object before its contents
_Byte = ctypes.c_char  # from_buffer gives an address several times as fast as ndarray.ctypes
_memset_holding_gil = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)(
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
    """Overwrite ``size`` bytes of memory with zeros; without releasing the GIL if they are few."""
    (_memset_holding_gil if size <= _SMALL else ctypes.memset)(address, 0, size)


def wipe_bytes(data: bytes) -> None:
    """Overwrite a bytes object in place. It must have no other reference and must not be a constant."""
    if len(data) > 1:  # CPython shares one object for each shorter value
        wipe_at(id(data) + _HEADER, len(data))


def clear_registers() -> None:
    """Clear every register that a function may change, and the stack below this call, where earlier calls stored them.

    Called at the end of a step, after its memory has been overwritten: registers then still hold the last bytes that
    were copied, and a signal or the dynamic linker would write them to the stack.
    """
    try:
        clear, where = _POOL.registers
    except AttributeError:
        clear, where = _POOL.registers = _registers()
    clear(where)


def clears_registers(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function that is a whole step, so that registers and the stack are cleared after it.

    The end of a ``with`` block is itself a call, whose frame covers a part of the stack that earlier calls used. Here
    no frame does.
    """

    @functools.wraps(function)
    def step(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        finally:
            clear_registers()

    return step


def _registers() -> tuple[Callable[[int], None], int]:
    from panstream.primitives.kernels.register_clearing import clear, kind_of_registers

    arguments = _POOL.arguments = np.array([kind_of_registers() & _WORD, *_stack()], np.uint64)
    return clear, arguments.ctypes.data


def _stack() -> tuple[int, int]:
    """Return the lowest writeable and the highest address of this thread's stack; an empty range if unknown."""
    unknown = _WORD, 0
    if sys.platform != "linux":
        return unknown
    system = ctypes.CDLL(None)
    system.pthread_self.restype = ctypes.c_ulong
    attributes = (ctypes.c_ulong * 16)()
    if system.pthread_getattr_np(ctypes.c_ulong(system.pthread_self()), attributes):
        return unknown
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
        self._spare: list[tuple[NDArray[np.uint8], int]] = []  # blocks for reuse, and how much of each was written

    def __enter__(self) -> Scratch:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def array(self, size: int, dtype: DTypeLike = np.uint8) -> NDArray[Any]:
        """Return an uninitialised array of ``size`` elements, valid until the block ends."""
        if size == 0:
            return np.empty(0, dtype)
        item = np.dtype(dtype)
        nbytes = size * item.itemsize
        raw, written = self._reuse_block(nbytes) if self._spare else (self._take(nbytes), nbytes)
        self._used.append((raw, written))
        return raw[:nbytes].view(item)

    @property
    def mark(self) -> int:
        """Return the number of arrays in use, for `rewind`."""
        return len(self._used)

    def rewind(self, since: int) -> None:
        """Make the arrays since a `mark` available for reuse; all are zeroed when the block ends."""
        self._spare += self._used[since:]
        del self._used[since:]

    def _reuse_block(self, nbytes: int) -> tuple[NDArray[np.uint8], int]:
        for position, (raw, written) in enumerate(self._spare):
            if raw.nbytes >= nbytes:
                del self._spare[position]
                return raw, max(written, nbytes)
        return self._take(nbytes), nbytes

    def close(self) -> None:
        """Zero every array and return its memory to the pool."""
        # Zeroed before it is pooled or freed: the allocator may hand freed memory to other code unchanged.
        free: list[NDArray[np.uint8]] = _POOL.__dict__.setdefault("free", [])
        for raw, nbytes in self._used + self._spare:
            raw[:nbytes].fill(0)
            if raw.nbytes <= _MAX_POOLED_BYTES and len(free) < 16:
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
