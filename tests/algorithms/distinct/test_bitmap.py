"""Bitmap end to end: exact loss of the shipped code, all ways of updating, shards, bad input."""

import itertools
import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from panstream import Monitor
from panstream.algorithms.distinct import bitmap_base as cells_module
from panstream.algorithms.distinct.bitmap import Bitmap
from panstream.algorithms.distinct.bitmap_base import SiteBitmap
from panstream.algorithms.distinct.toggling_bitmap import TogglingBitmap
from panstream.algorithms.randomized_bits import BitState, CoinPair
from panstream.errors import BudgetExhausted, InvalidBatch, InvalidParameter, MergeError, NotSupported
from panstream.primitives.noise import Coin, DiscreteLaplace, NoiseSource, SeededSource
from panstream.primitives.packed_bits import get_bit, pack_bits, popcount, unpack_bits
from panstream.privacy.joint_loss import symmetric_loss
from panstream.testing.enumeration import Enumerator, refresh, release, update
from panstream.testing.sources import outcomes
from tests.algorithms.distinct.bitmap_cases import cells_of, ids_in, joint
from tests.statistical import assert_mean, assert_same_law

SHAPES = [(1, 1), (2, 1), (1, 2)]


def tiny(buckets: int = 1, levels: int = 1, epsilon: float = 1.0, **rest: Any) -> Bitmap:
    return Bitmap(epsilon=epsilon, buckets=buckets, levels=levels, **rest)


@pytest.mark.parametrize(("buckets", "levels"), SHAPES)
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 3.0])
def test_claim_is_the_enumerated_joint_loss(buckets: int, levels: int, epsilon: float) -> None:
    """Release in the middle and at the end, a look anywhere, one arrival and two: with one coin a row or one a cell."""
    algorithm = tiny(buckets, levels, epsilon)
    (user,) = ids_in(algorithm, 0)
    nothing = update([])
    once = update([user])
    twice = update([user, user])
    measured = [
        joint(algorithm, [None, release(), None], [nothing, once]),
        joint(algorithm, [None, None, release()], [nothing, twice]),
    ]
    claimed = algorithm.claim().epsilon
    assert max(measured) == pytest.approx(claimed, rel=1e-9)
    assert max(measured) <= claimed + 1e-12  # rounding of coins and noise is on the safe side
    assert claimed == pytest.approx(epsilon, rel=1e-9)


@pytest.mark.parametrize("same_cell", [True, False])
def test_claim_holds_with_another_user_around(same_cell: bool) -> None:
    algorithm = tiny(2, 1)
    user, double = ids_in(algorithm, 0, 2)
    other = double if same_cell else ids_in(algorithm, 1)[0]
    actions = [update([other]), update([user, other]), update([other, user]), update([user])]
    loss = joint(algorithm, [update([other]), None, release(), None], actions[:3])
    assert loss <= 1.0 + 1e-12
    # Which rows are the other's makes no difference to what one user can lose.
    assert joint(algorithm, [None, None, release()], [update([]), update([user])]) == pytest.approx(1.0, rel=1e-9)
    assert joint(algorithm, [update([other]), None, None, release()], [update([]), update([user])]) <= 1.0 + 1e-12


def test_a_user_shields_another_in_the_same_cell_only() -> None:
    """Once another user has come to her cell, nothing that she does shows; in another cell it shows as before."""
    algorithm = tiny(2, 1)
    user, double = ids_in(algorithm, 0, 2)
    (other,) = ids_in(algorithm, 1)
    nothing = update([])
    appear = update([user])
    after_double = joint(algorithm, [update([double]), None, release()], [nothing, appear], looks=[None, 3])
    after_other = joint(algorithm, [update([other]), None, release()], [nothing, appear], looks=[None, 3])
    assert after_double == 0.0
    assert after_other > 0.45


def test_claim_of_several_releases() -> None:
    algorithm = tiny(releases=2)
    (user,) = ids_in(algorithm, 0)
    actions = [update([]), update([user])]
    assert joint(algorithm, [None, None, release(), release()], actions) == pytest.approx(1.0, rel=1e-9)
    assert joint(algorithm, [None, release(), None, release(), None], actions) <= 1.0 + 1e-12


@pytest.mark.parametrize("kind", [Bitmap, TogglingBitmap])
@pytest.mark.parametrize("announced", [1, 2])
def test_claim_of_announced_intrusions(announced: int, kind: type[SiteBitmap]) -> None:
    algorithm = kind(epsilon=1.0, buckets=1, levels=1, announced=announced)
    (user,) = ids_in(algorithm, 0)
    slots: list[Any] = [None, refresh()] * announced + [None, None, release()]
    last_phase = range(2 * announced, len(slots) + 1)
    loss = joint(algorithm, slots, [update([]), update([user])], looks=[None, *last_phase], reach=0)
    assert loss == pytest.approx(1.0, rel=1e-9)


def test_two_looks_have_no_finite_loss() -> None:
    algorithm = tiny()
    (user,) = ids_in(algorithm, 0)
    enumerator = Enumerator(algorithm, window=(0, 0))
    views = []
    for step in (update([user]), update([])):
        start = enumerator.view_law((), 0)
        views.append({(key, after) for (key,) in start for _, after, _ in enumerator.moves(key, step)})
    assert views[0] - views[1]  # a bit that changed proves an arrival


@pytest.mark.parametrize("sabotage", ["output noise halved", "p1 wider by 1%", "start without noise", "reused coin"])
def test_sabotage_is_caught(sabotage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    algorithm = tiny()
    law = algorithm.law
    claimed = algorithm.claim().epsilon
    broken: dict[str, CoinPair] = {
        "output noise halved": replace(law, noise=DiscreteLaplace.at_most(2 * law.noise.kappa)),
        "p1 wider by 1%": replace(law, present=Coin.at_most(Fraction(law.present.probability) * Fraction(101, 100))),
        "start without noise": replace(law, absent=Coin(0)),
        "reused coin": replace(law, present=Coin(1 << 64)),
    }
    monkeypatch.setattr(Bitmap, "law", property(lambda self: broken[sabotage]))
    (user,) = ids_in(algorithm, 0)
    assert joint(algorithm, [None, None, release()], [update([]), update([user])]) > claimed + 1e-3


def test_noise_on_the_total_only_would_not_be_noticed_by_the_total() -> None:
    """Each level has its own noise: publishing a level in the clear has no finite loss."""
    algorithm = tiny(1, 2)
    (user,) = ids_in(algorithm, 1)

    class Clear(Bitmap):
        def release(self, state: Any, source: Any) -> Any:
            estimate = Bitmap.release(self, state, source)
            return replace(estimate, released=(estimate.released[0], get_bit(state.bits, 1)))

    clear = Clear(epsilon=1.0, buckets=1, levels=2)
    slots = [None, None, release()]
    actions = [update([]), update([user])]
    assert joint(clear, slots, actions) == math.inf
    assert joint(algorithm, slots, actions) == pytest.approx(1.0, rel=1e-9)


def test_the_split_can_be_given() -> None:
    algorithm = tiny(epsilon=symmetric_loss(math.log(3), math.log(1.25)), epsilon_state=math.log(3))
    assert algorithm.law.noise.kappa == pytest.approx(math.log(1.25))
    assert float(algorithm.law.present) == pytest.approx(0.75)
    assert algorithm.claim().epsilon == pytest.approx(algorithm.epsilon)


def feed(algorithm: Bitmap, batches: list[Any], seed: int = 1) -> Monitor[Any]:
    monitor = Monitor[Any](algorithm, rng=SeededSource(seed))
    for batch in batches:
        monitor.update(batch)
    return monitor


@pytest.fixture
def large_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take every table for one that no cache holds, and every batch for one that is worth a mark for each cell."""
    monkeypatch.setattr(cells_module, "_MAX_BYTE_MARKS", 0)
    monkeypatch.setattr(cells_module, "_MAX_CELLS_PER_ROW", 1 << 20)


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("rows", [5, 5000])
def test_all_ways_to_update_touch_the_cells_of_the_rows(rows: int, large: bool, request: pytest.FixtureRequest) -> None:
    """5,000 rows are more than there are cells, 5 are fewer; without noise the ones are exactly the cells come to."""
    if large:
        request.getfixturevalue("large_tables")
    algorithm = Bitmap(epsilon=math.inf, buckets=64, levels=8)
    ids = list(range(rows))
    expected = np.zeros(algorithm.table.cells, np.uint8)
    expected[cells_of(algorithm, ids)] = 1
    texts = [f"user {i}" for i in ids]
    coded = pa.array(texts * 2).dictionary_encode()
    for data in (ids, np.array(ids), pa.array(ids).dictionary_encode(), pa.chunked_array([ids[:3], ids[3:]])):
        assert np.array_equal(feed(algorithm, [data]).state.bits, pack_bits(expected))
    as_text = np.zeros(algorithm.table.cells, np.uint8)
    as_text[cells_of(algorithm, texts)] = 1
    unused = pa.DictionaryArray.from_arrays(pa.array(range(rows)), pa.array([*texts, "never", "used"]))
    for data in (texts, pa.array(texts), pa.array(texts, pa.large_string()), coded, unused, np.array(texts)):
        assert np.array_equal(feed(algorithm, [data]).state.bits, pack_bits(as_text))
    assert not np.array_equal(as_text, expected)  # "5" and 5 are different users


def test_chunks_are_joined_without_a_seam(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = feed(Bitmap(epsilon=math.inf), [[f"user {i}" for i in range(1000)], range(1000)]).state.bits
    monkeypatch.setattr(cells_module, "_CHUNK", 7)
    monkeypatch.setattr(cells_module, "_ROWS", 11)
    assert np.array_equal(
        feed(Bitmap(epsilon=math.inf), [[f"user {i}" for i in range(1000)], range(1000)]).state.bits, whole
    )
    small = Bitmap(epsilon=math.inf, buckets=4, levels=3)
    coded = pa.array([str(i % 50) for i in range(1000)]).dictionary_encode()
    assert np.array_equal(feed(small, [coded]).state.bits, feed(small, [[str(i) for i in range(50)]]).state.bits)


@pytest.mark.parametrize("way", ["a coin a row", "packed marks"])
def test_every_way_to_update_has_the_same_exact_law(way: str, request: pytest.FixtureRequest) -> None:
    """Two users come three times in all, to cells that were 0 and 1: every outcome, with its probability."""
    if way == "packed marks":
        request.getfixturevalue("large_tables")
    algorithm = Bitmap(epsilon=1.0, buckets=16, levels=4)
    first, second = sorted(cells_of(algorithm, [1, 2]))
    before = np.zeros(8, np.uint8)
    before[first // 8] |= 1 << first % 8
    assert first != second

    def step(rng: NoiseSource) -> bytes:
        state = BitState(bits=before.copy(), frozen=np.empty((0, 8), np.uint8), released=0)
        algorithm.update(state, algorithm.batch([1, 2, 1]), rng)
        return state.bits.tobytes()

    found: dict[bytes, Fraction] = {}
    for probability, bits in outcomes(step):
        found[bits] = found.get(bits, Fraction(0)) + probability
    p = algorithm.law.present.probability
    expected = {}
    for one, other in itertools.product((0, 1), repeat=2):
        cells = np.zeros(64, np.uint8)
        cells[first] = one
        cells[second] = other
        expected[pack_bits(cells).tobytes()] = (p if one else 1 - p) * (p if other else 1 - p)
    assert found == expected


@pytest.mark.usefixtures("large_tables")
def test_packed_marks_leave_cells_of_other_shards_alone() -> None:
    whole = Bitmap(epsilon=1.0, buckets=64, levels=8, shards=4)
    part = replace(whole, owned=2)
    bits = feed(part, [np.arange(1000)]).state.bits
    assert not (bits & ~part.table.owned_bits()).any() and (bits & part.table.owned_bits()).any()


def test_tables_without_whole_words_are_drawn_row_by_row(large_tables: None) -> None:
    algorithm = Bitmap(epsilon=math.inf, buckets=9, levels=5)
    expected = np.zeros(algorithm.cells, np.uint8)
    expected[cells_of(algorithm, range(50))] = 1
    assert np.array_equal(feed(algorithm, [range(50)]).state.bits, pack_bits(expected))


RUNS = 300


def test_one_coin_a_row_and_one_a_cell_give_the_same_law() -> None:
    """The same users, once in a batch shorter than the table and once repeated until it is longer."""
    algorithm = Bitmap(epsilon=1.0, buckets=16, levels=4)
    users = list(range(40))
    short, long = (
        [popcount(monitor.state.bits) for monitor in (feed(algorithm, [users * times], seed) for seed in range(RUNS))]
        for times in (1, 3)
    )
    assert_same_law(short, long, "ones in the table")
    p1 = float(algorithm.law.present)
    filled = len(set(cells_of(algorithm, users)))
    assert_mean(np.array(long), filled * p1 + (64 - filled) * (1 - p1), "ones in the table")


def test_repeated_arrivals_do_not_count() -> None:
    algorithm = Bitmap(epsilon=math.inf)
    once = feed(algorithm, [range(3000)]).release()
    often = feed(algorithm, [range(3000)] * 3 + [[5] * 200_000]).release()
    assert once.value == often.value
    assert once.value == pytest.approx(3000, rel=0.03)


def test_bytes_are_bits_and_small() -> None:
    data = Bitmap(epsilon=1.0).start().to_bytes()
    assert 4096 * 24 // 8 < len(data) < 4096 * 24 // 8 + 500


def test_announced_intrusions_are_decoded() -> None:
    """Users of both phases, some of them in both, are counted once."""
    algorithm = Bitmap(epsilon=8.0, announced=1, buckets=1024, levels=12)
    rng = SeededSource(8)
    values = []
    errors = []
    for key in range(60):  # the hash is random too
        monitor = Monitor[Any](replace(algorithm, key=key), rng=rng)
        monitor.update(range(3000))
        monitor.refresh(rows_since_copy=False)
        monitor.update(range(2000, 5000))
        estimate = monitor.release()
        assert len(estimate.released) == 2 * 12
        values.append(estimate.unbiased)
        errors.append(estimate.standard_error)
    assert_mean(np.array(values), 5000.0, "freeze and start afresh", sd=np.mean(errors))
    assert np.std(values) < 1.3 * np.mean(errors)
    with pytest.raises(NotSupported, match="announced=1"):
        monitor.refresh(rows_since_copy=False)


def test_shards_merge_to_the_whole_without_loss() -> None:
    """With no noise the union is bit by bit the unsharded state; with noise it is the same algorithm and claim."""
    users = [f"user {i}" for i in range(5000)]
    for epsilon in (math.inf, 1.0):
        whole = Bitmap(epsilon=epsilon, buckets=1000, levels=12, key=7)
        parts = [replace(whole, shards=3, owned=shard) for shard in range(3)]
        homes = parts[0].route(users)
        monitors = [
            feed(part, [[u for u, home in zip(users, homes, strict=True) if home == i]]) for i, part in enumerate(parts)
        ]
        assert monitors[0].claim().intrusions == whole.claim().intrusions
        merged = monitors[2].merge(monitors[0])
        assert merged.algorithm == replace(whole, shards=3, owned=(0, 2))
        merged = merged.merge(monitors[1])
        assert merged.algorithm == whole
        assert merged.algorithm.claim() == whole.claim()
        if math.isinf(epsilon):
            assert np.array_equal(merged.state.bits, feed(whole, [users]).state.bits)
        with pytest.raises(NotSupported, match="consumed"):
            monitors[0].to_bytes()


def test_a_shard_ignores_other_shards_users_and_counts_its_own() -> None:
    users = list(range(20_000))
    shard = Bitmap(epsilon=2.0, shards=4, owned=1)
    mine = int((shard.route(users) == 1).sum())
    monitor = feed(shard, [users])
    outside = unpack_bits(monitor.state.bits, 24 * 4096).reshape(24, 4096)[:, np.arange(4096) % 4 != 1]
    assert not outside.any()
    estimate = monitor.release()
    assert abs(estimate.unbiased - mine) < 6 * estimate.standard_error
    assert abs(mine - 5000) < 400


def test_shards_with_announced_intrusions() -> None:
    whole = Bitmap(epsilon=math.inf, announced=1, buckets=64, levels=8)
    monitors = [feed(replace(whole, shards=2, owned=i), [range(100)]) for i in range(2)]
    with pytest.raises(MergeError, match="same announced intrusions"):
        monitors[0].refresh(rows_since_copy=False)
        monitors[0].merge(monitors[1])
    monitors[1].refresh(rows_since_copy=False)
    merged = monitors[0].merge(monitors[1])
    assert merged.release().value == pytest.approx(100, rel=0.1)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"key": 8}, "same key"),
        ({"buckets": 128}, "same buckets"),
        ({"levels": 9}, "same levels"),
        ({"releases": 2}, "same releases"),
        ({"shards": 2, "owned": 1}, "same shards"),
    ],
)
def test_unlike_bitmaps_are_not_merged(other: dict[str, Any], words: str) -> None:
    algorithm = Bitmap(epsilon=1.0, buckets=64, levels=8)
    first = algorithm.start()
    second = replace(algorithm, **other).start()
    before = first.state.bits.copy()
    with pytest.raises(MergeError, match=words):
        first.merge(second)
    assert np.array_equal(first.state.bits, before)
    with pytest.raises(MergeError, match="itself"):
        first.merge(first)


def test_shards_that_overlap_or_differ_are_not_merged() -> None:
    shard = Bitmap(epsilon=1.0, shards=4, owned=(0, 1))
    with pytest.raises(MergeError, match="own the same shards"):
        shard.start().merge(replace(shard, owned=(1, 2)).start())
    with pytest.raises(MergeError, match="same parameters"):
        shard.start().merge(replace(shard, owned=2, epsilon=2.0).start())


def test_releases_of_shards_are_not_forgotten() -> None:
    first, second = (Bitmap(epsilon=1.0, buckets=64, shards=2, owned=i).start() for i in range(2))
    first.release()
    with pytest.raises(BudgetExhausted):
        first.merge(second).release()


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"epsilon": 0.0}, "epsilon must be positive, got epsilon=0.0"),
        ({"epsilon": math.nan}, "epsilon must be positive"),
        ({"epsilon_state": 1.0}, r"epsilon_state must be in \(0, 1.0\), got epsilon_state=1.0"),
        ({"epsilon_state": 0.5, "announced": 1}, r"epsilon_state must be in \(0, 0.5\), got epsilon_state=0.5"),
        ({"buckets": 0}, "buckets must be an integer in"),
        ({"buckets": 2.0}, "buckets must be an integer in"),
        ({"levels": 34}, "levels must be an integer in 1..33, got levels=34"),
        ({"buckets": 1 << 28}, "below 2\\*\\*31"),
        ({"expected": 0}, "expected must be a positive number of users, got expected=0"),
        ({"releases": 0}, "releases must be at least 1"),
        ({"announced": 9}, "announced must be in 0..7"),
        ({"key": -1}, "key must be"),
        ({"shards": 0}, "shards must be an integer in"),
        ({"shards": 2, "owned": 2}, "owned must name different shards in 0..1"),
        ({"shards": 2, "owned": (1, 0)}, "owned must name different shards"),
        ({"shards": 2, "owned": ()}, "owned must name different shards"),
    ],
)
def test_bad_parameters(bad: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidParameter, match=words):
        Bitmap(**{"epsilon": 1.0, **bad})


def test_bad_batches_change_nothing() -> None:
    monitor = Bitmap(epsilon=1.0).start()
    before = monitor.state.bits.copy()
    for bad in (["a", None], [1.5], "ab", [1, "a"], {"a": 1}):
        with pytest.raises(InvalidBatch):
            monitor.update(bad)
    assert np.array_equal(monitor.state.bits, before)


def test_error_needs_a_number_of_users() -> None:
    algorithm = Bitmap(epsilon=1.0)
    with pytest.raises(InvalidParameter, match="give expected="):
        algorithm.error_bound(beta=0.05)
    with pytest.raises(InvalidParameter, match="beta must be in"):
        algorithm.error_bound(beta=1.0, users=10)
    assert algorithm.error_bound(beta=0.05, users=10_000) < algorithm.error_bound(beta=0.01, users=10_000)
    assert replace(algorithm, expected=10_000).error_bound(beta=0.05) == algorithm.error_bound(beta=0.05, users=10_000)


def test_expected_matters_with_announced_intrusions() -> None:
    plain = Bitmap(epsilon=4.0, announced=1)
    tuned = replace(plain, expected=100)
    assert tuned.relative_error(100) < plain.relative_error(100)
    assert tuned.relative_error(1e7) > plain.relative_error(1e7)


@pytest.mark.parametrize("announced", [0, 1, 3])
def test_what_announced_looks_cost_is_taken_from_the_output(announced: int) -> None:
    """With a share given for the state: every announced look takes it once more, and the total stays what was paid."""
    algorithm = Bitmap(epsilon=2.0, epsilon_state=0.4, announced=announced)
    assert algorithm.claim().epsilon == pytest.approx(2.0)
    last = symmetric_loss(0.4, float(algorithm.law.noise.kappa))
    assert announced * 0.4 + last == pytest.approx(2.0, rel=1e-9)


@pytest.mark.parametrize("kind", [Bitmap, TogglingBitmap])
@pytest.mark.parametrize("announced", [0, 1, 3])
def test_every_phase_must_be_paid_and_the_release_too(announced: int, kind: type[SiteBitmap]) -> None:
    """One copy in each of ``announced`` + 1 phases costs epsilon_state, and something must be left for the release."""
    top = 2.0 / (announced + 1)
    for wrong in (-0.1, 0.0, top, math.nextafter(top, 3.0)):
        with pytest.raises(InvalidParameter, match=f"epsilon_state must be in \\(0, {top}\\), got"):
            kind(epsilon=2.0, epsilon_state=wrong, announced=announced)
    claim = kind(epsilon=2.0, epsilon_state=0.9 * top, announced=announced).claim()
    assert claim.epsilon == pytest.approx(2.0)
    assert claim.parts["state"] + claim.parts["output"] == pytest.approx(2.0)
    assert claim.note == ""


def test_a_bitmap_without_noise_says_so() -> None:
    assert tiny(epsilon=math.inf).claim().note == "no noise: for tests only"
