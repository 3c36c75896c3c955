"""Tables of a stream: exact without noise, the loss on the view matrix, the noise they announce, merges and models."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

from panstream.algorithms.continual.tree_shape import TreeShape
from panstream.audit.claims.cases.streaming_tables import _NoStart
from panstream.audit.claims.exact import with_update_replaced
from panstream.core.monitor import Monitor
from panstream.errors import BudgetExhausted, InvalidBatch, InvalidParameter, MergeError, NotSupported
from panstream.models.networks import Bins, Domain, Mixture, Records, StreamingTables, compare, contingency, sample
from panstream.primitives.noise import SeededSource
from panstream.privacy.composition import zcdp_epsilon, zcdp_rho
from panstream.testing.enumeration import Step, refresh, tick, update
from panstream.testing.linear_views import LinearView, linear_views
from tests.algorithms.continual.linear_view import joint_loss
from tests.privacy.zcdp import tables_rho

TWO = Domain({"rain": ["no", "yes"], "wet": ["no", "yes"]})
WIDE = Domain({"a": ["x", "y", "z"], "b": Bins([0, 10, 20, 30, 40]), "c": ["0", "1"], "d": ["u", "v", "w", "?"]})


def columns(rows: int, seed: int = 1) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    hidden = rng.random(rows)
    return {
        "a": np.array(["x", "y", "z"])[np.minimum((3 * hidden).astype(int), 2)].tolist(),
        "b": (40 * np.clip(hidden + rng.normal(0, 0.2, rows), 0, 0.999)).tolist(),
        "c": (rng.random(rows) < hidden).astype(int).astype(str).tolist(),
        "d": np.array(["u", "v", "w", "?"])[rng.integers(0, 4, rows)].tolist(),
    }


def part(rows: dict[str, Any], start: int, stop: int) -> dict[str, Any]:
    return {name: values[start:stop] for name, values in rows.items()}


def test_without_noise_the_tables_are_the_counts_of_all_records_so_far() -> None:
    rows = columns(900)
    monitor = StreamingTables(domain=WIDE, epsilon=math.inf, horizon=5).start()
    for end in (300, 600, 900):
        monitor.update(part(rows, end - 300, end - 100))
        monitor.update(part(rows, end - 100, end))
        assert monitor.tick().value == pytest.approx(end)
        records = Records.read(part(rows, 0, end), WIDE)
        tables = monitor.algorithm.tables(monitor.state)
        assert [table.attributes for table in tables] == [
            *((at,) for at in range(4)),
            *itertools.combinations(range(4), 2),
        ]
        for table in tables:
            np.testing.assert_allclose(table.counts, contingency(records, table.attributes))
            assert table.sigma == 0


def test_one_record_per_slot_is_the_same() -> None:
    rows = columns(6)
    algorithm = StreamingTables(domain=WIDE, epsilon=math.inf, horizon=6)
    one = algorithm.start()
    assert one.tick_many(rows).value.tolist() == pytest.approx([1, 2, 3, 4, 5, 6])
    for table in algorithm.tables(one.state):
        np.testing.assert_allclose(table.counts, contingency(Records.read(rows, WIDE), table.attributes))


def records(*rows: tuple[str, str]) -> Step:
    return update([dict(zip(TWO.names, row, strict=True)) for row in rows])


NOTHING = records(("no", "yes"))


def with_record(stream: list[Step], *rows: tuple[str, str]) -> list[list[Step]]:
    return with_update_replaced(stream, records(("no", "yes"), *rows))


@pytest.mark.parametrize("levels", [1, 2])
def test_the_joint_loss_of_laplace_noise_is_the_claim(levels: int) -> None:
    """Linear program on the view matrix of the shipped code, one look anywhere."""
    algorithm = StreamingTables(domain=TWO, epsilon=0.8, horizon=3, levels=levels)
    stream = [NOTHING, tick()] * 3
    worst = joint_loss(algorithm, stream, with_record(stream, ("yes", "no")))
    assert worst.loss == pytest.approx(0.8, abs=1e-8)
    assert worst.loss <= 0.8
    assert worst.whole


def cheapest_square(view: LinearView, shift: Any) -> float:
    """Return half the smallest sum of (z/sigma)² with matrix·z = shift: the zCDP loss; inf if nothing fits."""
    scaled = view.matrix / view.kappas
    move = np.linalg.lstsq(scaled, shift, rcond=1e-12)[0]
    fits = np.abs(scaled @ move - shift).max(initial=0.0) < 1e-8
    return 0.5 * float(move @ move) if fits else math.inf


def zcdp_loss(algorithm: StreamingTables, stream: list[Step], streams: list[list[Step]], **options: Any) -> float:
    views = linear_views(algorithm, stream, streams, **options)
    return max(cheapest_square(view, shift) for view in views for shift in np.unique(view.shifts, axis=0))


@pytest.mark.parametrize(("levels", "contributions"), [(1, None), (2, None), (1, 2)])
def test_the_joint_loss_of_gaussian_noise_is_the_claim(levels: int, contributions: int | None) -> None:
    """Least squares on the view matrix of the shipped code: exactly rho, and rho is what (epsilon, delta) allow."""
    algorithm = StreamingTables(
        domain=TWO, epsilon=1.0, delta=1e-6, horizon=3, levels=levels, contributions=contributions
    )
    stream = [NOTHING, tick()] * 3
    rows = [("yes", "no")] * (contributions or 1)
    loss = zcdp_loss(algorithm, stream, with_record(stream, *rows))
    assert loss == pytest.approx(tables_rho(algorithm.laws, levels, contributions or 1), rel=1e-9)  # type: ignore[arg-type]
    assert 0.999 * zcdp_rho(1.0, 1e-6) <= loss <= zcdp_rho(1.0, 1e-6)


@pytest.mark.parametrize("contributions", [2, 4])
def test_one_of_a_users_records_loses_what_is_said(contributions: int) -> None:
    """By least squares as above, for one record more under the noise that hides all of a user's."""
    algorithm = StreamingTables(domain=TWO, epsilon=1.0, delta=1e-6, horizon=1, contributions=contributions)
    stream = [NOTHING, tick()]
    loss = zcdp_epsilon(zcdp_loss(algorithm, stream, with_record(stream, ("yes", "no"))), 1e-6)
    said = algorithm.claim().event_epsilon
    assert said is not None
    assert min(loss, 1 / contributions) <= said <= 1.001 * min(loss, 1 / contributions)


def test_announced_looks_cost_nothing_more() -> None:
    algorithm = StreamingTables(domain=TWO, epsilon=1.0, delta=1e-6, horizon=3, levels=1)
    stream = [NOTHING, refresh(), NOTHING, tick(), refresh(), NOTHING, tick()]
    loss = zcdp_loss(algorithm, stream, with_record(stream, ("yes", "no")), looks=[None, 5, 6, 7])
    assert loss == pytest.approx(tables_rho(algorithm.laws, 1), rel=1e-9)  # type: ignore[arg-type]


def test_tables_without_start_noise_are_caught() -> None:
    broken = _NoStart(domain=TWO, epsilon=1.0, delta=1e-6, horizon=3, levels=1)
    stream = [NOTHING, tick()]
    assert zcdp_loss(broken, stream, with_record(stream, ("yes", "no"))) == math.inf


def test_the_loss_of_a_user_and_of_one_of_her_records() -> None:
    claim = StreamingTables(domain=TWO, epsilon=1.0, delta=1e-6, horizon=3, contributions=4).claim()
    assert (claim.unit, claim.epsilon, claim.delta, claim.inputs) == ("user", 1.0, 1e-6, "adaptive")
    assert claim.event_epsilon is not None
    assert claim.event_epsilon <= 0.25
    pure = StreamingTables(domain=TWO, epsilon=1.0, horizon=3).claim()
    assert (pure.unit, pure.delta, pure.inputs, pure.intrusions.unannounced) == ("event", 0.0, "adaptive", 1)


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_every_table_has_the_noise_that_it_announces(delta: float) -> None:
    """Sums of squares over 40 runs of a table's cells; false alarm 1e-7 for each of 20 tables (Laplace: kurtosis 3,
    wider by a factor of 2, on a normal approximation of 400 and more squares).
    """
    algorithm = StreamingTables(domain=WIDE, epsilon=1.0, delta=delta, horizon=4)
    rows = Records.read(columns(500), WIDE)
    squares = np.zeros(10)
    runs = 40
    for seed in range(runs):
        with SeededSource(seed) as rng:
            monitor = Monitor(algorithm, rng=rng)
            for _ in range(3):
                monitor.tick()
            monitor.update(columns(500))
            monitor.tick()
        tables = algorithm.tables(monitor.state)
        squares += [
            np.square((table.counts - contingency(rows, table.attributes)) / table.sigma).sum() for table in tables
        ]
    for table, found in zip(tables, squares, strict=True):
        freedom = runs * table.counts.size
        low, high = chi2.ppf([5e-8, 1 - 5e-8], freedom)
        wide = 1 if delta else 2
        assert freedom - wide * (freedom - low) < found < freedom + wide * (high - freedom)


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("rows", [1, 30])
def test_every_cell_of_every_row_gets_a_draw_of_its_own(rows: int, delta: float) -> None:
    algorithm = StreamingTables(domain=TWO, epsilon=0.01, delta=delta, horizon=4)
    noise = np.zeros((rows, algorithm.width), np.int64)
    with SeededSource(3) as rng:
        algorithm.engine.add_noise(noise, 0, rng)
    assert np.unique(noise).size > 0.9 * noise.size and np.count_nonzero(noise) > 0.9 * noise.size


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_the_interval_of_the_number_of_records_covers_it(delta: float) -> None:
    """Of 300 intervals at 90%, 247 or fewer cover with probability below 1e-4 (binomial)."""
    algorithm = StreamingTables(domain=TWO, epsilon=1.0, delta=delta, horizon=2)
    inside = 0
    for seed in range(300):
        with SeededSource(seed) as rng:
            monitor = Monitor(algorithm, rng=rng)
            monitor.update({"rain": ["no"] * 400, "wet": ["yes"] * 400})
            low, high = monitor.tick().interval(0.9)
            inside += low <= 400 <= high
    assert inside > 247


@pytest.mark.parametrize("horizon", [1, 6])
def test_the_error_is_a_sub_gaussian_bound_at_the_noisiest_tick(horizon: int) -> None:
    """Every table counts all records, so the best average of them has the inverse of their inverse variances."""
    algorithm = StreamingTables(domain=WIDE, epsilon=1.0, delta=1e-6, horizon=horizon)
    variances = []
    with SeededSource(4) as rng:
        monitor = Monitor(algorithm, rng=rng)
        for _ in range(horizon):
            monitor.tick()
            tables = algorithm.tables(monitor.state)
            variances.append(1 / sum(1 / (table.sigma**2 * table.counts.size) for table in tables))
    for beta in (0.3, 1e-6):
        assert algorithm.error_bound(beta=beta) == pytest.approx(math.sqrt(2 * max(variances) * math.log(2 / beta)))


@pytest.mark.slow
def test_a_network_is_learned_without_any_row_kept() -> None:
    rows = columns(20_000)
    algorithm = StreamingTables(domain=WIDE, epsilon=1.0, delta=1e-6, horizon=4)
    with SeededSource(3) as rng:
        monitor = Monitor(algorithm, rng=rng)
        for start in range(0, 20_000, 5_000):
            monitor.update(part(rows, start, start + 5_000))
            monitor.tick()
        learned = algorithm.model(monitor.state, rng)
        drawn = sample(learned.network, 20_000, rng)
    truth = Records.read(rows, WIDE)
    assert abs(learned.records - 20_000) < algorithm.error_bound(beta=1e-9)
    assert compare(drawn, truth).mean_two_way < 0.03  # .011 to .014 over ten other seeds; independent columns .141
    assert isinstance(learned.network, Mixture) or learned.network.edges


def test_records_needed_is_what_noise_alone_moves() -> None:
    """The mean distance of 30 tables of noise from 0, against the formula; within a tenth, ten standard errors."""
    algorithm = StreamingTables(domain=WIDE, epsilon=1.0, delta=1e-6, horizon=1)
    moved = []
    for seed in range(30):
        with SeededSource(seed) as rng:
            monitor = Monitor(algorithm, rng=rng)
            monitor.tick()
        pairs = [table for table in algorithm.tables(monitor.state) if len(table.attributes) == 2]
        moved.append(np.mean([0.5 * np.abs(table.counts).sum() for table in pairs]))
    assert algorithm.records_needed(1.0) == pytest.approx(float(np.mean(moved)), rel=0.1)
    assert algorithm.records_needed(0.1) == pytest.approx(10 * algorithm.records_needed(1.0))


def test_two_sites_add_up_if_their_clocks_agree() -> None:
    algorithm = StreamingTables(domain=WIDE, epsilon=math.inf, horizon=4)
    one = algorithm.start()
    other = algorithm.start()
    one.update(columns(200))
    one.tick()
    other.update(columns(100, seed=2))
    with pytest.raises(MergeError, match="number of slots"):
        one.merge(other)
    other.tick()
    both = one.merge(other)
    both.update(columns(50, seed=3))
    assert both.tick().value == pytest.approx(350)
    with pytest.raises(MergeError, match="same parameters"):
        both.merge(replace(algorithm, horizon=5, levels=None, capacity=None).start())


def test_noise_of_merged_sites_is_counted() -> None:
    algorithm = StreamingTables(domain=WIDE, epsilon=1.0, delta=1e-6, horizon=1)
    alone = algorithm.start()
    alone.tick()
    both = algorithm.start().merge(algorithm.start())
    both.tick()
    single, double = (algorithm.tables(each.state)[0].sigma for each in (alone, both))
    assert double == pytest.approx(single * math.sqrt(3 / 2))  # two starts and one release


def test_a_users_further_records_of_a_batch_are_left_out() -> None:
    algorithm = StreamingTables(domain=TWO, epsilon=math.inf, horizon=2, contributions=2)
    monitor = algorithm.start()
    monitor.update({"rain": ["no"] * 5, "wet": ["yes"] * 5}, users=["ann", "bob", "ann", "ann", "ann"])
    assert monitor.tick().value == pytest.approx(3)


def test_the_shape_of_the_tree_is_best_for_the_kind_of_noise() -> None:
    """A level more doubles the variance of Gaussian noise, and multiplies that of Laplace noise by four."""
    for horizon in (1, 4, 12, 100, 1000):
        pure = StreamingTables(domain=TWO, epsilon=1.0, horizon=horizon)
        gaussian = StreamingTables(domain=TWO, epsilon=1.0, delta=1e-6, horizon=horizon)
        assert (gaussian.levels or 0) >= (pure.levels or 0)
        least = min(
            levels * TreeShape.best(horizon, False, levels).noise(horizon).mean
            for levels in range(1, 8)
            if horizon > 1 or levels == 1
        )
        found = TreeShape(gaussian.levels or 0, gaussian.capacity or 0, False)
        assert (gaussian.levels or 0) * found.noise(horizon).mean == pytest.approx(least)


def test_what_is_refused() -> None:
    given: dict[str, Any] = {"domain": TWO, "epsilon": 1.0, "horizon": 3}
    for changed, text in (
        ({"domain": Domain({"a": ["x", "y"]})}, "two attributes"),
        ({"domain": {"a": ["x"]}}, "Domain"),
        ({"horizon": None}, "horizon"),
        ({"one_step_ticks": True}, "one_step_ticks"),
        ({"delta": 1.0}, "delta"),
        ({"domain": Domain({name: [str(i) for i in range(3000)] for name in "ab"})}, "cells"),
    ):
        with pytest.raises(InvalidParameter, match=text):
            StreamingTables(**{**given, **changed})
    monitor = StreamingTables(**given).start()
    with pytest.raises(InvalidBatch, match=r"row 1.*'wet'|'wet'.*row 1"):
        monitor.update({"rain": ["no", "no"], "wet": ["yes", "perhaps"]})
    with pytest.raises(NotSupported, match="tick"):
        monitor.algorithm.tables(monitor.state)
    for _ in range(3):
        monitor.tick()
    with pytest.raises(BudgetExhausted):
        monitor.tick()


def test_a_model_of_nothing_is_refused() -> None:
    algorithm = StreamingTables(domain=TWO, epsilon=math.inf, horizon=1)
    monitor = algorithm.start()
    monitor.tick()
    with pytest.raises(InvalidParameter, match="nothing but noise"):
        algorithm.model(monitor.state)
