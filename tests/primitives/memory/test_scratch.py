"""Scratch memory is zeroed when its block ends, however it ends."""

import numpy as np
import pytest

from panstream.primitives.memory.scratch import _POOL, Scratch, wipe


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
        first = scratch.array(100)
        second = scratch.array(100)
        assert not np.shares_memory(first, second)
        with Scratch() as inner:
            assert not np.shares_memory(first, inner.array(100))


def test_small_buffers_are_reused() -> None:
    """Steady work allocates nothing new: the same memory comes back, zeroed."""
    _POOL.__dict__["free"] = []  # other tests may have filled it
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


@pytest.mark.parametrize("size", [0, 1, 511, 512, 4096, (1 << 17) - 1, 1 << 17, (1 << 17) + 1])
def test_wipe_overwrites_an_array_and_nothing_beside_it(size: int) -> None:
    around = np.full(size + 20, 7, np.uint8)
    wipe(around[10 : 10 + size])
    assert not around[10 : 10 + size].any()
    assert (around[:10] == 7).all()
    assert (around[10 + size :] == 7).all()


@pytest.mark.parametrize("size", [100, 4096, 1 << 18])
def test_wipe_of_columns_and_of_what_may_not_be_written(size: int) -> None:
    table = np.full((size, 3), 7.0)
    wipe(table[:, 1])
    assert not table[:, 1].any()
    assert (table[:, ::2] == 7).all()
    letters = b"x" * size
    with pytest.raises(ValueError, match="read-only"):
        wipe(np.frombuffer(letters, np.uint8))
    assert letters == b"x" * size


def test_arrays_that_make_room_are_zeroed_as_far_as_they_were_ever_written() -> None:
    with Scratch() as scratch:
        retained = scratch.array(16)
        taken = scratch.mark
        first = scratch.array(1000)
        first[:] = 7
        scratch.rewind(taken)
        second = scratch.array(10)
        second[:] = 7
        retained[:] = 7
        assert np.shares_memory(first, second)
        assert not np.shares_memory(retained, second)
    assert not first.any()
    assert not retained.any()


@pytest.mark.parametrize("dtype", ["u1", "?", "i8", "f8", "M8[s]", "V24", "U7"])
@pytest.mark.parametrize("rows", [1, 20, 3000, 100_000])
def test_arrays_of_every_kind_and_size_are_overwritten(dtype: str, rows: int) -> None:
    """Few bytes, those that are overwritten in one go, and many; what lies around them stays."""
    size = 2 * rows * np.dtype(dtype).itemsize
    around = np.ones(size + 32, np.uint8)
    wipe(around[16 : 16 + size].view(dtype).reshape(rows, 2))
    assert not around[16 : 16 + size].any()
    assert around[:16].all() and around[16 + size :].all()
