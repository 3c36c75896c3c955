"""The scanner process: search memory and files for all forms of all needles, and count the matches.

The request is JSON on standard input, the result JSON on standard output.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.errors import InvalidParameter, PanstreamError
from panstream.primitives.fast_import import import_without_gc
from panstream.primitives.kernels.testing.needle_index import PADDING, NeedleIndex, build_index, search
from panstream.testing.memory._encodings import SHORTEST, forms
from panstream.testing.memory._launcher import ScanRequest
from panstream.testing.memory._needles import Needle
from panstream.testing.memory._process import Target, merge_ranges

_SIEVE_BITS = 8  # per marked window; with more the sieve exceeds the cache, with fewer it passes too many candidates
_GATE_BITS = 16
_MATCHES = 1 << 16
_LONGEST_STRIDE = 8

MatchHandler = Callable[[NDArray[np.int64], NDArray[np.int32]], None]


class Searcher:
    """A search for many byte patterns, each with the number of its needle and its encoding."""

    def __init__(self, chunk_bytes: int) -> None:
        self._blob = bytearray()
        self._starts = array("q", [0])
        self._owner = array("q")
        self._encoding = array("B")
        self._chunk = chunk_bytes

    def add(self, owners: Iterable[tuple[int, Needle]], encodings: Sequence[str]) -> None:
        """Add every form of the given needles; raise InvalidParameter for a needle without any."""
        numbers = {encoding: number for number, encoding in enumerate(encodings)}
        for owner, needle in owners:
            previous_count = len(self)
            for encoding, pattern in forms(needle, encodings):
                self._blob += pattern
                self._starts.append(len(self._blob))
                self._owner.append(owner)
                self._encoding.append(numbers[encoding])
            if len(self) == previous_count:
                kind = type(needle).__name__
                raise InvalidParameter(f"encodings must apply to every needle, got none for one of type {kind}")

    def __len__(self) -> int:
        return len(self._owner)

    def owner_of(self, pattern: int) -> tuple[int, int]:
        """Return the number of a pattern's needle, and the index of its encoding in the argument of `add`."""
        return self._owner[pattern], self._encoding[pattern]

    @property
    def longest(self) -> int:
        """Return the number of bytes of the longest pattern."""
        return int(self._index.lengths[-1])

    def prepare(self) -> None:
        """Build the index and the buffers, and compile the search kernel."""
        starts = np.frombuffer(self._starts, np.int64)
        lengths = np.unique(np.diff(starts))
        shortest = int(lengths[0])
        window = 8 if shortest >= 10 else SHORTEST
        stride = min(_LONGEST_STRIDE, shortest - window + 1)
        blob = np.zeros((len(self._blob) + PADDING) // 8 * 8 + 8, np.uint8)
        blob[: len(self._blob)] = np.frombuffer(self._blob, np.uint8)
        self._index = NeedleIndex(
            blob=blob,
            starts=starts,
            lengths=lengths,
            window=window,
            stride=stride,
            zeros=np.zeros(1, np.int64),
            pairs=np.zeros(1 << 14, np.uint8),
            sieve=np.zeros(len(self) * stride * _SIEVE_BITS // 64 + 1, np.uint64),
            gate=np.zeros(len(self) * _GATE_BITS // 64 + 1, np.uint64),
            hashes=np.zeros(len(self), np.uint64),
            slots=np.zeros(1 << (2 * len(self)).bit_length(), np.int32),
        )
        build_index(self._index)
        self._buffer = np.zeros((self._chunk + self.longest + PADDING) // 8 * 8 + 8, np.uint8)
        self._matches = np.zeros(_MATCHES, np.int64), np.zeros(_MATCHES, np.int32)
        search(self._buffer, 0, 0, 0, self._index, *self._matches)

    def sweep(self, begin: int, end: int, read: Callable[[int, memoryview], None], on_match: MatchHandler) -> None:
        """Search ``[begin, end)``; ``read`` fills a piece from its address, ``on_match`` takes addresses and patterns.

        Pieces overlap, so that a match at a border is found, and only once.
        """
        positions, patterns = self._matches
        for start in range(begin, end, self._chunk):
            size = min(end - start, self._chunk + self.longest - 1)
            read(start, self._buffer.data[:size])
            pos = 0
            stop = min(size, self._chunk)
            while pos < stop:
                pos, matches = search(self._buffer, size, pos, stop, self._index, positions, patterns)
                if matches:
                    on_match(positions[:matches] + start, patterns[:matches])


class _Result:
    """The bytes read so far, and for each needle, encoding and location the count and the lowest address."""

    def __init__(self, searcher: Searcher) -> None:
        self.searcher = searcher
        self.counts = dict.fromkeys(("scanned_bytes", "regions", "files", "unread_bytes", "secret_bytes"), 0)
        self.cells: dict[tuple[int, int, str], list[int]] = {}

    def sweep(
        self, start: int, end: int, read: Callable[[int, memoryview], None], label_of: Callable[[int], str]
    ) -> None:
        """Search a range and count the matches; ``label_of`` returns the location of an address."""

        def count_matches(addresses: NDArray[np.int64], patterns: NDArray[np.int32]) -> None:
            for address, pattern in zip(addresses.tolist(), patterns.tolist(), strict=True):
                cell = self.cells.setdefault((*self.searcher.owner_of(pattern), label_of(address)), [0, address])
                cell[0] += 1
                cell[1] = min(cell[1], address)

        self.searcher.sweep(start, end, read, count_matches)


def _answer(scan: ScanRequest) -> dict[str, Any]:
    """Return the scan's result, ready for JSON."""
    needles = len(scan.needles)
    decoys = len(scan.decoys)
    searcher = Searcher(scan.chunk_bytes)
    searcher.add(enumerate([*scan.needles, *scan.decoys]), scan.encodings)
    if scan.control is not None:
        searcher.add([(needles + decoys, scan.control)], ("raw",))
    searcher.prepare()
    result = _Result(searcher)
    # Stop the target only now, after compiling and building the index, so that it is stopped for a short time.
    if scan.pid is None:
        _sweep_files(scan.files, result)
    else:
        with Target(scan.pid) as target:
            if scan.stop:
                target.stop()
            _sweep_memory(target, scan.read_only, result)
            _sweep_files(scan.files, result)
            target.check_alive()
            result.counts["unread_bytes"] += target.unread_bytes
            result.counts["secret_bytes"] += target.secret_bytes
    owners = {owner for owner, _, _ in result.cells}
    return {
        **result.counts,
        "found": [(*key, *cell) for key, cell in sorted(result.cells.items()) if key[0] < needles],
        "decoys_found": sum(needles <= owner < needles + decoys for owner in owners),
        "control_found": None if scan.control is None else needles + decoys in owners,
    }


def _sweep_memory(target: Target, read_only: bool, result: _Result) -> None:
    mappings = target.mappings()
    starts = [mapping.start for mapping in mappings]

    def ranges() -> Iterator[tuple[int, int]]:
        for mapping in mappings:
            previous_bytes = result.counts["scanned_bytes"]
            for start, end in target.ranges(mapping, result.searcher.longest, read_only=read_only):
                result.counts["scanned_bytes"] += end - start
                yield start, end
            result.counts["regions"] += result.counts["scanned_bytes"] > previous_bytes

    # Adjacent mappings are read as one range, since a value may cross their border.
    for start, end in merge_ranges(ranges()):
        result.sweep(start, end, target.read, lambda address: mappings[bisect_right(starts, address) - 1].label)


def _sweep_files(paths: Sequence[str], result: _Result) -> None:
    for path in sorted(set(_files(paths))):
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            continue  # a temporary file that was deleted in the meantime
        except OSError:
            result.counts["unread_bytes"] += max(1, os.lstat(path).st_size)
            continue
        try:
            size = os.fstat(descriptor).st_size
            label = f"file:{path}"
            result.sweep(0, size, _reader(descriptor), lambda offset, label=label: label)  # type: ignore[misc]
            result.counts["scanned_bytes"] += size
            result.counts["files"] += 1
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
            if got == 0:  # the file was truncated in the meantime
                piece[done:] = bytes(len(piece) - done)
                return
            done += got

    return read


def _main() -> None:
    import_without_gc()
    try:
        result = _answer(ScanRequest.from_json(sys.stdin.read()))
    except PanstreamError as error:
        result = {"error": type(error).__name__, "message": str(error)}
    json.dump(result, sys.stdout)


if __name__ == "__main__":
    _main()
