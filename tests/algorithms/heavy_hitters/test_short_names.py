"""Short names have each symbol on several levels: they move no more cells than the longest, and need fewer events."""

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from panstream.algorithms.heavy_hitters.point_counts import PointCounts
from panstream.algorithms.heavy_hitters.prefix_sketch import FrequentItems
from panstream.algorithms.heavy_hitters.released_tables import ReleasedTables
from panstream.algorithms.heavy_hitters.short_names import short_names_text, threshold_of
from panstream.core.monitor import Monitor
from panstream.errors import InvalidParameter, MergeError
from panstream.primitives.noise import SeededSource
from tests.statistical import assert_rate

EXACT = FrequentItems(epsilon=math.inf, max_item_bytes=16, width=4096, row_width=1 << 13)
NOISY = FrequentItems(epsilon=1.0, delta=1e-6, max_item_bytes=32, repeats=4)


@pytest.mark.parametrize("step", [4, 8])
@pytest.mark.parametrize("repeats", [2, 4])
def test_names_of_every_length_are_found_with_their_counts(step: int, repeats: int) -> None:
    """Also names that look like others with every symbol repeated, the empty name, and truncated ones."""
    names = ["", "a", "ab", "aabb", "aaaabbbb", "/\x00", "f" * 16, "g" * 40, *("x" * size for size in range(2, 16))]
    counts = Counter({name: 40 + 3 * number for number, name in enumerate(names)})
    monitor = Monitor(replace(EXACT, step=step, repeats=repeats), rng=SeededSource(1))
    monitor.update([name for name, count in counts.items() for _ in range(count)])
    answer = monitor.release()
    shown = {name if len(name) <= 16 else name[:16] + "…": count for name, count in counts.items()}
    assert {item.name: round(item.count) for item in answer.items} == shown  # type: ignore[attr-defined]
    points = PointCounts.from_bytes(answer.points.to_bytes())  # type: ignore[attr-defined]
    assert [round(points.count(name, answer.claim).value) for name in names] == list(counts.values())


@pytest.mark.parametrize("step", [4, 8])
@pytest.mark.parametrize("repeats", [1, 2, 4])
def test_an_event_moves_no_more_cells_than_the_longest_name(step: int, repeats: int) -> None:
    """One cell of a level at most, by one; a name that fits often enough has all levels, and each symbol equally many.
    Noise is calibrated to exactly that.
    """
    algorithm = replace(EXACT, step=step, repeats=repeats)
    for size in range(18):
        monitor = Monitor(algorithm, rng=SeededSource(1))
        monitor.update(["abcdefghijklmnopqr"[:size]])
        moved = np.abs(monitor.state.levels.astype(np.int64))
        fits = max(times for times in (1, 2, 4) if times <= repeats and (times == 1 or times * size <= 16))
        assert moved.sum(1).tolist() == [1] * (min(size, 16) * fits * 8 // step) + [0] * (
            algorithm.levels - min(size, 16) * fits * 8 // step
        )
        assert moved.max(initial=0) <= 1
        assert np.abs(monitor.state.rows).sum(1).tolist() == [1] * algorithm.rows
    noisy = replace(algorithm, epsilon=1.0)
    level, row = noisy.laws
    assert level.kappa * noisy.levels + row.kappa * noisy.rows == pytest.approx(1.0)


@pytest.mark.slow
def test_short_names_are_listed_from_fewer_events_on() -> None:
    """40 names of 8 bytes, each with the events from which a quarter of the length is listed with 95%, in the midst of
    heavy ones; without repeats they would need twice as many. False alarm with probability ALPHA.
    """
    events = math.ceil(threshold_of(NOISY, 8))
    assert events < 0.72 * NOISY.listing_threshold
    rng = np.random.default_rng(5)
    listed = total = 0
    for run in range(5):
        names = ["".join(rng.choice(list("abcdefghij0123456789/"), 8)) for _ in range(40)]
        heavy = [f"/a/long/page/with/number/{number}" for number in range(100)]
        monitor = Monitor(replace(NOISY, key=run), rng=SeededSource(run))
        monitor.update([name for name in names for _ in range(events)] + heavy * 300)
        found = {item.name for item in monitor.release().items}  # type: ignore[attr-defined]
        assert set(heavy) <= found
        listed += len(found & set(names))
        total += len(names)
    assert_rate(min(listed, round(0.95 * total)), total, 0.95, "listed")


def test_thresholds_texts_and_refusals() -> None:
    assert threshold_of(NOISY, 32) == NOISY.listing_threshold
    assert threshold_of(NOISY, 16) == pytest.approx(NOISY.listing_threshold / math.sqrt(2))
    assert short_names_text(replace(NOISY, repeats=1)) is None
    assert "up to 16 bytes" in (short_names_text(NOISY) or "")
    with pytest.raises(InvalidParameter, match="repeats"):
        replace(NOISY, repeats=3)
    released = [
        Monitor(replace(EXACT, repeats=repeats), rng=SeededSource(1)).release().held.tables  # type: ignore[attr-defined]
        for repeats in (1, 4)
    ]
    assert ReleasedTables.from_bytes(released[1].to_bytes()).repeats == 4
    with pytest.raises(MergeError):
        ReleasedTables.added(released)
