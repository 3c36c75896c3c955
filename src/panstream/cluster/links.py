"""How a coordinator reaches its shards: by calls that are repeated until they are answered, each of which counts once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from panstream.cluster.shard import Shard
from panstream.errors import PanstreamError
from panstream.randomness import Source

__all__ = ["Call", "Link", "LocalLink", "Opening", "shard_directory"]


@dataclass(frozen=True, slots=True)
class Call:
    """A method of one shard, with its arguments. They are never shown: ``repr`` leaves them out."""

    shard: int
    method: str
    arguments: tuple[Any, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What it takes to open the shards of a stream."""

    shards: int
    algorithms: Mapping[str, Any]
    directory: Path | None = None
    operator_key: bytes | None = field(default=None, repr=False)


class Link(Protocol):
    """The way to the shards."""

    @property
    def shards(self) -> int:
        """Return how many shards there are."""
        ...

    def open(self, opening: Opening) -> None:
        """Open every shard from its directory, or afresh where that is empty."""
        ...

    def send(self, calls: Sequence[Call]) -> list[Any]:
        """Make all calls, at once where possible, and return their answers when all have come."""
        ...

    def close(self) -> None:
        """Let go of the shards; what they have committed stays."""
        ...


def shard_directory(base: Path, shards: int, number: int) -> Path:
    """Return where a shard's snapshot lives: ``shards-4/shard-0`` and so on, below the stream's directory."""
    return base / f"shards-{shards}" / f"shard-{number}"


class LocalLink:
    """All shards in this process: for one machine, for tests, and to look at what the cluster left."""

    def __init__(self, shards: int, *, source: Callable[[], Source] | None = None) -> None:
        self._count, self._source = shards, source
        self.open_shards: list[Shard] = []

    @property
    def shards(self) -> int:
        """Return how many shards there are."""
        return self._count

    def open(self, opening: Opening) -> None:
        """Open every shard."""
        for number in range(self._count):
            base = opening.directory
            directory = None if base is None else shard_directory(base, self._count, number)
            self.open_shards.append(
                Shard(
                    number=number,
                    shards=self._count,
                    algorithms=opening.algorithms,
                    directory=directory,
                    operator_key=opening.operator_key,
                    source=None if self._source is None else self._source(),
                )
            )

    def send(self, calls: Sequence[Call]) -> list[Any]:
        """Make the calls one after the other."""
        return [getattr(self.open_shards[call.shard], call.method)(*call.arguments) for call in calls]

    def close(self) -> None:
        """Close every shard."""
        for shard in self.open_shards:
            with contextlib.suppress(PanstreamError):
                shard.close()
        self.open_shards.clear()
