"""Text files that grow, as ``tail -F`` reads them.

A file is known by its name, its inode, and how many files bore the name before it: after a restart the feed goes on
where it was, and starts over when the file under the name is another one or became shorter. Rows are known only by
their number, so a file that was cut while nobody watched, and then grew longer than before, is taken for the old one.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from panstream.engine.feeds.coalesce import Coalescer
from panstream.engine.feeds.files import TextOptions
from panstream.engine.feeds.inputs import Format, InputFile, expand
from panstream.engine.feeds.streams import TailBytes, TextReader
from panstream.engine.rows import Rows, RowSchema
from panstream.errors import FeedError

__all__ = ["FollowFeed"]


class FollowFeed:
    """CSV and JSON lines in files that are appended to, replaced or cut; new files of a glob or directory are found.

    A file that does not exist yet is waited for. ``sleep`` and ``clock`` can be given, so that time is the caller's.
    """

    def __init__(
        self,
        inputs: Sequence[str],
        schema: RowSchema,
        *,
        format: Format | None = None,
        name: str | None = None,
        batch_rows: int = 50_000,
        batch_time: float = 0.020,
        options: TextOptions | None = None,
        poll: float = 0.2,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if "-" in inputs:
            raise FeedError("standard input is followed anyway; leave follow out")
        self._inputs, self._format, self._name = list(inputs), format, name
        self._schema, self._options = schema, options or TextOptions()
        self._rows, self._seconds, self._poll = batch_rows, batch_time, poll
        self._clock, self._sleep = clock, sleep
        self._applied: dict[str, int] = {}
        self._tails: dict[str, _Tail] = {}
        self._met: set[str] = set()
        self._stopped = False

    def resume(self, applied: Mapping[str, int]) -> None:
        """Tell how far every producer was applied by earlier runs; call it before ``batches``."""
        self._applied = dict(applied)

    def batches(self) -> Iterator[Rows | None]:
        """Yield rows as they are appended, for ever; ``None`` whenever there is nothing new."""
        try:
            while not self._stopped:
                self._discover()
                quiet = True
                for name, tail in list(self._tails.items()):
                    yield from tail.reader.pump()
                    quiet = quiet and tail.reader.idle
                    if tail.reader.ended or tail.is_behind():
                        self._renew(name, tail)
                if quiet:
                    yield None
                    self._sleep(self._pause())
        finally:
            for tail in self._tails.values():
                tail.reader.close()
            self._tails.clear()

    def acknowledge(self, token: object) -> None:
        """Do nothing: files stay where they are."""

    def progress(self) -> float | None:
        """Return ``None``: a growing file has no end."""
        return None

    def close(self) -> None:
        """End ``batches`` after what it is doing; rows that wait are left for the next run."""
        self._stopped = True

    def _pause(self) -> float:
        waits = [tail.reader.remaining() for tail in self._tails.values()]
        return min([self._poll, *(wait for wait in waits if wait is not None)])

    def _discover(self) -> None:
        for file in expand(self._inputs, format=self._format, name=self._name, must_exist=False):
            if file.name in self._tails:
                continue
            if file.format not in ("csv", "tsv", "json"):
                raise FeedError(f"{file.name}: only CSV and JSON lines can be followed, got {file.format}")
            self._open(file, fresh=file.name in self._met)
            self._met.add(file.name)

    def _renew(self, name: str, tail: _Tail) -> None:
        """Go over to the next file of the name; if it is not there yet, ``_discover`` will find it."""
        tail.reader.close()
        del self._tails[name]
        self._open(tail.file, fresh=True)

    def _open(self, file: InputFile, *, fresh: bool) -> None:
        stream = None if file.path is None else TailBytes.open(file.path)
        if stream is None:
            return
        if stream.is_compressed():
            stream.close()
            raise FeedError(f"{file.name}: a compressed file cannot be followed")
        past = [match for key in self._applied if (match := re.fullmatch(rf"{re.escape(file.name)}@(\d+)-(\w+)", key))]
        last = max(past, key=lambda match: int(match[1]), default=None)
        generation = 0 if last is None else int(last[1])
        if last is not None and (fresh or int(last[2], 16) != stream.inode):
            generation += 1
        producer = f"{file.name}@{generation}-{stream.inode:x}"
        skip = self._applied.setdefault(producer, 0)
        coalescer = Coalescer(
            self._schema,
            rows=self._rows,
            producer=producer,
            place=file.name,
            seconds=self._seconds,
            clock=self._clock,
            skip=skip,
        )
        reader = TextReader(stream, self._options.parser(file, self._schema), coalescer)
        self._tails[file.name] = _Tail(file=file, reader=reader, skip=skip)


@dataclass(slots=True, kw_only=True)
class _Tail:
    """A file that is followed, and how many of its rows an earlier run applied."""

    file: InputFile
    reader: TextReader
    skip: int

    def is_behind(self) -> bool:
        """Tell whether the file has fewer rows than were applied: it was cut between two runs."""
        return self.reader.idle and self.reader.rows_seen < self.skip
