"""Copy text by sixteen bytes whatever its length: a processor mispredicts lengths, which takes longer."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from panstream.primitives.kernels.jit import part, rare_part

SLACK = 16  # what lies behind the target of a copy must be free for as many bytes


@intrinsic
def _copy_eight(typing_context, target, source):  # type: ignore[no-untyped-def]
    """Copy eight bytes between two addresses, whatever their alignment."""

    def build(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        pointer = context.get_value_type(types.CPointer(types.uint8))  # type: ignore[no-untyped-call]
        to, start = (builder.inttoptr(address, pointer) for address in arguments)
        size = context.get_constant(types.int64, 8)
        cgutils.raw_memcpy(builder, to, start, size, 1)  # type: ignore[no-untyped-call]
        return context.get_dummy_value()

    return types.void(types.uint64, types.uint64), build


@rare_part
def _copy_long(page: NDArray[np.uint8], at: int, length: Any, data: NDArray[np.uint8], used: Any) -> None:
    """Copy ``length`` bytes; up to seven more are written, none more is read."""
    source = np.uint64(page.ctypes.data + at)
    target = np.uint64(data.ctypes.data + used)
    whole = length if at + length + 8 <= page.size else length & ~7
    for j in range(0, whole, 8):
        _copy_eight(target + np.uint64(j), source + np.uint64(j))  # type: ignore[call-arg]
    if whole < length:
        for j in range(whole, length):
            data[used + j] = page[at + j]


@part
def copy_short(page: NDArray[np.uint8], at: int, length: Any, data: NDArray[np.uint8], used: Any) -> None:
    """Copy ``length`` bytes, at once if few; up to ``SLACK`` more are written, none behind the page is read."""
    if length <= SLACK and at + SLACK <= page.size:
        source = np.uint64(page.ctypes.data + at)
        target = np.uint64(data.ctypes.data + used)
        _copy_eight(target, source)  # type: ignore[call-arg]
        _copy_eight(target + np.uint64(8), source + np.uint64(8))
    else:
        _copy_long(page, at, length, data, used)
