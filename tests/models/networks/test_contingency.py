"""Counts against plain loops, and information against its definition."""

import itertools
import math
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from panstream.errors import InvalidParameter
from panstream.models.networks import Domain, Records, contingency, entropy, mutual_information, pairwise
from panstream.models.networks import domain as domain_module

SIZES = (2, 3, 1, 4)
DOMAIN = Domain({f"a{at}": [str(code) for code in range(size)] for at, size in enumerate(SIZES)})


def some_records(seed: int, count: int) -> Records:
    rng = np.random.default_rng(seed)
    return Records(DOMAIN, np.array([rng.integers(0, size, count) for size in SIZES], np.uint16).reshape(4, count))


@pytest.mark.parametrize("count", [0, 1, 2048, 2051])
def test_every_table_is_what_a_loop_counts(count: int) -> None:
    records = some_records(count, count)
    rows = list(zip(*records.codes.tolist(), strict=True))
    for length in range(5):
        for attributes in itertools.permutations(range(4), length):
            plain = Counter(tuple(row[a] for a in attributes) for row in rows)
            table = contingency(records, attributes)
            assert table.shape == tuple(SIZES[a] for a in attributes)
            assert table.dtype == np.int64
            assert int(table.sum()) == count
            assert all(table[cell] == number for cell, number in plain.items())


def test_all_pairs_are_the_single_tables_and_the_crosstabs() -> None:
    records = some_records(7, 4100)
    tables = pairwise(records)
    frame = pd.DataFrame(records.codes.T, columns=list(DOMAIN.names))
    assert sorted(tables) == list(itertools.combinations(range(4), 2))
    for (i, j), table in tables.items():
        assert np.array_equal(table, contingency(records, (i, j)))
        cross = pd.crosstab(frame.iloc[:, i], frame.iloc[:, j])
        assert np.array_equal(cross.reindex(range(SIZES[i]), columns=range(SIZES[j]), fill_value=0), table)


def test_wide_attributes_do_not_wrap() -> None:
    domain = Domain({name: [str(code) for code in range(40_000)] for name in "ab"}, missing=())
    records = Records(domain, np.array([[39_999, 0], [39_999, 1]], np.uint16))
    with pytest.raises(InvalidParameter, match="above the limit"):
        contingency(records, (0, 1))
    with pytest.raises(InvalidParameter, match="above the limit"):
        pairwise(records)
    narrow = records.domain.select((0,))
    assert contingency(Records(narrow, records.codes[:1]), (0,)).nonzero()[0].tolist() == [0, 39_999]


def test_products_of_codes_do_not_wrap(monkeypatch: pytest.MonkeyPatch) -> None:
    domain = Domain({"a": [str(code) for code in range(300)], "b": [str(code) for code in range(300)]})
    records = Records(domain, np.array([[299], [298]], np.uint16))
    assert contingency(records, (0, 1))[299, 298] == 1
    assert pairwise(records)[0, 1][299, 298] == 1
    monkeypatch.setattr(domain_module, "LARGEST_TABLE", 10)
    with pytest.raises(InvalidParameter, match="90000 cells"):
        contingency(records, (0, 1))


@pytest.mark.parametrize("attributes", [(0, 0), (4,), (-1,)])
def test_bad_attributes_are_refused(attributes: tuple[int, ...]) -> None:
    with pytest.raises(InvalidParameter, match="distinct positions"):
        contingency(some_records(0, 3), attributes)


@given(hnp.arrays(np.int64, hnp.array_shapes(min_dims=2, max_dims=3, max_side=4), elements=st.integers(0, 9)))
def test_information_by_its_definition(table: np.ndarray) -> None:  # type: ignore[type-arg]
    total = int(table.sum())
    expected = -math.fsum(c / total * math.log2(c / total) for c in table.ravel().tolist() if c) if total else 0.0
    assert entropy(table) == pytest.approx(expected, abs=1e-12)
    rows = table.reshape(-1, table.shape[-1])
    if total:
        ratio = [
            c / total * math.log2(c * total / (int(rows[r].sum()) * int(rows[:, k].sum())))
            for (r, k), c in np.ndenumerate(rows)
            if c
        ]
        assert mutual_information(table) == pytest.approx(math.fsum(ratio), abs=1e-12)
        given = [int(row.sum()) / total * entropy(row) for row in rows]
        assert entropy(table) - entropy(table.sum(axis=-1)) == pytest.approx(math.fsum(given), abs=1e-12)
    else:
        assert mutual_information(table) == 0


@pytest.mark.parametrize("table", [[-1, 2], [np.nan, 1], [np.inf, 1]], ids=str)
def test_noisy_tables_must_be_clamped_first(table: list[float]) -> None:
    with pytest.raises(InvalidParameter):
        entropy(np.array(table))
