"""One answer with a released start, for ids of any kind: coverage and error over keys, near and far from expected."""

import numpy as np
import pytest
from scipy import stats

from panstream.algorithms.auto import DistinctCount
from panstream.algorithms.continual_users import ContinualBitmap
from panstream.core.monitor import Monitor
from panstream.errors import BudgetExhausted
from panstream.primitives.noise import SeededSource
from tests.statistical import ALPHA

RUNS = 80
EXPECTED = 2_000


@pytest.mark.parametrize("at_most", [None, 16 * EXPECTED], ids=["levels", "one level"])
@pytest.mark.parametrize("users", [0, 60, EXPECTED, 8 * EXPECTED])
def test_intervals_cover_and_errors_are_as_planned(at_most: int | None, users: int) -> None:
    """80 keys; 95% intervals cover less often than the bound with probability ALPHA."""
    inside = 0
    errors = []
    for key in range(RUNS):
        algorithm = DistinctCount(1.0, expected=EXPECTED, at_most=at_most, key=key).algorithm
        assert isinstance(algorithm, ContinualBitmap)
        assert (algorithm.rows_of_cells == 1) == (at_most is not None)
        monitor = Monitor(algorithm, rng=SeededSource(key))
        monitor.update(np.arange(users))
        monitor.update(np.arange(users // 2))
        estimate = monitor.release()
        low, high = estimate.interval()
        inside += low <= users <= high
        errors.append(estimate.unbiased - users)
    assert inside >= stats.binom.ppf(ALPHA, RUNS, 0.95)
    if users >= EXPECTED:
        planned = users * algorithm.relative_error(users)
        # The sample variance times (RUNS-1)/variance is chi-square up to the shape of the law: each side with ALPHA.
        ratio = (RUNS - 1) * np.var(errors, ddof=1) / planned**2
        assert stats.chi2.ppf(ALPHA, RUNS - 1) * 0.9 <= ratio <= stats.chi2.isf(ALPHA, RUNS - 1) * 1.1


def test_the_interval_of_a_full_level_has_no_upper_end() -> None:
    """100,000 users of 1,024 cells: 40 keys, fewer hits than the bound with probability ALPHA."""
    inside = 0
    for key in range(40):
        algorithm = ContinualBitmap(
            epsilon=4.0, horizon=1, unit="user", expected=500.0, buckets=1024, rows_of_cells=1, key=key
        )
        monitor = Monitor(algorithm, rng=SeededSource(key))
        monitor.update(np.arange(100_000))
        low, high = monitor.release().interval()
        inside += low <= 100_000 <= high
    assert inside >= stats.binom.ppf(ALPHA, 40, 0.95)


def test_no_row_is_taken_after_the_answer() -> None:
    monitor = DistinctCount(1.0, expected=2_000).start()
    monitor.update(["ann"])
    monitor.release()
    with pytest.raises(BudgetExhausted):
        monitor.update(["bob"])
