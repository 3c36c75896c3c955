"""TogglingBitmap: exact loss of the shipped code, toggles cancel, count of those present."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from panstream import Monitor
from panstream.algorithms.distinct.bitmap import Bitmap
from panstream.algorithms.distinct.toggling_bitmap import TogglingBitmap
from panstream.algorithms.randomized_bits import CoinPair
from panstream.errors import InvalidBatch, InvalidParameter, NotSupported
from panstream.primitives.noise import Coin, DiscreteLaplace, SeededSource
from panstream.primitives.packed_bits import pack_bits
from panstream.privacy.joint_loss import kappa_for
from panstream.testing.enumeration import release, update
from tests.algorithms.distinct.bitmap_cases import cells_of, ids_in, joint
from tests.statistical import assert_mean


def tiny(buckets: int = 1, levels: int = 1, epsilon: float = 1.0, **rest: Any) -> TogglingBitmap:
    return TogglingBitmap(epsilon=epsilon, buckets=buckets, levels=levels, **rest)


@pytest.mark.parametrize(("buckets", "levels"), [(1, 1), (2, 1), (1, 2)])
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
def test_claim_is_the_enumerated_joint_loss(buckets: int, levels: int, epsilon: float) -> None:
    algorithm = tiny(buckets, levels, epsilon)
    (user,) = ids_in(algorithm, 0)
    actions = [update([]), update(insert=[user]), update(delete=[user])]
    measured = joint(algorithm, [None, release(), None], actions)
    claim = algorithm.claim()
    assert measured == pytest.approx(claim.epsilon, rel=1e-9)
    assert measured <= claim.epsilon + 1e-12
    assert claim.epsilon == pytest.approx(epsilon, rel=1e-9)
    assert sum(claim.parts.values()) == pytest.approx(epsilon, rel=1e-9)


def test_claim_of_several_releases_and_another_user() -> None:
    algorithm = tiny(releases=2)
    user, other = ids_in(algorithm, 0, 2)
    slots = [update([other]), None, None, release(), release()]
    assert joint(algorithm, slots, [update([]), update([user])]) == pytest.approx(1.0, rel=1e-9)


@pytest.mark.parametrize("sabotage", ["output noise halved", "start wider by 1%", "the mixture's larger kappa"])
def test_sabotage_is_caught(sabotage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last one is what bits that are drawn afresh could afford, and toggled ones cannot."""
    algorithm = tiny()
    law = algorithm.law
    narrow = Coin(int(law.absent.threshold * 0.99))
    larger = kappa_for(1.0, law.epsilon_state)
    broken: dict[str, CoinPair] = {
        "output noise halved": replace(law, noise=DiscreteLaplace.at_most(2 * law.noise.kappa)),
        "start wider by 1%": replace(law, absent=narrow, present=narrow.complement),
        "the mixture's larger kappa": replace(law, noise=DiscreteLaplace.at_most(larger)),
    }
    monkeypatch.setattr(TogglingBitmap, "law", property(lambda self: broken[sabotage]))
    (user,) = ids_in(algorithm, 0)
    assert joint(algorithm, [None, None, release()], [update([]), update([user])]) > 1.0 + 1e-3


def test_toggles_cancel_whatever_the_batch() -> None:
    algorithm = TogglingBitmap(epsilon=math.inf, buckets=64, levels=8)
    parity = np.zeros(algorithm.table.cells, np.uint8)
    texts = [f"user {i}" for i in range(2000)]
    for cell in cells_of(algorithm, texts):
        parity[cell] ^= 1
    for data in (texts, pa.array(texts), pa.array(texts).dictionary_encode()):
        monitor = algorithm.start()
        monitor.update(data)
        assert np.array_equal(monitor.state.bits, pack_bits(parity))
        monitor.update(insert=data[:1000], delete=data[1000:])
        assert not monitor.state.bits.any()


RUNS = 60


def test_those_present_are_counted() -> None:
    """30,000 came, 22,000 left; unbiased, with the standard error it says, twice that of a bitmap."""
    rng = SeededSource(5)
    values = []
    errors = []
    covered = 0
    for key in range(RUNS):
        monitor = Monitor[Any](TogglingBitmap(epsilon=2.0, buckets=1024, levels=16, key=key), rng=rng)
        monitor.update(insert=range(30_000))
        monitor.update(delete=range(22_000))
        estimate = monitor.release()
        values.append(estimate.unbiased)
        errors.append(estimate.standard_error)
        low, high = estimate.interval()
        covered += low <= 8000 <= high
    assert_mean(np.array(values), 8000.0, "present users")
    assert 0.75 < np.std(values) / np.mean(errors) < 1.35
    assert covered > 0.8 * RUNS
    ratio = TogglingBitmap(epsilon=2.0).relative_error(1e7) / Bitmap(epsilon=2.0).relative_error(1e7)
    assert 1.8 < ratio < 2.5


def test_announced_intrusions_are_decoded() -> None:
    """Users who came in one phase and left in the next are gone."""
    algorithm = TogglingBitmap(epsilon=8.0, announced=1, buckets=1024, levels=12)
    rng = SeededSource(9)
    values = []
    errors = []
    for key in range(RUNS):
        monitor = Monitor[Any](replace(algorithm, key=key), rng=rng)
        monitor.update(insert=range(5000))
        monitor.refresh(rows_since_copy=False)
        monitor.update(delete=range(2000))
        estimate = monitor.release()
        values.append(estimate.unbiased)
        errors.append(estimate.standard_error)
    assert_mean(np.array(values), 3000.0, "freeze and start afresh")
    assert 0.7 < np.std(values) / np.mean(errors) < 1.4
    with pytest.raises(NotSupported, match="announced=1"):
        monitor.refresh(rows_since_copy=False)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"ids": [1], "delete": [1]}, "either ids or insert"),
        ({}, "ids are missing"),
        ({"insert": [1], "delete": [None]}, "delete"),
        ({"insert": [1.5]}, "insert"),
    ],
)
def test_bad_batches(bad: dict[str, Any], words: str) -> None:
    keywords = dict(bad)
    ids = (keywords.pop("ids"),) if "ids" in keywords else ()
    with pytest.raises(InvalidBatch, match=words):
        TogglingBitmap(epsilon=1.0).batch(*ids, **keywords)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"epsilon": -1.0}, "epsilon must be positive"),
        ({"epsilon_state": 2.0}, "epsilon_state must be in"),
        ({"announced": -1}, "announced must be in"),
        ({"levels": 0}, "levels must be an integer"),
    ],
)
def test_bad_parameters(bad: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidParameter, match=words):
        TogglingBitmap(**{"epsilon": 1.0, **bad})


def test_it_does_not_merge() -> None:
    with pytest.raises(NotSupported, match="cannot be merged"):
        TogglingBitmap(epsilon=1.0).start().merge(TogglingBitmap(epsilon=1.0).start())
