"""Known populations: sizes, lists of any ids, samples."""

import math
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from panstream import Monitor
from panstream.algorithms.density import OptBern
from panstream.algorithms.density.universe import Universe
from panstream.errors import InvalidBatch, InvalidParameter

NAMES = ("ada", "grace", "", "emmy", "sofía")


@pytest.mark.parametrize(
    "container", [list, tuple, np.array, pa.array, pd.Series, pl.Series, lambda x: pa.array(x).dictionary_encode()]
)
def test_listed_names_in_any_container(container: Any) -> None:
    monitor = OptBern(universe=NAMES, epsilon=math.inf).start()
    monitor.update(container(["emmy", "ada", "emmy", "sofía"]))
    assert monitor.release().value == pytest.approx(0.6)


@given(st.sets(st.one_of(st.binary(max_size=20)), min_size=1, max_size=30), st.data())
def test_listed_bytes_against_a_dictionary(members: set[bytes], data: st.DataObject) -> None:
    listed = tuple(members)
    rows = data.draw(st.lists(st.sampled_from(listed), max_size=20))
    numbers, _ = Universe(listed, None, 5).indices_of(rows)
    assert numbers.tolist() == [listed.index(row) for row in rows]


def test_listed_integers() -> None:
    universe = Universe((-5, 2**63 - 1, 0, 7), None, 0)
    assert universe.indices_of([7, 0, -5])[0].tolist() == [3, 2, 0]


def test_a_stranger_is_refused_by_row_and_unnamed() -> None:
    monitor = OptBern(universe=NAMES, epsilon=1.0).start()
    before = monitor.state.bits.copy()
    with pytest.raises(InvalidBatch, match="row 1: id is not in the universe") as caught:
        monitor.update(["ada", "mallory"])
    assert "mallory" not in str(caught.value)
    assert np.array_equal(before, monitor.state.bits)
    with pytest.raises(InvalidBatch, match="ids must be strings like the universe, got integers"):
        monitor.update([1])


@pytest.mark.parametrize(
    ("members", "words"),
    [
        (("a", "b", "a"), "twice, see position 2"),
        ((), "must not be empty"),
        ((1, "a"), "row 1"),
        ((None,), "row 0"),
        (True, "a number of users or a list"),
        ("abc", "a number of users or a list"),
    ],
)
def test_bad_lists(members: Any, words: str) -> None:
    with pytest.raises(InvalidParameter, match=words):
        OptBern(universe=members, epsilon=1.0)


def test_listed_universes_survive_bytes() -> None:
    for members in (NAMES, (b"\x00\xff", b"x"), (3, -4)):
        monitor = OptBern(universe=members, epsilon=1.0).start()
        assert Monitor.from_bytes(monitor.to_bytes()).algorithm == monitor.algorithm


def test_the_sample_is_a_fixed_part_of_the_universe() -> None:
    universe = Universe(1000, 100, 7)
    images = universe.permute(np.arange(1000), np.empty(1000, np.int64))
    assert sorted(images) == list(range(1000))
    assert (images < universe.sampled).sum() == 100
    assert not np.array_equal(images, Universe(1000, 100, 8).permute(np.arange(1000), np.empty(1000, np.int64)))


@pytest.mark.parametrize("announced", [0, 1, 3])
def test_the_parts_of_a_claim_add_up(announced: int) -> None:
    claim = OptBern(universe=50, epsilon=2.0, announced=announced).claim()
    assert sum(claim.parts.values()) == pytest.approx(claim.epsilon) == pytest.approx(2.0)
    assert claim.parts["state"] > 0 < claim.parts["output"]
