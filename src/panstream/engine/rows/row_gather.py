"""Copy some rows of a column, without memory that nothing would overwrite."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.engine.arrow import numeric_view, pa
from panstream.engine.rows.wiping import shares
from panstream.primitives.inputs.argument import read_only

_STRINGS = (pa.string(), pa.binary())
_NUMBERS = (pa.int64(), pa.uint64())
_CODES = (pa.int32(), pa.int8())


def take_rows(column: Any, rows: NDArray[np.int64]) -> tuple[Any, bool]:
    """Return different rows of a column, and whether they are a copy that the caller must wipe.

    Integers without NULL become a NumPy array. A dictionary is shared with the column.

    Args:
        column: A NumPy or Arrow array.
        rows: The numbers of the rows.
    """
    if isinstance(column, np.ndarray):
        return _numbers(column, rows), True
    if not column.null_count:
        if column.type in _NUMBERS:
            return _numbers(numeric_view(column), rows), True
        if column.type in _STRINGS and rows.size:
            return _strings(column, rows), True
        if pa.types.is_dictionary(column.type) and column.type.index_type in _CODES:
            codes = _numbers(numeric_view(column.indices), rows)
            indices = pa.Array.from_buffers(column.type.index_type, rows.size, [None, pa.py_buffer(codes)])
            return pa.DictionaryArray.from_arrays(indices, column.dictionary, safe=False), True
    taken = column.take(pa.Array.from_buffers(pa.int64(), rows.size, [None, pa.py_buffer(rows)]))
    return taken, not shares(getattr(taken, "indices", taken), column)


def numbers_of(keep: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the numbers of the selected rows; faster than NumPy, whose loop branches."""
    from panstream.primitives.kernels.sources.row_selection import selected_rows

    rows = np.empty(int(np.count_nonzero(keep)) + 1, np.int64)
    selected_rows(read_only(keep), rows)
    return rows[:-1]


def _numbers(numbers: NDArray[Any], rows: NDArray[np.int64]) -> NDArray[Any]:
    # In the default mode, NumPy would make another copy.
    return np.take(numbers, rows, out=np.empty(rows.size, numbers.dtype), mode="clip")


def _strings(column: Any, rows: NDArray[np.int64]) -> Any:
    from panstream.primitives.kernels.sources.byte_copies import SLACK
    from panstream.primitives.kernels.sources.row_selection import copy_selected, selected_offsets

    _, positions, data = column.buffers()
    offsets = np.frombuffer(positions, np.int32, len(column) + 1, 4 * column.offset)
    targets = np.empty(rows.size + 1, np.int32)
    out = np.empty(selected_offsets(offsets, read_only(rows), targets) + SLACK, np.uint8)
    copy_selected(offsets, np.frombuffer(data or b"", np.uint8), read_only(rows), read_only(targets), out)
    buffers = [None, pa.py_buffer(targets), pa.py_buffer(out)]
    return pa.Array.from_buffers(column.type, rows.size, buffers)
