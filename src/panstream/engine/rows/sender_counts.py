"""The windows in which the senders of rows count them, read from the column ``sender_counts``."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.engine.arrow import boolean_bytes, compute, numeric_view, pa

NOT_COUNTED = -(2**62) + 1  # no window has this number, nor does a row without a time


def counted_windows(entries: Any, kind: str, length: float, contributions: int) -> NDArray[np.int64]:
    """Return the window in which every row is one of its sender's first rows; `NOT_COUNTED` if there is none.

    >>> counted_windows(pa.array(["row:60:7:1", "row:60:7:9 row:3600:0:2", None]), "row", 60.0, 8).tolist()[:1]
    [7]
    """
    pattern = rf"(?:^| ){kind}:{length:.0f}:(?P<window>-?[0-9]{{1,15}}):(?P<number>[0-9]{{1,9}})(?: |$)"
    match = compute.extract_regex(entries, pattern)
    windows, numbers = (_integers(compute.struct_field(match, name)) for name in ("window", "number"))
    counted: NDArray[np.int64] = np.where((numbers >= 1) & (numbers <= contributions), windows, NOT_COUNTED)
    return counted


def _integers(texts: Any) -> NDArray[np.int64]:
    integers = texts.cast(pa.int64())
    values: NDArray[np.int64] = np.where(boolean_bytes(integers.is_valid()), numeric_view(integers), NOT_COUNTED)
    return values
