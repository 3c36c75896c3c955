"""FrequentItems finds names with their counts, its intervals hold, and nothing of a batch stays behind."""

import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from panstream import TopItems
from panstream.algorithms.heavy_hitters.estimates import ItemEstimates
from panstream.algorithms.heavy_hitters.point_counts import PointCounts
from panstream.algorithms.heavy_hitters.prefix_sketch import FrequentItems
from panstream.core.monitor import Monitor
from panstream.errors import BudgetExhausted, InvalidParameter, MergeError
from panstream.primitives.noise import SeededSource
from tests.statistical import ALPHA, assert_rate

EXACT = FrequentItems(epsilon=math.inf, max_item_bytes=16, width=4096, row_width=1 << 13)
NOISY = FrequentItems(epsilon=1.0, delta=1e-6, max_item_bytes=12, width=4096, row_width=1 << 13)


def listed(answer: ItemEstimates) -> dict[str, float]:
    return {item.name: round(item.count) for item in answer.items}


def released(algorithm: FrequentItems, *batches: object) -> ItemEstimates:
    monitor = Monitor(algorithm, rng=SeededSource(1))
    for batch in batches:
        monitor.update(batch)
    answer = monitor.release()
    assert isinstance(answer, ItemEstimates)
    return answer


def test_without_noise_every_name_is_found_with_its_count() -> None:
    rng = np.random.default_rng(1)
    names = [f"/{'abcdefgh'[i % 8]}/{i * 7919}" for i in range(200)]
    counts = rng.integers(1, 50, 200)
    rows = np.repeat(np.array(names, object), counts)
    rng.shuffle(rows)
    answer = released(EXACT, rows[:1000].tolist(), rows[1000:].tolist())
    assert listed(answer) == dict(zip(names, counts.tolist(), strict=True))
    assert answer.value == counts.sum()
    assert answer.count("/never").value == 0


@pytest.mark.parametrize("step", [4, 8])
def test_every_form_of_a_column_moves_the_same_cells(step: int) -> None:
    algorithm = replace(EXACT, step=step)
    names = ["north", "süd", "north", "", "a name of more than sixteen bytes", "東西南北東西"] * 3
    column = pa.array(names)
    forms = [names, column, column.dictionary_encode(), pa.chunked_array([column[:5], column[5:]])]
    forms += [[name.encode() for name in names]]
    with SeededSource(1) as rng:
        tables = []
        for form in forms:
            state = algorithm.initial_state(rng)
            algorithm.update(state, algorithm.batch(form), rng)
            tables.append((state.levels.tobytes(), state.rows.tobytes()))
    assert len(set(tables)) == 1


def test_one_by_one_is_the_same_as_together() -> None:
    names = [f"n{i % 37}" for i in range(300)]
    with SeededSource(1) as rng:
        whole = EXACT.initial_state(rng)
        single = EXACT.initial_state(rng)
        EXACT.update(whole, EXACT.batch(names), rng)
        for name in names:
            EXACT.update(single, EXACT.batch([name]), rng)
    assert np.array_equal(whole.levels, single.levels) and np.array_equal(whole.rows, single.rows)


def test_an_event_moves_one_cell_on_every_level_and_row_by_one() -> None:
    with SeededSource(1) as rng:
        for name in ("a", "sixteen bytes ..", "longer than sixteen bytes", "ÿþ", ""):
            state = EXACT.initial_state(rng)
            EXACT.update(state, EXACT.batch([name]), rng)
            moved = np.abs(state.levels).sum(1)
            assert set(moved[: 2 * min(len(name.encode()), 13)]) <= {1} and moved.max(initial=0) <= 1
            assert np.abs(state.rows).sum(1).tolist() == [1] * EXACT.rows


def test_long_names_are_cut_at_a_character_and_say_so() -> None:
    long = "fifteen bytes..é and more"
    other = "sixteen bytes ... and more"
    answer = released(EXACT, [long] * 20 + [other] * 30 + ["fifteen bytes.."] * 10)
    assert listed(answer) == {"fifteen bytes..…": 20, "sixteen bytes ..…": 30, "fifteen bytes..": 10}
    assert answer.count(long).value == 20


def test_integers_are_spelled_in_decimal() -> None:
    values = [0, -7, 12345, -(1 << 63), (1 << 63) - 1]
    answer = released(replace(EXACT, max_item_bytes=20), np.repeat(np.array(values), [3, 4, 5, 6, 7]))
    assert listed(answer) == {str(value): count for value, count in zip(values, [3, 4, 5, 6, 7], strict=True)}
    assert answer.count(-7).value == 4


def test_a_flood_of_names_in_one_slot_is_still_counted() -> None:
    from panstream.primitives.kernels.algorithms.name_counts import count_names

    names = [b"same", b"other", b"same"]
    offsets = np.array([0, 4, 9, 13])
    data = np.frombuffer(b"".join(names), np.uint8)
    hashes = np.empty(3, np.uint64)
    firsts = np.empty(3, np.int32)
    counts = np.empty(3, np.int32)
    slots = np.full(2, -1, np.int32)
    found = count_names(offsets, data, slots, hashes, firsts, counts)
    assert sorted(zip(firsts[:found].tolist(), counts[:found].tolist(), strict=True)) == [(0, 2), (1, 1)]


@pytest.mark.slow
def test_names_are_found_under_noise_and_intervals_hold_together() -> None:
    counts = {f"page {i}": 2000 // (i + 1) for i in range(30)}
    rows = [name for name, count in counts.items() for _ in range(count)]
    runs = 40
    joint = 0
    wrong = 0
    missed = 0
    for run in range(runs):
        monitor = Monitor(replace(NOISY, key=run), rng=SeededSource(run))
        monitor.update(rows)
        answer = monitor.release()
        assert isinstance(answer, ItemEstimates)
        joint += all(item.interval[0] <= counts.get(item.name, 0) <= item.interval[1] for item in answer.items)
        wrong += sum(item.name not in counts for item in answer.items)
        names = {item.name for item in answer.items}
        missed += sum(count >= answer.listing_threshold and name not in names for name, count in counts.items())
    heavy = sum(count >= NOISY.listing_threshold for count in counts.values())
    from scipy import stats

    assert stats.binom.cdf(joint, runs, 0.93) > ALPHA, f"{joint} of {runs} lists held together"
    assert stats.poisson.sf(wrong - 1, 0.1 * runs) > ALPHA, f"{wrong} wrong names in {runs} runs"
    assert stats.binom.sf(missed - 1, heavy * runs, 0.05) > ALPHA, f"{missed} of {heavy * runs} missed"


def test_point_queries_cover_one_by_one() -> None:
    counts = {f"page {i}": 3 * i for i in range(400)}
    answer = released(NOISY, [name for name, count in counts.items() for _ in range(count)])
    inside = 0
    for name, count in counts.items():
        low, high = answer.count(name).interval(0.9)
        inside += low <= count <= high
    assert_rate(inside, 400, 0.91, "point queries at 90%")
    again = PointCounts.from_bytes(answer.points.to_bytes())
    assert again.count("page 7", answer.claim) == answer.count("page 7")


def test_top_at_least_and_sure_ranks() -> None:
    answer = released(NOISY, ["a"] * 5000 + ["b"] * 3000 + ["c"] * 2950 + ["d"] * 600)
    assert [item.name for item in answer.top(1)] == ["a"]
    assert {item.name for item in answer.at_least(1000)} == {"a", "b", "c"}
    assert answer.certain_ranks(1) == 1 and answer.certain_ranks(2) == 1 and answer.certain_ranks(99) == 4
    assert [item["name"] for item in answer.to_json()["items"]] == [item.name for item in answer.items]
    assert "listed with probability 95%" in str(answer)


def test_a_release_starts_again() -> None:
    monitor = Monitor(replace(EXACT, releases=2), rng=SeededSource(1))
    monitor.update(["a"] * 5)
    assert listed(monitor.release()) == {"a": 5}  # type: ignore[arg-type]
    monitor.update(["b"] * 3)
    assert listed(monitor.release()) == {"b": 3}  # type: ignore[arg-type]
    with pytest.raises(BudgetExhausted):
        monitor.release()


def test_sites_merge_and_refreshes_are_known() -> None:
    sites = [Monitor(NOISY, rng=SeededSource(i)) for i in range(2)]
    for site in sites:
        site.update(["both"] * 2000)
    sites[0].refresh()
    merged = sites[0].merge(sites[1])
    assert merged.state.draws == 3
    answer = merged.release()
    assert isinstance(answer, ItemEstimates)
    assert [item.name for item in answer.items] == ["both"]
    assert abs(answer.items[0].count - 4000) < 8 * answer.items[0].standard_error
    assert answer.listing_threshold == pytest.approx(NOISY.listing_threshold * math.sqrt(2))
    with pytest.raises(MergeError):
        NOISY.start().merge(replace(NOISY, key=1).start())


@pytest.mark.parametrize(
    "bad",
    [{"step": 3}, {"width": 100}, {"width": 8}, {"row_width": 3}, {"max_item_bytes": 0}, {"delta": 1.0},
     {"delta": 1e-13}, {"epsilon": 0.0}, {"contributions": 0}, {"releases": 0}, {"key": -1}],
)  # fmt: skip
def test_parameters_are_checked(bad: dict[str, float]) -> None:
    with pytest.raises(InvalidParameter, match=next(iter(bad))):
        replace(NOISY, **bad)  # type: ignore[arg-type]


def test_the_front_door_sizes_and_explains() -> None:
    question = TopItems(1.0, delta=1e-6)
    assert question.algorithm == FrequentItems(epsilon=1.0, delta=1e-6, width=1 << 16, repeats=4)
    assert f"at least {question.listing_threshold:.1f} events" in question.explain()
    assert "166 events for up to 32 bytes, 117 events for up to 16 bytes" in question.explain()
    assert TopItems(1.0).algorithm.step == 8
    small = TopItems(1.0, delta=1e-6, memory=4 << 20)
    assert small.listing_threshold > question.listing_threshold and "With more memory" in small.explain()
    busy = Monitor(small.algorithm, rng=SeededSource(1))
    busy.update([f"{i % 5000}" for i in range(1_000_000)])
    assert busy.release().listing_threshold == small.listing_threshold  # type: ignore[attr-defined]
    with pytest.raises(InvalidParameter, match="memory must be at least"):
        TopItems(1.0, memory=1000)
    with pytest.raises(InvalidParameter, match="expected"):
        TopItems(1.0, expected=0.0)


@settings(max_examples=60, deadline=None)
@given(
    names=st.lists(st.binary(max_size=20), min_size=1, max_size=40),
    max_item_bytes=st.integers(1, 12),
    step=st.sampled_from([4, 8]),
    width=st.sampled_from([256, 4096]),
)
def test_any_bytes_move_the_cells_of_their_prefixes(
    names: list[bytes], max_item_bytes: int, step: int, width: int
) -> None:
    """The sum over single names, each of which moves a cell by one on every level that it reaches, and in every row."""
    algorithm = FrequentItems(epsilon=math.inf, max_item_bytes=max_item_bytes, step=step, width=width, row_width=64)
    with SeededSource(1) as rng:
        whole = algorithm.initial_state(rng)
        algorithm.update(whole, algorithm.batch(names + names[:3]), rng)
        levels = np.zeros_like(whole.levels)
        rows = np.zeros_like(whole.rows)
        for name in names + names[:3]:
            one = algorithm.initial_state(rng)
            algorithm.update(one, algorithm.batch([name]), rng)
            kept = len(name) if len(name) <= max_item_bytes else int((np.abs(one.levels).sum(1) > 0).sum()) * step // 8
            assert max_item_bytes - 3 <= kept or kept == len(name)
            assert np.abs(one.levels).sum(1).tolist() == [1] * (kept * 8 // step) + [0] * (
                (max_item_bytes - kept) * 8 // step
            )
            assert np.abs(one.rows).sum(1).tolist() == [1] * algorithm.rows
            levels += one.levels
            rows += one.rows
    assert np.array_equal(levels, whole.levels) and np.array_equal(rows, whole.rows)
