"""A state is released as often as was paid for, from any copy of its bytes."""

import copy
import pickle
import re
import threading
from pathlib import Path
from typing import Any

import pytest

from panstream import ContinualCount, DistinctCount, Monitor
from panstream.algorithms.density import OptBern
from panstream.algorithms.distinct import Bitmap
from panstream.core import replay_guard as copies
from panstream.engine.config.config import read_config
from panstream.engine.runtime.engine import Engine
from panstream.errors import BudgetExhausted, InvalidBatch, MergeError, NotSupported
from panstream.primitives.noise import SeededSource

ROOT = Path(__file__).parents[2]


def monitor(**settings: Any) -> Monitor[Any]:
    started = OptBern(universe=100, epsilon=1.0, **settings).start()
    started.update(range(30))
    return started


def test_a_copy_draws_no_second_release() -> None:
    """Written, released, and restored from what was written before: that was fresh noise for nothing."""
    original = monitor()
    data = original.to_bytes()
    original.release()
    for _ in range(3):
        with pytest.raises(BudgetExhausted, match="another copy of this state was released"):
            Monitor.from_bytes(data).release()


def test_whichever_copy_comes_first_has_the_release() -> None:
    original = monitor(releases=2)
    restored = Monitor.from_bytes(original.to_bytes())
    restored.release()
    with pytest.raises(BudgetExhausted, match="another copy"):
        original.release()
    again = Monitor.from_bytes(restored.to_bytes())  # the newest copy goes on
    again.release()
    with pytest.raises(BudgetExhausted, match="another copy"):
        restored.release()
    with pytest.raises(BudgetExhausted, match="no paid release is left"):
        again.release()


@pytest.mark.parametrize("make", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_monitor_cannot_be_copied(make: Any) -> None:
    with pytest.raises(NotSupported, match="cannot be copied or pickled"):
        make(monitor())


def test_rows_and_refreshes_make_no_other_state_of_it() -> None:
    original = monitor(announced=1)
    data = original.to_bytes()
    original.refresh(rows_since_copy=False)
    original.update([40])
    original.release()
    behind = Monitor.from_bytes(data)
    behind.update([50])
    behind.refresh(rows_since_copy=False)
    with pytest.raises(BudgetExhausted, match="another copy"):
        behind.release()


def test_every_tick_counts() -> None:
    original = ContinualCount(epsilon=1.0, horizon=10).start()
    original.update([1])
    first = original.to_bytes()
    original.tick()
    second = original.to_bytes()
    original.tick_many([1, 0, 1])
    for stale in (first, second):
        with pytest.raises(BudgetExhausted, match="another copy"):
            Monitor[Any].from_bytes(stale).tick()
        with pytest.raises(BudgetExhausted, match="another copy"):
            Monitor[Any].from_bytes(stale).tick_many([1])
    Monitor[Any].from_bytes(original.to_bytes()).tick()


def test_a_refused_call_spends_nothing() -> None:
    original = monitor()
    with pytest.raises(NotSupported):
        original.tick()
    data = original.to_bytes()
    counter = ContinualCount(epsilon=1.0, horizon=2).start()
    with pytest.raises(InvalidBatch):
        counter.tick_many(["x"])
    counter.tick_many([1, 1])
    Monitor.from_bytes(data).release()


def test_an_interrupted_release_is_spent_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    original = monitor(releases=2)
    data = original.to_bytes()

    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(OptBern, "release", interrupted)
        with pytest.raises(KeyboardInterrupt):
            original.release()
    with pytest.raises(BudgetExhausted, match="another copy"):
        Monitor.from_bytes(data).release()
    original.release()


def test_merged_states_live_on_in_one() -> None:
    london, paris = (Bitmap(epsilon=2.0, buckets=64, levels=4).start() for _ in range(2))
    data = london.to_bytes(), paris.to_bytes()
    london.merge(paris).release()
    for copied in data:
        with pytest.raises(BudgetExhausted, match="or merged since"):
            Monitor[Any].from_bytes(copied).release()
    with pytest.raises(BudgetExhausted, match="or merged since"):
        Monitor[Any].from_bytes(data[0]).merge(Bitmap(epsilon=2.0, buckets=64, levels=4).start())
    other = Bitmap(epsilon=2.0, buckets=32, levels=4).start()
    with pytest.raises(MergeError):
        other.merge(Bitmap(epsilon=2.0, buckets=64, levels=4).start())
    other.release()  # nothing was merged


def test_ids_are_fresh_whatever_the_source() -> None:
    ids = {Monitor(OptBern(universe=9, epsilon=1.0), rng=SeededSource(1))._id for _ in range(50)}
    assert len(ids) == 50
    assert {len(state_id) for state_id in ids} == {copies.ID_BYTES}


def test_test_sources_promise_nothing_and_share_nothing() -> None:
    data = monitor().to_bytes()
    answers = [Monitor.from_bytes(data, rng=SeededSource(seed)).release() for seed in (1, 1)]
    assert answers[0].value == answers[1].value
    assert not answers[0].claim.is_private


def test_what_is_remembered_has_a_public_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "MAX_REMEMBERED", 8)
    for number in range(50):
        copies.record_publication(number.to_bytes(16, "big"), 0)
    assert len(copies._published) == 8
    with pytest.raises(BudgetExhausted):
        copies.record_publication((49).to_bytes(16, "big"), 0)


def test_two_threads_with_a_copy_each_get_one_release() -> None:
    data = monitor().to_bytes()
    restored = [Monitor.from_bytes(data) for _ in range(8)]
    answers: list[Any] = []
    barrier = threading.Barrier(len(restored))

    def draw(mine: Monitor[Any]) -> None:
        barrier.wait()
        try:
            answers.append(mine.release())
        except BudgetExhausted:
            answers.append(None)

    threads = [threading.Thread(target=draw, args=(copied,)) for copied in restored]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 8
    assert sum(answer is not None for answer in answers) == 1


def test_a_store_goes_on_with_its_states_and_refuses_another_answer(tmp_path: Path) -> None:
    config = read_config(
        {
            "stream": {"name": "s", "columns": {"user": "int"}, "user": "user"},
            "query": [
                {"name": "q", "sql": "SELECT DENSITY(user) FROM s", "epsilon": 1.0, "universe": 9, "releases": 2}
            ],
            "store": {"directory": str(tmp_path / "store")},
        }
    )
    ids = []
    for _ in range(2):
        with Engine(config) as engine:
            (held,) = engine._queries["q"].monitors.values()
            ids.append(held._id)  # type: ignore[attr-defined]
            engine.release("q")
    assert ids[0] == ids[1]
    with Engine(config) as engine, pytest.raises(BudgetExhausted):
        engine.release("q")


def test_the_readme_says_how_many_bytes_there_are_to_steal() -> None:
    match = re.search(r"all there is to steal: ([\d,]+) bytes", (ROOT / "README.md").read_text())
    assert match is not None
    assert int(match[1].replace(",", "")) == len(DistinctCount(1.0, expected=20_000).start().to_bytes())
