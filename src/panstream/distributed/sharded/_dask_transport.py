"""Shards as Dask actors, reopened on another worker when theirs is lost.

Dask does not move or restart actors: a call to one whose worker is gone raises at once, or when the connection times
out. The transport then opens the shard from its snapshot on a worker that has its directory, and repeats the call.
Arguments go directly from this process to the worker: the scheduler learns when and where a shard is opened, and
nothing else.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from panstream.distributed.sharded._shard import Shard
from panstream.distributed.sharded._transport import ShardCall, ShardTransport
from panstream.errors import ClusterError, PanstreamError, StoreError, import_optional

import_optional("distributed", "a cluster", "dask")

ShardAnswer = tuple[str, Any]  # "ok" and a value; class and message of a PanstreamError; or "failed" and a class
_OPEN: dict[str, Shard] = {}  # by directory: a second actor in one process takes the directory over from the first


class _ShardActor:
    """One shard on a worker. Errors are returned, not raised: Dask would log a traceback, which can hold rows."""

    def __init__(self) -> None:
        self._shard: Shard | None = None

    def open(self, settings: Mapping[str, Any]) -> ShardAnswer:
        """Open the shard from its directory; return the process id and the shard's last step."""
        directory = settings["directory"]
        if directory is not None and directory in _OPEN:
            with contextlib.suppress(PanstreamError):
                _OPEN.pop(directory).close()

        def opened() -> tuple[int, int]:
            self._shard = Shard(**settings)
            if directory is not None:
                _OPEN[directory] = self._shard
            return os.getpid(), self._shard.step

        return _capture_errors(opened)

    def call(self, method: str, arguments: tuple[Any, ...]) -> ShardAnswer:
        """Call a method of the shard."""
        return _capture_errors(lambda: getattr(self._shard, method)(*arguments))

    def close(self) -> ShardAnswer:
        """Close the shard, if it is open."""
        return _capture_errors(lambda: None if self._shard is None else self._shard.close())


def _capture_errors(work: Callable[[], Any]) -> ShardAnswer:
    """Return the result of ``work``; of an error only its class, and its message if the class is ours."""
    try:
        return "ok", work()
    except PanstreamError as error:
        return type(error).__name__, str(error)
    except Exception as error:
        return "failed", type(error).__name__


# What Dask raises for an actor whose worker is gone: KeyError and ValueError come from its own tables.
CONNECTION_ERRORS = (OSError, RuntimeError, TimeoutError, asyncio.CancelledError, KeyError, ValueError)
TRANSIENT_ERRORS = ("StoreError", "StoreLocked")  # a full disk, a directory that another process still holds
RETRY_DELAYS = (0.05, 0.1, 0.2, 0.5, 1.0)  # seconds; the last one is repeated


def failure_answer(error: BaseException) -> ShardAnswer:
    """Classify an error of a call: "lost" may succeed when it is repeated, "failed" (as of a missing method) not."""
    is_lost = isinstance(error, (*CONNECTION_ERRORS, concurrent.futures.CancelledError))
    return ("lost", "") if is_lost else ("failed", type(error).__name__)


async def call_shard(worker: Any, address: str, key: str, method: str, arguments: tuple[Any, ...]) -> ShardAnswer:
    """Call a shard from a worker. Dask's own proxy waits for ever where its worker is up but cannot be reached."""
    import dask
    from dask.utils import parse_timedelta
    from distributed.protocol.serialize import to_serialize

    timeout = 2 * parse_timedelta(dask.config.get("distributed.comm.timeouts.tcp"))
    serialized = [to_serialize(argument) for argument in (method, arguments)]  # type: ignore[no-untyped-call]
    answer = await asyncio.wait_for(
        worker.rpc(address).actor_execute(function="call", actor=key, args=serialized, kwargs={}), timeout
    )
    # The actor returns its errors. What Dask reports beside them is that the worker has no such actor (any more).
    result: ShardAnswer = answer["result"] if answer["status"] == "OK" else ("lost", "")
    return result


class DaskTransport(ShardTransport):
    """Calls shards that are Dask actors, and reopens those whose workers are lost.

    Args:
        connect: Returns a client with ``direct_to_workers=True``; called again when the scheduler was lost.
        shards: Number of shards.
        timeout: Seconds to retry one call before ClusterError is raised.
        on_wait: Called with a message when a call has been retried for two seconds.
        borrowed: Whether the caller owns the client, so that ``close`` leaves it open.
    """

    def __init__(
        self,
        connect: Callable[[], Any],
        shards: int,
        *,
        timeout: float = 600.0,
        on_wait: Callable[[str], None] = lambda message: None,
        borrowed: bool = False,
    ) -> None:
        super().__init__(shards)
        self._connect = connect
        self._timeout = timeout
        self._on_wait = on_wait
        self._borrowed = borrowed
        self._client: Any = None
        self._waiting = False
        self._actors: dict[int, Any] = {}
        self._min_steps = [0] * shards  # the last step that each shard has acknowledged
        self.locations: dict[int, tuple[str, int]] = {}  # address and process of every shard's worker

    @property
    def client(self) -> Any:
        """A connected client.

        Raises:
            ClusterError: If ``connect`` returned a client whose messages pass the scheduler.
        """
        self._disconnect_if_lost()
        if self._client is None:
            self._client = self._connect()
            if not self._client.direct_to_workers:
                raise ClusterError("the client must talk to workers directly: Client(..., direct_to_workers=True)")
        return self._client

    @property
    def actors(self) -> dict[int, Any]:
        """The actor of every shard, opened where need be; for workers that send rows to shards themselves."""
        for shard in range(self.shards):
            self._retry_until(lambda shard=shard: self._actor(shard), f"shard {shard}")  # type: ignore[misc]
        return dict(self._actors)

    @property
    def worker_count(self) -> int:
        """The number of workers that are connected now, whether they have a shard or only read; 0 if unknown."""
        try:
            return len(self.client.ncores())
        except (OSError, RuntimeError, TimeoutError):
            return 0

    @property
    def is_waiting(self) -> bool:
        """Whether a call is being repeated, because a worker or shard has not answered."""
        return self._waiting

    @property
    def addresses(self) -> dict[int, tuple[str, str]]:
        """The worker's address and the actor's key of every shard, for tasks: with actors, they would wait for them."""
        return {shard: (actor._address, actor.key) for shard, actor in self.actors.items()}

    def _open_all(self) -> None:
        _ = self.actors

    def send(self, calls: Sequence[ShardCall]) -> list[Any]:
        """Start all calls, then wait for each and repeat it until it is answered."""
        started = [self._start(call) for call in calls]
        return [self._finish(call, future) for call, future in zip(calls, started, strict=True)]

    def close(self) -> None:
        """Close the shards, and the client unless it is borrowed."""
        for actor in self._actors.values():
            with contextlib.suppress(*CONNECTION_ERRORS):
                actor.close().result(timeout=5)
        self._disconnect()

    def check(self, shard: int) -> None:
        """Ask a shard for its status, which reopens it if its worker is lost."""
        self.send([ShardCall(shard, "status")])

    def _start(self, call: ShardCall) -> Any:
        try:
            return self._actors[call.shard].call(call.method, call.arguments) if call.shard in self._actors else None
        except CONNECTION_ERRORS:
            return None

    def _finish(self, call: ShardCall, future: Any) -> Any:
        answer = self._result(call, future)

        def repeat_call() -> ShardAnswer | None:
            self._actor(call.shard)
            return self._result(call, self._start(call))

        if answer is None:
            answer = self._retry_until(repeat_call, f"shard {call.shard}")
        if call.method != "status" and call.arguments and isinstance(call.arguments[0], int):
            self._min_steps[call.shard] = max(self._min_steps[call.shard], call.arguments[0])
        return answer[1]

    def _result(self, call: ShardCall, future: Any) -> ShardAnswer | None:
        """Return the answer; None, with the actor forgotten, if the call must be made again."""
        answer: ShardAnswer | None = None
        if future is not None:
            with contextlib.suppress(*CONNECTION_ERRORS):
                answer = future.result()
        if answer is not None and answer[0] in TRANSIENT_ERRORS and self.directory is not None:
            self._wait_reason = f"shard {call.shard}: {answer[1]}"
            answer = None
        if answer is None:
            self._actors.pop(call.shard, None)
        elif answer[0] != "ok":
            raise ClusterError(f"shard {call.shard} cannot go on: {answer[1]}")
        return answer

    def _retry_until(self, work: Callable[[], Any], what: str) -> Any:
        """Repeat ``work`` until it returns something other than None, for at most the timeout."""
        try:
            return self._repeat(work, what)
        finally:
            self._waiting = False

    def _repeat(self, work: Callable[[], Any], what: str) -> Any:
        start = time.monotonic()
        has_warned = False
        attempt = 0
        self._wait_reason = f"{what} cannot be reached"
        while True:
            try:
                result = work()
                if result is not None:
                    return result
            except CONNECTION_ERRORS:
                self._disconnect_if_lost()
            except StoreError as error:
                self._wait_reason = str(error)
            self._waiting = True
            waited = time.monotonic() - start
            if waited > self._timeout:
                raise ClusterError(f"gave up after {waited:.0f} s: {self._wait_reason}")
            if waited > 2.0 and not has_warned:
                has_warned = True
                self._on_wait(f"waiting: {self._wait_reason}")
            time.sleep(RETRY_DELAYS[min(attempt, len(RETRY_DELAYS) - 1)])
            attempt += 1

    def _actor(self, shard: int) -> Any:
        """Return the shard's actor, opened on a worker that has its directory; None if there is no worker.

        Raises:
            ClusterError: If the shard cannot be opened, or had state that no directory holds.
            StoreError: If no worker could open the directory, for a reason that may pass.
        """
        if shard in self._actors:
            return self._actors[shard]
        if self.directory is None and self._min_steps[shard] > 0:
            raise ClusterError(
                f"shard {shard} was lost with its worker, and there is no [store] directory to restore it from"
            )
        settings = {**self.settings(shard), "min_step": self._min_steps[shard]}
        workers = sorted(self.client.ncores())
        refused = ""
        for attempt in range(len(workers)):
            address = workers[(shard + attempt) % len(workers)]
            key = f"panstream-shard-{shard}-{uuid.uuid4().hex[:8]}"
            actor: Any = self.client.submit(_ShardActor, actor=True, workers=[address], key=key, pure=False).result(
                timeout=30
            )
            word, value = actor.open(settings).result(timeout=60)
            if word == "ok":
                self.locations[shard] = (address, value[0])
                self._actors[shard] = actor
                return actor
            refused = str(value)
            if word not in TRANSIENT_ERRORS:
                raise ClusterError(f"shard {shard} cannot be opened: {value}")
        if refused:
            raise StoreError(refused)
        return None

    def _disconnect_if_lost(self) -> None:
        if self._client is not None and self._client.status != "running":
            self._disconnect()

    def _disconnect(self) -> None:
        self._actors.clear()
        client = self._client
        self._client = None
        if client is not None and not self._borrowed:
            with contextlib.suppress(*CONNECTION_ERRORS):
                client.close(timeout=2)
