"""The names of a batch as bytes, equal ones counted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.inputs import Dictionary, Integers, ItemBatch, Strings
from panstream.primitives.memory.scratch import Scratch

_CHUNK = 1 << 18  # rows whose names are counted together
_DIGITS = 20


def distinct_names(batch: ItemBatch, scratch: Scratch) -> Iterator[tuple[NDArray[Any], ...]]:
    """Yield where names begin, their bytes, the first of every name, and how often it comes."""
    from panstream.primitives.kernels.algorithms.name_counts import count_codes, count_names, keep_used

    for part in batch.parts:
        taken = scratch.mark
        if isinstance(part, Dictionary):
            values = _spelled(part.values, scratch)
            counts = scratch.array(len(values), np.int32)
            entries = scratch.array(len(values), np.int32)
            counts.fill(0)
            count_codes(part.codes, counts)
            found = keep_used(counts, entries)
            yield values.offsets, values.data, entries[:found], counts[:found]
            scratch.rewind(taken)
            continue
        for start in range(0, len(part), _CHUNK):
            names = _spelled(_some(part, start, start + _CHUNK), scratch)
            slots = scratch.array(2 << max(len(names) - 1, 1).bit_length(), np.int32)
            slots.fill(-1)
            hashes = scratch.array(len(names), np.uint64)
            firsts = scratch.array(len(names), np.int32)
            counts = scratch.array(len(names), np.int32)
            found = count_names(names.offsets, names.data, slots, hashes, firsts, counts)
            yield names.offsets, names.data, firsts[:found], counts[:found]
            scratch.rewind(taken)


def _some(part: Integers | Strings, start: int, stop: int) -> Integers | Strings:
    if isinstance(part, Integers):
        return Integers(part.values[start:stop])
    return Strings(part.offsets[start : stop + 1], part.data)


def _spelled(values: Integers | Strings, scratch: Scratch) -> Strings:
    """Return names as bytes; integers in decimal."""
    if isinstance(values, Strings):
        return values
    from panstream.primitives.kernels.algorithms.name_counts import format_integers

    offsets = scratch.array(len(values) + 1, np.int64)
    data = scratch.array(_DIGITS * len(values))
    format_integers(values.values, offsets, data)
    return Strings(offsets, data)
