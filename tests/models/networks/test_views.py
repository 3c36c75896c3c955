"""Coarser views of pairs: within the limit, made of released shapes, worth one record each, and fitted as what they
are.
"""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from panstream.errors import InvalidParameter
from panstream.models.networks import Bins, Domain, NoisyTable, fit_forest
from panstream.models.networks.budget import PureBudget, ZcdpBudget
from panstream.models.networks.noisy_tables import _Grouping, merge_categories, pair_views

DOMAIN = Domain({"job": [str(each) for each in range(8)], "age": Bins(range(13)), "sex": ["f", "m"]})
SHAPES = [
    np.array([0.05, 0.4, 0.02, 0.3, 0.1, 0.08, 0.03, 0.02]),
    np.array([0.3, 0.2, 0.1, 0.1, 0.05, 0.05, 0.05, 0.05, 0.04, 0.03, 0.02, 0.01]),
    np.array([0.5, 0.5]),
]


@pytest.mark.parametrize("limit", [0.5, 1, 6, 14, 95, 96, 1e9])
@pytest.mark.parametrize("pair", [(0, 1), (0, 2), (1, 2)])
def test_views_keep_to_the_limit_and_cover_every_category(pair: tuple[int, int], limit: float) -> None:
    views = pair_views(DOMAIN, pair, SHAPES, limit)
    for view, at in zip(views, pair, strict=True):
        assert sorted(set(view.groups.tolist())) == list(range(view.count))
        assert view.groups.size == DOMAIN.sizes[at]
    assert math.prod(view.cells for view in views) <= max(limit, 1)


def test_frequent_categories_stay_and_neighbouring_bins_are_joined() -> None:
    jobs, ages = pair_views(DOMAIN, (0, 1), SHAPES, 12)
    assert jobs.count == 3
    assert ages.count == 4
    assert [int(np.flatnonzero(jobs.groups == group)[0]) for group in (0, 1)] == [1, 3]
    assert (np.diff(ages.groups) >= 0).all()
    weights = np.bincount(ages.groups, SHAPES[1])
    assert weights.max() - weights.min() < 0.2


@pytest.mark.parametrize("counts", list(itertools.product((2, 3), repeat=2)), ids=str)
def test_one_record_replaced_moves_a_view_by_two_at_most_and_somewhere_by_two(counts: tuple[int, int]) -> None:
    one, other = (_Grouping(np.arange(4) % count, count) for count in counts)
    moved = set()
    for (a, b), (c, d) in itertools.product(itertools.product(range(4), repeat=2), repeat=2):
        change = np.zeros((4, 4), np.int64)
        change[a, b] -= 1
        change[c, d] += 1
        moved.add(int(np.abs(one.matrix @ change @ other.matrix.T).sum()))
        assert np.abs(merge_categories(merge_categories(change, other.groups, 1), one.groups, 0)).sum() <= 2
    assert max(moved) == 2


def test_exact_views_are_fitted_and_the_rest_follows_the_margins() -> None:
    domain = Domain({"a": ["x", "y", "z"], "b": ["u", "v"]})
    rows = np.array([0.5, 0.3, 0.2])
    columns = np.array([0.4, 0.6])
    views = (_Grouping(np.array([0, 1, 1]), 2), _Grouping(np.array([0, 1]), 2))
    joint = np.array([[0.35, 0.15], [0.03, 0.27], [0.02, 0.18]])  # y and z alike given b
    tables = [NoisyTable((0,), 1e4 * rows, 1.0), NoisyTable((1,), 1e4 * columns, 1.0)]
    told = views[0].matrix @ (1e4 * joint) @ views[1].matrix.T
    assert told.shape == (1, 1)
    seen = NoisyTable((0, 1), told, 1.0, False, views)
    turned = NoisyTable((1, 0), told.T, 1.0, False, (views[1], views[0]))
    for table in (seen, turned):
        found = fit_forest(domain, 10**4, [*tables, table], iterations=2000).joint()
        np.testing.assert_allclose(found, joint, atol=2e-3)
    with pytest.raises(InvalidParameter, match="view"):
        fit_forest(domain, 10**4, [*tables, seen, turned])


def test_only_pure_noise_asks_for_views() -> None:
    """The average cell keeps theta = 2 noise scales of 2/epsilon each."""
    share = Fraction(1, 2)
    assert PureBudget(0.1).useful(share, 4000) == pytest.approx(4000 * 0.05 / (2 * PureBudget.theta))
    assert math.isinf(ZcdpBudget(0.1, 1e-9).useful(share, 4000))
    assert math.isinf(PureBudget(math.inf).useful(share, 4000))
