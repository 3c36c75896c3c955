"""Decode columns with pyarrow in the representation that takes it least time.

Columns of few different strings are decoded as dictionaries, and other strings with offsets of 64 bits, which takes
pyarrow two thirds of the time of 32 bits. It does only one of the two in one reader, so there is a reader for each.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.engine.arrow import pa
from panstream.engine.rows.wiping import wipe_array
from panstream.primitives.inputs.parquet_footer import CorruptParquet
from panstream.primitives.memory.scratch import wipe

_MAGIC = b"PAR1"
_SCHEMA_KEY = b"\x0cARROW:schema"  # after its length; the types in it take precedence over ours
_NO_KEY = b"\x0carrow-schema"
_NARROW = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}


def read_metadata(footer: NDArray[np.uint8], *, with_arrow_schema: bool = True) -> Any:
    """Return pyarrow's metadata of a footer that was checked.

    Args:
        footer: The footer, without its length.
        with_arrow_schema: Whether to read the Arrow types that a writer has added.
    """
    from pyarrow import parquet

    file = bytearray(footer.size + 12)
    file[:4] = file[-4:] = _MAGIC
    file[4:-8] = footer.data
    file[-8:-4] = footer.size.to_bytes(4, "little")
    while not with_arrow_schema and (start := file.find(_SCHEMA_KEY)) >= 0:
        file[start : start + len(_NO_KEY)] = _NO_KEY
    try:
        return parquet.read_metadata(pa.BufferReader(pa.py_buffer(file)))
    finally:
        wipe(file)  # statistics quote values


class ColumnDecoder:
    """Yields record batches of some columns.

    Args:
        source: Opens the file for a reader: its path, or a file of Arrow.
        footer: Its footer, which was checked.
        names: The columns.
        repetitive: Those that are dictionary-encoded throughout.
        buffer_size: Bytes that are read at once, per column; 0 for all of its chunk.
    """

    def __init__(
        self,
        source: Callable[[], Any],
        footer: NDArray[np.uint8],
        names: Sequence[str],
        *,
        repetitive: Collection[str],
        buffer_size: int,
    ) -> None:
        from pyarrow import parquet

        self._names = list(names)
        settings = {"buffer_size": buffer_size, "pre_buffer": False}
        metadata = read_metadata(footer)
        self._files = [parquet.ParquetFile(source(), metadata=metadata, read_dictionary=list(repetitive), **settings)]
        self._parts = [self._names]
        types = self._files[0].schema_arrow
        strings = [name for name in names if types.field(name).type in (pa.string(), pa.binary(), *_NARROW)]
        if strings:
            plain = read_metadata(footer, with_arrow_schema=False)
            wide = parquet.ParquetFile(source(), metadata=plain, binary_type=pa.large_binary(), **settings)
            same = [name for name in strings if _narrow_type(wide, name) == _narrow_type(self._files[0], name)]
            self._files.append(wide)
            self._parts = [[name for name in names if name not in same], same]

    def batches(self, group: int, rows: int) -> Iterator[Any]:
        """Yield a row group as record batches of at most ``rows`` rows."""
        parts = [(file, names) for file, names in zip(self._files, self._parts, strict=True) if names]
        parts = parts or [(self._files[0], [])]  # all columns come from the path
        readers = [
            file.iter_batches(rows, row_groups=[group], columns=names, use_threads=False) for file, names in parts
        ]
        return readers[0] if len(readers) == 1 else _joined(readers, self._names)

    def close(self) -> None:
        """Close the file."""
        for file in self._files:
            file.close()


def _joined(readers: Sequence[Iterator[Any]], names: Sequence[str]) -> Iterator[Any]:
    """Join the columns of several readers, whose batches may differ in length."""
    pending: list[Any] = [None for _ in readers]
    try:
        while True:
            pending = [
                next(reader, None) if batch is None else batch for reader, batch in zip(readers, pending, strict=True)
            ]
            if all(batch is None for batch in pending):
                return
            rows = min(0 if batch is None else batch.num_rows for batch in pending)
            if not rows:
                raise CorruptParquet("the columns of a row group differ in length")
            columns = {name: batch.column(name)[:rows] for batch in pending for name in batch.schema.names}
            pending = [batch[rows:] if batch.num_rows > rows else None for batch in pending]
            yield pa.RecordBatch.from_arrays([columns[name] for name in names], names=names)
    finally:
        for batch in pending:
            for column in () if batch is None else batch.columns:
                wipe_array(column)


def _narrow_type(file: Any, name: str) -> Any:
    """Return the type of a column, with offsets of 32 bits; None if there is no such column."""
    index = file.schema_arrow.get_field_index(name)
    stored = None if index < 0 else file.schema_arrow.field(index).type
    return _NARROW.get(stored, stored)
