"""Where the columns of a Parquet file lie, by its footer.

pyarrow tells it too, but where a footer contradicts itself its description of a column ends the whole process.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from panstream.engine.sources.formats.parquet.pages import Damaged
from panstream.primitives.memory.scratch import wipe

_TAIL = 8  # the footer's length, and the format's name
KINDS = {"INT64": 2, "BYTE_ARRAY": 6}


@dataclass(frozen=True, slots=True, eq=False)
class Footer:
    """The rows of every row group, and the numbers of its columns, as ``_kernels.footer`` names their places."""

    rows: NDArray[np.int64]
    numbers: NDArray[np.int64]


def read_footer(path: Path, groups: int, columns: int) -> Footer:
    """Return what the footer says of so many row groups and columns. Raises ``Damaged`` or ``OSError``."""
    from panstream.primitives.kernels.sources import parquet_footer as kernel

    with path.open("rb", buffering=0) as file:
        end = file.seek(0, io.SEEK_END)
        tail = _read(file, end - _TAIL, _TAIL)
        size = int.from_bytes(tail[:4].tobytes(), "little")
        if tail[4:].tobytes() != b"PAR1":
            raise Damaged("the footer cannot be read")
        data = _read(file, end - _TAIL - size, size)
    try:
        if groups * columns > data.size:  # every column takes a byte at least
            raise Damaged("the footer is too short")
        found = Footer(np.empty(groups, np.int64), np.empty((groups, columns, kernel.PLACES), np.int64))
        if kernel.read_footer(data, found.rows, found.numbers) < 0 or (found.rows < 0).any():
            raise Damaged("the footer is not that of a Parquet file")
        return found
    finally:
        wipe(data)  # statistics quote values


def _read(file: io.FileIO, start: int, size: int) -> NDArray[np.uint8]:
    if start < 0:
        raise Damaged("the file is too short")
    file.seek(start)
    data = np.empty(size, np.uint8)
    done = 0
    while done < size:
        got = file.readinto(data[done:].data)
        if not got:
            raise Damaged("the file is too short")
        done += got
    return data
