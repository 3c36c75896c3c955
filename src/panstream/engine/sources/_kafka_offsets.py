"""Offsets that belong to a stored state, held by the broker, so that the store does not reveal how many messages came.

A mark holds the offset of every partition at a tick of the clock. The store holds the tick and a keyed hash of it,
whose key is in the mark: an intruder with the store learns no offset. The broker holds the marks since the last state
that is known to be on disk, in the metadata of the group's committed offset. A mark is committed there before its
messages are counted. So after a crash the mark of any stored state is available, or its loss is detected.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b

from panstream.primitives.noise.entropy import random_id

MAX_MARKS = 48  # at most 50 bytes each; brokers accept 4,096 bytes of metadata
_BITS = 64
_TEXT = re.compile(r"panstream 1 ([0-9]+)((?: [0-9]+:[0-9]+:[0-9a-f]{16})+)")


@dataclass(frozen=True, slots=True, eq=False)
class OffsetMark:
    """The next offset of every partition at a tick."""

    tick: int  # milliseconds since 1970; 0 before anything was read
    offsets: dict[int, int]
    name: bytes

    def position(self, tick: int) -> int:
        """Return what the store holds at a tick at which this is the last mark: the tick and a keyed hash of it."""
        seal = blake2b(tick.to_bytes(8, "big"), key=self.name, digest_size=_BITS // 8).digest()
        return (tick << _BITS) + int.from_bytes(seal, "big")


class OffsetMarks:
    """The marks since the last state that is known to be on disk, oldest first."""

    def __init__(self, marks: list[OffsetMark]) -> None:
        self._marks = marks

    @classmethod
    def begin(cls, offsets: Mapping[int, int]) -> OffsetMarks:
        """Return the marks of a group that has not read the topic yet."""
        return cls([OffsetMark(0, dict(offsets), random_id(8))])

    @classmethod
    def parse(cls, texts: Mapping[int, str | None]) -> tuple[OffsetMarks | None, int]:
        """Return the marks in the metadata of the partitions, and how many partitions the topic had then."""
        lists: dict[int, dict[tuple[int, bytes], int]] = {}
        partitions = 0
        for partition, text in texts.items():
            if (parsed := _TEXT.fullmatch(text or "")) is not None:
                partitions = max(partitions, int(parsed[1]))
                fields = (entry.split(":") for entry in parsed[2].split())
                lists[partition] = {(int(tick), bytes.fromhex(name)): int(offset) for tick, offset, name in fields}
        if not lists or set(lists) != set(range(partitions)):
            return None, partitions
        common = set.intersection(*(set(offsets_by_mark) for offsets_by_mark in lists.values()))
        offsets = [
            (key, {partition: offsets_by_mark[key] for partition, offsets_by_mark in lists.items()})
            for key in sorted(common)
        ]
        return cls([OffsetMark(tick, where, name) for (tick, name), where in offsets]), partitions

    @property
    def first(self) -> OffsetMark:
        """The oldest mark."""
        return self._marks[0]

    @property
    def last(self) -> OffsetMark:
        """The newest mark."""
        return self._marks[-1]

    @property
    def full(self) -> bool:
        """Whether no mark can be added before a state is on disk."""
        return len(self._marks) >= MAX_MARKS

    def add(self, tick: int, offsets: Mapping[int, int]) -> OffsetMarks:
        """Return the marks with one added."""
        return OffsetMarks([*self._marks, OffsetMark(tick, dict(offsets), random_id(8))])

    def explaining(self, position: int | None) -> OffsetMark | None:
        """Return the mark of a stored position, or the first one if nothing is stored; None if it was lost."""
        if position is None:
            return self._marks[0] if self._marks and self._marks[0].tick == 0 else None
        tick = position >> _BITS
        earlier = [mark for mark in self._marks if mark.tick <= tick]
        return earlier[-1] if earlier and earlier[-1].position(tick) == position else None

    def since(self, tick: int) -> OffsetMarks:
        """Return the marks from the state of ``tick`` on, which is on disk: a crash cannot lead back behind it."""
        needed = [mark for mark in self._marks if mark.tick > tick]
        return OffsetMarks(self._marks[-len(needed) - 1 :])

    def text(self, partition: int, partitions: int) -> str:
        """Return the metadata to commit for one partition."""
        entries = (f" {mark.tick}:{mark.offsets.get(partition, 0)}:{mark.name.hex()}" for mark in self._marks)
        return f"panstream 1 {partitions}" + "".join(entries)
