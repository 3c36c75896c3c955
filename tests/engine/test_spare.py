"""Memory that is used again, and only once nobody has it any more."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from panstream.engine import _spare as module
from panstream.engine._spare import Spare

SIZE = 100_000


def place(array: Any) -> int:
    return int(array.ctypes.data)


@pytest.mark.parametrize(
    "held",
    [
        lambda array: array,
        lambda array: array[50:60],
        lambda array: array.view(np.int32)[::2],
        lambda array: memoryview(array),
        lambda array: pa.py_buffer(array),
        lambda array: pa.Array.from_buffers(pa.int8(), 10, [None, pa.py_buffer(array[:10])]).slice(3, 2),
        lambda array: [array[:0]],
    ],
    ids=["itself", "a slice", "a view", "memory", "a buffer", "an Arrow array", "an empty slice"],
)
def test_memory_that_somebody_has_is_not_given_again(held: Any) -> None:
    spare = Spare()
    first = spare.array(SIZE)
    at, kept = place(first), held(first)
    del first
    second = spare.array(SIZE)
    assert place(second) != at
    del kept
    third = spare.array(SIZE - 5)
    assert place(third) == at


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(0, 3_000_000), st.integers(0, 12)), max_size=40))
def test_arrays_that_are_held_never_share_memory(wanted: list[tuple[int, int]]) -> None:
    spare, held = Spare(), dict[int, Any]()
    for size, number in wanted:
        held.pop(number, None)
        held[number] = spare.array(size)
        assert held[number].size == size
        assert spare._held <= module._MOST
        spans = sorted((place(each), place(each) + each.size) for each in held.values() if each.size)
        assert all(one[1] <= two[0] for one, two in zip(spans, spans[1:], strict=False))


def test_arrays_of_several_threads_never_share_memory() -> None:
    spare, wrong = Spare(), []

    def use(mark: int) -> None:
        for _ in range(400):
            several = [spare.array(SIZE, np.int32) for _ in range(2)]
            for array in several:
                array[:: SIZE // 9] = mark
            wrong.extend(array for array in several if (array[:: SIZE // 9] != mark).any())

    threads = [threading.Thread(target=use, args=(mark,)) for mark in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_not_more_is_kept_than_agreed() -> None:
    spare = Spare()
    held = [spare.array(module._LARGEST) for _ in range(20)]
    assert spare._held <= module._MOST
    assert len({place(each) for each in held}) == 20
    assert spare.array(module._LARGEST + 1).size == module._LARGEST + 1
    assert spare.array(3, np.int64).tolist() is not None
