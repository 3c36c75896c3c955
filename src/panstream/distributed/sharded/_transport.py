"""How a coordinator calls its shards. Calls are repeated until answered; shards apply each one once."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from panstream.distributed.sharded._shard import Shard
from panstream.errors import PanstreamError


@dataclass(frozen=True, slots=True)
class ShardCall:
    """A method of one shard, with its arguments, which ``repr`` leaves out: they can hold rows."""

    shard: int
    method: str
    arguments: tuple[Any, ...] = field(default=(), repr=False)


class ShardTransport(ABC):
    """Opens the shards of a stream and calls their methods."""

    def __init__(self, shards: int) -> None:
        self.shards = shards
        self.directory: Path | None = None
        self._shared: dict[str, Any] = {}

    def open(
        self, algorithms: Mapping[str, Any], directory: Path | None = None, operator_key: bytes | None = None
    ) -> None:
        """Open every shard from its own directory below ``directory``; where that is empty, start it."""
        self.directory = directory
        self._shared = {"shards": self.shards, "algorithms": algorithms, "operator_key": operator_key}
        self._open_all()

    def settings(self, number: int) -> dict[str, Any]:
        """Return the arguments of a `Shard`. Of four shards, the first one's snapshot is in ``shards-4/shard-0``."""
        base = self.directory
        directory = None if base is None else str(base.absolute() / f"shards-{self.shards}" / f"shard-{number}")
        return {"number": number, "directory": directory, **self._shared}

    @property
    def worker_count(self) -> int:
        """The number of workers that are connected now, whether they have a shard or only read; 0 if unknown."""
        return 0

    @property
    def is_waiting(self) -> bool:
        """Whether a call is being repeated, because a worker or shard has not answered."""
        return False

    @abstractmethod
    def _open_all(self) -> None: ...

    @abstractmethod
    def send(self, calls: Sequence[ShardCall]) -> list[Any]:
        """Make all calls, concurrently where possible; return the answers in the same order."""

    @abstractmethod
    def close(self) -> None:
        """Close the shards; what they have committed stays on disk."""


class InProcessShardTransport(ShardTransport):
    """All shards in this process: for tests, and for resharding the directories of a cluster."""

    def __init__(self, shards: int) -> None:
        super().__init__(shards)
        self.open_shards: list[Shard] = []

    def _open_all(self) -> None:
        for number in range(self.shards):
            self.open_shards.append(Shard(**self.settings(number)))

    def send(self, calls: Sequence[ShardCall]) -> list[Any]:
        """Make the calls one after the other, each once."""
        return [getattr(self.open_shards[call.shard], call.method)(*call.arguments) for call in calls]

    def close(self) -> None:
        """Close every shard, also those whose state is broken."""
        for shard in self.open_shards:
            with contextlib.suppress(PanstreamError):
                shard.close()
        self.open_shards.clear()
