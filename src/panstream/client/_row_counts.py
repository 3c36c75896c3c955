"""Numbers for the rows of one person's sender, so that a server counts at most K of them in a window.

The counts are in a file that is written before the rows are sent, and locked while the client is open. It has 512 bytes
with the windows and counts of `panstream.primitives.sender_counts`, and nothing else.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from panstream.errors import InvalidBatch, InvalidParameter, StoreDamaged, StoreError, StoreLocked, import_optional
from panstream.primitives.durations import parse_duration
from panstream.primitives.sender_counts import COLUMN, ROW, SentCounts

_SIZE = 512  # written at once: no part of it is from before, and the size says nothing about the counts
_RECORD = re.compile(rb'((?:[^"\r\n]++|"(?:[^"]++|"")*+")++)(?:\r\n|\r|\n|$)')
_CARRIED = (
    f"rows have the column {COLUMN} already: only the sender of the person whom they are about can number them, so "
    "leave contributions out where rows are forwarded"
)


class RowCounts:
    """Numbers rows, and stores the counts before it returns a number.

    Args:
        contributions: The most rows to number in a window, by its length such as "1 day".
        path: Where the counts are stored; without a file, rows are numbered from the next window on.
        clock: Seconds since 1970.
    """

    def __init__(
        self, contributions: Mapping[str, int], path: Path | None, clock: Callable[[], float] = time.time
    ) -> None:
        caps = {}
        for text, most in contributions.items():
            length = parse_duration(text, name="contributions")
            if length != int(length) or type(most) is not int or most < 1:
                raise InvalidParameter(
                    f'contributions must be positive numbers of rows by window, {{"1 day": 8}}, got {text!r}: {most!r}'
                )
            caps[ROW, int(length)] = most
        self._clock = clock
        self._lock = threading.Lock()
        self._file = None if path is None else _locked(path)
        try:
            self._counts = SentCounts(caps, "" if self._file is None else _read(self._file))
        except ValueError:
            self.close()
            raise StoreDamaged(
                "the file of counts is damaged: delete it to begin again, and rows of the open windows may count twice"
            ) from None
        if self._file is None:
            self._counts.begin(clock())

    def numbers(self, rows: int) -> list[str]:
        """Return what every one of some rows carries; the counts are stored by then.

        Raises:
            StoreError: The counts cannot be stored.
        """
        with self._lock:
            now = self._clock()
            numbers = [self._counts.number((ROW,), now) for _ in range(rows)]
            if self._file is not None:
                _write(self._file, self._counts.text())
        return numbers

    def numbered(self, batches: list[Any]) -> list[Any]:
        """Return record batches with the numbers of their rows."""
        pa = import_optional("pyarrow", "the client", "arrow")
        numbers = self.numbers(sum(batch.num_rows for batch in batches))
        numbered = []
        for batch in batches:
            column = pa.array(numbers[: batch.num_rows], pa.string())
            numbers = numbers[batch.num_rows :]
            numbered.append(pa.RecordBatch.from_arrays([*batch.columns, column], names=[*batch.schema.names, COLUMN]))
        return numbered

    def numbered_body(self, body: bytes, content_type: str, encoding: str | None) -> bytes:
        """Return CSV with a header line, or JSON lines, with the numbers of the rows.

        Raises:
            InvalidParameter: The body has another form.
            InvalidBatch: Its rows are numbered already.
        """
        if content_type not in ("text/csv", "application/x-ndjson") or encoding is not None:
            raise InvalidParameter("with contributions, a body must be CSV or JSON lines, without an encoding")
        body = bytes(body)
        if COLUMN.encode() in body:
            raise InvalidBatch(_CARRIED)
        if content_type == "text/csv":
            if _RECORD.sub(b"", body).strip(b"\r\n"):
                raise InvalidBatch("the last record of the CSV does not end: a quote is not closed")
            header, *records = [match[1] for match in _RECORD.finditer(body)] or [b""]
            numbers = self.numbers(len(records))
            rows = [b"%b,%b\n" % pair for pair in zip(records, map(str.encode, numbers), strict=True)]
            return b"%b,%b\n" % (header, COLUMN.encode()) + b"".join(rows)
        lines = [line.strip() for line in body.splitlines()]
        return b"".join(map(_numbered_line, lines, self.numbers(len(lines))))

    def close(self) -> None:
        """Close the file, and let others lock it."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def check_unnumbered(batch: Any) -> None:
    """Raise InvalidBatch if rows have numbers already."""
    if COLUMN in batch.schema.names:
        raise InvalidBatch(_CARRIED)


def _numbered_line(line: bytes, number: str) -> bytes:
    if not line.startswith(b"{") or not line.endswith(b"}"):  # not an object: the server says so
        return line + b"\n"
    rest = line[:-1].rstrip()
    return b'%b%b"%b": "%b"}\n' % (rest, b"" if rest == b"{" else b", ", COLUMN.encode(), number.encode())


def _locked(path: Path) -> int:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
    except OSError as error:
        raise StoreError(f"the file of counts cannot be opened: {error.strerror}") from None
    try:
        if os.name == "posix":
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        else:
            import msvcrt

            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
    except OSError:
        os.close(descriptor)
    else:
        return descriptor
    raise StoreLocked("another client has the file of counts open: use one client, or a file for each person")


def _read(file: int) -> str:
    os.lseek(file, 0, os.SEEK_SET)
    text = os.read(file, _SIZE + 1)
    if len(text) not in (0, _SIZE):
        raise ValueError("not a file of counts")
    return text.decode("ascii").strip()


def _write(file: int, text: str) -> None:
    data = text.ljust(_SIZE).encode()
    if len(data) > _SIZE:
        raise StoreError(f"the counts of so many windows do not fit into {_SIZE} bytes: give fewer contributions")
    try:
        os.lseek(file, 0, os.SEEK_SET)
        written = os.write(file, data)
        os.fsync(file)
    except OSError as error:
        raise StoreError(f"the counts cannot be stored, so the rows were not sent: {error.strerror}") from None
    if written != _SIZE:
        raise StoreError("the counts cannot be stored, so the rows were not sent: the disk is full")
