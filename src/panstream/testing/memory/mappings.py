"""Which parts of a process's address space can hold its data (``/proc/PID/maps`` and ``/proc/PID/pagemap``)."""

from __future__ import annotations

import mmap
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["PAGE", "Mapping", "parse_mappings", "touched", "wanted_ranges"]

PAGE = mmap.PAGESIZE

_LINE = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S{4}) \S+ \S+ \S+ *(.*)")
_KERNEL = ("[vvar", "[vsyscall]", "[vdso]", "[uprobes]")
_SHARED_MEMORY = ("/dev/shm/", "/dev/zero", "/memfd:", "/SYSV", "[anon_shmem", "/anon_hugepage")
_BLOCK = 1 << 20  # pages whose state is asked for at a time

# Bits of an entry of /proc/PID/pagemap.
_PRESENT = np.uint64(1 << 63)
_SWAPPED = np.uint64(1 << 62)
_FILE = np.uint64(1 << 61)
_GUARD = np.uint64(1 << 58)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapping:
    """One line of ``/proc/PID/maps``."""

    start: int
    end: int
    permissions: str
    path: str

    @property
    def label(self) -> str:
        """Return the name that a report shows."""
        return self.path or "anon"

    @property
    def writable(self) -> bool:
        """Return whether the process may write here."""
        return "w" in self.permissions

    @property
    def anonymous(self) -> bool:
        """Return whether this is private memory without a file: heap, stacks, arenas."""
        return self.permissions[3] == "p" and not self.path.startswith("/")

    @property
    def shared_memory(self) -> bool:
        """Return whether this is memory shared with other processes and reachable by no file name."""
        return self.path.startswith(_SHARED_MEMORY) or self.path.endswith(" (deleted)")

    @property
    def foreign(self) -> bool:
        """Return whether this belongs to the kernel or a device, and holds no data of the process."""
        if self.path.startswith(_KERNEL):
            return True
        try:
            return self.path.startswith("/dev/") and stat.S_ISCHR(os.stat(self.path).st_mode)
        except OSError:
            return False


def parse_mappings(text: str) -> list[Mapping]:
    """Return the mappings that ``/proc/PID/maps`` lists, except those of the kernel and of devices."""
    mappings = []
    for line in text.splitlines():
        if match := _LINE.fullmatch(line):
            start, end, permissions, path = match.groups()
            mapping = Mapping(start=int(start, 16), end=int(end, 16), permissions=permissions, path=path)
            if not mapping.foreign:
                mappings.append(mapping)
    return mappings


def wanted_ranges(mapping: Mapping, pagemap: int, margin: int, read_only: bool) -> Iterator[tuple[int, int]]:
    """Yield the address ranges of ``mapping`` to read, rising and disjoint.

    Of private memory, the pages ever touched, and ``margin`` bytes around them, since a value may end with zeros in the
    next page; of shared memory, all; of mapped files, what is in memory if the process may write there (or
    ``read_only`` is set) and otherwise the pages that became its own because it once wrote to them. What is not in
    memory of a mapped file is just the file.
    """
    if mapping.shared_memory and not mapping.anonymous:
        yield mapping.start, mapping.end
        return
    only_own = not (mapping.anonymous or mapping.writable or read_only)
    around = -(-margin // PAGE) if mapping.anonymous else 0
    low, high = 0, 0
    for base in range(mapping.start, mapping.end, _BLOCK * PAGE):
        entries = _entries(pagemap, base, min(mapping.end, base + _BLOCK * PAGE))
        for first, last in _runs(_touched(entries, only_own)):
            start = max(mapping.start, base + (first - around) * PAGE)
            end = min(mapping.end, base + (last + around) * PAGE)
            if start > high and high > low:
                yield low, high
                low = start
            elif high == low:
                low = start
            high = end
    if high > low:
        yield low, high


def touched(pagemap: int, address: int) -> bool:
    """Return whether the page at ``address`` holds anything."""
    return bool(_touched(_entries(pagemap, address, address + 1), False).any())


def _entries(pagemap: int, start: int, end: int) -> NDArray[np.uint64]:
    count = -(-(end - start) // PAGE)
    data = os.pread(pagemap, count * 8, start // PAGE * 8)
    entries = np.zeros(count, np.uint64)
    entries[: len(data) // 8] = np.frombuffer(data, np.uint64)
    return entries


def _touched(entries: NDArray[np.uint64], only_own: bool) -> NDArray[np.bool_]:
    held: NDArray[np.bool_] = (entries & (_PRESENT | _SWAPPED)) != 0
    held &= (entries & _GUARD) == 0
    if only_own:
        held &= (entries & _FILE) == 0
    return held


def _runs(mask: NDArray[np.bool_]) -> list[tuple[int, int]]:
    edges = np.flatnonzero(np.diff(np.concatenate(([False], mask, [False])).astype(np.int8)))
    return [(int(first), int(last)) for first, last in edges.reshape(-1, 2)]
