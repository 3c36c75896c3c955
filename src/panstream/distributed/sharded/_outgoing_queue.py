"""Collects what the rows of a step mean for every shard, query by query."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from panstream.core.shardable import Shardable, ShardableTables
from panstream.distributed.sharded._cell_messages import CellMessage, CellQueue, Slot
from panstream.distributed.sharded._partitioning import CellPartitioning, TablePartitioning
from panstream.distributed.sharded._table_messages import TableMessage, TableQueue

Message = CellMessage | TableMessage


def wipe_messages(messages: Iterable[Message]) -> None:
    """Overwrite what has travelled."""
    for message in messages:
        message.wipe()


def sends_rows(algorithm: Any, shards: int, rows: int) -> bool:
    """Return whether so many rows are sent to shards one by one, not as marks or sums of cells."""
    if isinstance(algorithm, ShardableTables):
        return not TableQueue(TablePartitioning(algorithm, shards), 1).sums_are_less(1, rows)
    return isinstance(algorithm, Shardable) and not algorithm.is_idempotent


class OutgoingQueue:
    """What waits for every shard. ``queries`` gives algorithm and number of groups.

    Cells are marked at once where a batch has so many rows that there are at most ``marked`` cells for each.
    """

    def __init__(self, queries: Mapping[str, tuple[Any, int]], shards: int, *, marked: int = 32) -> None:
        self._shards = shards
        self._waiting: dict[str, CellQueue | TableQueue] = {}
        for query, (algorithm, groups) in queries.items():
            if isinstance(algorithm, ShardableTables):
                self._waiting[query] = TableQueue(TablePartitioning(algorithm, shards), groups)
            elif isinstance(algorithm, Shardable):
                self._waiting[query] = CellQueue(CellPartitioning(algorithm, shards), groups, marked)

    def expect(self, rows: int) -> None:
        """Hear how many rows the next batch has, selected or not: that alone decides what its messages look like."""
        for waiting in self._waiting.values():
            waiting.expect(rows)

    def add(self, query: str, slot: Slot, batch: Any) -> None:
        """Take the selected rows of a batch for one state; the caller wipes them."""
        self._waiting[query].add(slot, batch)

    def messages(self, slots: Mapping[str, Sequence[Slot]]) -> list[list[Message]]:
        """Return the messages of every shard, for all states that are open, and forget what was collected."""
        messages_by_shard: list[list[Message]] = [[] for _ in range(self._shards)]
        for query, waiting in self._waiting.items():
            if slots.get(query):
                query_messages: Iterator[Message] = waiting.messages(query, slots[query])
                for shard_messages, message in zip(messages_by_shard, query_messages, strict=True):
                    shard_messages.append(message)
        self.wipe()
        return messages_by_shard

    def wipe(self) -> None:
        """Overwrite and forget what was collected."""
        for waiting in self._waiting.values():
            waiting.wipe()
