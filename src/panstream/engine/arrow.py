"""pyarrow for the engine, or the command that installs it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.errors import MissingExtra

__all__ = ["arrow_mask", "compute", "pa"]

try:
    import pyarrow as pa
    import pyarrow.compute as compute
except ImportError:
    raise MissingExtra("the stream engine", "engine") from None


def arrow_mask(mask: NDArray[np.bool_]) -> Any:
    """Return a mask for Arrow; ``pa.array`` would do, and import pandas, where it is installed, to look at it."""
    bits = pa.py_buffer(np.packbits(mask, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), mask.size, [None, bits])
