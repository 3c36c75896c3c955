"""Files, globs, directories and standard input, one after the other, as micro-batches.

Every file is a producer of its own, known by its name. Batches of files end after every ``batch_rows`` rows, whatever
the machine does, and carry the number of rows read so far: told how far an earlier run came, the feed goes on behind
it. Batches from a pipe also end when ``batch_time`` has passed, so that rows do not wait in memory.
"""

from __future__ import annotations

import contextlib
import io
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from panstream.engine.feeds.ahead import read_ahead
from panstream.engine.feeds.arrow_ipc import ArrowInput
from panstream.engine.feeds.coalesce import Coalescer
from panstream.engine.feeds.csv import CsvParser, Dialect
from panstream.engine.feeds.inputs import Format, InputFile, expand
from panstream.engine.feeds.json_lines import JsonParser
from panstream.engine.feeds.parquet import ParquetFile
from panstream.engine.feeds.streams import (
    BLOCK_BYTES,
    PipeBytes,
    RecordParser,
    TextReader,
    open_file,
    text_bytes,
    unpacked,
)
from panstream.engine.rows import Rows, RowSchema
from panstream.errors import FeedError

__all__ = ["FileFeed", "TextOptions"]

_ROW_BYTES = 64  # of text, about: small micro-batches are read in small blocks, so that few rows are in memory
_LEAST_BLOCK_BYTES = 1 << 15


@dataclass(frozen=True, slots=True, kw_only=True)
class TextOptions:
    """How CSV is written; ``delimiter=None`` is a comma, or a tab for TSV."""

    delimiter: str | None = None
    quote: str | None = '"'

    def parser(self, file: InputFile, schema: RowSchema) -> RecordParser:
        """Return the parser for a text file."""
        if file.format == "json":
            return JsonParser(schema)
        delimiter = self.delimiter or ("\t" if file.format == "tsv" else ",")
        return CsvParser(schema, place=file.name, dialect=Dialect(delimiter=delimiter, quote=self.quote))


class FileFeed:
    """Files that are there as a whole, and standard input.

    With ``stored_ids`` the user column of a Parquet file may come as ``Rows.ids`` and not among its columns.
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
        stored_ids: bool = False,
        fd: int = 0,
        poll: float = 0.2,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._files = expand(inputs, format=format, name=name)
        self._schema, self._options = schema, options or TextOptions()
        self._rows, self._seconds, self._stored_ids = batch_rows, batch_time, stored_ids
        self._fd, self._poll, self._clock = fd, poll, clock
        self._applied: dict[str, int] = {}
        self._waiting = threading.Event()  # for the thread that reads ahead
        self._sizes = [file.path.stat().st_size if file.path is not None else 0 for file in self._files]
        self._finished = 0
        self._position: Callable[[], float] = lambda: 0.0

    def resume(self, applied: Mapping[str, int]) -> None:
        """Tell how far every producer was applied by earlier runs; call it before ``batches``."""
        self._applied = dict(applied)

    def batches(self) -> Iterator[Rows | None]:
        """Yield all rows; ``None`` whenever standard input keeps us waiting."""
        for file, size in zip(self._files, self._sizes, strict=True):
            found = self._found(file, size)
            ahead = found if file.path is None else read_ahead(found, waiting=self._waiting)
            with contextlib.closing(ahead) as batches:
                yield from batches
            self._position = lambda: 0.0
            self._finished += size

    def _found(self, file: InputFile, size: int) -> Generator[Rows | None, None, None]:
        if file.format == "parquet":
            yield from self._parquet(file, size)
        elif file.format == "arrow":
            yield from self._arrow(file, size)
        else:
            yield from self._text(file, size)

    def acknowledge(self, token: object) -> None:
        """Do nothing: files stay where they are."""

    def progress(self) -> float | None:
        """Return the share of the bytes that has been read, or ``None`` if a pipe is among the inputs."""
        if any(file.path is None for file in self._files):
            return None
        total = sum(self._sizes)
        return min(1.0, (self._finished + self._position()) / total) if total else 1.0

    def close(self) -> None:
        """Nothing is held between two batches that the iterator does not give back itself."""

    def _coalescer(self, file: InputFile, *, start: int = 0) -> Coalescer:
        return Coalescer(
            self._schema,
            rows=self._rows,
            producer=file.name,
            place=file.name,
            seconds=self._seconds if file.path is None else None,
            clock=self._clock,
            skip=self._applied.get(file.name, 0),
            start=start,
        )

    def _parquet(self, file: InputFile, size: int) -> Iterator[Rows | None]:
        if file.path is None:
            raise FeedError("Parquet cannot be read from standard input, since its index is at the end; give the file")
        hurry = self._waiting.is_set
        reader = ParquetFile(file.path, self._schema, rows=self._rows, stored_ids=self._stored_ids, hurry=hurry)
        total = max(1, reader.total_rows)
        coalescer = self._coalescer(file, start=reader.skip(self._applied.get(file.name, 0)))
        self._position = lambda: size * coalescer.rows_seen / total
        yield from _coalesced(reader, reader.pieces(), coalescer)

    def _arrow(self, file: InputFile, size: int) -> Iterator[Rows | None]:
        if file.path is None:
            pipe = PipeBytes(self._fd)
            while not pipe.wait(self._poll):
                yield None
            handle, seekable = unpacked(pipe, pipe.compression()), False
        else:
            raw, codec = open_file(file.path)
            self._position = lambda: _tell(raw, size)
            handle, seekable = unpacked(raw, codec), codec is None
        reader = ArrowInput(handle, self._schema, place=file.name, seekable=seekable)
        yield from _coalesced(reader, reader.pieces(), self._coalescer(file))

    def _text(self, file: InputFile, size: int) -> Iterator[Rows | None]:
        raw: io.FileIO | PipeBytes
        if file.path is None:
            raw = PipeBytes(self._fd)
            while not raw.wait(self._poll):
                yield None
            codec = raw.compression()
        else:
            raw, codec = open_file(file.path)
            opened = raw
            self._position = lambda: _tell(opened, size)
        stream = text_bytes(raw, codec, file.name)
        block = min(BLOCK_BYTES, max(_LEAST_BLOCK_BYTES, _ROW_BYTES * self._rows))
        reader = TextReader(stream, self._options.parser(file, self._schema), self._coalescer(file), block_bytes=block)
        try:
            while not reader.ended:
                remaining = reader.remaining()
                wait = self._poll if remaining is None else min(self._poll, remaining)
                yield from reader.pump(wait)
                if reader.idle and not reader.ended:
                    yield None
        finally:
            reader.close()


def _coalesced(reader: ArrowInput | ParquetFile, pieces: Iterator[Rows], coalescer: Coalescer) -> Iterator[Rows | None]:
    try:
        for piece in pieces:
            yield from coalescer.add(piece)
        yield from coalescer.flush()
    finally:
        coalescer.close()
        reader.close()


def _tell(raw: Any, size: int) -> float:
    """Return how far a file was read; the reading thread may have closed it, or do so during the call (OSError)."""
    with contextlib.suppress(ValueError, OSError):
        return min(float(raw.tell()), float(size))
    return float(size)
