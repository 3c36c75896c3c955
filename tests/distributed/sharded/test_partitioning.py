"""The union of shards is the state of one machine: bit for bit without noise, in law with it."""

from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from panstream.algorithms.density.optbern import OptBern
from panstream.algorithms.distinct.bitmap import Bitmap
from panstream.algorithms.turnstile.legendre_counter import LegendreCounter
from panstream.core.catalogue import ALGORITHMS
from panstream.core.shardable import is_shardable
from panstream.distributed.sharded._outgoing_queue import OutgoingQueue
from panstream.distributed.sharded._partitioning import CellPartitioning, partitioning_for
from panstream.primitives.noise import NoiseSource
from panstream.primitives.packed_bits import popcount, unpack_bits
from panstream.testing.conformance import Specimen
from tests.conformance.specimens import specimens
from tests.statistical import ALPHA
from tests.zero_noise import ZeroNoiseSource

SPECIMENS = specimens()
DIVIDED = [specimen for specimen in SPECIMENS if is_shardable(specimen.algorithm)]
RUNS = 500


def batch_of(algorithm: Any, fields: Any) -> Any:
    given = dict(fields)
    first = [given.pop(name) for name in ("ids", "edges", "names") if name in given]
    return algorithm.batch(*first, **given)


def one_machine(algorithm: Any, batches: Any, rng: NoiseSource) -> Any:
    state = algorithm.initial_state(rng)
    for each in batches:
        algorithm.update(state, batch_of(algorithm, each), rng)
    return state


def many(algorithm: Any, batches: Any, shards: int, make: Any = NoiseSource, marked: int = 32) -> Any:
    partitioning = partitioning_for(algorithm, shards)
    with make() as source:
        parts = [partitioning.initial_shard(shard, source) for shard in range(shards)]
    outgoing = OutgoingQueue({"q": (algorithm, 1)}, shards, cells_per_row=marked)
    for each in batches:
        batch = batch_of(algorithm, each)
        outgoing.expect(len(batch))
        outgoing.add("q", (0, 0), batch)
        for shard, sent in enumerate(outgoing.messages({"q": [(0, 0)]})):
            for message in sent:
                message.apply(partitioning, shard, lambda slot, part=parts[shard]: part, make)
    return partitioning.assemble(
        [partitioning.decode(partitioning.encode(part, n), n) for n, part in enumerate(parts)], 0
    )


def same(one: Any, other: Any) -> bool:
    return all(np.array_equal(getattr(one, field.name), getattr(other, field.name)) for field in fields(one))


@pytest.mark.slow
@pytest.mark.parametrize("shards", [1, 2, 3, 7])
@pytest.mark.parametrize("specimen", DIVIDED, ids=str)
def test_without_noise_the_union_is_equal_bit_for_bit(specimen: Specimen, shards: int) -> None:
    for algorithm in filter(None, (specimen.noiseless, specimen.algorithm)):
        with ZeroNoiseSource() as source:
            whole = one_machine(algorithm, specimen.batches, source)
        for marked in (0, 32, 10**9):  # listed, by size, and marked where that can be
            assert same(whole, many(algorithm, specimen.batches, shards, ZeroNoiseSource, marked))


def test_every_algorithm_is_divided_or_stays_whole_in_one_place() -> None:
    packages = tuple(
        f"panstream.{package}."
        for package in ("algorithms.continual", "algorithms.continual_users", "models.networks", "papers")
    )
    whole = {name for name in ALGORITHMS if ALGORITHMS[name].startswith(packages)}
    whole |= {"InnerProduct", "SecondMoment"}  # a release starts their counters again, wherever they are
    divided = {type(specimen.algorithm).__name__ for specimen in DIVIDED}
    assert divided | whole == set(ALGORITHMS)
    assert not divided & whole


@pytest.mark.slow
@pytest.mark.parametrize(
    "algorithm",
    [
        OptBern(universe=300, epsilon=1.0),
        OptBern(universe=300, epsilon=1.0, deletions=True),
        Bitmap(epsilon=1.0, buckets=64, levels=4),
        LegendreCounter(universe=300, epsilon=1.0, prime=11),
        LegendreCounter(buckets=128, epsilon=1.0, prime=11),
    ],
    ids=["bits", "bits with deletions", "bitmap", "counters", "open counters"],
)
def test_with_noise_the_laws_cannot_be_told_apart(algorithm: Any) -> None:
    """Two samples of RUNS states each: every cell's mean, and how many cells stand at each value."""
    batches = [{"ids": list(range(200))}, {"ids": list(range(100, 250)) * 2}]
    samples = []
    for kind in ("one", "many"):
        rows = []
        for _ in range(RUNS):
            if kind == "one":
                with NoiseSource() as rng:
                    state = one_machine(algorithm, batches, rng)
            else:
                state = many(algorithm, batches, 3)
            name = fields(state)[0].name
            field_layout = algorithm.layout()[name]
            values = getattr(state, name)
            rows.append(unpack_bits(values, field_layout.shape[-1]) if field_layout.kind == "packed" else values)
        samples.append(np.array(rows))
    one, other = samples
    values = int(max(one.max(), other.max())) + 1
    spread = (one.var(axis=0) + other.var(axis=0)) / RUNS
    apart = (one.mean(axis=0) - other.mean(axis=0)) ** 2 / np.maximum(spread, 1e-9)
    assert stats.norm.sf(np.sqrt(apart.max())) * 2 * apart.size > ALPHA
    counts = [np.stack([(sample == value).sum(axis=1) for value in range(values)], axis=1) for sample in samples]
    for value in range(values):
        assert stats.ks_2samp(counts[0][:, value], counts[1][:, value]).pvalue * values > ALPHA
    assert stats.chi2_contingency([each.sum(axis=0) for each in counts]).pvalue > ALPHA


def test_too_little_noise_in_one_shard_would_be_seen() -> None:
    """The same test statistic, on states whose second shard starts at zero."""
    algorithm = OptBern(universe=300, epsilon=1.0)
    partitioning = CellPartitioning(algorithm, 2)
    one = []
    other = []
    for _ in range(RUNS):
        with NoiseSource() as rng:
            one.append(popcount(algorithm.initial_state(rng).bits))
            parts = [algorithm.initial_cells(partitioning.count(shard), rng) for shard in range(2)]
        parts[1].bits[:] = 0
        other.append(popcount(partitioning.assemble(parts, 0).bits))
    assert stats.ks_2samp(one, other).pvalue < ALPHA


@settings(max_examples=50, deadline=None)
@given(cells=st.integers(1, 400), shards=st.integers(1, 20), data=st.data())
def test_every_cell_has_one_owner_and_one_place(cells: int, shards: int, data: st.DataObject) -> None:
    partitioning = CellPartitioning(SimpleNamespace(cells=cells), shards)  # type: ignore[arg-type]
    owned = [partitioning.owned(shard) for shard in range(shards)]
    assert sorted(np.concatenate(owned).tolist()) == list(range(cells))
    assert max(map(len, owned)) - min(map(len, owned)) <= 1
    rows = np.array(data.draw(st.lists(st.integers(0, cells + 5), max_size=50)), np.int64)
    from panstream.primitives.memory.scratch import Scratch

    with Scratch() as scratch:
        found = partitioning.split((rows, np.arange(rows.size)), scratch)
    for shard, (places, numbers) in enumerate(found):
        assert np.array_equal(owned[shard][places], rows[numbers])
        assert np.all(np.diff(numbers) > 0), "rows of one user keep their order"
    assert sum(len(places) for places, _ in found) == np.count_nonzero(rows < cells)


def test_a_stride_of_busy_cells_is_spread_over_all_shards() -> None:
    partitioning = CellPartitioning(SimpleNamespace(cells=100_000), 10)  # type: ignore[arg-type]
    busy = np.arange(0, 100_000, 10)
    counts = [np.isin(busy, partitioning.owned(shard)).sum() for shard in range(10)]
    assert min(counts) > 800


def test_rebalancing_moves_cells_and_changes_none() -> None:
    algorithm = LegendreCounter(universe=1000, epsilon=1.0)
    with NoiseSource() as rng:
        state = algorithm.initial_state(rng)
    for shards in (2, 5, 3):
        partitioning = partitioning_for(algorithm, shards)
        parts = [partitioning.extract_shard(state, shard) for shard in range(shards)]
        assert same(state, partitioning.assemble(parts, 0))
