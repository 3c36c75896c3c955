"""Nested values of JSON lines: keys of nested objects, first strings of lists, texts split in two.

Compiled because these read the caller's block in place; only spans are written.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.kernels.jit import njit
from panstream.primitives.kernels.sources.json_fields import (
    ABSENT,
    ESCAPED,
    NESTED,
    STRING,
    Bytes,
    scan_object,
    skip_blanks,
    workspace,
)
from panstream.primitives.kernels.sources.json_strings import end_of_string


@njit(cache=True, nogil=True)
def scan_within(
    data: Bytes, outer: tuple[NDArray[np.int64], NDArray[np.int64], Bytes], names: Bytes, edges: NDArray[np.int64],
    starts: NDArray[np.int64], stops: NDArray[np.int64], kinds: Bytes,
) -> None:  # fmt: skip
    """Find the values of keys in the objects that a scan found under one name, as ``scan_lines`` does in lines."""
    stack, buffer, seen, last_keys = workspace(names, edges)
    for row in range(outer[0].size):
        begin = outer[0][row]
        stop = outer[1][row] if outer[2][row] == NESTED else outer[0][row]
        scan_object(data, begin, stop, row, names, edges, stack, buffer, seen, last_keys, starts, stops, kinds)
    buffer[:] = 0


@njit(cache=True, nogil=True)
def take_first(data: Bytes, starts: NDArray[np.int64], stops: NDArray[np.int64], kinds: Bytes) -> None:
    """Replace every list by its first string; anything else becomes absent."""
    for row in range(starts.size):
        pos = skip_blanks(data, starts[row] + 1, stops[row])
        stop = stops[row]
        listed = kinds[row] == NESTED and data[starts[row]] == 0x5B and data[pos] == 0x22
        kinds[row] = ABSENT
        starts[row] = 0
        stops[row] = 0
        if listed:
            close, escaped = end_of_string(data, pos + 1, stop)
            kinds[row] = ESCAPED if escaped else STRING
            starts[row] = pos + 1
            stops[row] = close


@njit(cache=True, nogil=True)
def split_texts(
    data: Bytes, sign: int, starts: NDArray[np.int64], stops: NDArray[np.int64], kinds: Bytes,
    rest_starts: NDArray[np.int64], rest_stops: NDArray[np.int64], rest_kinds: Bytes,
) -> None:  # fmt: skip
    """Split strings at the first byte ``sign``, which occurs in no escape; the remainder goes to ``rest``."""
    for row in range(starts.size):
        rest_kinds[row] = ABSENT
        rest_starts[row] = 0
        rest_stops[row] = 0
        if kinds[row] == STRING or kinds[row] == ESCAPED:
            pos = starts[row]
            while pos < stops[row] and data[pos] != sign:
                pos += 1
            if pos < stops[row]:
                rest_kinds[row] = kinds[row]
                rest_starts[row] = pos + 1
                rest_stops[row] = stops[row]
                stops[row] = pos
