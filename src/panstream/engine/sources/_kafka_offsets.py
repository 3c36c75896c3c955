"""Which offsets belong to a stored state: kept at the broker, so that the store need not hold how many messages came.

A mark says how far every partition had been read at a tick of the clock. The store holds a tick and a few bytes that
only the mark of that time explains; the broker keeps the marks since the last state that is known to be on disk, as the
text beside the offset that a group commits. A mark reaches the broker before its messages are counted. So whatever
state is found after a crash, its mark is there; and if the broker has lost it, that shows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b

from panstream.primitives.noise.entropy import random_id

MOST = 48  # marks; the text of one is up to 50 bytes, and brokers take 4,096 of all
_BITS = 64
_TEXT = re.compile(r"panstream 1 ([0-9]+)((?: [0-9]+:[0-9]+:[0-9a-f]{16})+)")


@dataclass(frozen=True, slots=True)
class OffsetMark:
    """How far every partition was read by a tick."""

    tick: int  # milliseconds since 1970; 0 before anything was read
    offsets: dict[int, int]
    name: bytes

    def position(self, tick: int) -> int:
        """Return what the store holds at a tick at which this is the last mark: nobody sees from it which one it is."""
        seal = blake2b(tick.to_bytes(8, "big"), key=self.name, digest_size=_BITS // 8).digest()
        return (tick << _BITS) + int.from_bytes(seal, "big")


class OffsetMarks:
    """The marks since the last state that is known to be on disk, oldest first."""

    def __init__(self, marks: list[OffsetMark]) -> None:
        self._marks = marks

    @classmethod
    def begin(cls, offsets: Mapping[int, int]) -> OffsetMarks:
        """Return the marks of a topic that nobody has read yet."""
        return cls([OffsetMark(0, dict(offsets), random_id(8))])

    @classmethod
    def found(cls, texts: Mapping[int, str | None]) -> tuple[OffsetMarks | None, int]:
        """Return the marks that a broker has of the partitions, and how many partitions there were then."""
        lists: dict[int, dict[tuple[int, bytes], int]] = {}
        newest_tick = 0
        for partition, text in texts.items():
            if (parsed := _TEXT.fullmatch(text or "")) is not None:
                newest_tick = max(newest_tick, int(parsed[1]))
                fields = (entry.split(":") for entry in parsed[2].split())
                lists[partition] = {(int(tick), bytes.fromhex(name)): int(offset) for tick, offset, name in fields}
        if not lists or set(lists) != set(range(newest_tick)):
            return None, newest_tick
        common = set.intersection(*(set(offsets_by_mark) for offsets_by_mark in lists.values()))
        offsets = [
            (key, {partition: offsets_by_mark[key] for partition, offsets_by_mark in lists.items()})
            for key in sorted(common)
        ]
        return cls([OffsetMark(tick, where, name) for (tick, name), where in offsets]), newest_tick

    @property
    def last(self) -> OffsetMark:
        """The newest mark."""
        return self._marks[-1]

    @property
    def full(self) -> bool:
        """Whether there is no room for another before a state is on disk."""
        return len(self._marks) >= MOST

    def add(self, tick: int, offsets: Mapping[int, int]) -> OffsetMarks:
        """Return the marks with one more."""
        return OffsetMarks([*self._marks, OffsetMark(tick, dict(offsets), random_id(8))])

    def explaining(self, position: int | None) -> OffsetMark | None:
        """Return the mark of a stored position, or of a store that holds none; None if it is not there."""
        if position is None:
            return self._marks[0] if self._marks and self._marks[0].tick == 0 else None
        tick = position >> _BITS
        earlier = [mark for mark in self._marks if mark.tick <= tick]
        return earlier[-1] if earlier and earlier[-1].position(tick) == position else None

    def since(self, tick: int) -> OffsetMarks:
        """Return the marks that are still needed once the state of a tick is on disk."""
        needed = [mark for mark in self._marks if mark.tick > tick]
        return OffsetMarks(self._marks[-len(needed) - 1 :])

    def text(self, partition: int, partitions: int) -> str:
        """Return what the broker keeps of one partition."""
        entries = (f" {mark.tick}:{mark.offsets.get(partition, 0)}:{mark.name.hex()}" for mark in self._marks)
        return f"panstream 1 {partitions}" + "".join(entries)
