"""All encoded forms of all needles, and the search for them in one stretch of bytes after another."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from panstream._kernels.needles import PADDING, Tables, build_tables, search
from panstream.errors import InvalidParameter
from panstream.testing.memory.encodings import SHORTEST, forms
from panstream.testing.memory.needles import Needle

__all__ = ["Catalogue", "Sweeper"]

_SIEVE_BITS = 8  # for each marked window; more would leave the cache, fewer would pass too many candidates
_GATE_BITS = 16
_MATCHES = 1 << 16
_LONGEST_STRIDE = 8


class Catalogue:
    """A list of byte patterns, each with the number of the needle it belongs to and its encoding."""

    __slots__ = ("_blob", "_encoding", "_owner", "_starts")

    def __init__(self) -> None:
        self._blob = bytearray()
        self._starts = array("q", [0])
        self._owner = array("q")
        self._encoding = array("B")

    def add(self, owners: Iterable[tuple[int, Needle]], encodings: Sequence[str]) -> None:
        """Add every form of the given needles; one of them must exist for each."""
        numbers = {encoding: number for number, encoding in enumerate(encodings)}
        for owner, needle in owners:
            before = len(self)
            for encoding, pattern in forms(needle, encodings):
                self._blob += pattern
                self._starts.append(len(self._blob))
                self._owner.append(owner)
                self._encoding.append(numbers[encoding])
            if len(self) == before:
                kind = type(needle).__name__
                raise InvalidParameter(f"encodings must apply to every needle, got none for one of type {kind}")

    def __len__(self) -> int:
        return len(self._owner)

    def owners(self) -> NDArray[np.int64]:
        """Return for each pattern the number of its needle."""
        return np.frombuffer(self._owner, np.int64)

    def encodings(self) -> NDArray[np.uint8]:
        """Return for each pattern the position of its encoding among those given to :meth:`add`."""
        return np.frombuffer(self._encoding, np.uint8)

    def tables(self) -> Tables:
        """Return what the search needs."""
        starts = np.frombuffer(self._starts, np.int64)
        lengths = np.unique(np.diff(starts))
        shortest = int(lengths[0])
        window = 8 if shortest >= 10 else SHORTEST
        stride = min(_LONGEST_STRIDE, shortest - window + 1)
        blob = np.zeros((len(self._blob) + PADDING) // 8 * 8 + 8, np.uint8)
        blob[: len(self._blob)] = np.frombuffer(self._blob, np.uint8)
        tables = Tables(
            blob=blob,
            starts=starts,
            lengths=lengths,
            window=window,
            stride=stride,
            zeros=np.zeros(1, np.bool_),
            pairs=np.zeros(1 << 14, np.uint8),
            sieve=np.zeros(len(self) * stride * _SIEVE_BITS // 64 + 1, np.uint64),
            gate=np.zeros(len(self) * _GATE_BITS // 64 + 1, np.uint64),
            hashes=np.zeros(len(self), np.uint64),
            slots=np.zeros(1 << (2 * len(self)).bit_length(), np.int32),
        )
        build_tables(tables)
        return tables


class Sweeper:
    """Reads a range piece by piece and searches it; pieces overlap so that a match at a border is found once."""

    __slots__ = ("_buffer", "_chunk", "_overlap", "_patterns", "_positions", "_tables")

    def __init__(self, tables: Tables, chunk_bytes: int) -> None:
        self._tables = tables
        self._chunk = chunk_bytes
        self._overlap = int(tables.lengths[-1]) - 1
        self._buffer = np.zeros((chunk_bytes + self._overlap + PADDING) // 8 * 8 + 8, np.uint8)
        self._positions = np.zeros(_MATCHES, np.int64)
        self._patterns = np.zeros(_MATCHES, np.int32)
        search(self._buffer, 0, 0, 0, tables, self._positions, self._patterns)  # compiles it, if need be

    def sweep(
        self,
        begin: int,
        end: int,
        read: Callable[[int, memoryview], None],
        found: Callable[[NDArray[np.int64], NDArray[np.int32]], None],
    ) -> None:
        """Search ``[begin, end)``; ``read`` fills a piece from its address, ``found`` takes addresses and patterns."""
        for start in range(begin, end, self._chunk):
            size = min(end - start, self._chunk + self._overlap)
            read(start, self._buffer.data[:size])
            at, stop = 0, min(size, self._chunk)
            while at < stop:
                at, matches = search(self._buffer, size, at, stop, self._tables, self._positions, self._patterns)
                if matches:
                    found(self._positions[:matches] + start, self._patterns[:matches])
