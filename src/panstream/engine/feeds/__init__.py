"""Where events come from: files, pipes, growing files, tables and Redis Streams, all as micro-batches.

::

    source = open_source(["visits/"], schema)
    source.resume(applied)                  # how far earlier runs came: {producer: sequence}
    for batch in source.batches():          # None while there is nothing to read
        ...                                 # update, make the state durable together with batch.producer and batch.sequence
        source.acknowledge(batch.token)
        batch.wipe()
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from panstream.engine.rows import MicroBatch, RowSchema, SourceError
from panstream.engine.sources.files import FileSource, TextOptions
from panstream.engine.sources.follow import FollowSource
from panstream.engine.sources.inputs import Format
from panstream.engine.sources.redis_streams import RedisSource
from panstream.engine.sources.tables import TableSource

__all__ = [
    "FileSource",
    "FollowSource",
    "Format",
    "RedisSource",
    "Source",
    "TableSource",
    "TextOptions",
    "open_source",
]


class Source(Protocol):
    """What the engine asks of a source."""

    def resume(self, applied: Mapping[str, int]) -> None:
        """Tell the last sequence applied of every producer; what lies up to it will not be yielded again."""
        ...

    def batches(self) -> Iterator[MicroBatch | None]:
        """Yield batches in order, and ``None`` at least every ``poll`` seconds while there is nothing to read."""
        ...

    def acknowledge(self, token: object) -> None:
        """Take note that the batch with this token is part of a durable state."""
        ...

    def progress(self) -> float | None:
        """Return the share that has been read, from 0 to 1, where there is an end."""
        ...

    def close(self) -> None:
        """Let ``batches`` end."""
        ...


def open_source(inputs: Sequence[str], schema: RowSchema, *, follow: bool = False, **settings: Any) -> Source:
    """Return the source for inputs as given on a command line.

    Paths, globs, directories and "-" go to ``FileSource`` or, with ``follow``, to ``FollowSource``; a single
    ``redis://...`` (``rediss://``, ``unix://``) with ``#stream`` at its end goes to ``RedisSource``.
    """
    addresses = [given for given in inputs if given.startswith(("redis://", "rediss://", "unix://"))]
    if not addresses:
        return (FollowSource if follow else FileSource)(inputs, schema, **settings)
    url, _, stream = addresses[0].partition("#")
    if len(inputs) > 1 or not stream:
        raise SourceError("a Redis stream is given alone, as redis://host:port/db#stream")
    if settings.keys() & {"format", "options"}:
        raise SourceError("the entries of a Redis stream have fields, and no format")
    return RedisSource(url, stream, schema, **settings)
