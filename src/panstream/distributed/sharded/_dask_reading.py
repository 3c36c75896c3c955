"""Tasks that are read in order, as Dask actors: one reads when it is created, and keeps the result until its turn.

Cells go from its worker to the shards directly, and sums to the coordinator; the scheduler is sent names of partitions,
the newest time before each task, and nothing that was read.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from panstream.distributed.sharded._dask_transport import (
    RETRY_DELAYS,
    TRANSIENT_ERRORS,
    DaskTransport,
    ShardAnswer,
    call_shard,
    failure_answer,
)
from panstream.distributed.sharded._ordered_feed import (
    HeldUpdates,
    Reading,
    TaskLost,
    TaskRunner,
    TaskSummary,
    read_spans_here,
)
from panstream.distributed.sharded._ordered_reading import OrderedTask, Section, TimeSpan
from panstream.distributed.sharded._task_times import read_time_span
from panstream.distributed.sharded._time_forecast import spans_from_statistics
from panstream.distributed.sharded._worker_reading import TASKS_PER_WORKER, Partition, ReadPlan
from panstream.errors import ClusterError

Addresses = Mapping[int, tuple[str, str]]


class _TaskActor:
    """One task on a worker."""

    def __init__(self, plan: ReadPlan, task: OrderedTask) -> None:
        self._updates = HeldUpdates.read(plan, task)

    async def summary(self) -> TaskSummary:
        """Return the summary."""
        return self._updates.summary

    async def section(self, number: int) -> Section:
        """Return what the coordinator needs of a section."""
        return self._updates.section(number)

    async def deliver(self, number: int, names: Sequence[str], last: bool, addresses: Addresses) -> list[ShardAnswer]:
        """Send every shard its part of a section; return their answers."""
        return await deliver_from_worker(self._updates.shard_arguments(number, names, last=last), addresses)

    async def close(self) -> None:
        """Overwrite what was read."""
        self._updates.updates.wipe()


async def deliver_from_worker(arguments: Sequence[tuple[Any, ...]], addresses: Addresses) -> list[ShardAnswer]:
    """Send every shard its arguments of `Shard.apply_section`. Runs on the event loop of a worker: it only waits."""
    from distributed import get_worker

    worker = get_worker()
    calls = [call_shard(worker, *addresses[shard], "apply_section", own) for shard, own in enumerate(arguments)]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    return [failure_answer(answer) if isinstance(answer, BaseException) else answer for answer in answers]


def deliver_from_here(transport: DaskTransport, arguments: Sequence[tuple[Any, ...]], names: Sequence[str]) -> None:
    """Send every shard its arguments of `Shard.apply_section` from this process; raise as `check_answers` does."""
    actors = transport.actors
    answers: list[ShardAnswer] = []
    try:
        futures = [actors[shard].call("apply_section", own) for shard, own in enumerate(arguments)]
    except Exception:
        raise TaskLost([*range(transport.shards)]) from None
    for future in futures:
        try:
            answers.append(future.result())
        except (Exception, asyncio.CancelledError) as error:
            answers.append(failure_answer(error))
    check_answers(answers, names)


def recover_shards(transport: DaskTransport, attempts: int, shards: Sequence[int]) -> None:
    """Wait until lost shards answer again, which reopens them."""
    for shard in shards:
        transport.check(shard)
    if attempts:
        time.sleep(RETRY_DELAYS[min(attempts, len(RETRY_DELAYS)) - 1])


def check_answers(answers: Sequence[ShardAnswer], names: Sequence[str]) -> None:
    """Raise TaskLost if a shard was not reached, and ClusterError if one cannot apply its part."""
    failed = {shard: answer for shard, answer in enumerate(answers) if answer[0] != "ok"}
    lost = [shard for shard, (word, _) in failed.items() if word == "lost" or word in TRANSIENT_ERRORS]
    for shard, (_, reason) in failed.items():
        if shard not in lost:
            raise ClusterError(f"shard {shard} cannot apply {names[0]}: {reason}")
    if lost:
        raise TaskLost(lost)


class _RemoteReading(Reading):
    """A task on a worker; any failure of a call means that it has to be read again."""

    def __init__(self, future: Any, transport: DaskTransport) -> None:
        self._future = future
        self._transport = transport

    def summary(self) -> TaskSummary:
        """Return the summary."""
        summary: TaskSummary = self._call("summary")
        return summary

    def section(self, number: int) -> Section:
        """Return what the coordinator needs of a section."""
        section: Section = self._call("section", number)
        return section

    def deliver(self, number: int, names: Sequence[str], *, last: bool) -> None:
        """Let the worker send every shard its part of a section."""
        check_answers(self._call("deliver", number, names, last, self._transport.addresses), names)

    def close(self) -> None:
        """Overwrite what was read."""
        if self._future is not None:
            with contextlib.suppress(TaskLost):
                if self._future.done():
                    self._call("close")
            self._future.release()
            self._future = None

    def _call(self, method: str, *arguments: Any) -> Any:
        if self._future is None:
            raise TaskLost
        try:
            actor = self._future.result()
            return getattr(actor, method)(*arguments).result()
        except (Exception, asyncio.CancelledError):
            raise TaskLost from None


class _LocalReading(Reading):
    """A task that was read in this process."""

    def __init__(self, updates: HeldUpdates, transport: DaskTransport) -> None:
        self._updates = updates
        self._transport = transport

    def summary(self) -> TaskSummary:
        """Return the summary."""
        return self._updates.summary

    def section(self, number: int) -> Section:
        """Return what the coordinator needs of a section."""
        return self._updates.section(number)

    def deliver(self, number: int, names: Sequence[str], *, last: bool) -> None:
        """Send every shard its part of a section."""
        deliver_from_here(self._transport, self._updates.shard_arguments(number, names, last=last), names)

    def close(self) -> None:
        """Overwrite what was read."""
        self._updates.updates.wipe()


class DaskRunner(TaskRunner):
    """Reads tasks on the workers of a transport's cluster; after a failure, in this process."""

    def __init__(self, plan: ReadPlan, transport: DaskTransport) -> None:
        self.plan = plan
        self._transport = transport

    @property
    def capacity(self) -> int:
        """Return how many tasks may be read or wait for their turn; it grows with workers that join."""
        return TASKS_PER_WORKER * max(1, self._transport.worker_count)

    def time_spans(self, partitions: Sequence[Partition], limit: float) -> list[TimeSpan]:
        """Return the spans of partitions, from statistics or read by workers."""
        spans = spans_from_statistics(self.plan.config, partitions, limit)
        rest = [partition for partition in partitions if partition.name not in spans]
        futures: list[Any] = []
        with contextlib.suppress(OSError, RuntimeError, TimeoutError):
            client = self._transport.client
            for partition in rest:
                key = f"panstream-times-{uuid.uuid4().hex[:12]}"
                futures.append(client.submit(_span_on_worker, self.plan, partition, limit, key=key, pure=False))
        for partition, future in zip(rest, [*futures, *[None] * (len(rest) - len(futures))], strict=True):
            span = None
            if future is not None:
                with contextlib.suppress(Exception, asyncio.CancelledError):
                    span = future.result()
                future.release()
            spans[partition.name] = read_spans_here(self.plan, [partition], limit)[0] if span is None else span
        return [spans[partition.name] for partition in partitions]

    def start(self, task: OrderedTask) -> Reading:
        """Begin to read a task on a worker."""
        future = None
        with contextlib.suppress(OSError, RuntimeError, TimeoutError):
            client = self._transport.client
            key = f"panstream-task-{uuid.uuid4().hex[:12]}"
            future = client.submit(_TaskActor, self.plan, task, actor=True, key=key, pure=False, retries=0)
        return _RemoteReading(future, self._transport)

    def read_here(self, task: OrderedTask) -> Reading:
        """Read a task in this process: whatever the worker lacked, this process may have."""
        return _LocalReading(HeldUpdates.read(self.plan, task), self._transport)

    def recover(self, attempts: int, shards: Sequence[int]) -> None:
        """Wait until lost shards answer again, which reopens them."""
        recover_shards(self._transport, attempts, shards)


def _span_on_worker(plan: ReadPlan, partition: Partition, limit: float) -> TimeSpan | None:
    """Return the span of a partition, None if it cannot be read: an exception would carry rows in its traceback."""
    try:
        return read_time_span(plan, partition, limit)
    except Exception:
        return None
