"""A history of a stream on a cluster: coordinator and shards end one by one, and calls or their answers are lost."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from panstream.distributed.sharded._coordinator import ClusterEngine
from panstream.distributed.sharded._shard import Shard
from panstream.distributed.sharded._transport import ShardCall, ShardTransport
from panstream.engine.config.config import Config
from panstream.engine.rows.row_batch import QuerySelection, RowBatch
from panstream.engine.runtime.engine import Engine
from panstream.errors import StoreError
from tests.engine.runtime.streams import config, question
from tests.simulated.disk import SimulatedDisk, Stopped
from tests.simulated.history import History, on

ASKED = question("asked", "SELECT CROPPED_SUM(user, w, 50) FROM s", universe=2_000, releases=40)
TICKS = question("ticks", "SELECT SUM(value) FROM s", lower=0, upper=1, every=10, horizon=500)
WINDOWS = question("windows", "SELECT SUM(value) FROM s", lower=0, upper=1, window=10)
SHARDS = 2


class SimulatedLink(ShardTransport):
    """Calls are repeated until answered, as over Dask; a shard that ended is opened again from its disk."""

    def __init__(self, history: Shards) -> None:
        super().__init__(SHARDS)
        self._history = history
        self._open: dict[int, Shard] = {}

    def _open_all(self) -> None:
        for number in range(self.shards):
            self._shard(number)

    def _shard(self, number: int) -> Shard:
        while number not in self._open:
            try:
                with on(self._history.disks[number]):
                    self._open[number] = Shard(**self.settings(number))
            except Stopped:
                self._ended(number)
            except StoreError:
                if not self._history.disks[number].refused:
                    raise
                self._ended(number)
        return self._open[number]

    def send(self, calls: Sequence[ShardCall]) -> list[Any]:
        return [self._send(call) for call in calls]

    def _send(self, call: ShardCall) -> Any:
        history = self._history
        while True:
            if history.lost():
                continue
            try:
                arguments = copy.deepcopy(call.arguments)  # a shard wipes what it got
                found = getattr(self._shard(call.shard), call.method)(*arguments)
            except Stopped:
                self._ended(call.shard)
                continue
            except StoreError:
                if not history.disks[call.shard].refused:
                    raise
                self._ended(call.shard)
                continue
            if not history.lost():
                return found

    def _ended(self, number: int) -> None:
        disk = self._history.disks[number]
        self._history.happened.append(f"shard {number}: {disk.ending}")
        disk.stopped = True
        shard = self._open.pop(number, None)
        if shard is not None:
            with contextlib.suppress(Stopped):
                shard.close()
        if disk.ending == "refuse":
            disk.ending = "kill"
            disk.refused = False
        disk.restart()

    def close(self) -> None:
        """The shards' processes end with a signal."""
        for number in list(self._open):
            with contextlib.suppress(Stopped):
                self._open.pop(number).close()
            self._history.disks[number].ending = "kill"
            self._history.disks[number].restart()


class Shards(History):
    """A coordinator and two shards, each with a disk of its own."""

    def __init__(self, seed: int, root: Path, **options: Any) -> None:
        super().__init__(seed, root, **options)
        self.disks = [SimulatedDisk(root, self.random.randrange) for _ in range(SHARDS)]
        self.lose_in: int | None = None

    def settings(self) -> Config:
        return config(ASKED, TICKS, WINDOWS, directory=self.root / "state")

    def opened(self) -> Engine:
        return ClusterEngine(self.config, SimulatedLink(self), **self.options())

    def lost(self) -> bool:
        """Return whether a call, or an answer, is lost."""
        if self.lose_in is None:
            return False
        self.lose_in -= 1
        gone = self.lose_in < 0
        if gone:
            self.lose_in = None
            self.happened.append("lost")
        return gone

    def _batch(self, producer: str, sequence: int) -> RowBatch:
        size = self.sizes.setdefault((producer, sequence), self.random.randrange(1, 9))
        first = 1_000 * (producer == "q") + 10 * sequence
        ids = np.arange(first, first + size)
        weights = np.ones(size, np.int64)
        values = QuerySelection.select_all(size, values=np.ones(size))
        chosen = {"asked": QuerySelection.select_all(size, weights=weights), "ticks": values, "windows": values}
        return RowBatch(count=size, queries=chosen, ids=ids, producer=producer, sequence=sequence)

    def _event(self) -> None:
        for disk in self.disks:
            if self.random.random() < 0.3:
                disk.ending = self.random.choice(("kill", "power", "power", "refuse"))
                disk.fail_in = self.random.randrange(25)
        if self.random.random() < 0.3:
            self.lose_in = self.random.randrange(12)
        super()._event()

    def counted(self, found: int, least: int, most: int) -> bool:
        """A batch may be with some shards, and not acknowledged."""
        return least <= found <= most

    def _roll_back(self) -> None:
        """Somebody puts a shard's backup back: noticed when the stream is opened."""
        number = self.random.randrange(SHARDS)
        for disk in (self.disk, *self.disks):
            disk.fail_in = None
        self._running().commit()
        before = self.disks[number].image()
        self._running().commit()
        self.let_go()
        current = self.disks[number].image()
        self.disks[number].put_back(before)
        try:
            self._running()
        except StoreError:
            self.happened.append("noticed")
        else:
            self.wrong("a shard that was rolled back was taken for good")
        self.let_go()
        self.disks[number].put_back(current)
