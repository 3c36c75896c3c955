"""Ids that are still in the pages of their file: only those that a query keeps are copied out.

A page is shared by the micro-batches whose rows it has, and by the thread that reads ahead. Every share overwrites its
own bytes when it is done with.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from panstream.engine.arrow import arrow_mask, pa
from panstream.engine.rows.buffer_pool import Spare
from panstream.engine.rows.wiping import wipe_array
from panstream.errors import FeedError
from panstream.primitives.memory.scratch import wipe

Mask = NDArray[np.bool_]

_LARGEST = 2**31 - 1  # bytes of text in a batch
_SPARE = 8  # one part in so many is added to the room that kept ids are guessed to need
_WIDTH = 8  # bytes of a whole number
_SELDOM = 2  # times that ids are copied out of their pages before it pays to copy all of them once


class StoredPage:
    """``rows`` ids from ``at`` on, each as four bytes of length and the bytes; ``place`` names the file in errors.

    A page that is still compressed is given with a function, called once, that returns its bytes and where ids begin.
    """

    def __init__(
        self,
        body: NDArray[np.uint8],
        at: int,
        rows: int,
        place: str,
        *,
        spare: Spare | None = None,
        unpack: Callable[[], tuple[NDArray[np.uint8], int]] | None = None,
    ) -> None:
        self.body, self.rows, self.spare, self._place = body, rows, spare or Spare(), place
        self._starts = {0: at}  # of some rows
        self._unpack = unpack
        self._lock = threading.Lock()

    def copy(self, first: int, keep: Mask, into: _Copy) -> None:
        """Append the ids to be kept among those from row ``first`` on."""
        from panstream.primitives.kernels.sources.parquet_pages import chosen_items

        with self._lock:
            start = self._start(first)
            while True:
                end = int(chosen_items(self.body, start, keep, into.offsets, into.items, into.data))
                if end != -2:
                    break
                into.grow(self.body.size - start, self._place)
            self._starts[first + keep.size] = self._sound(end)
        into.items += int(np.count_nonzero(keep))

    def size(self, rows: int) -> int:
        """Return how many bytes so many rows have, about."""
        with self._lock:
            self._ready()
        return self.body.size * rows // max(1, self.rows)

    def wipe(self, first: int, stop: int) -> None:
        """Overwrite some rows, and what is before the first or behind the last row of the page."""
        with self._lock:
            try:
                self._ready()
                start = 0 if first == 0 else self._start(first)
                end = self.body.size if stop >= self.rows else self._start(stop)
            except FeedError:  # is raised again for whoever needs rows of this page
                wipe(self.body)
                self.body = self.body[:0]
                return
            wipe(self.body[start:end])

    def _ready(self) -> None:
        """Decompress the page if it still is compressed."""
        if self._unpack is not None:
            unpack, self._unpack = self._unpack, None
            self.body = self.body[:0]
            self.body, self._starts[0] = unpack()

    def _start(self, row: int) -> int:
        """Return where a row begins; rows that were overwritten end at a known place."""
        from panstream.primitives.kernels.sources.parquet_pages import end_of_items

        self._ready()
        known = max(each for each in self._starts if each <= row)
        if known < row:
            self._starts[row] = self._sound(int(end_of_items(self.body, self._starts[known], row - known)))
        return self._starts[row]

    def _sound(self, end: int) -> int:
        if end < 0:
            raise FeedError(f"{self._place} could not be read: it is cut off, damaged or not a Parquet file")
        return end


class StoredNumbers:
    """``rows`` ids from ``at`` on, whole numbers of eight bytes each."""

    def __init__(self, body: NDArray[np.uint8], at: int, rows: int, *, spare: Spare) -> None:
        assert at + _WIDTH * rows <= body.size
        self.body, self.rows, self.spare, self._at = body, rows, spare, at

    def copy(self, first: int, keep: Mask, into: NDArray[np.int64]) -> int:
        """Write the ids to be kept among those from row ``first`` on, and one more; return how many are kept."""
        from panstream.primitives.kernels.sources.row_selection import keep_words

        return int(keep_words(self.body, self._at + _WIDTH * first, keep, into))

    def wipe(self, first: int, stop: int) -> None:
        """Overwrite some rows, and what is before the first or behind the last row of the page."""
        start = 0 if first == 0 else self._at + _WIDTH * first
        wipe(self.body[start : self.body.size if stop >= self.rows else self._at + _WIDTH * stop])


@dataclass(slots=True, eq=False)
class _Copy:
    """Ids that were copied out: ``items`` of them so far."""

    offsets: NDArray[np.int32]
    data: NDArray[np.uint8]
    items: int = 0

    def grow(self, more: int, place: str) -> None:
        """Make room for so many bytes more."""
        from panstream.primitives.kernels.sources.parquet_pages import SLACK

        used = int(self.offsets[self.items])
        if used + more > _LARGEST:
            raise FeedError(f"{place} has too much text in one micro-batch")
        larger = np.empty(used + more + SLACK, np.uint8)
        larger[:used] = self.data[:used]
        wipe(self.data)
        self.data = larger

    def array(self) -> Any:
        """Return them as an Arrow array of strings."""
        buffers = [None, pa.py_buffer(self.offsets), pa.py_buffer(self.data)]
        return pa.Array.from_buffers(pa.string(), self.items, buffers)


@dataclass(frozen=True, slots=True)
class _Part:
    page: StoredPage | StoredNumbers
    first: int
    rows: int


class StoredIds:
    """The ids of consecutive rows, none of them missing."""

    def __init__(self, parts: Sequence[_Part]) -> None:
        self._parts = list(parts)
        self._rows = sum(part.rows for part in parts)
        self._spare = parts[0].page.spare if parts else Spare()
        self._all: Any = None
        self._copied = 0

    @classmethod
    def of(cls, page: StoredPage | StoredNumbers, first: int, rows: int) -> Self:
        """Return the ids of some rows of a page."""
        return cls([_Part(page, first, rows)])

    @classmethod
    def joined(cls, several: Sequence[StoredIds]) -> Self:
        """Return the ids of all, which must not be used on their own any more."""
        return cls([part for each in several for part in each._parts])

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, rows: slice) -> Any:
        """Return some rows as an Arrow array, valid until ``wipe``."""
        return self.all()[rows]

    def split(self, rows: int) -> tuple[StoredIds, StoredIds]:
        """Return the first rows and the others; this must not be used any more."""
        early, late = [], []
        for part in self._parts:
            here = min(part.rows, rows)
            rows -= here
            if here:
                early.append(_Part(part.page, part.first, here))
            if here < part.rows:
                late.append(_Part(part.page, part.first + here, part.rows - here))
        return StoredIds(early), StoredIds(late)

    def all(self) -> Any:
        """Return all ids as an Arrow array, which is copied once and valid until ``wipe``."""
        if self._all is None:
            self._all = self._copy(np.ones(self._rows, bool))
        return self._all

    def chosen(self, keep: Mask) -> Any:
        """Return a copy of the ids that are kept, the caller's to wipe."""
        self._copied += 1
        if self._all is not None or self._copied > _SELDOM:
            return self.all().filter(arrow_mask(keep))
        return self._copy(keep)

    def wipe(self) -> None:
        """Overwrite the ids, here and in their pages."""
        if self._all is not None:
            wipe_array(self._all)
        for part in self._parts:
            part.page.wipe(part.first, part.first + part.rows)
        self._parts, self._all, self._rows = [], None, 0

    def _copy(self, keep: Mask) -> Any:
        texts = [(part, part.page) for part in self._parts if isinstance(part.page, StoredPage)]
        return self._copy_texts(texts, keep) if texts else self._copy_numbers(keep)

    def _copy_numbers(self, keep: Mask) -> Any:
        out = self._spare.array(int(np.count_nonzero(keep)) + 1, np.int64)
        kept = done = 0
        for part in self._parts:
            assert isinstance(part.page, StoredNumbers)
            kept += part.page.copy(part.first, keep[done : done + part.rows], out[kept:])
            done += part.rows
        out[-1] = 0
        return pa.Array.from_buffers(pa.int64(), out.size - 1, [None, pa.py_buffer(out)])

    def _copy_texts(self, parts: Sequence[tuple[_Part, StoredPage]], keep: Mask) -> Any:
        from panstream.primitives.kernels.sources.parquet_pages import SLACK

        count = int(np.count_nonzero(keep))
        guess = sum(page.size(part.rows) for part, page in parts) * count // max(1, self._rows)
        room = min(guess + guess // _SPARE, _LARGEST)
        copy = _Copy(np.empty(count + 1, np.int32), self._spare.array(room + SLACK))
        copy.offsets[0] = done = 0
        try:
            for part, page in parts:
                page.copy(part.first, keep[done : done + part.rows], copy)
                done += part.rows
        except BaseException:
            wipe(copy.data)
            raise
        return copy.array()
