"""Scratch memory is zeroed when its block ends, however it ends."""

import numpy as np
import pytest

from panstream.scratch import Scratch, wipe


def test_zeroed_after_the_block() -> None:
    with Scratch() as scratch:
        arrays = [scratch.array(size, dtype) for size in (1, 7, 100_000) for dtype in (np.uint8, np.int64, np.float64)]
        for array in arrays:
            array[:] = 9
    assert not any(array.any() for array in arrays)


def test_zeroed_after_an_error() -> None:
    with pytest.raises(KeyError), Scratch() as scratch:
        array = scratch.array(10)
        array[:] = 1
        raise KeyError
    assert not array.any()


def test_arrays_of_one_block_do_not_overlap() -> None:
    with Scratch() as scratch:
        first, second = scratch.array(100), scratch.array(100)
        assert not np.shares_memory(first, second)
        with Scratch() as inner:
            assert not np.shares_memory(first, inner.array(100))


def test_small_buffers_are_reused() -> None:
    """Steady work allocates nothing new: the same memory comes back, zeroed."""
    seen = []
    for _ in range(50):
        with Scratch() as scratch:
            array = scratch.array(3000)
            assert array.ctypes.data not in seen or not array.any()
            array[:] = 1
            seen.append(array.ctypes.data)
    assert len(set(seen)) < 20


def test_empty_arrays_are_fine() -> None:
    with Scratch() as scratch:
        assert scratch.array(0, np.int64).size == 0


def test_wipe_also_strided_arrays() -> None:
    base = np.ones((4, 4))
    wipe(base[:, ::2])
    assert base.sum() == 8
    wipe(base)
    assert not base.any()
