"""Tables of names, dealt out: the same cells, law, claim and list as on one machine, and nothing counted twice."""

import itertools
import math
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from panstream.algorithms.heavy_hitters.prefix_sketch import FrequentItems, FrequentState
from panstream.distributed.sharded._coordinator import ClusterEngine
from panstream.distributed.sharded._outgoing_queue import OutgoingQueue
from panstream.distributed.sharded._partitioning import TablePartitioning
from panstream.distributed.sharded._table_messages import TableMessage
from panstream.distributed.sharded._transport import InProcessShardTransport, ShardCall
from panstream.engine.rows.row_batch import QuerySelection, RowBatch
from panstream.engine.runtime.engine import Engine
from panstream.errors import BudgetExhausted
from panstream.primitives.noise import NoiseSource, SeededSource
from tests.algorithms.continual.linear_view import cheapest_move
from tests.engine.runtime.streams import config, question

EXACT = FrequentItems(epsilon=math.inf, max_item_bytes=9, width=1 << 12, row_width=1 << 12, rows=3)
ODD = ["", "süd", "a name of more than nine bytes", "東西南北", "nine byte", "nine bytes", "a\0b", "a\0b\0", "/x", "/x"]


def whole(algorithm: FrequentItems, batches: list[Any]) -> FrequentState:
    with SeededSource(1) as rng:
        state = algorithm.initial_state(rng)
        for batch in batches:
            algorithm.update(state, algorithm.batch(batch), rng)
    return state


def divided(algorithm: FrequentItems, batches: list[Any], shards: int) -> tuple[FrequentState, list[TableMessage]]:
    """Return the tables that shards have together, and what they were sent, which is overwritten."""
    partitioning = TablePartitioning(algorithm, shards)
    sent = []
    with NoiseSource() as rng:
        parts = [partitioning.initial_shard(shard, rng) for shard in range(shards)]
    outgoing = OutgoingQueue({"q": (algorithm, 1)}, shards)
    for given_rows in batches:
        batch = algorithm.batch(given_rows)
        outgoing.expect(len(batch))
        outgoing.add("q", (0, 0), batch)
        for shard, (message,) in enumerate(outgoing.messages({"q": [(0, 0)]})):
            message.apply(partitioning, shard, lambda slot, part=parts[shard]: part, NoiseSource)
            message.wipe()
            assert isinstance(message, TableMessage)
            sent.append(message)
    return partitioning.assemble(parts, 0), sent


def same(one: FrequentState, other: FrequentState) -> bool:
    return all(np.array_equal(getattr(one, each.name), getattr(other, each.name)) for each in fields(one))


@pytest.mark.parametrize("step", [4, 8])
@pytest.mark.parametrize("shards", [1, 2, 3, 40])  # more shards than tables
def test_without_noise_the_tables_are_equal_bit_for_bit(shards: int, step: int) -> None:
    algorithm = replace(EXACT, step=step)
    column = pa.array(ODD * 20)
    many = [f"n{i % 700}" for i in range(70_000)]
    batches = [ODD, column, column.dictionary_encode(), list(range(-5, 300)), [], many]
    found, sent = divided(algorithm, batches, shards)
    assert same(found, whole(algorithm, batches))
    assert {bool(message.rows) for message in sent} == {True, False}, "names were sent, and sums"
    for message in sent:
        assert not any(array.any() for array in (*message.rows, *message.sums.values())), "wiped after the call"


@settings(max_examples=30, deadline=None)
@given(names=st.lists(st.text(max_size=12), max_size=30), shards=st.integers(1, 15), rows=st.integers(1, 4))
def test_any_names_move_the_same_cells(names: list[str], shards: int, rows: int) -> None:
    algorithm = replace(EXACT, max_item_bytes=5, rows=rows)
    assert same(divided(algorithm, [names], shards)[0], whole(algorithm, [names]))


@pytest.mark.parametrize("shards", [2, 3, 5])
def test_every_table_has_one_owner_and_memory_is_divided(shards: int) -> None:
    algorithm = FrequentItems(epsilon=1.0, delta=1e-6)
    partitioning = TablePartitioning(algorithm, shards)
    places = [partitioning.indices(shard) for shard in range(shards)]
    for name, count in (("levels", algorithm.levels), ("rows", algorithm.rows)):
        assert sorted(np.concatenate([each[name] for each in places]).tolist()) == list(range(count))
    cells = [partitioning.cells(shard) for shard in range(shards)]
    assert sum(cells) == algorithm.levels * algorithm.width + algorithm.rows * algorithm.row_width
    assert max(cells) * shards < 1.1 * sum(cells)


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_a_shard_without_tables_takes_part_like_any_other(delta: float) -> None:
    algorithm = FrequentItems(epsilon=1.0, delta=delta, max_item_bytes=4, width=256, row_width=256, rows=2)
    partitioning = TablePartitioning(algorithm, 7)
    with NoiseSource() as rng:
        part = partitioning.initial_shard(6, rng)
        partitioning.refresh(part, 6, rng)
        shown = partitioning.with_release_noise(part, rng)
    assert (partitioning.cells(6), part.draws, shown.draws) == (0, 2, 3)
    assert same(partitioning.decode(partitioning.encode(part, 6), 6), part)


def test_moving_tables_changes_none() -> None:
    with NoiseSource() as rng:
        state = replace(EXACT, epsilon=1.0).initial_state(rng)
    for shards in (2, 5, 3):
        partitioning = TablePartitioning(EXACT, shards)
        parts = [
            partitioning.decode(partitioning.encode(partitioning.extract_shard(state, n), n), n) for n in range(shards)
        ]
        assert same(state, partitioning.assemble(parts, 0))


@pytest.mark.parametrize("rows", [10, 70_000])
def test_sizes_do_not_depend_on_names(rows: int) -> None:
    """Short and long, equal and different, selected or not: the same bytes travel."""
    sizes = set()
    for names in (["a"] * rows, [f"name {i}" for i in range(rows)], ["much longer than nine bytes"] * rows, ["a"]):
        outgoing = OutgoingQueue({"q": (EXACT, 1)}, 3)
        outgoing.expect(rows)
        outgoing.add("q", (0, 0), EXACT.batch(names))
        sent = [message for (message,) in outgoing.messages({"q": [(0, 0), (1, 0)]})]
        arrays = [[*each.rows, *each.sums.values()] for each in sent if isinstance(each, TableMessage)]
        sizes.add(tuple(tuple((array.shape, array.dtype.str) for array in each) for each in arrays))
    assert len(sizes) == 1


NAMES = {
    "all": question("all", "SELECT region, COUNT(*) FROM s GROUP BY region", max_item_bytes=4, memory=1_000_000),
    "hourly": question(
        "hourly", "SELECT region, COUNT(*) FROM s GROUP BY region", max_item_bytes=4, memory=1_000_000, window="1 hour"
    ),
}


def stream(count: int = 6, size: int = 200) -> list[RowBatch]:
    draw = np.random.default_rng(5)
    found = []
    for number in range(count):
        names = pa.array([f"/{i}" for i in draw.integers(0, 9, size)])
        chosen = {name: QuerySelection.select_all(size, names=names) for name in NAMES}
        times = np.sort(draw.uniform(number * 0.8, number * 0.8 + 1.6, size)) * 3600
        found.append(RowBatch(count=size, queries=chosen, times=times, producer="p", sequence=number + 1))
    return found


def answers(engine: Engine) -> dict[tuple[str, int], Any]:
    return {(r.query, r.number): (r.record["value"], r.record["items"]) for r in engine.log.history()}


def opened(directory: Path, link: InProcessShardTransport) -> ClusterEngine:
    return ClusterEngine(config(*NAMES.values(), directory=directory, time="at"), link, zero_noise=True)


@pytest.fixture(scope="module")
def alone() -> dict[tuple[str, int], Any]:
    """Return what one machine answers."""
    with Engine(config(*NAMES.values(), time="at"), zero_noise=True) as engine:
        for rows in stream():
            engine.apply(rows)
        engine.finish()
        return answers(engine)


@pytest.mark.slow
@pytest.mark.parametrize("after", [1, 4])
def test_shards_that_died_lose_and_double_nothing(after: int, alone: Any, tmp_path: Path) -> None:
    """The first shard has a step, the second never gets it; then both are opened again, and moved to three."""
    link = InProcessShardTransport(2)
    engine = opened(tmp_path, link)
    real = link.send
    left = [after]

    def send(calls: Any) -> list[Any]:
        left[0] -= calls[0].method == "apply"
        if left[0] < 0:
            real(calls[:1])
            raise KeyboardInterrupt
        return real(calls)

    link.send = send  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt), engine:
        for rows in stream():
            engine.apply(rows)
    with opened(tmp_path, InProcessShardTransport(2)) as engine:
        for rows in stream()[:4]:
            engine.apply(rows)
    with opened(tmp_path, InProcessShardTransport(3)) as engine:
        for rows in stream():
            engine.apply(rows)
        engine.finish()
        assert answers(engine) == alone


def test_the_claim_is_that_of_one_machine() -> None:
    asked = config(*NAMES.values(), time="at")
    with Engine(asked) as one, ClusterEngine(asked, InProcessShardTransport(3)) as many:
        assert [plan.claim for plan in many.plans] == [plan.claim for plan in one.plans]
        assert all(plan.claim.is_private for plan in many.plans)


def test_tables_are_with_the_shards_and_a_call_made_twice_counts_once(tmp_path: Path) -> None:
    link = InProcessShardTransport(2)
    only = config(NAMES["all"], directory=tmp_path)
    with ClusterEngine(only, link, zero_noise=True) as engine:
        real = link.send
        link.send = lambda calls: (real(calls), real(calls))[1]  # type: ignore[method-assign]
        for rows in stream(2):
            engine.apply(replace(rows, queries={"all": rows.queries["all"]}, times=None))
        states = [shard._states["0/0/all"] for shard in link.open_shards]
        assert sum(state.rows.size for state in states) == 5 * states[0].rows.shape[1]
        assert np.abs(states[0].levels[0]).sum() == 400, "every event moves a cell of the first level by one"
        assert [str(state) for state in engine.announce_intrusion()] == ["all: refreshed, covered"]
        assert [state.draws for state in states] == [2, 2], "a call made twice adds noise once"
        (answer,) = engine.release("all")
        assert answer.record["value"] == 400
        with pytest.raises(BudgetExhausted):
            engine.release("all")


def test_tables_travel_with_release_noise_only(tmp_path: Path) -> None:
    """What a shard shows differs from what it holds, cell by cell, by one draw of the law, and is another each time."""
    algorithm = FrequentItems(epsilon=1.0, delta=1e-6, max_item_bytes=4, width=1 << 10, row_width=1 << 10)
    link = InProcessShardTransport(2)
    link.open({"q": algorithm}, tmp_path)
    link.send([ShardCall(n, "apply", (1, 0, [], [([], ["0/0/q"], [])])) for n in range(2)])
    for number, shard in enumerate(link.open_shards):
        partitioning = TablePartitioning(algorithm, 2)
        held = partitioning.decode(shard.gather("0/0/q"), number)
        shown = [partitioning.decode(shard.noisy_tables("0/0/q"), number) for _ in range(2)]
        assert [held.draws, *(each.draws for each in shown)] == [1, 2, 2]
        for name, law in zip(("levels", "rows"), algorithm.laws, strict=True):
            before = getattr(held, name)
            noise = [getattr(each, name) - before for each in shown]
            assert not np.array_equal(*noise)
            for each in (before, *noise):  # nobody has sent a row, so what is held is start noise
                # chance below 1e-9: the variance of some thousand draws is off by less than 6 standard errors
                assert abs(each.var() / law.variance - 1) < 6 * math.sqrt(2 / each.size)
        shard.refresh(2, ["0/0/q"])
        assert partitioning.decode(shard.gather("0/0/q"), number).draws == 2
    link.close()


KAPPAS = np.array([0.3, 0.3, 0.2, 0.2])  # of two tables on each of two shards
LOOKS = 4  # after so many events at most; the release comes after all of them


def loss(looks: tuple[int, int], start: Any = KAPPAS, release: Any = KAPPAS) -> float:
    """Return the largest loss of one event if the shards are looked at after so many events each.

    A look shows each table's start noise, the release the start and release noise together.
    """
    owner = np.array([0, 0, 1, 1])
    same_size = np.eye(4)
    nothing = np.zeros((4, 4))
    matrix = np.vstack([np.hstack([same_size, nothing]), np.hstack([same_size, same_size])])
    view: Any = SimpleNamespace(matrix=matrix, kappas=np.concatenate([start, release]))
    worst = 0.0
    for event in range(LOOKS):
        seen = [event < looks[shard] for shard in owner]
        worst = max(worst, cheapest_move(view, np.array([*seen, *[True] * 4], float))[0])
    return worst


def test_one_event_loses_no_more_if_shards_are_looked_at_at_different_times() -> None:
    times = list(itertools.product(range(LOOKS + 1), repeat=2))
    assert max(map(loss, times)) == pytest.approx(KAPPAS.sum(), abs=1e-9)
    assert max(loss(looks, start=1.05 * KAPPAS) for looks in times) > 1.04 * KAPPAS.sum()
    assert max(loss(looks, release=KAPPAS * [1, 1, 1.1, 1.1]) for looks in times) > KAPPAS.sum() + 0.03
