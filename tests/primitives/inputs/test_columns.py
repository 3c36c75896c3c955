from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import textwrap

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from panstream.primitives.inputs import Integers, ItemBatch, Strings, items


def test_wiping_clears_our_copies_and_nothing_of_the_callers(rows) -> None:
    wide = np.array([5, 6, 7])
    narrow = np.array([5, 6, 7], np.int32)
    arrow = pa.array(["ann", "bob"])
    encoded = pa.DictionaryArray.from_arrays(pa.array([1, 0], pa.int8()), pa.array(["ann", "bob"]))
    series = pl.Series(["ann", "a much longer identifier"])
    for data, before in ((wide, [5, 6, 7]), (arrow, [b"ann", b"bob"])):
        batch = items(data)
        batch.wipe()
        assert rows(batch) == before
    for data in (narrow, series, [5, 6], ["ann"], [b"ann"], np.array(["ann"]), np.array([b"ann"], "S9")):
        batch = items(data)
        assert any(array.any() for array in batch.owned)
        batch.wipe()
        (part,) = batch.parts
        assert not (part.values if isinstance(part, Integers) else part.data).any()
        assert not any(array.any() for array in batch.owned)
    batch = items(encoded)
    batch.wipe()
    assert not batch.parts[0].codes.any()
    assert (wide.tolist(), narrow.tolist()) == ([5, 6, 7], [5, 6, 7])
    assert arrow.to_pylist() == ["ann", "bob"]
    assert encoded.to_pylist() == ["bob", "ann"]
    assert series.to_list() == ["ann", "a much longer identifier"]


def test_parts_are_frozen_and_read_only() -> None:
    caller = np.array([1, 2, 3])
    batch = items(caller)
    with pytest.raises(dataclasses.FrozenInstanceError):
        batch.parts = ()  # type: ignore[misc]
    with pytest.raises(ValueError, match="read-only"):
        batch.parts[0].values[0] = 9  # type: ignore[union-attr,index]
    caller[0] = 9
    assert batch.parts[0].values[0] == 9  # type: ignore[union-attr,index]


def test_representations_tell_sizes_only() -> None:
    batch = items(pa.chunked_array([pa.array(["ann", "bob"]).dictionary_encode()]))
    assert repr(batch) == "Items(2 rows, string kind, 1 parts)"
    assert repr(batch.parts) == "(Dictionary(2 rows, 2 values),)"
    assert repr(batch.parts[0].values) == "Strings(2 rows)"  # type: ignore[union-attr]
    assert repr(items([7])) == "Items(1 rows, integer kind, 1 parts)"
    assert repr(items([7]).parts[0]) == "Integers(1 rows)"
    assert repr(items([])) == "Items(0 rows, no kind, 0 parts)"


def test_parts_can_be_built_by_hand() -> None:
    batch = ItemBatch((Integers(np.array([1, 2])), Integers(np.array([3]))))
    assert len(batch) == 3
    assert [(start, len(part)) for start, part in batch.spans()] == [(0, 2), (2, 1)]
    assert len(Strings(np.array([0, 1, 4], np.int32), np.zeros(4, np.uint8))) == 2


SCAN = """
    import json, resource
    import numpy as np, polars as pl, pyarrow as pa
    from panstream.primitives.inputs import items

    HEAD = "".join(["Zq7", "KKK"])
    N = 300
    SIZE, PAGE = 1 << 22, resource.getpagesize()
    window = bytearray(SIZE)
    own = np.frombuffer(window, np.uint8).ctypes.data

    def resident(start, stop):
        # Yield the runs of pages that hold anything, without the window itself.
        with open("/proc/self/pagemap", "rb", 0) as pages:
            pages.seek(start // PAGE * 8)
            entries = np.frombuffer(pages.read((stop - start) // PAGE * 8), np.uint64)
        address = start + PAGE * np.arange(entries.size)
        used = (entries >> np.uint64(62) != 0) & ((address + PAGE <= own) | (address >= own + SIZE))
        edges = np.flatnonzero(np.diff(np.concatenate([[0], used, [0]]))).reshape(-1, 2)
        for first, last in edges.tolist():
            yield start + first * PAGE, start + last * PAGE

    def copies():
        needles = [HEAD.encode(), HEAD.encode("utf-32-le")]
        found = [0, 0]
        with open("/proc/self/maps") as maps:
            regions = [line.split() for line in maps]
        regions = [r[0].split("-") for r in regions if r[1].startswith("rw") and not r[-1].startswith("[v")]
        with open("/proc/self/mem", "rb", 0) as memory:
            for region in regions:
                for start, stop in resident(*(int(end, 16) for end in region)):
                    for begin in range(start, stop, SIZE):
                        memory.seek(begin)
                        try:
                            size = memory.readinto(memoryview(window)[: min(SIZE, stop - begin)])
                        except OSError:  # given back since the list was read
                            continue
                        for index, needle in enumerate(needles):
                            found[index] += window.count(needle, 0, size)
                        window[:size] = bytes(size)
        return found

    texts = [HEAD + "-%08d" % i for i in range(N)]
    raw = [text.encode() for text in texts]
    inputs = {
        "list": texts, "bytes": raw, "U": np.array(texts), "U strided": np.array(texts)[::2],
        "S": np.array(raw, "S40"), "view": pa.array(texts, pa.string_view()),
        "polars": pl.Series(texts),
    }
    for data in inputs.values():
        items(data[:2]).wipe()
    copies()
    before = copies()
    report = {}
    for name, data in inputs.items():
        batch = items(data)
        held = copies()
        batch.wipe()
        del batch
        after = copies()
        report[name] = [before, held, after]
        before = after
    print(json.dumps(report))
"""


@pytest.mark.slow
def test_no_copy_of_any_item_is_left_in_memory_after_wiping() -> None:
    """Counts the items in all writable memory of a process, which must be more only while the batch is held.

    The few allowed are copies of the scanner's own needle.
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(SCAN)], capture_output=True, text=True, check=True)
    report = json.loads(done.stdout)
    assert len(report) == 7
    for name, (before, held, after) in report.items():
        assert held[0] >= before[0] + 150, name
        assert after[0] <= before[0] + 5, name
        assert after[1] <= before[1] + 5, name
