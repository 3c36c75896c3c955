"""A disk in memory that loses what it may lose: for histories of crashes that a seed replays.

It stands in for ``panstream.engine.storage.disk.Disk``. Until a file is synced, every sector of 512 bytes may be, once
the power
has failed, as it was at any time since the last sync: writes are lost, reordered, and torn between sectors. The file's
size may be any that it had since then. Until a directory is synced, the last of the changes to its names may be undone,
one after the other. A process that is killed loses nothing: what it wrote is in the system's cache, though not on disk.

Every call that changes something is a moment at which the process may end, or the disk refuse, once or some
``refusals`` in a row; ``fail_in`` says how many calls are left until then. A refused ``sync`` leaves data in the cache
that no later one writes, as Linux does.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

from panstream.errors import StoreLocked

Choose = Callable[[int], int]
"""Returns a number below its argument: the seed's choice."""
Ending = Literal["kill", "power", "refuse"]

SECTOR = 512


class Stopped(BaseException):
    """The process has ended here. Not an Exception: nothing but the end of a history may catch it."""


@dataclass(slots=True)
class _File:
    data: bytearray = field(default_factory=bytearray)  # as a reader sees it
    sizes: list[int] = field(default_factory=lambda: [0])  # it may have after a loss of power
    sectors: dict[int, list[bytes]] = field(default_factory=dict)  # what a changed sector may hold then
    stuck: set[int] = field(default_factory=set)  # sectors that the system believes to be written

    def change(self, offset: int, data: bytes) -> None:
        end = offset + len(data)
        for number in range(offset // SECTOR, -(-end // SECTOR)):
            self.sectors.setdefault(number, [self.sector(number)])
        if end > len(self.data):
            self.grow(end)
        self.data[offset:end] = data
        for number in range(offset // SECTOR, -(-end // SECTOR)):
            self.sectors[number].append(self.sector(number))
            self.stuck.discard(number)

    def grow(self, size: int) -> None:
        self.data.extend(bytes(size - len(self.data)))
        self.sizes.append(size)

    def sector(self, number: int) -> bytes:
        return bytes(self.data[number * SECTOR : (number + 1) * SECTOR]).ljust(SECTOR, b"\0")

    def synced(self) -> None:
        self.sectors = {number: kept for number, kept in self.sectors.items() if number in self.stuck}
        self.sizes = self.sizes[-1:]

    def lose(self, choose: Choose) -> None:
        size = self.sizes[choose(len(self.sizes))]
        whole = bytearray(self.data.ljust(-(-max(size, len(self.data)) // SECTOR) * SECTOR, b"\0"))
        for number in sorted(self.sectors):
            kept = self.sectors[number]
            whole[number * SECTOR : (number + 1) * SECTOR] = kept[choose(len(kept))]
        self.data = whole[:size]
        self.sizes = [size]
        self.sectors = {}
        self.stuck = set()


Names = dict[Path, "_File | None"]  # None is a directory


class SimulatedDisk:
    """Files and directories below ``root``, which already exists."""

    def __init__(self, root: Path, choose: Choose) -> None:
        self._choose = choose
        self._names: Names = {each: None for each in (root, *root.parents)}
        self._durable: Names = dict(self._names)
        self._changes: list[tuple[Path, Callable[[Names], object]]] = []  # of names, by directory, not yet durable
        self._open: dict[int, tuple[Path, _File]] = {}
        self._locks: set[Path] = set()
        self._next = 100
        self.fail_in: int | None = None
        self.refusals = 1  # calls in a row that are refused
        self.ending: Ending = "power"
        self.stopped = self.refused = False
        self.calls: list[str] = []
        self.unsynced: Callable[[str], bool] = lambda call: False  # of a broken store: which syncs it leaves out

    def restart(self) -> None:
        """Begin again after the process ended, or the power failed."""
        if self.ending == "power":
            self._lose()
        self._open.clear()
        self._locks.clear()
        self.stopped = False
        self.fail_in = None

    def image(self) -> dict[Path, bytes]:
        """Return a copy of every file, as a backup has it."""
        return {path: bytes(file.data) for path, file in self._names.items() if file is not None}

    def put_back(self, image: dict[Path, bytes]) -> None:
        """Replace the content of files by that of a backup, durably."""
        for path, data in image.items():
            file = self._names.get(path)
            if file is not None:
                file.data = bytearray(data)
                file.sizes = [len(data)]
                file.sectors = {}
                file.stuck = set()

    def moment(self, call: str) -> None:
        """Pass a moment at which the process may end, or the disk refuse."""
        if self.stopped:
            raise Stopped
        self.calls.append(call)
        if self.fail_in is None or (self.ending == "refuse" and call == "clock"):
            return
        self.fail_in -= 1
        if self.fail_in < 0:
            self.refusals -= 1
            self.fail_in = 0 if self.ending == "refuse" and self.refusals > 0 else None
            if self.ending == "refuse":
                self.refused = True
                raise OSError(errno.EIO, "Input/output error")
            self.stopped = True
            raise Stopped

    # What a store asks of a disk.

    def make_directory(self, path: Path) -> None:
        """Make a directory."""
        self.moment("make directory")
        self._rename(path.parent, lambda names: names.setdefault(path, None))

    def exists(self, path: Path) -> bool:
        """Return whether there is a file or directory of this name."""
        return path in self._names

    def open(self, path: Path, *, create: bool = False) -> int:
        """Open a file; with ``create``, make it, empty."""
        self.moment("open")
        if create:
            made = _File()
            self._rename(path.parent, lambda names: names.update({path: made}))
        file = self._names[path]
        assert file is not None
        return self._opened(path, file)

    def lock(self, path: Path) -> int:
        """Open a file that nobody else may open this way until it is closed."""
        if path in self._locks:
            raise StoreLocked("another process has this store open")
        self.moment("lock")
        self._locks.add(path)
        return self._opened(path, _File())

    def close(self, file: int) -> None:
        """Close a file; also after the process ended."""
        path, _ = self._open.pop(file, (None, None))
        if path is not None:
            self._locks.discard(path)

    def size(self, file: int) -> int:
        """Return the size of a file."""
        return len(self._open[file][1].data)

    def read(self, file: int, size: int, offset: int) -> bytes:
        """Return so many bytes, fewer only at the end of the file."""
        if self.stopped:
            raise Stopped
        return bytes(self._open[file][1].data[offset : offset + size])

    def write(self, file: int, data: bytes | memoryview, offset: int) -> None:
        """Write all of the data into the cache; a part of it if the process ends there."""
        try:
            self.moment("write")
        except BaseException:
            some = bytes(data)[: self._choose(len(data) + 1) // SECTOR * SECTOR]
            if some:
                self._open[file][1].change(offset, some)
            raise
        self._open[file][1].change(offset, bytes(data))

    def reserve(self, file: int, size: int) -> None:
        """Make a file at least so long."""
        self.moment("reserve")
        if size > self.size(file):
            self._open[file][1].grow(size)

    def sync(self, file: int) -> None:
        """Put what was written to a file on the disk."""
        kept = self._open[file][1] if file in self._open else _File()
        try:
            self.moment("sync")
        except OSError:
            kept.stuck |= kept.sectors.keys()
            raise
        if not self.unsynced("sync"):
            kept.synced()

    def replace(self, old: Path, new: Path) -> None:
        """Give a file another name."""
        self.moment("replace")
        self._rename(new.parent, lambda names: names.update({new: names.pop(old)}) if old in names else None)

    def remove(self, path: Path) -> None:
        """Do away with a file, if there is one."""
        if self.stopped:
            raise Stopped
        if path in self._names:
            self.moment("remove")
            self._rename(path.parent, lambda names: names.pop(path, None))

    def sync_directory(self, path: Path) -> None:
        """Put the names in a directory on the disk."""
        self.moment("sync directory")
        if not self.unsynced("sync directory"):
            for changed_path, change in self._changes:
                if changed_path == path:
                    change(self._durable)
            self._changes = [each for each in self._changes if each[0] != path]

    def background(self) -> SimulatedBackground:
        """Return where work is done later, at a moment of the seed's choice."""
        return SimulatedBackground(self._choose)

    def _opened(self, path: Path, file: _File) -> int:
        self._next += 1
        self._open[self._next] = path, file
        return self._next

    def _rename(self, directory: Path, change: Callable[[Names], object]) -> None:
        change(self._names)
        self._changes.append((directory, change))

    def _lose(self) -> None:
        """Lose power: what was not synced is there or not, by the seed's choice."""
        for _, change in self._changes[: self._choose(len(self._changes) + 1)]:
            change(self._durable)
        self._changes.clear()
        there = dict(self._durable)
        self._names = {path: file for path, file in there.items() if all(above in there for above in path.parents)}
        self._durable = dict(self._names)
        for file in self._names.values():
            if file is not None:
                file.lose(self._choose)


class SimulatedBackground:
    """Does work at once, or when somebody waits for it."""

    def __init__(self, choose: Choose) -> None:
        self._choose = choose
        self._left: Callable[[], None] | None = None
        self._error: Exception | None = None

    def submit(self, work: Callable[..., None], *given: object) -> SimulatedBackground:
        """Keep the work; ``result`` does it, unless it is done, and raises what it raised."""
        self._left = partial(work, *given)
        if self._choose(2):
            self.shutdown()
        return self

    def result(self) -> None:
        self.shutdown()
        error = self._error
        self._error = None
        if error is not None:
            raise error

    def shutdown(self) -> None:
        """Do what is left, unless the process has ended."""
        work = self._left
        self._left = None
        if work is not None:
            try:
                work()
            except Exception as error:
                self._error = error
