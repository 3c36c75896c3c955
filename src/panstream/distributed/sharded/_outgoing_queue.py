"""Collects the updates of a step for every shard, query by query."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from panstream.core.shardable import has_cells, has_tables
from panstream.distributed.sharded._cell_messages import CellMessage, CellQueue, Slot
from panstream.distributed.sharded._partitioning import CellPartitioning, TablePartitioning
from panstream.distributed.sharded._table_messages import TableMessage, TableQueue

Message = CellMessage | TableMessage


def wipe_messages(messages: Iterable[Message]) -> None:
    """Wipe the arrays of messages."""
    for message in messages:
        message.wipe()


def sends_rows(algorithm: Any, shards: int, rows: int) -> bool:
    """Return whether the updates of ``rows`` rows are sent row by row, not as marks or sums of cells."""
    if has_tables(algorithm):
        return not TableQueue(TablePartitioning(algorithm, shards), 1).sums_are_less(1, rows)
    return has_cells(algorithm) and not algorithm.is_idempotent


class OutgoingQueue:
    """The updates that wait to be sent.

    Args:
        queries: The algorithm and the number of groups of every query.
        shards: Number of shards.
        cells_per_row: A batch is collected as marks of cells, not as rows, if there are at most this many cells per
            row of it.
    """

    def __init__(self, queries: Mapping[str, tuple[Any, int]], shards: int, *, cells_per_row: int = 32) -> None:
        self._shards = shards
        self._queues: dict[str, CellQueue | TableQueue] = {}
        for query, (algorithm, groups) in queries.items():
            if has_tables(algorithm):
                self._queues[query] = TableQueue(TablePartitioning(algorithm, shards), groups)
            elif has_cells(algorithm):
                self._queues[query] = CellQueue(CellPartitioning(algorithm, shards), groups, cells_per_row)

    def expect(self, rows: int) -> None:
        """Announce the next batch by its number of rows, selected or not: that alone decides the messages' shape."""
        for queue in self._queues.values():
            queue.expect(rows)
            queue.count(rows)

    def choose_forms(self, rows: int, windows: Mapping[str, int]) -> None:
        """Choose the form of the next messages by about how many rows, and windows of every query, they will have."""
        for query, queue in self._queues.items():
            queue.expect(rows, windows.get(query, 1))

    def count(self, rows: int) -> None:
        """Count the rows of a batch of messages whose form is chosen, selected or not."""
        for queue in self._queues.values():
            queue.count(rows)

    def add(self, query: str, slot: Slot, batch: Any) -> None:
        """Add the selected rows of a batch for one state; the caller wipes them."""
        self._queues[query].add(slot, batch)

    def messages(self, slots: Mapping[str, Sequence[Slot]]) -> list[list[Message]]:
        """Return the messages of every shard, for all states that are open, and empty the queues."""
        messages_by_shard: list[list[Message]] = [[] for _ in range(self._shards)]
        for query, queue in self._queues.items():
            if slots.get(query):
                query_messages: Iterator[Message] = queue.messages(query, slots[query])
                for shard_messages, message in zip(messages_by_shard, query_messages, strict=True):
                    shard_messages.append(message)
        self.wipe()
        return messages_by_shard

    def wipe(self) -> None:
        """Wipe and empty all queues."""
        for queue in self._queues.values():
            queue.wipe()
