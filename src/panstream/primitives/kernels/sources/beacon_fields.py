"""Buffered web beacons: the spans of their parts, and search for words (bots) in their texts.

Compiled because addresses and agents must not become Python strings, which are never wiped.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.kernels.jit import njit
from panstream.primitives.kernels.sources.json_fields import scan_object, skip_blanks, workspace

Bytes = NDArray[np.uint8]
Positions = NDArray[np.int64]


@njit(cache=True, nogil=True)
def scan_texts(
    data: Bytes, begins: Positions, ends: Positions, names: Bytes, edges: Positions,
    starts: NDArray[np.int64], stops: NDArray[np.int64], kinds: Bytes, broken: Bytes,
) -> None:  # fmt: skip
    """Find the values of keys in texts, each of which should be a JSON object, as ``scan_lines`` does in lines."""
    stack, buffer, seen, last_keys = workspace(names, edges)
    for row in range(begins.size):
        pos = skip_blanks(data, begins[row], ends[row])
        broken[row] = not scan_object(
            data, pos, ends[row], row, names, edges, stack, buffer, seen, last_keys, starts, stops, kinds
        )
    buffer[:] = 0


# Stops at the first word: only whether one occurs is needed.
@njit(cache=True, nogil=True)
def find_words(
    data: Bytes,
    starts: Positions,
    stops: Positions,
    letters: Bytes,
    table: NDArray[np.uint16],
    ends: Bytes,
    matched: Bytes,
) -> None:
    """Mark the texts in which a word occurs.

    ``table`` has the next state of an automaton (Aho and Corasick, 1975) for a state and one of the ``letters``, and
    ``ends`` the states in which a word has just ended.
    """
    for row in range(starts.size):
        state = np.int64(0)
        for pos in range(starts[row], stops[row]):
            state = np.int64(table[state, letters[data[pos]]])
            if ends[state]:
                matched[row] = 1
                break


@njit(cache=True, nogil=True)
def cut_lines(data: Bytes, end: int, starts: Any, stops: Any) -> Any:
    """Write the spans of the lines of ``data[:end]``; a row consists of as many lines as ``starts`` has rows."""
    parts = starts.shape[0]
    start = 0
    line = 0
    for pos in range(end):
        if data[pos] == 0x0A:
            starts[line % parts, line // parts] = start
            stops[line % parts, line // parts] = pos
            start = pos + 1
            line += 1
    return line // parts
