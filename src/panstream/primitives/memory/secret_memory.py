"""Memory for states that no other process can read: not by a debugger, a dump, swap or hibernation.

Linux has such memory since 5.14 (``memfd_secret``): its pages are mapped only in this process and removed from the
kernel's own address space. Where it is missing or the limit of locked memory (``RLIMIT_MEMLOCK``) is too low, memory is
locked and excluded from dumps instead; failing that, it is ordinary memory.

A process requests it once, by `enable_secret_memory`; hardened commands do. A library does not: forked children do not
inherit the mapping, so they could not continue with a state. Only the state between steps is in secret memory. A step
computes in ordinary memory that it overwrites, and a commit writes the state to a file, encrypted.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import threading
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.codec import field_role
from panstream.primitives.memory.scratch import wipe, wipe_at

Kind = Literal["secret", "locked", "ordinary"]

VARIABLE = "PANSTREAM_SECRET_MEMORY"  # 0 disables secret memory, so that a memory scan can read states
_SYSCALL = 447  # memfd_secret, the same on every architecture that has it
_PAGE = mmap.PAGESIZE
_SLAB = 1 << 18  # bytes that small arrays share
_SMALLEST = 6  # small arrays take 2^6 to 2^15 bytes
_LARGE = 15
_FAILED = ctypes.c_void_p(-1).value
_DONTFORK = 10
_DONTDUMP = 16

_lock = threading.RLock()  # reentrant: the garbage collector may free an array during an allocation
_free: dict[int, list[int]] = {}  # addresses by the logarithm of their size
_wanted = False
_held: dict[Kind, int] = {"secret": 0, "locked": 0, "ordinary": 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretMemoryReport:
    """Kinds of memory that hold the states of this process. Sizes are public: they follow from the configuration."""

    wanted: bool
    held: dict[Kind, int]

    @property
    def kind(self) -> Kind:
        """Return the weakest kind of memory that holds a state; without states, the kind that a new one would get."""
        if not self.wanted:
            return "ordinary"
        used: list[Kind] = [kind for kind in ("ordinary", "locked", "secret") if self.held[kind]]
        return used[0] if used else _kind_to_expect()

    def __str__(self) -> str:
        return {
            "secret": "secret memory (memfd_secret): not readable by other processes, never swapped or dumped",
            "locked": "locked memory: never swapped or dumped, readable by a debugger with root rights",
            "ordinary": "ordinary memory: may be swapped" + ("; raise RLIMIT_MEMLOCK" if self.wanted else ""),
        }[self.kind]


def enable_secret_memory() -> None:
    """Make monitors of this process move their states to secret memory, from their next step on."""
    global _wanted
    _wanted = sys.platform == "linux" and os.environ.get(VARIABLE) != "0"


def report() -> SecretMemoryReport:
    """Return the bytes of state that this process holds in each kind of memory."""
    with _lock:
        return SecretMemoryReport(wanted=_wanted, held=dict(_held))


def expected_kind() -> SecretMemoryReport:
    """Return the kind of memory that a hardened process on this machine would get for a small state."""
    if sys.platform != "linux" or os.environ.get(VARIABLE) == "0":
        return SecretMemoryReport(wanted=False, held={})
    return SecretMemoryReport(wanted=True, held={"secret": 0, "locked": 0, "ordinary": 0})


def move_to_secret_memory(state: Any) -> None:
    """Move the arrays of a state to secret memory; no effect if they are secret already or it is not enabled."""
    if not _wanted:
        return
    for declared in fields(state):
        array = getattr(state, declared.name)
        if isinstance(array, np.ndarray) and field_role(declared) in ("noised", "noise"):
            setattr(state, declared.name, to_secret_array(array))


def to_secret_array(array: NDArray[Any]) -> NDArray[Any]:
    """Return a copy in secret memory and wipe the array; itself if it is secret already or that is not enabled."""
    return _moved(array) if _wanted and not _is_ours(array) else array


def _is_ours(array: NDArray[Any]) -> bool:
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return isinstance(base, _Block)


def _moved(array: NDArray[Any]) -> NDArray[Any]:
    if array.nbytes == 0:
        return array
    moved = np.asarray(_Block(array.nbytes))[: array.nbytes].view(array.dtype).reshape(array.shape)
    moved[...] = array
    if array.flags.writeable:
        wipe(array)
    return moved


class _Block:
    """A range of memory that is overwritten and freed when no array refers to it any more."""

    __slots__ = ("__array_interface__", "_address", "_kind", "_size", "_size_class")

    def __init__(self, nbytes: int) -> None:
        size_class = max(_SMALLEST, (nbytes - 1).bit_length())
        self._size_class: int | None
        with _lock:
            if size_class <= _LARGE:
                self._address, self._kind = _allocate_from_slab(size_class)
                self._size = 1 << size_class
                self._size_class = size_class
            else:
                self._size = -(-nbytes // _PAGE) * _PAGE
                self._size_class = None
                self._address, self._kind = _map(self._size)
            _held[self._kind] += self._size
        self.__array_interface__ = {
            "shape": (self._size,),
            "typestr": "|u1",
            "data": (self._address, False),
            "version": 3,
        }

    def __del__(self) -> None:
        wipe_at(self._address, self._size)
        with _lock:
            _held[self._kind] -= self._size
            if self._size_class is None:
                _libc().munmap(ctypes.c_void_p(self._address), ctypes.c_size_t(self._size))
            else:
                _free.setdefault(self._size_class, []).append(self._address)


_slabs: list[tuple[int, Kind]] = []


def _allocate_from_slab(size_class: int) -> tuple[int, Kind]:
    """Return an address within a slab and its kind. Slabs are never unmapped."""
    free_addresses = _free.setdefault(size_class, [])
    if not free_addresses:
        start, kind = _map(_SLAB)
        _slabs.append((start, kind))
        free_addresses.extend(range(start, start + _SLAB, 1 << size_class))
    address = free_addresses.pop()
    return address, next(kind for start, kind in _slabs if start <= address < start + _SLAB)


def _map(size: int) -> tuple[int, Kind]:
    """Return the address of new memory of the best available kind, and that kind."""
    if (address := _map_secret(size)) is not None:
        return address, "secret"
    address = _mmap(size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1)
    if address is None:
        raise MemoryError
    where = ctypes.c_void_p(address)
    length = ctypes.c_size_t(size)
    _libc().madvise(where, length, _DONTDUMP)
    return address, "ordinary" if _libc().mlock(where, length) else "locked"


def _map_secret(size: int) -> int | None:
    file: int = _libc().syscall(ctypes.c_long(_SYSCALL), ctypes.c_uint(os.O_CLOEXEC))
    if file < 0:
        return None
    try:
        os.ftruncate(file, size)
        address = _mmap(size, mmap.MAP_SHARED, file)
    except OSError:
        return None
    finally:
        os.close(file)
    if address is not None:
        _libc().madvise(ctypes.c_void_p(address), ctypes.c_size_t(size), _DONTFORK)
    return address


def _mmap(size: int, flags: int, file: int) -> int | None:
    call = _libc().mmap
    call.restype = ctypes.c_void_p
    readable = mmap.PROT_READ | mmap.PROT_WRITE
    address: int | None = call(None, ctypes.c_size_t(size), readable, flags, file, ctypes.c_long(0))
    return None if address == _FAILED else address


def _kind_to_expect() -> Kind:
    with _lock:
        return _Block(_PAGE)._kind


def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)
