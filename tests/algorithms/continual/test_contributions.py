"""User level: what is enforced within a batch, and that nothing about users is kept."""

import math
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from panstream.algorithms.continual import first_contributions as first_contributions_module
from panstream.algorithms.continual.first_contributions import first_contributions
from panstream.algorithms.continual.moments import ContinualMean
from panstream.algorithms.continual.sums import ContinualCount, ContinualSum
from panstream.core.monitor import Monitor
from panstream.errors import InvalidBatch
from panstream.testing.enumeration import snapshot


@settings(deadline=None)
@given(st.lists(st.integers(-3, 3), max_size=60), st.integers(1, 4))
def test_first_rows_of_every_user_are_kept(users: list[int], most: int) -> None:
    seen: Counter[int] = Counter()
    expected = []
    for user in users:
        seen[user] += 1
        expected.append(int(seen[user] <= most))
    assert first_contributions(users, len(users), most).tolist() == expected
    names = [f"user {user}" for user in users]
    assert first_contributions(names, len(users), most).tolist() == expected


@pytest.mark.parametrize("shape", ["list", "chunks", "dictionary", "numbers", "coded numbers", "bytes"])
def test_users_with_the_same_hash_stay_apart(monkeypatch: pytest.MonkeyPatch, shape: str) -> None:
    """Whoever knows the key can choose ids whose hashes are equal; here all are."""
    monkeypatch.setattr(first_contributions_module, "hash_items", lambda ids, key, out: out.fill(7))
    numbers = [5, 6, 5, 5, -5, 6, 1 << 40, 5]
    names = ["ann", "bob", "ann", "ann", "an", "bob", "anna", "ann"]
    users: Any = {
        "list": names,
        "chunks": pa.chunked_array([names[:3], names[3:4], [], names[4:]], pa.string()),
        "dictionary": pa.array(names).dictionary_encode(),
        "numbers": np.array(numbers),
        "coded numbers": pa.array(numbers).dictionary_encode(),
        "bytes": pa.array([name.encode() for name in names]),
    }[shape]
    assert first_contributions(users, 8, 1).tolist() == [1, 1, 0, 0, 1, 0, 1, 0]
    assert first_contributions(users, 8, 2).tolist() == [1, 1, 1, 0, 1, 1, 1, 0]


def test_many_users() -> None:
    users = np.arange(100_000) % 70_000
    assert first_contributions(users, users.size, 1).sum() == 70_000
    assert first_contributions(users, users.size, 2).sum() == 100_000


def test_a_batch_counts_a_user_at_most_so_often() -> None:
    count = Monitor(ContinualCount(epsilon=math.inf, horizon=9, contributions=2))
    count.update([1, 1, 1, 1, 1], users=["a", "a", "a", "b", "a"])
    assert count.tick().value == 3
    count.update([1, 1], users=["a", "a"])  # a new batch: nobody remembers
    assert count.tick().value == 5
    total = Monitor(ContinualSum(epsilon=math.inf, horizon=9, contributions=1, lower=0, upper=10, resolution=1))
    total.update([4.0, 5.0, 6.0], users=[7, 8, 7])
    assert total.tick().value == 9
    mean = Monitor(ContinualMean(epsilon=math.inf, horizon=9, contributions=1, lower=0, upper=10, resolution=1))
    mean.update([4.0, 10.0, 6.0], users=[7, 7, 8])
    assert mean.tick().value == pytest.approx(5.0)


def test_noise_grows_with_the_contributions() -> None:
    one, five = (ContinualCount(epsilon=1.0, horizon=100, contributions=k) for k in (1, 5))
    assert one.engine.law().kappa == pytest.approx(5 * five.engine.law().kappa)
    assert one.claim().epsilon == five.claim().epsilon == 1.0
    assert one.claim().unit == "user"
    assert "at most 5 rows" in five.claim().note


@pytest.mark.parametrize("users", [[1], [1, None], [1.5, 2.5], "ab"])
def test_bad_users_are_refused(users: Any) -> None:
    monitor = Monitor(ContinualCount(epsilon=1.0, horizon=9, contributions=2))
    before = snapshot(monitor.state)
    with pytest.raises(InvalidBatch):
        monitor.update([1, 1], users=users)
    assert snapshot(monitor.state) == before


def test_users_need_a_declared_bound() -> None:
    with pytest.raises(InvalidBatch, match="contributions="):
        ContinualCount(epsilon=1.0, horizon=9).batch([1], users=["a"])
