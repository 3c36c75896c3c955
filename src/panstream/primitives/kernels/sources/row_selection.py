"""Select and sort rows: which rows fall into a slot, and the strings of some rows.

Compiled because NumPy's boolean indexing takes a pass and a copy for every slot, and pyarrow's filter twice as long.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.kernels.jit import njit, part
from panstream.primitives.kernels.sources.byte_copies import copy_short

Rows = NDArray[np.int64]


@part
def _slot(base: Any, row: Any, keep: NDArray[np.bool_], groups: NDArray[np.int64], none: Any) -> Any:
    """Return the slot of a row, ``none`` if it is not selected or of no group; without a branch."""
    is_selected = keep[row]
    if groups.size:
        group = groups[row]
        is_selected &= group >= 0
        base += group
    return base if is_selected else none


@njit(cache=True, nogil=True)
def count_slots(
    starts: Rows, windows: Rows, keep: NDArray[np.bool_], groups: NDArray[np.int64], size: int, counts: Rows
) -> None:
    """Count the selected rows of every window and group.

    Bound: two reads and one write per row; the last count is of rows that are not selected.

    Args:
        starts: First row of every run of rows in one window, and the end of the last one.
        windows: Index of the window of every run, negative if its rows are not used.
        keep: Which rows are selected.
        groups: The group of every row, negative if it has none; empty if there are no groups.
        size: Number of groups.
        counts: Zeros, one for each window and group and one more.
    """
    none = np.int64(counts.size - 1)
    for run in range(windows.size):
        if windows[run] < 0:
            continue
        base = windows[run] * size
        if groups.size:
            for row in range(starts[run], starts[run + 1]):
                counts[_slot(base, row, keep, groups, none)] += 1
        else:
            selected = np.int64(0)
            for row in range(starts[run], starts[run + 1]):
                selected += keep[row]
            counts[base] += selected


@njit(cache=True, nogil=True)
def sort_rows(
    starts: Rows,
    windows: Rows,
    keep: NDArray[np.bool_],
    groups: NDArray[np.int64],
    size: int,
    ends: Rows,
    rows: Rows,
) -> None:
    """Write the numbers of the selected rows, sorted by slot, and within a slot in their order.

    Bound: one write per row, to as many places as there are slots. ``rows`` has one element more than are selected:
    the numbers of all others are written there, since a mispredicted branch would take longer.

    Args:
        starts: As for `count_slots`, like the next four.
        windows: The windows.
        keep: The selection.
        groups: The groups.
        size: Number of groups.
        ends: Per slot the number of rows before it; afterwards the number up to its end. The last element is the
            number of all rows, and stays so.
        rows: The result.
    """
    none = np.int64(ends.size - 1)
    last = ends[none]
    for run in range(windows.size):
        if windows[run] < 0:
            continue
        base = windows[run] * size
        if groups.size:
            for row in range(starts[run], starts[run + 1]):
                slot = _slot(base, row, keep, groups, none)
                rows[ends[slot]] = row
                ends[slot] += slot != none
        else:  # one slot, whose end stays in a register
            end = ends[base]
            for row in range(starts[run], starts[run + 1]):
                is_selected = np.int64(keep[row])
                rows[last + (end - last) * is_selected] = row  # a choice would be compiled to a branch
                end += is_selected
            ends[base] = end
    rows[last] = 0


@njit(cache=True, nogil=True)
def selected_rows(keep: NDArray[np.bool_], rows: Rows) -> None:
    """Write the numbers of the selected rows; ``rows`` has one element more than those, which becomes 0.

    Bound: one write per row, selected or not: a mispredicted branch would take longer.
    """
    count = 0
    for row in range(keep.size):
        rows[count] = row
        count += keep[row]
    rows[count] = 0


@njit(cache=True, nogil=True)
def selected_offsets(offsets: NDArray[np.int32], rows: Rows, out: NDArray[np.int32]) -> int:
    """Write the offsets of the strings of different rows, one after the other; return the bytes of all of them."""
    total = np.int32(0)
    out[0] = 0
    for i in range(rows.size):
        total += offsets[rows[i] + 1] - offsets[rows[i]]
        out[i + 1] = total
    return int(total)


@njit(cache=True, nogil=True)
def copy_selected(
    offsets: NDArray[np.int32],
    data: NDArray[np.uint8],
    rows: Rows,
    targets: NDArray[np.int32],
    out: NDArray[np.uint8],
) -> None:
    """Copy the strings of some rows to their offsets; ``out`` has ``SLACK`` bytes more than their total.

    Bound: one cache line of ``data`` per row.
    """
    for i in range(rows.size):
        copy_short(data, offsets[rows[i]], targets[i + 1] - targets[i], out, targets[i])
    out[targets[rows.size] :] = 0  # what copies wrote past their end
