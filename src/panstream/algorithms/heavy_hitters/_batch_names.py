"""The distinct names of a batch as bytes, with their counts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.inputs import Dictionary, Integers, ItemBatch, Strings
from panstream.primitives.memory.scratch import Scratch

_CHUNK = 1 << 18  # rows whose names are counted together
_MAX_DIGITS = 20  # of a 64-bit integer with its sign


def distinct_names(batch: ItemBatch, scratch: Scratch) -> Iterator[tuple[NDArray[Any], ...]]:
    """Yield offsets and bytes of names, the index of the first of equal ones, and their counts.

    The arrays lie in scratch memory and are overwritten by the next part.
    """
    from panstream.primitives.kernels.algorithms.name_counts import count_codes, count_names, keep_used

    for part in batch.parts:
        taken = scratch.mark
        if isinstance(part, Dictionary):
            values = _as_strings(part.values, scratch)
            counts = scratch.array(len(values), np.int32)
            entries = scratch.array(len(values), np.int32)
            counts.fill(0)
            count_codes(part.codes, counts)
            used = keep_used(counts, entries)
            yield values.offsets, values.data, entries[:used], counts[:used]
            scratch.rewind(taken)
            continue
        for start in range(0, len(part), _CHUNK):
            names = _as_strings(_rows_between(part, start, start + _CHUNK), scratch)
            slots = scratch.array(2 << max(len(names) - 1, 1).bit_length(), np.int32)
            slots.fill(-1)
            hashes = scratch.array(len(names), np.uint64)
            firsts = scratch.array(len(names), np.int32)
            counts = scratch.array(len(names), np.int32)
            distinct = count_names(names.offsets, names.data, slots, hashes, firsts, counts)
            yield names.offsets, names.data, firsts[:distinct], counts[:distinct]
            scratch.rewind(taken)


def _rows_between(part: Integers | Strings, start: int, stop: int) -> Integers | Strings:
    if isinstance(part, Integers):
        return Integers(part.values[start:stop])
    return Strings(part.offsets[start : stop + 1], part.data)


def _as_strings(values: Integers | Strings, scratch: Scratch) -> Strings:
    """Return names as bytes; integers in decimal."""
    if isinstance(values, Strings):
        return values
    from panstream.primitives.kernels.algorithms.name_counts import format_integers

    offsets = scratch.array(len(values) + 1, np.int64)
    data = scratch.array(_MAX_DIGITS * len(values))
    format_integers(values.values, offsets, data)
    return Strings(offsets, data)
