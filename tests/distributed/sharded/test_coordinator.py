"""A cluster's engine answers as one machine does, whatever the queries; shards may be ahead of it after a crash."""

import math
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from panstream.distributed.sharded._coordinator import ClusterEngine
from panstream.distributed.sharded._resharding import read_shard_count
from panstream.distributed.sharded._transport import InProcessShardTransport, ShardCall
from panstream.engine.rows.row_batch import QuerySelection, RowBatch
from panstream.engine.runtime.engine import Engine
from panstream.engine.runtime.intrusions import CopyTime
from panstream.errors import BadRowError, BudgetExhausted, NotSupported, StoreError, StoreLocked
from tests.engine.runtime.streams import config, question
from tests.zero_noise import ZeroNoiseSource

HOUR = 3600.0
USERS = 500
QUERIES: dict[str, dict[str, Any]] = {
    "bits": question("bits", "SELECT COUNT(DISTINCT user) FROM s", universe=USERS),
    "sampled": question("sampled", "SELECT DENSITY(user) FROM s", universe=USERS),
    "bitmap": question("bitmap", "SELECT COUNT(DISTINCT user) FROM s", expected=1000, memory=2500, releases=3),
    "grouped": question(
        "grouped",
        "SELECT region, COUNT(DISTINCT user) FROM s GROUP BY region",
        universe=USERS,
        groups={"region": ["a", "b"]},
    ),
    "cropped": question("cropped", "SELECT CROPPED_SUM(user, w, 3) FROM s", universe=USERS),
    "heavy": question("heavy", "SELECT HEAVY_HITTERS(user, w, 3) FROM s", universe=USERS),
    "count": question("count", "SELECT COUNT(*) FROM s"),
    "mean": question("mean", "SELECT AVG(value) FROM s", lower=0, upper=8),
    "hourly": question("hourly", "SELECT COUNT(DISTINCT user) FROM s", universe=USERS, window="1 hour"),
    "daily": question("daily", "SELECT COUNT(*) FROM s", window="day"),  # New York's begins at 5:00 UTC
    "running": question("running", "SELECT COUNT(*) FROM s", every="1 hour", horizon=100),
    "names": question("names", "SELECT region, COUNT(*) FROM s GROUP BY region", max_item_bytes=2, memory=300_000),
    "often": question("often", "SELECT COUNT(DISTINCT user) FROM s", universe=USERS, every="2 hours", horizon=20),
}


def batches(names: list[str], producer: str | None = "p", size: int = 200) -> list[RowBatch]:
    """Return micro-batches over five hours in which slots end, with some rows late and out of order."""
    draw = np.random.default_rng(3)
    found = []
    for number in range(6):
        ids = draw.integers(0, USERS, size)
        times = np.sort(draw.uniform(number * 0.8, number * 0.8 + 1.6, size)) * HOUR
        times[::17] -= 0.3 * HOUR
        first = number * size
        chosen = {
            name: QuerySelection.select_all(
                size,
                values=draw.uniform(0, 8, size) if name == "mean" else None,
                weights=np.ones(size, np.int64) if name in ("cropped", "heavy") else None,
                groups=draw.integers(0, 2, size) if name == "grouped" else None,
                names=pa.array(draw.integers(0, 9, size)) if name == "names" else None,
            )
            for name in names
        }
        numbers = np.arange(first + 1, first + size + 1)
        found.append(
            RowBatch(
                count=size,
                queries=chosen,
                ids=ids,
                times=times,
                producer=producer,
                sequence=first + size,
                first_row=int(numbers[0]),
            )
        )
    return found


def answers(engine: Engine) -> dict[tuple[str, int], Any]:
    return {
        (r.query, r.number): (r.record["value"], r.record.get("items"), r.record.get("window"))
        for r in engine.log.history()
    }


def settings(*names: str, directory: Path | None = None, **more: Any) -> Any:
    queries = [QUERIES[name] for name in names]
    zone = "America/New_York"
    return config(*queries, directory=directory, time="at", lateness="10 minutes", time_zone=zone, **more)


@pytest.mark.slow
@pytest.mark.parametrize("shards", [1, 3])
def test_answers_without_noise_are_those_of_one_machine(shards: int, tmp_path: Path) -> None:
    names = list(QUERIES)
    found = []
    for kind in ("one", "many"):
        stream = settings(*names, directory=tmp_path / kind)
        if kind == "one":
            engine = Engine(stream, zero_noise=True)
        else:
            engine = ClusterEngine(stream, InProcessShardTransport(shards), zero_noise=True, positions=True)
        with engine:
            for rows in batches(names):
                assert engine.apply(rows).new
                assert not engine.apply(rows).new
            engine.finish()
            found.append(answers(engine))
    assert found[0] == found[1]
    assert len(found[0]) > 20


def interrupted(link: InProcessShardTransport, after: int) -> None:
    """Let the coordinator die after so many messages that reached only the first shard."""
    real = link.send
    left = [after]

    def send(calls: Any) -> list[Any]:
        if calls[0].method == "apply":
            left[0] -= 1
            if left[0] < 0:
                real(calls[:1])
                raise KeyboardInterrupt
        return real(calls)

    link.send = send  # type: ignore[method-assign]


@pytest.mark.slow
@pytest.mark.parametrize("size", [150, 1200])
@pytest.mark.parametrize("after", [1, 5, 9, 12])
def test_a_coordinator_that_died_goes_on_whatever_the_borders_of_batches(size: int, after: int, tmp_path: Path) -> None:
    names = ["cropped", "hourly", "running", "often", "count"]
    with Engine(settings(*names), zero_noise=True) as engine:
        for rows in batches(names):
            engine.apply(rows)
        engine.finish()
        expected = answers(engine)
    link = InProcessShardTransport(3)
    engine = ClusterEngine(settings(*names, directory=tmp_path), link, zero_noise=True, positions=True)
    interrupted(link, after)
    with pytest.raises(KeyboardInterrupt):
        for rows in batches(names):
            engine.apply(rows)
    engine.close()
    with ClusterEngine(
        settings(*names, directory=tmp_path), InProcessShardTransport(3), zero_noise=True, positions=True
    ) as engine:
        start = engine.last_sequence("p") if engine.positions() else 0
        for rows in regrouped(batches(names), size, start):
            assert engine.apply(rows).new
        engine.finish()
        assert answers(engine) == expected


def regrouped(found: list[RowBatch], size: int, start: int) -> list[RowBatch]:
    """Return the rows behind ``start`` in batches of another size."""
    names = list(found[0].queries)
    ids = np.concatenate([rows.ids for rows in found])[start:]
    times = np.concatenate([rows.times for rows in found])[start:]
    again = []
    for at in range(0, ids.size, size):
        numbers = np.arange(start + at + 1, min(start + at + size, start + ids.size) + 1)
        weights = np.ones(numbers.size, np.int64)
        again.append(
            RowBatch(
                count=numbers.size,
                queries={
                    name: QuerySelection.select_all(numbers.size, weights=weights if name == "cropped" else None)
                    for name in names
                },
                ids=ids[at : at + size],
                times=times[at : at + size],
                producer="p",
                sequence=int(numbers[-1]),
                first_row=int(numbers[0]),
            )
        )
    return again


@pytest.mark.slow
def test_the_same_sequence_is_the_same_rows_where_positions_are_not_row_numbers(tmp_path: Path) -> None:
    names = ["cropped", "hourly", "running", "count"]
    numbered = [replace(rows, sequence=number, first_row=None) for number, rows in enumerate(batches(names))]
    with Engine(settings(*names), zero_noise=True) as engine:
        for rows in numbered:
            engine.apply(rows)
        engine.finish()
        expected = answers(engine)
    for after in range(10):
        directory = tmp_path / str(after)
        link = InProcessShardTransport(2)
        engine = ClusterEngine(settings(*names, directory=directory), link, zero_noise=True)
        interrupted(link, after)
        with pytest.raises(KeyboardInterrupt):
            for rows in numbered:
                engine.apply(rows)
        engine.close()
        with ClusterEngine(
            settings(*names, directory=directory), InProcessShardTransport(2), zero_noise=True
        ) as engine:
            for rows in numbered:
                engine.apply(rows)
            engine.finish()
            assert answers(engine) == expected


def test_cells_are_dealt_out_anew_and_no_copy_stays(tmp_path: Path) -> None:
    names = ["bits", "cropped"]
    with ClusterEngine(settings(*names, directory=tmp_path), InProcessShardTransport(2), zero_noise=True) as engine:
        for rows in batches(names)[:3]:
            engine.apply(rows)
    for shards in (5, 3):
        with ClusterEngine(
            settings(*names, directory=tmp_path), InProcessShardTransport(shards), zero_noise=True
        ) as engine:
            assert read_shard_count(tmp_path) == shards
            assert [path.name for path in tmp_path.glob("shards-*")] == [f"shards-{shards}"]
            assert not engine.apply(batches(names)[2]).new
    with ClusterEngine(settings(*names, directory=tmp_path), InProcessShardTransport(3), zero_noise=True) as engine:
        for rows in batches(names)[3:]:
            engine.apply(rows)
        engine.finish()
        found = answers(engine)
    with Engine(settings(*names), zero_noise=True) as engine:
        for rows in batches(names):
            engine.apply(rows)
        engine.finish()
        assert found == answers(engine)


def test_a_move_that_was_cut_short_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["cropped"]
    with ClusterEngine(settings(*names, directory=tmp_path), InProcessShardTransport(2), zero_noise=True) as engine:
        engine.apply(batches(names)[0])
    with monkeypatch.context() as patch:
        patch.setattr("panstream.distributed.sharded._resharding.write_shard_count", interrupt)
        with pytest.raises(KeyboardInterrupt):
            ClusterEngine(settings(*names, directory=tmp_path), InProcessShardTransport(4), zero_noise=True)
    assert read_shard_count(tmp_path) == 2
    with ClusterEngine(settings(*names, directory=tmp_path), InProcessShardTransport(4), zero_noise=True) as engine:
        assert not engine.apply(batches(names)[0]).new
        assert engine.release("cropped")[0].record["value"] > 0


def test_a_state_that_one_process_stored_is_not_taken_over(tmp_path: Path) -> None:
    with Engine(settings("bits", directory=tmp_path), zero_noise=True) as engine:
        engine.apply(batches(["bits"])[0])
    with pytest.raises(StoreError, match="stored by a single process, without shards: run it without workers"):
        ClusterEngine(settings("bits", directory=tmp_path), InProcessShardTransport(2), zero_noise=True)


def interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def test_two_who_ask_at_once_share_one_budget(tmp_path: Path) -> None:
    stream = settings("bitmap", directory=tmp_path)
    got: list[Any] = []
    with ClusterEngine(stream, InProcessShardTransport(2)) as engine:

        def ask() -> None:
            try:
                got.append(engine.release("bitmap")[0].number)
            except BudgetExhausted:
                got.append(None)

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(number for number in got if number is not None) == [1, 2, 3]
        with pytest.raises(StoreLocked):
            ClusterEngine(stream, InProcessShardTransport(2))
    with ClusterEngine(stream, InProcessShardTransport(2)) as engine, pytest.raises(BudgetExhausted):
        engine.release("bitmap")


def test_shards_remember_no_batch_that_cannot_come_again(tmp_path: Path) -> None:
    link = InProcessShardTransport(2)
    with ClusterEngine(settings("cropped", directory=tmp_path), link, zero_noise=True) as engine:
        for number, rows in enumerate(batches(["cropped"])):
            engine.apply(replace(rows, producer=f"p{number}"))
            assert [[*shard.recent] for shard in link.open_shards] == [[f"p{number}"]] * 2, "those of the last step"
        engine.forget_producers([f"p{number}" for number in range(4)])
        assert [*engine.positions()] == ["p4", "p5"]


def test_batches_of_several_producers_are_one_step() -> None:
    one = batches(["bits"])[0]
    other = batches(["bits"])[1]
    link = InProcessShardTransport(2)
    with ClusterEngine(settings("bits"), link, zero_noise=True) as engine:
        before = link.open_shards[0].step
        assert engine.can_join_batches
        engine.apply(replace(one, producer=None, origins=(("a", 1), ("b", 2))))
        assert engine.positions() == {"a": 1, "b": 2}
        engine.apply(replace(other, producer="c"), commit=False)
        engine.apply(replace(other, producer="d"), commit=False)
        engine.commit()
        assert [shard.step for shard in link.open_shards] == [before + 2] * 2


def test_joined_batches_that_a_slot_or_a_crash_divides_are_taken_one_by_one(tmp_path: Path) -> None:
    names = ["hourly"]
    link = InProcessShardTransport(2)
    engine = ClusterEngine(settings(*names, directory=tmp_path), link, zero_noise=True)
    joined = replace(batches(names)[0], producer=None, origins=(("a", 1), ("b", 2)))
    with pytest.raises(NotSupported, match="by itself"):
        engine.apply(joined)  # it goes on for more than an hour
    assert not engine.broken
    early = replace(one_hour(joined), producer="a", origins=(), sequence=1)
    interrupted(link, 0)
    with pytest.raises(KeyboardInterrupt):
        engine.apply(early)
    engine.close()
    with ClusterEngine(settings(*names, directory=tmp_path), InProcessShardTransport(2), zero_noise=True) as engine:
        with pytest.raises(NotSupported, match="by itself"):
            engine.apply(replace(early, producer=None, origins=(("a", 1), ("b", 2))))
        assert engine.apply(early).new
        engine.apply(replace(early, producer=None, origins=(("a", 2), ("b", 2))))


def test_rows_do_not_wait_where_nothing_is_stored(tmp_path: Path) -> None:
    link = InProcessShardTransport(2)
    stream = settings("bits", directory=tmp_path, durability="none")
    with ClusterEngine(stream, link, zero_noise=True) as engine:
        before = link.open_shards[0].step
        for number, rows in enumerate(batches(["bits"])):
            engine.apply(rows)
            assert [shard.step for shard in link.open_shards] == [before + number + 1] * 2
        engine.apply(replace(rows, sequence=10**6), commit=False)
        engine.advance()
        assert link.open_shards[0].step == before + 7
        engine.step()
        assert link.open_shards[0].step == before + 8


def one_hour(rows: RowBatch) -> RowBatch:
    assert rows.times is not None
    return replace(rows, times=np.linspace(0.0, 1000.0, rows.count))


def test_a_shard_that_lost_its_directory_is_not_started_afresh(tmp_path: Path) -> None:
    stream = settings("bits", directory=tmp_path)
    with ClusterEngine(stream, InProcessShardTransport(2)) as engine:
        engine.apply(batches(["bits"])[0])
    for file in (tmp_path / "shards-2" / "shard-1").iterdir():
        file.unlink()
    for _ in range(2):
        with pytest.raises(StoreError, match="rolled back"):
            ClusterEngine(stream, InProcessShardTransport(2))


def test_a_bad_row_stops_the_whole_batch(tmp_path: Path) -> None:
    rows = batches(["bits", "running"])[0]
    rows.ids[150] = USERS + 7
    stream = settings("bits", "running", directory=tmp_path, on_bad_row="stop")
    link = InProcessShardTransport(2)
    with ClusterEngine(stream, link, positions=True) as engine:
        before = link.send([ShardCall(shard, "status") for shard in range(2)])
        with pytest.raises(BadRowError):
            engine.apply(rows)
        assert link.send([ShardCall(shard, "status") for shard in range(2)]) == before


@pytest.mark.parametrize("after", [3, pytest.param(9, marks=pytest.mark.slow)])
def test_shards_store_every_step_where_the_coordinator_commits_now_and_then(after: int, tmp_path: Path) -> None:
    names = ["cropped", "often", "count"]
    with Engine(settings(*names), zero_noise=True) as engine:
        for rows in batches(names):
            engine.apply(rows)
        engine.finish()
        expected = answers(engine)
    stream = settings(*names, directory=tmp_path, durability="interval", interval="1 hour")
    link = InProcessShardTransport(3)
    engine = ClusterEngine(stream, link, zero_noise=True, positions=True, clock=lambda: 1e6)
    assert engine.plans[0].claim.locations == ("memory",)
    interrupted(link, after)
    with pytest.raises(KeyboardInterrupt):
        for rows in batches(names):
            engine.apply(rows)
    engine.close()
    with ClusterEngine(
        stream, InProcessShardTransport(3), zero_noise=True, positions=True, clock=lambda: 1e6
    ) as engine:
        start = engine.last_sequence("p") if engine.positions() else 0
        ahead = engine.positions_ahead()["p"]
        assert max(ahead) > start, "shards have what the coordinator has not committed"
        for rows in regrouped(batches(names), 150, start):
            assert engine.apply(rows).new
        engine.finish()
        assert answers(engine) == expected


def test_the_claim_is_that_of_one_machine_and_tests_say_so(tmp_path: Path) -> None:
    one = Engine(settings("bits"))
    many = ClusterEngine(settings("bits"), InProcessShardTransport(2))
    assert [plan.claim for plan in one.plans] == [plan.claim for plan in many.plans]
    quiet = ClusterEngine(settings("bits"), InProcessShardTransport(2), zero_noise=True)
    assert math.isinf(quiet.plans[0].claim.epsilon)
    seeded = ClusterEngine(settings("bits"), InProcessShardTransport(2), rng=ZeroNoiseSource())
    assert "test source" in seeded.plans[0].claim.note
    for engine in (one, many, quiet, seeded):
        engine.close()


def test_shards_freeze_only_what_no_row_followed(tmp_path: Path) -> None:
    """The copy was made before or after the last rows; a coordinator that died may not know of the last rows."""
    asked = {**QUERIES["bits"], "announced": 1}
    ids = np.arange(USERS)
    rows = [
        RowBatch(
            count=USERS, queries={"bits": QuerySelection.select_all(USERS)}, ids=ids, producer="p", sequence=number
        )
        for number in (1, 2)
    ]
    now = [1_000_000.0]

    def opened(name: str, link: InProcessShardTransport) -> ClusterEngine:
        return ClusterEngine(config(asked, directory=tmp_path / name), link, positions=True, clock=lambda: now[0])

    for name, dies, copied, covered in (
        ("before", False, 1_000_050.0, False),
        ("after", False, 1_000_150.0, True),
        ("died", True, 1_000_150.0, False),
    ):
        now[0] = 1_000_000.0
        link = InProcessShardTransport(2)
        engine = opened(name, link)
        engine.apply(rows[0])
        now[0] += 100
        if not dies:
            engine.apply(rows[1])
        engine.close()
        if dies:
            engine = opened(name, link)
            now[0] += 100
            interrupted(link, 0)
            with pytest.raises(KeyboardInterrupt):
                engine.apply(rows[1])
            engine.close()
        now[0] += 100
        with opened(name, InProcessShardTransport(2)) as engine:
            (state,) = engine.announce_intrusion(CopyTime(at=copied))
            assert (state.done, state.verdict.covered) == (covered, covered), name
            assert {len(shard._states["0/0/bits"].frozen) for shard in engine.transport.open_shards} == {int(covered)}  # type: ignore[attr-defined]


def test_counters_are_refreshed_on_every_shard_and_decoded_for_it(tmp_path: Path) -> None:
    asked = question(
        "seen", "SELECT CROPPED_SUM(user, w, 2) FROM s", universe=20_000, lower=0, upper=3, epsilon=8.0, announced=1
    )
    stream = config(asked, directory=tmp_path / "store")
    rows = [
        RowBatch(
            count=10_000,
            queries={"seen": QuerySelection.select_all(10_000, weights=np.ones(10_000, np.int64))},
            ids=ids,
        )
        for ids in (np.arange(10_000), np.arange(5_000, 15_000))
    ]
    with ClusterEngine(stream, InProcessShardTransport(3), positions=True) as engine:
        engine.apply(rows[0])
        assert [each.done for each in engine.announce_intrusion()] == [True]
        assert [each.done for each in engine.announce_intrusion()] == [False]
        engine.apply(rows[1])
    with ClusterEngine(stream, InProcessShardTransport(3), positions=True) as engine:
        engine.release("seen")
        (found,) = engine.log.history()
    value = found.record["value"]
    error = found.record["standard_error"]
    assert abs(value - 20_000) < 6 * error < 6_000
