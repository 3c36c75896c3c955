"""Parts of a Kafka tick as Dask actors. Offsets go to the worker directly: the scheduler is sent names only."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from panstream.distributed.sharded._dask_reading import (
    check_answers,
    deliver_from_here,
    deliver_from_worker,
    recover_shards,
)
from panstream.distributed.sharded._dask_transport import DaskTransport, ShardAnswer
from panstream.distributed.sharded._kafka_feed import Fetched, PartReading, TickPart, TickRunner
from panstream.distributed.sharded._ordered_feed import TaskLost, TaskSummary
from panstream.distributed.sharded._ordered_reading import OrderedTask, Section
from panstream.distributed.sharded._worker_reading import ReadPlan
from panstream.engine.sources.kafka_ranges import Ranges


class _PartActor:
    """One part of a tick on a worker."""

    def __init__(self, plan: ReadPlan, url: str) -> None:
        self._part = TickPart(plan, url)

    def fetch(self, ranges: Ranges, now: float) -> Fetched:
        """Read the messages and hold them."""
        return self._part.fetch(ranges, now)

    def decide(self, task: OrderedTask) -> TaskSummary:
        """Turn the rows into sections."""
        return self._part.decide(task)

    async def section(self, number: int) -> Section:
        """Return what the coordinator needs of a section."""
        return self._part.section(number)

    async def deliver(
        self, number: int, names: Sequence[str], whole_number: int, last: bool, addresses: Mapping[int, tuple[str, str]]
    ) -> list[ShardAnswer]:
        """Send every shard its part of a section; return their answers."""
        return await deliver_from_worker(self._part.shard_arguments(number, names, whole_number, last), addresses)

    async def close(self) -> None:
        """Overwrite what was read."""
        self._part.wipe()


class _RemotePart(PartReading):
    """A part on a worker; any failure of a call means that the tick has to be read again."""

    def __init__(self, transport: DaskTransport, plan: ReadPlan, url: str, worker: str | None) -> None:
        self._transport = transport
        self._future: Any = None
        with contextlib.suppress(OSError, RuntimeError, TimeoutError):
            key = f"panstream-tick-{uuid.uuid4().hex[:12]}"
            self._future = transport.client.submit(
                _PartActor, plan, url, actor=True, key=key, pure=False, workers=None if worker is None else [worker]
            )

    def fetch(self, ranges: Ranges, now: float) -> Any:
        """Begin to read."""
        return self._begin("fetch", ranges, now)

    def decide(self, task: OrderedTask) -> Any:
        """Begin to decide."""
        return self._begin("decide", task)

    def section(self, number: int) -> Section:
        """Return what the coordinator needs of a section."""
        section: Section = self._begin("section", number)()
        return section

    def deliver(self, number: int, names: Sequence[str], whole_number: int, *, last: bool) -> None:
        """Let the worker send every shard its part of a section."""
        check_answers(self._begin("deliver", number, names, whole_number, last, self._transport.addresses)(), names)

    def close(self) -> None:
        """Overwrite what was read."""
        if self._future is not None:
            with contextlib.suppress(TaskLost):
                self._begin("close")()
            self._future.release()
            self._future = None

    def _begin(self, method: str, *arguments: Any) -> Any:
        if self._future is None:
            raise TaskLost

        def wait(call: Any) -> Any:
            try:
                return call()
            except (Exception, asyncio.CancelledError):
                raise TaskLost from None

        started = wait(lambda: getattr(self._future.result(timeout=60), method)(*arguments))
        return lambda: wait(started.result)


class _LocalPart(PartReading):
    """A part in this process."""

    def __init__(self, transport: DaskTransport, plan: ReadPlan, url: str) -> None:
        self._transport = transport
        self._part = TickPart(plan, url)

    def fetch(self, ranges: Ranges, now: float) -> Any:
        """Read."""
        fetched = self._part.fetch(ranges, now)
        return lambda: fetched

    def decide(self, task: OrderedTask) -> Any:
        """Decide."""
        summary = self._part.decide(task)
        return lambda: summary

    def section(self, number: int) -> Section:
        """Return what the coordinator needs of a section."""
        return self._part.section(number)

    def deliver(self, number: int, names: Sequence[str], whole_number: int, *, last: bool) -> None:
        """Send every shard its part of a section."""
        deliver_from_here(self._transport, self._part.shard_arguments(number, names, whole_number, last), names)

    def close(self) -> None:
        """Overwrite what was read."""
        self._part.wipe()


class DaskTickRunner(TickRunner):
    """Reads ticks on the workers of a transport's cluster; after a failure, in this process."""

    def __init__(self, plan: ReadPlan, url: str, transport: DaskTransport) -> None:
        super().__init__(plan, url)
        self._transport = transport
        self._names: list[str] = []

    @property
    def workers(self) -> int:
        """Return the number of workers that are connected now."""
        with contextlib.suppress(OSError, RuntimeError, TimeoutError):
            self._names = sorted(self._transport.client.ncores())
        return max(1, len(self._names))

    def recover(self, attempts: int, shards: Sequence[int]) -> None:
        """Wait until lost shards answer again, which reopens them."""
        recover_shards(self._transport, attempts, shards)

    def _remote_part(self, rank: int) -> PartReading:
        worker = self._names[rank] if rank < len(self._names) else None
        return _RemotePart(self._transport, self.plan, self.url, worker)

    def _local_part(self) -> PartReading:
        return _LocalPart(self._transport, self.plan, self.url)
