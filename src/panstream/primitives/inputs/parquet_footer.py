"""Parse and check the footer of a Parquet file before pyarrow does.

If a footer contradicts itself, pyarrow ends the process when it describes a column; a deeply nested schema overflows
the stack of older releases.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.memory.scratch import wipe

_TAIL_BYTES = 8  # the footer's length and the magic number


class CorruptParquet(ValueError):
    """A check of a Parquet file failed; the message is not shown to users."""


@dataclass(frozen=True, slots=True, eq=False)
class Footer:
    """The rows of every row group, and per row group and column the fields that ``parquet_thrift`` names."""

    rows: list[int]
    columns: NDArray[np.int64]


def read_footer(path: Path) -> Footer:
    """Return row groups and columns of a file.

    Raises:
        CorruptParquet: The file has no valid footer.
        OSError: The file cannot be read.
    """
    with path.open("rb", buffering=0) as file:
        return footer_of(file)


def footer_of(file: io.RawIOBase) -> Footer:
    """Return the footer of an open file.

    Raises:
        CorruptParquet: The file has no valid footer.
        OSError: The file cannot be read.
    """
    data = footer_bytes(file)
    try:
        return parse_footer(data)
    finally:
        wipe(data)  # statistics quote values


def footer_bytes(file: io.RawIOBase) -> NDArray[np.uint8]:
    """Return the footer of an open file, between the last page and its length; the caller wipes it.

    Raises:
        CorruptParquet: The file has no footer.
        OSError: The file cannot be read.
    """
    end = file.seek(0, io.SEEK_END)
    tail = read_at(file, end - _TAIL_BYTES, _TAIL_BYTES)
    if tail.size < _TAIL_BYTES or tail[4:].tobytes() != b"PAR1":
        raise CorruptParquet("the file does not end as a Parquet file does")
    size = int.from_bytes(tail[:4].tobytes(), "little")
    if size > end - _TAIL_BYTES:
        raise CorruptParquet("the footer is longer than the file")
    return read_at(file, end - _TAIL_BYTES - size, size)


def parse_footer(data: NDArray[np.uint8]) -> Footer:
    """Return row groups and columns of a footer.

    Raises:
        CorruptParquet: The footer is not valid.
    """
    from panstream.primitives.kernels.sources import parquet_thrift as thrift

    groups, columns, end = thrift.count_footer(data)
    if end < 0 or groups * columns > data.size:  # a column takes at least a byte
        raise CorruptParquet("the footer is damaged")
    rows = np.empty(groups, np.int64)
    numbers = np.empty((groups, columns, thrift.COLUMN_FIELDS), np.int64)
    if thrift.read_footer(data, rows, numbers) < 0 or (rows < 0).any():
        raise CorruptParquet("the footer is damaged")
    return Footer(rows.tolist(), numbers)


def read_at(file: io.RawIOBase, start: int, size: int) -> NDArray[np.uint8]:
    """Return ``size`` bytes from ``start`` on, fewer at the end of the file."""
    data = np.empty(max(0, size), np.uint8)
    file.seek(max(0, start))
    done = 0
    while done < data.size and (got := file.readinto(data[done:].data)):
        done += got
    return data[:done]
