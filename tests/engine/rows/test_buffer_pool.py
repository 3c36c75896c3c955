"""Memory that is used again, and only once nobody has it any more."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from panstream.engine.config.config import read_config
from panstream.engine.rows import buffer_pool as module
from panstream.engine.rows import undecoded_ids as _stored_ids
from panstream.engine.rows.buffer_pool import Spare
from panstream.engine.runtime.engine import Engine
from panstream.engine.runtime.ingest import feed
from panstream.engine.sources.formats.parquet import _page_stream as alike
from panstream.engine.sources.formats.parquet import file as parquet

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


class _Zeroed:
    """NumPy whose new memory holds nothing, so that whatever is there later was left there."""

    empty = staticmethod(np.zeros)

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)


@pytest.mark.parametrize("compression", ["zstd", "snappy"])
@pytest.mark.parametrize("dictionaries", [True, False, ["answer"]], ids=["coded", "plain", "mixed"])
@pytest.mark.parametrize("kind", ["string", "int"])
@pytest.mark.parametrize("missing", [0, 7], ids=["all there", "some missing"])
def test_nothing_of_a_file_is_left_in_it(
    missing: int, kind: str, dictionaries: Any, compression: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even how long the chosen ids were, which tells how many rows met the condition."""
    made: list[Spare] = []

    class Watched(Spare):
        __slots__ = ()

        def __init__(self) -> None:
            super().__init__()
            made.append(self)

    monkeypatch.setattr(module, "np", _Zeroed())
    for user in (parquet, alike, _stored_ids):
        monkeypatch.setattr(user, "Spare", Watched)
    rng = np.random.default_rng(4)
    numbers, rows = rng.integers(1, 9_000, 60_000), 60_000
    table = pa.table(
        {
            "user": pa.array(numbers if kind == "int" else [f"user {number}" for number in numbers]),
            "answer": pa.array(np.array(["yes", "no", "perhaps"])[rng.integers(0, 3, rows)]),
            "age": pa.array(rng.integers(1, 100, rows)),
        }
    )
    if missing:
        gone = pa.array(np.arange(rows) % missing == 0)
        columns = [compute.if_else(gone, pa.scalar(None, column.type), column) for column in table.columns]
        table = pa.table(columns, names=table.column_names)
    path = tmp_path / "rows.parquet"
    pq.write_table(table, path, compression=compression, use_dictionary=dictionaries, row_group_size=25_000)
    config = {
        "stream": {"name": "visits", "user": "user", "columns": {"user": kind, "answer": "string", "age": "int"}},
        "store": {"batch_rows": 7_777},
        "query": [
            {
                "name": "users",
                "sql": "SELECT COUNT(DISTINCT user) FROM visits WHERE answer = 'yes' AND age > 30",
                "epsilon": 1.0,
                "expected": 9_000,
            }
        ],
    }
    with Engine(read_config(config)) as engine:
        assert feed(engine, [str(path)]).rows == rows
        blocks = [block for spare in made for several in spare._blocks.values() for block in several]
        assert blocks
        assert [int(np.count_nonzero(block)) for block in blocks] == [0] * len(blocks)
