"""Files, globs, directories and standard input, one after the other, as micro-batches.

Every file is a producer, identified by its name. Batches of files end after every ``batch_rows`` rows, independent of
timing, and carry the number of rows read so far, from which a later run resumes. Batches from a pipe also end after
``batch_time`` seconds, so that rows do not wait in memory.

Text files that grow are read as ``tail -F`` does. Such a file is identified by its name, its inode, and how many files
had the name before it: a restarted source resumes where it was, and starts over if the name refers to another file or
the file was truncated. A renamed file is read until nothing has been appended to it for a minute, and is searched for
in its directory after a restart. Rows are identified by their number only, so a file that was truncated while no engine
ran, and then grew longer than before, is mistaken for the old one.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

from panstream.engine.rows.row_batch import RowBatch, RowSchema
from panstream.engine.sources._encodings import TranscodedBytes
from panstream.engine.sources._read_ahead import read_ahead
from panstream.engine.sources._tail import TailBytes, refuse_special_file
from panstream.engine.sources.base import EventSource, SourceSettings
from panstream.engine.sources.byte_streams import (
    PipeBytes,
    RecordParser,
    TextReader,
    open_decompressed,
    open_file,
    text_bytes,
)
from panstream.engine.sources.coalescer import Coalescer
from panstream.engine.sources.formats.access_log import CaddyParser, LogParser
from panstream.engine.sources.formats.arrow_ipc import ArrowInput
from panstream.engine.sources.formats.csv import CsvParser, Dialect
from panstream.engine.sources.formats.json_lines import JsonParser
from panstream.engine.sources.formats.parquet.file import ParquetFile
from panstream.engine.sources.input_files import (
    Format,
    InputFile,
    LakeTable,
    expand_paths,
    file_tables,
    marker_prefix,
    refuse_changed,
)
from panstream.engine.sources.object_stores import RemoteFile, store_scheme
from panstream.errors import SourceError

_ROW_BYTES = 64  # a typical row of text: small micro-batches are read in small blocks, so that few rows are in memory
_MIN_BLOCK_BYTES = 1 << 15
_MAX_BLOCK_BYTES = 1 << 21
_GRACE = 60.0  # seconds without growth after which a renamed file is closed
_PREDECESSORS = 2  # renamed files that are searched for after a restart; they are read from their beginning


class _Settings(SourceSettings, total=False):
    format: Format | None
    dialect: Dialect | None
    site: str | None


class _PathSource(EventSource):
    """What both sources of files share: options, parsers and coalescers."""

    def __init__(
        self,
        inputs: Sequence[str],
        schema: RowSchema,
        *,
        format: Format | None = None,
        dialect: Dialect | None = None,
        site: str | None = None,
        **settings: Unpack[SourceSettings],
    ) -> None:
        super().__init__(schema, **settings)
        self._inputs = list(inputs)
        self._format = format
        self._dialect = dialect or Dialect()
        self._site = site

    def _coalescer(
        self, file: InputFile, producer: str, *, live: bool, start: int = 0, uncut: bool = False
    ) -> Coalescer:
        return Coalescer(
            self._schema,
            rows=self._rows,
            producer=producer,
            label=file.name,
            seconds=self._seconds if live else None,
            clock=self._clock,
            skip=self._applied.get(producer, 0),
            start=start,
            uncut=uncut,
        )

    def _parser(self, file: InputFile) -> RecordParser:
        if file.format == "json":
            return JsonParser(self._schema, style=self._dialect.style)
        if file.format == "log":
            return LogParser(self._schema, label=file.name, site=self._site)
        if file.format == "caddy":
            return CaddyParser(self._schema, label=file.name, site=self._site)
        return CsvParser(self._schema, label=file.name, dialect=self._dialect.of_format(file.format))

    def _utf8(self, stream: Any) -> Any:
        """Return a stream of text as UTF-8."""
        encoding = self._dialect.encoding
        return stream if encoding == "utf-8" else TranscodedBytes(stream, encoding)


class FileSource(_PathSource):
    """Complete files, and standard input.

    A Delta or Iceberg table is read at one snapshot: which one is stored with the first rows, so that a later run goes
    on with it, and only reads a newer one when all of it is counted.

    Args:
        inputs: Paths, globs, directories, tables, addresses in object stores, and "-" for standard input.
        schema: The columns to read.
        fd: The descriptor of standard input.
        pipe: Standard input, if its first bytes were read already to infer a schema.
        settings: Those of every source, ``format``, ``dialect`` and, for logs, the ``site``.
    """

    def __init__(
        self,
        inputs: Sequence[str],
        schema: RowSchema,
        *,
        fd: int = 0,
        pipe: PipeBytes | None = None,
        **settings: Unpack[_Settings],
    ) -> None:
        super().__init__(inputs, schema, **settings)
        self._files = expand_paths(inputs, format=self._format)
        self._fd = fd
        self._opened_pipe = pipe
        self._sizes = [file.size for file in self._files]
        self._finished = 0
        self._position: Callable[[], float] = lambda: 0.0

    def batches(self) -> Iterator[RowBatch | None]:
        """Yield all rows; ``None`` while nothing arrives on standard input."""
        self._go_on()
        for table in file_tables(self._files):
            yield self._mark(table, 1)
        for file, size in zip(self._files, self._sizes, strict=True):
            file_batches = self._file_batches(file, size)
            # Not for a pipe: read_ahead drops None, so the engine would not check its clock while a pipe is idle.
            ahead = file_batches if file.path is None else read_ahead(file_batches)
            with contextlib.closing(ahead) as batches:
                yield from batches
            self._position = lambda: 0.0
            self._finished += size
        for table in file_tables(self._files):
            yield self._mark(table, 2)

    def _go_on(self) -> None:
        """Read the snapshots that an earlier run began, and refuse files whose counted rows may have changed."""
        unfinished = {
            table.name: key.removeprefix(marker_prefix(table.name))
            for table in file_tables(self._files)
            for key, position in self._applied.items()
            if key.startswith(marker_prefix(table.name)) and position == 1
        }
        if unfinished:
            self._files = expand_paths(self._inputs, format=self._format, pinned=unfinished)
            self._sizes = [file.size for file in self._files]
        refuse_changed(self._files, self._applied)

    def _mark(self, table: LakeTable, position: int) -> RowBatch:
        """Return a batch without rows, which stores that a snapshot is being read (1) or counted (2)."""
        batch = RowBatch.none(self._schema)
        batch.producer = table.marker
        batch.sequence = position
        return batch

    def _file_batches(self, file: InputFile, size: int) -> Generator[RowBatch | None, None, None]:
        if file.format == "parquet":
            yield from self._parquet(file, size)
        elif file.format == "arrow":
            yield from self._arrow(file, size)
        else:
            yield from self._text(file, size)
        if isinstance(file.path, RemoteFile):
            file.path.check_unchanged()

    def _raw(self, file: InputFile, size: int) -> Generator[None, None, tuple[io.RawIOBase | PipeBytes, str | None]]:
        """Yield ``None`` until there is something to read; return the stream and its codec."""
        if file.path is None:
            pipe = self._opened_pipe or PipeBytes(self._fd)
            while not pipe.wait(self._poll):
                yield None
            return pipe, pipe.compression()
        raw, codec = open_file(file.path)
        self._position = lambda: _position_in(raw, size)
        return raw, codec

    def progress(self) -> float | None:
        """Return the fraction of the bytes that has been read, or ``None`` if a pipe is among the inputs."""
        if any(file.path is None for file in self._files):
            return None
        total = sum(self._sizes)
        return min(1.0, (self._finished + self._position()) / total) if total else 1.0

    def _parquet(self, file: InputFile, size: int) -> Iterator[RowBatch | None]:
        if file.path is None:
            raise SourceError(
                "Parquet cannot be read from standard input, since its index is at the end; give the file"
            )
        reader = ParquetFile(file.path, self._schema, rows=self._rows, values=file.values, field_ids=file.field_ids)
        total = max(1, reader.total_rows)
        applied = self._applied.get(file.producer, 0)
        coalescer = self._coalescer(file, file.producer, live=False, start=reader.skip(applied), uncut=True)
        self._position = lambda: size * coalescer.rows_seen / total
        yield from _coalesced(reader, reader.pieces(), coalescer)

    def _arrow(self, file: InputFile, size: int) -> Generator[RowBatch | None, None, None]:
        raw, codec = yield from self._raw(file, size)
        seekable = file.path is not None and codec is None
        reader = ArrowInput(open_decompressed(raw, codec), self._schema, label=file.name, seekable=seekable)
        yield from _coalesced(reader, reader.pieces(), self._coalescer(file, file.producer, live=file.path is None))

    def _text(self, file: InputFile, size: int) -> Generator[RowBatch | None, None, None]:
        raw, codec = yield from self._raw(file, size)
        stream = self._utf8(text_bytes(raw, codec, file.name))
        block = min(_MAX_BLOCK_BYTES, max(_MIN_BLOCK_BYTES, _ROW_BYTES * self._rows))
        coalescer = self._coalescer(file, file.producer, live=file.path is None)
        reader = TextReader(stream, self._parser(file), coalescer, block_bytes=block)
        try:
            while not reader.ended:
                remaining = reader.remaining()
                wait = self._poll if remaining is None else min(self._poll, remaining)
                yield from reader.pump(wait)
                if reader.idle and not reader.ended:
                    yield None
        finally:
            reader.close()


class TailSource(_PathSource):
    """CSV, JSON lines and access logs in files that grow; new files of a glob or directory are discovered.

    A file that does not exist yet is waited for. One that is replaced or removed is read until it is idle, since the
    program that writes it may still have it open. ``settings`` are those of ``FileSource``.
    """

    def __init__(self, inputs: Sequence[str], schema: RowSchema, **settings: Unpack[_Settings]) -> None:
        super().__init__(inputs, schema, **settings)
        if "-" in inputs:
            raise SourceError("standard input is always followed; drop --follow")
        if any(store_scheme(text) is not None for text in inputs):
            raise SourceError("files in object stores do not grow: drop --follow, and run again for new files")
        for file in expand_paths(inputs, format=self._format, must_exist=False):
            if isinstance(file.path, Path) and file.path.exists():
                refuse_special_file(file.path, file.path.stat())
        self._tails: dict[str, _TailedFile] = {}
        self._renamed: list[_TailedFile] = []
        self._discovered: set[str] = set()

    def batches(self) -> Iterator[RowBatch | None]:
        """Yield rows as they are appended, without end; ``None`` while there are none."""
        try:
            while not self._stopped:
                self._discover()
                yield from self._pump_renamed()
                for name, tail in list(self._tails.items()):
                    yield from tail.reader.pump()
                    is_replaced = tail.reader.idle and not tail.stream.is_current()
                    if tail.reader.ended or tail.is_another() or is_replaced:
                        del self._tails[name]
                        if is_replaced and not tail.reader.ended and not tail.is_another():
                            tail.quiet_since = self._clock()
                            self._renamed.append(tail)
                        else:
                            tail.reader.close()
                        self._open(tail.file, fresh=True)  # if it does not exist yet, _discover opens it later
                tails = [*self._tails.values(), *self._renamed]
                if all(tail.reader.idle for tail in tails):
                    yield None
                    waits = [tail.reader.remaining() for tail in tails]
                    self._sleep(min([self._poll, *(wait for wait in waits if wait is not None)]))
        finally:
            for tail in (*self._tails.values(), *self._renamed):
                tail.reader.close()
            self._tails.clear()
            self._renamed.clear()

    def _pump_renamed(self) -> Iterator[RowBatch]:
        """Read files that were renamed or removed; close those to which nothing was appended for ``_GRACE`` seconds."""
        for tail in list(self._renamed):
            yield from tail.reader.pump()
            if not tail.reader.idle:
                tail.quiet_since = self._clock()
            elif self._clock() - tail.quiet_since >= _GRACE and not tail.reader.ended:
                tail.stream.finish()
                yield from tail.reader.pump()
            if tail.reader.ended or tail.is_another():
                tail.reader.close()
                self._renamed.remove(tail)

    def _discover(self) -> None:
        for file in expand_paths(self._inputs, format=self._format, must_exist=False):
            if file.name in self._tails:
                continue
            if file.format not in ("csv", "tsv", "json", "log", "caddy"):
                raise SourceError(
                    f"{file.name}: only CSV, JSON lines and access logs can be followed, got {file.format}"
                )
            self._open(file, fresh=file.name in self._discovered)
            self._discovered.add(file.name)

    def _open(self, file: InputFile, *, fresh: bool) -> None:
        stream = TailBytes.open(file.path) if isinstance(file.path, Path) else None
        if stream is None:
            return
        if stream.is_compressed():
            stream.close()
            raise SourceError(f"{file.name}: a compressed file cannot be followed")
        past = [match for key in self._applied if (match := re.fullmatch(rf"{re.escape(file.name)}@(\d+)-(\w+)", key))]
        last = max(past, key=lambda match: int(match[1]), default=None)
        generation = 0 if last is None else int(last[1])
        if last is not None and (fresh or int(last[2], 16) != stream.inode):
            generation += 1
        if not fresh:
            previous = [match for match in past if generation - _PREDECESSORS <= int(match[1]) < generation]
            self._find_renamed(file, stream.inode, previous)
        self._tails[file.name] = self._tail(file, stream, f"{file.name}@{generation}-{stream.inode:x}")

    def _find_renamed(self, file: InputFile, inode: int, previous: list[re.Match[str]]) -> None:
        """Search for files that an earlier run read under this name: rows may have been appended to them since.

        The inode does not identify them: after a file is removed, the file system may reuse its inode. So the name
        must also look rotated.
        """
        assert isinstance(file.path, Path)
        producers = {int(match[2], 16): match[0] for match in previous if int(match[2], 16) != inode}
        whole_name = re.escape(file.path.name)
        stem = re.escape(file.path.stem)
        is_rotated = re.compile(rf"{whole_name}.+|{stem}[-._]\d.*", re.DOTALL).fullmatch
        for entry in os.scandir(file.path.parent) if producers else ():
            if entry.inode() not in producers or not is_rotated(entry.name):
                continue
            with contextlib.suppress(SourceError):
                stream = TailBytes.open(Path(entry.path))
                if stream is not None and stream.inode in producers and not stream.is_compressed():
                    self._renamed.append(self._tail(file, stream, producers[stream.inode]))
                elif stream is not None:
                    stream.close()

    def _tail(self, file: InputFile, stream: TailBytes, producer: str) -> _TailedFile:
        skip = self._applied.setdefault(producer, 0)
        coalescer = self._coalescer(file, producer, live=True)
        reader = TextReader(self._utf8(stream), self._parser(file), coalescer)
        return _TailedFile(file=file, stream=stream, reader=reader, skip=skip, quiet_since=self._clock())


@dataclass(slots=True, kw_only=True)
class _TailedFile:
    """A followed file, and how many of its rows an earlier run applied."""

    file: InputFile
    stream: TailBytes
    reader: TextReader
    skip: int
    quiet_since: float

    def is_another(self) -> bool:
        """Return whether it has fewer rows than an earlier run applied: it was truncated, or is another file."""
        return self.reader.idle and self.reader.rows_seen < self.skip


def _coalesced(
    reader: ArrowInput | ParquetFile, pieces: Iterator[RowBatch], coalescer: Coalescer
) -> Iterator[RowBatch | None]:
    try:
        for piece in pieces:
            yield from coalescer.add(piece)
        yield from coalescer.flush()
    finally:
        coalescer.close()
        reader.close()


def _position_in(raw: Any, size: int) -> float:
    """Return the position in a file; if the reading thread has closed it, even during the call, its size."""
    with contextlib.suppress(ValueError, OSError):
        return min(float(raw.tell()), float(size))
    return float(size)
