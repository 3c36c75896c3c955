"""Whatever holds the ids, and whichever way is taken to mark their cells, the cells are those of the ids one by one."""

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from panstream.algorithms.distinct import bitmap_base as counting
from panstream.algorithms.distinct.bitmap import Bitmap
from panstream.core.monitor import Monitor
from panstream.primitives.noise import SeededSource
from panstream.primitives.packed_bits import pack_bits
from tests.algorithms.distinct.bitmap_cases import cells_of

ROWS = 700
LETTERS = "0123456789abcdefghijklmnopqrstuvwxyz"


def strings(lengths: list[int]) -> list[str]:
    rng = np.random.default_rng(sum(lengths))
    return ["".join(rng.choice(list(LETTERS), length)) for length in np.resize(lengths, ROWS)]


def columns(texts: list[str]) -> dict[str, Any]:
    array = pa.array(texts)
    around = pa.array(["before", *texts, "x" * 16, "y"])
    exact = pa.py_buffer("".join(texts).encode())  # not a byte behind the last string
    offsets = pa.py_buffer(np.cumsum([0, *map(len, texts)]).astype(np.int32))
    return {
        "list": texts,
        "Arrow": array,
        "large": pa.array(texts, pa.large_string()),
        "exact": pa.StringArray.from_buffers(ROWS, offsets, exact),
        "slice": around.slice(1, ROWS),
        "large slice": around.cast(pa.large_string()).slice(1, ROWS),
        "chunks": pa.chunked_array([array.slice(0, 13), array.slice(13, 8), array.slice(21)]),
        "dictionary": pa.array([*texts, *texts]).dictionary_encode(),
        "NumPy": np.array(texts),
    }


@pytest.mark.slow
@pytest.mark.parametrize("way", ["a coin a row", "a mark a cell", "packed marks"])
@pytest.mark.parametrize(
    "lengths",
    [[0], [1], [7], [8], [9], [15], [16], [17], [40], [*range(41)], [*range(17)], [16] * 300 + [0, 3]],
    ids=lambda lengths: f"{min(lengths)} to {max(lengths)}, {len(lengths)}",
)
def test_every_column_touches_the_cells_of_its_strings(
    lengths: list[int], way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counting, "_MAX_BYTE_MARKS", 1 << 21 if way == "a mark a cell" else 0)
    monkeypatch.setattr(counting, "_MAX_CELLS_PER_ROW", 1 << 20 if way == "packed marks" else 0)
    algorithm = Bitmap(epsilon=math.inf, buckets=64, levels=8)
    texts = strings(lengths)
    touched = np.zeros(algorithm.cells, np.uint8)
    touched[[cell for text in set(texts) for cell in cells_of(algorithm, [text])]] = 1
    for name, column in columns(texts).items():
        monitor = Monitor[Any](algorithm, rng=SeededSource(1))
        monitor.update(column)
        assert np.array_equal(monitor.state.bits, pack_bits(touched)), name
