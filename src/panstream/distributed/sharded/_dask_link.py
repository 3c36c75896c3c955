"""Shards on the workers of a Dask cluster, one actor each, opened again elsewhere when their worker is lost.

Dask does not move or restart actors: a call to one whose worker is gone raises at once, or when the connection times
out. We then open the shard from its snapshot on a worker that can, and make the same call again. The calls' arguments
go straight from here to the worker: the scheduler learns when a shard is opened and where, and nothing else.
"""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from asyncio import CancelledError
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from panstream.distributed.sharded._links import ShardCall, ShardTransport
from panstream.distributed.sharded._shard import Shard
from panstream.errors import ClusterError, PanstreamError, StoreError, import_optional

import_optional("distributed", "a cluster", "dask")

_Answer = tuple[str, Any]  # "ok" and a value; the class and the message of a refusal; or "failed" and a class
_OPEN: dict[str, Shard] = {}  # by directory: a second actor in one process takes over from the first


class _ShardActor:
    """Holds one shard on a worker."""

    def __init__(self) -> None:
        self._shard: Shard | None = None

    def open(self, settings: Mapping[str, Any]) -> _Answer:
        """Open the shard from its directory."""
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

    def call(self, method: str, arguments: tuple[Any, ...]) -> _Answer:
        """Call a method of the shard."""
        shard = self._shard
        return _capture_errors(lambda: None if shard is None else getattr(shard, method)(*arguments))

    def close(self) -> _Answer:
        """Give the shard up."""
        shard = self._shard
        return _capture_errors(lambda: None if shard is None else shard.close())


def _capture_errors(work: Any) -> _Answer:
    """Return what ``work`` returns; of an error only its class, and its message where we wrote it."""
    try:
        return "ok", work()
    except PanstreamError as error:
        return type(error).__name__, str(error)
    except Exception as error:
        return "failed", type(error).__name__


_LOST = (OSError, RuntimeError, TimeoutError, CancelledError, KeyError, ValueError)
_RETRIED = ("StoreError", "StoreLocked")  # a full disk, a directory that another process still holds
_PAUSES = (0.05, 0.1, 0.2, 0.5, 1.0)


class DaskTransport(ShardTransport):
    """The way to shards that are Dask actors.

    ``connect`` returns a client with ``direct_to_workers=True``; it is called again when the scheduler was lost.
    ``tell`` hears in words when the stream has to wait. A ``borrowed`` client is somebody else's, and left open.
    After ``patience`` seconds of waiting for one answer, ClusterError is raised.
    """

    def __init__(
        self,
        connect: Callable[[], Any],
        shards: int,
        *,
        patience: float = 600.0,
        tell: Callable[[str], None] = lambda message: None,
        borrowed: bool = False,
    ) -> None:
        super().__init__(shards)
        self._connect = connect
        self._patience = patience
        self._tell = tell
        self._borrowed = borrowed
        self._client: Any = None
        self._actors: dict[int, Any] = {}
        self._least = [0] * shards
        self.places: dict[int, tuple[str, int]] = {}  # address and process of every shard's worker

    @property
    def client(self) -> Any:
        """Return a client that is connected."""
        self._let_go_if_lost()
        if self._client is None:
            self._client = self._connect()
            if not self._client.direct_to_workers:
                raise ClusterError("the client must talk to workers directly: Client(..., direct_to_workers=True)")
        return self._client

    @property
    def actors(self) -> dict[int, Any]:
        """Return the live actors, for workers that send rows to shards themselves."""
        for shard in range(self.shards):
            self._retry_until(lambda shard=shard: self._actor(shard), f"shard {shard}")  # type: ignore[misc]
        return dict(self._actors)

    def _open_all(self) -> None:
        _ = self.actors

    def send(self, calls: Sequence[ShardCall]) -> list[Any]:
        """Make all calls at once; repeat each until it is answered."""
        started = [self._start(call) for call in calls]
        return [self._finish(call, future) for call, future in zip(calls, started, strict=True)]

    def close(self) -> None:
        """Let the shards go."""
        for actor in self._actors.values():
            try:
                actor.close().result(timeout=5)
            except _LOST:
                continue
        self._actors.clear()
        self._release_actors()

    def check(self, shard: int) -> None:
        """Ask a shard that a worker could not reach whether it is there; if not, it is opened again."""
        self.send([ShardCall(shard, "status")])

    def forget(self, shard: int) -> None:
        """Take a shard's worker for lost."""
        self._actors.pop(shard, None)

    def _start(self, call: ShardCall) -> Any:
        try:
            return self._actors[call.shard].call(call.method, call.arguments) if call.shard in self._actors else None
        except _LOST:
            return None

    def _finish(self, call: ShardCall, future: Any) -> Any:
        answer = self._result(call, future)

        def again() -> _Answer | None:
            self._actor(call.shard)
            return self._result(call, self._start(call))

        if answer is None:
            answer = self._retry_until(again, f"shard {call.shard}")
        if call.method != "status" and call.arguments and isinstance(call.arguments[0], int):
            self._least[call.shard] = max(self._least[call.shard], call.arguments[0])
        return answer[1]

    def _result(self, call: ShardCall, future: Any) -> _Answer | None:
        """Return the answer, or None if the call must be made again."""
        if future is None:
            self.forget(call.shard)
            return None
        try:
            word, value = future.result()
        except _LOST:
            self.forget(call.shard)
            return None
        if word in _RETRIED and self.directory is not None:
            self._waiting = f"shard {call.shard}: {value}"
            self.forget(call.shard)
            return None
        if word != "ok":
            raise ClusterError(f"shard {call.shard} cannot go on: {value}")
        return word, value

    def _retry_until(self, work: Callable[[], Any], what: str) -> Any:
        """Repeat ``work`` until it returns something."""
        start = time.monotonic()
        has_warned = False
        attempt = 0
        self._waiting = f"{what} cannot be reached"
        while True:
            try:
                result = work()
                if result is not None:
                    return result
            except _LOST:
                self._let_go_if_lost()
            except StoreError as error:
                self._waiting = str(error)
            waited = time.monotonic() - start
            if waited > self._patience:
                raise ClusterError(f"gave up after {waited:.0f} s: {self._waiting}")
            if waited > 2.0 and not has_warned:
                has_warned = True
                self._tell(f"waiting: {self._waiting}")
            time.sleep(_PAUSES[min(attempt, len(_PAUSES) - 1)])
            attempt += 1

    def _actor(self, shard: int) -> Any:
        """Return the shard's actor, opened on a worker that has its directory; None if there is none."""
        if shard in self._actors:
            return self._actors[shard]
        if self.directory is None and self._least[shard] > 0:
            raise ClusterError(
                f"shard {shard} was lost with its worker, and there is no [store] directory to restore it from"
            )
        settings = {**self.settings(shard), "least": self._least[shard]}
        workers = sorted(self.client.ncores())
        refused = ""
        for turn in range(len(workers)):
            address = workers[(shard + turn) % len(workers)]
            key = f"panstream-shard-{shard}-{uuid.uuid4().hex[:8]}"
            actor: Any = self.client.submit(_ShardActor, actor=True, workers=[address], key=key, pure=False).result(
                timeout=30
            )
            word, value = actor.open(settings).result(timeout=60)
            if word == "ok":
                self.places[shard] = (address, value[0])
                self._actors[shard] = actor
                return actor
            refused = str(value)
            if word not in _RETRIED:
                raise ClusterError(f"shard {shard} cannot be opened: {value}")
        if refused:
            raise StoreError(refused)
        return None

    def _let_go_if_lost(self) -> None:
        if self._client is not None and self._client.status != "running":
            self._release_actors()

    def _release_actors(self) -> None:
        self._actors.clear()
        client = self._client
        self._client = None
        if client is not None and not self._borrowed:
            try:
                client.close(timeout=2)
            except _LOST:
                return
