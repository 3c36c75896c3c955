"""The work of the scanner process: read everything, search it, add up what was found where."""

from __future__ import annotations

import os
import stat
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.testing.memory.mappings import wanted_ranges
from panstream.testing.memory.patterns import Catalogue, Sweeper
from panstream.testing.memory.request import Request
from panstream.testing.memory.target import Target

__all__ = ["answer"]


class _Tally:
    """Counts and lowest addresses by pattern and place."""

    __slots__ = ("_cells",)

    def __init__(self) -> None:
        self._cells: dict[tuple[int, str], list[int]] = {}

    def add(self, pattern: int, where: str, address: int) -> None:
        """Count one occurrence."""
        cell = self._cells.setdefault((pattern, where), [0, address])
        cell[0] += 1
        cell[1] = min(cell[1], address)

    def by_needle(self, catalogue: Catalogue) -> dict[tuple[int, int, str], list[int]]:
        """Return {(owner, encoding, place): [count, first]}."""
        owners, encodings = catalogue.owners(), catalogue.encodings()
        merged: dict[tuple[int, int, str], list[int]] = {}
        for (pattern, where), (count, first) in self._cells.items():
            cell = merged.setdefault((int(owners[pattern]), int(encodings[pattern]), where), [0, first])
            cell[0] += count
            cell[1] = min(cell[1], first)
        return merged


def answer(request: Request) -> dict[str, Any]:
    """Return the scan's result, ready for JSON."""
    catalogue = _catalogue(request)
    tables = catalogue.tables()
    sweeper = Sweeper(tables, request.chunk_bytes)
    tally = _Tally()
    result = {"scanned_bytes": 0, "regions": 0, "files": 0, "unread_bytes": 0}
    # The target stands still only from here on: compiling and building tables is done.
    if request.pid is None:
        _sweep_files(request.files, sweeper, tally, result)
    else:
        with Target(request.pid) as target:
            if request.stop:
                target.stop()
            _sweep_memory(target, request.read_only, sweeper, tally, result, int(tables.lengths[-1]))
            _sweep_files(request.files, sweeper, tally, result)
            target.check_alive()
            result["unread_bytes"] += target.unread_bytes
    return result | _summary(request, tally.by_needle(catalogue))


def _catalogue(request: Request) -> Catalogue:
    catalogue = Catalogue()
    catalogue.add(enumerate(request.needles), request.encodings)
    catalogue.add(enumerate(request.decoys, len(request.needles)), request.encodings)
    if request.control is not None:
        catalogue.add([(len(request.needles) + len(request.decoys), request.control)], ("raw",))
    return catalogue


def _sweep_memory(
    target: Target, read_only: bool, sweeper: Sweeper, tally: _Tally, result: dict[str, int], longest: int
) -> None:
    mappings = target.mappings()
    starts = [mapping.start for mapping in mappings]

    def found(addresses: NDArray[np.int64], patterns: NDArray[np.int32]) -> None:
        for address, pattern in zip(addresses.tolist(), patterns.tolist(), strict=True):
            tally.add(pattern, mappings[bisect_right(starts, address) - 1].label, address)

    def ranges() -> Iterator[tuple[int, int]]:
        for mapping in mappings:
            before = result["scanned_bytes"]
            for start, end in wanted_ranges(mapping, target.pagemap, longest, read_only):
                result["scanned_bytes"] += end - start
                yield start, end
            result["regions"] += result["scanned_bytes"] > before

    # Neighbours are read as one, since a value may lie across the border of two mappings.
    for start, end in _joined(ranges()):
        sweeper.sweep(start, end, target.read, found)


def _joined(ranges: Iterator[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    low, high = 0, 0
    for start, end in ranges:
        if start != high:
            if high > low:
                yield low, high
            low = start
        high = end
    if high > low:
        yield low, high


def _sweep_files(paths: Sequence[str], sweeper: Sweeper, tally: _Tally, result: dict[str, int]) -> None:
    for path in sorted(set(_files(paths))):
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            continue  # a temporary file that has gone
        except OSError:
            result["unread_bytes"] += max(1, os.lstat(path).st_size)
            continue
        try:
            size = os.fstat(descriptor).st_size
            sweeper.sweep(0, size, _reader(descriptor), _finder(tally, f"file:{path}"))
            result["scanned_bytes"] += size
            result["files"] += 1
        finally:
            os.close(descriptor)


def _files(paths: Sequence[str]) -> Iterator[str]:
    for path in paths:
        if not os.path.isdir(path):
            yield path
        for directory, _, names in os.walk(path):
            for name in names:
                entry = os.path.join(directory, name)
                try:
                    if stat.S_ISREG(os.lstat(entry).st_mode):
                        yield entry
                except FileNotFoundError:
                    continue


def _reader(descriptor: int) -> Callable[[int, memoryview], None]:
    def read(offset: int, piece: memoryview) -> None:
        done = 0
        while done < len(piece):
            got = os.preadv(descriptor, [piece[done:]], offset + done)
            if got == 0:  # the file was cut meanwhile
                piece[done:] = bytes(len(piece) - done)
                return
            done += got

    return read


def _finder(tally: _Tally, where: str) -> Callable[[NDArray[np.int64], NDArray[np.int32]], None]:
    def found(offsets: NDArray[np.int64], patterns: NDArray[np.int32]) -> None:
        for offset, pattern in zip(offsets.tolist(), patterns.tolist(), strict=True):
            tally.add(pattern, where, offset)

    return found


def _summary(request: Request, cells: dict[tuple[int, int, str], list[int]]) -> dict[str, Any]:
    needles, decoys = len(request.needles), len(request.decoys)
    found, decoys_found, control_found = [], set(), False
    for (owner, encoding, where), (count, first) in sorted(cells.items()):
        if owner < needles:
            found.append([owner, encoding, where, count, first])
        elif owner < needles + decoys:
            decoys_found.add(owner)
        else:
            control_found = True
    return {
        "found": found,
        "decoys_found": len(decoys_found),
        "control_found": None if request.control is None else control_found,
    }
