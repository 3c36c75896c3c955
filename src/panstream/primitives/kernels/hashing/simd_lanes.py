"""Eight ids at a time: hashes and cells of short strings of equal length, and cells of integers.

In a loop that also marks cells, the compiler handles ids one by one; here the vectors are written out. A product of 64
by 64 bits consists of four of 32 by 32, for which there are vector instructions. Results equal those of
``multiply_fold`` and ``integer_mixer`` bit for bit: a stored state may move between processors.
"""

from __future__ import annotations

from typing import Any

from panstream.primitives.kernels.jit import instruction

LANES = 8

AHEAD = 4096
LINE = 64
"""Bytes of ids to prefetch ahead, and of a cache line: scattered marks defeat the processor's own prefetching."""

_CODE = "panstream.primitives.kernels.hashing.lane_instructions"

fold_lanes: Any = instruction(_CODE, "fold_lanes")
folded_cells: Any = instruction(_CODE, "folded_cells")
mixed_cells: Any = instruction(_CODE, "mixed_cells")
wide: Any = instruction(_CODE, "wide")
