"""Opened shares are the plain arrays, bit for bit, whatever rows do; opened answers are the true numbers and noise."""

import math
from fractions import Fraction

import numpy as np
import pytest

from panstream.algorithms.continual.least_squares_tree import LeastSquaresTree
from panstream.algorithms.secret_shared.party import StepTask
from panstream.algorithms.secret_shared.ring import COUNTS, SUMS, Keystream, Ring
from panstream.algorithms.secret_shared.rules import rule_from_parameters
from panstream.algorithms.secret_shared.running_sums import NoisyRunningSums, _weights
from panstream.algorithms.secret_shared.share_rules import OverwrittenBits, SaturatingCounters
from panstream.errors import BudgetExhausted, InvalidParameter, TwoPartyError
from panstream.primitives.memory.scratch import Scratch
from panstream.primitives.noise import DiscreteLaplace
from panstream.primitives.packed_bits import pack_bits
from tests.algorithms.secret_shared.parties import Three, fresh

NONE = DiscreteLaplace(None)


@pytest.mark.slow
def test_a_thousand_steps_of_overwrites_equal_plain_arrays() -> None:
    rng = np.random.default_rng(1)
    rules = {
        "table": OverwrittenBits(cells=24 * 40, rows=24, noise=NONE, releases=1000),
        "odd": OverwrittenBits(cells=13, noise=NONE, releases=1000),
    }
    plain = {name: np.zeros(rule.cells, np.uint8) for name, rule in rules.items()}
    three = Three()
    three.step(StepTask(kind="idle", started=rules))
    for step in range(1000):
        kind = rng.integers(4)
        if kind == 0:
            three.step(StepTask(kind="idle"))
        elif kind == 1:
            found = three.step(StepTask(kind="answers", answered=["odd", "table"]))
            assert found["table"] == plain["table"].reshape(24, 40).sum(1).tolist(), step
            assert found["odd"] == [int(plain["odd"].sum())]
        else:
            change = {}
            for name, cells in plain.items():
                touched, values = rng.integers(0, 2, (2, cells.size), np.uint8)  # a delete is a value of 0
                plain[name] = np.where(touched, values, cells).astype(np.uint8)
                change[name] = (pack_bits(touched), pack_bits(values))
            three.step(StepTask(kind="rows"), change)
        for name, cells in plain.items():
            opened = np.unpackbits(three.opened(name), count=cells.size, bitorder="little")
            assert np.array_equal(opened, cells), (step, name)


def test_shares_of_one_state_are_fresh_in_every_step() -> None:
    three = Three()
    three.step(StepTask(kind="idle", started={"a": OverwrittenBits(cells=512, noise=NONE)}))
    seen = set()
    for _ in range(20):
        three.step(StepTask(kind="idle"))
        seen |= {party.shares["a"].cells.tobytes() for party in three.parties}
    assert len(seen) == 20  # both hold the same bytes: x is 0 everywhere


@pytest.mark.parametrize("tau", [1, 2, 7, 8, 16, 33, 64])
def test_thermometers_count_up_to_tau(tau: int) -> None:
    rng = np.random.default_rng(tau)
    users = 101
    rules = {
        "sum": SaturatingCounters(cells=users, tau=tau, noise=NONE, releases=9),
        "heavy": SaturatingCounters(cells=users, tau=tau, low=tau - 1, noise=NONE, releases=9),
    }
    three = Three()
    exact = np.zeros(users, np.int64)
    three.step(StepTask(kind="idle", started=rules))
    for _ in range(9):
        arrivals = np.minimum(rng.poisson(0.3 * tau, users) * rng.integers(0, 3, users), 255)
        exact += arrivals
        capped = np.minimum(arrivals, tau).astype(np.uint8)
        three.step(StepTask(kind="rows"), {"sum": (capped,), "heavy": (capped,)})
        found = three.step(StepTask(kind="answers", answered=["heavy", "sum"]))
        assert found == {"heavy": [int((exact >= tau).sum())], "sum": [int(np.minimum(exact, tau).sum())]}


@pytest.mark.parametrize("radices", [(1,), (5,), (2, 3), (3, 4, 3), (2, 2, 2, 4)])
def test_totals_are_exact_without_noise(radices: tuple[int, ...]) -> None:
    rng = np.random.default_rng(2)
    ticks = math.prod(radices)
    rule = NoisyRunningSums(width=2, radices=radices, noise=NONE, releases=ticks)
    three = Three()
    total = np.zeros(2, np.int64)
    three.step(StepTask(kind="idle", started={"t": rule}))
    for _ in range(ticks):
        added = rng.integers(-(1 << 40), 1 << 40, 2)
        total += added
        three.step(StepTask(kind="rows"), {"t": (added,)})
        assert three.step(StepTask(kind="answers", answered=["t"])) == {"t": [int(each) << rule.unit for each in total]}
    with pytest.raises(BudgetExhausted):
        three.step(StepTask(kind="answers", answered=["t"]))


@pytest.mark.parametrize(("radices", "ticks"), [((4,), 4), ((2, 3), 6), ((3, 2, 3), 18), ((2, 2, 2), 6), ((2, 3), 4)])
def test_an_event_moves_into_the_noise_of_its_nodes(
    radices: tuple[int, ...], ticks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For every slot there are h draws of one machine that make up for an event, in every answer, exactly.

    Also where the last answer closes a node and the tree is not over: it uses nodes that open with it.
    """
    rule = NoisyRunningSums(width=1, radices=radices, noise=NONE, releases=ticks)

    def answers(unit: int) -> tuple[list[int], int]:
        drawn = 0

        def draw(count: int, law: object, source: object) -> np.ndarray:
            nonlocal drawn
            found = np.zeros(count, np.int64)
            if 0 <= unit - drawn < count:
                found[unit - drawn] = 1
            drawn += count
            return found

        monkeypatch.setattr("panstream.algorithms.secret_shared.running_sums.draw_noise", draw)
        share = rule.start(None)  # type: ignore[arg-type]
        found = []
        for tick in range(ticks):
            held = rule.hold_answer(None, None, tick, None)  # type: ignore[arg-type]
            empty = np.empty(0, np.uint8)
            found.append(SUMS.centred(rule.answer(share, empty, empty, held, first=True))[0])
        return found, drawn

    _, draws = answers(-1)
    columns = np.array([[Fraction(each, 1 << rule.unit) for each in answers(unit)[0]] for unit in range(draws)])
    noise = (columns.astype(float) ** 2).sum(0)
    for tick in range(1, ticks + 1):
        assert math.isclose(noise[tick - 1], rule.variance(tick), rel_tol=1e-5)
    for event in range(ticks):
        step = np.array([Fraction(int(tick >= event)) for tick in range(ticks)])
        # the draws of the nodes that hold the slot: found by what they answer for, not by how they are numbered
        chosen = _ancestors(radices, event)
        assert len(chosen) == len(radices)
        assert (sum(columns[each] for each in chosen) == step).all()


def _ancestors(radices: tuple[int, ...], event: int) -> list[int]:
    """Return the numbers of the draws whose nodes hold a slot, by replaying the order in which nodes open."""
    spans = [math.prod(radices[:level]) for level in range(len(radices))]
    top = len(radices) - 1
    found = []
    number = 0

    def opened(level: int, start: int) -> None:
        nonlocal number
        for child in range(radices[level] if level < top else 1):
            first = start + child * spans[level]
            if first <= event < first + spans[level]:
                found.append(number)
            number += 1

    for level in range(top, -1, -1):
        opened(level, 0)
    for slot in range(1, math.prod(radices) + 1):
        ended = [level for level in range(1, len(radices)) if slot % math.prod(radices[:level]) == 0]
        highest = max(ended, default=0)
        for level in range(highest, -1, -1):
            if level == top or level < highest:
                opened(level, slot)
    return found


def test_the_variance_is_that_of_least_squares() -> None:
    tree = LeastSquaresTree(epsilon=1.0, horizon=1000)
    rule = NoisyRunningSums(width=1, radices=tree.radices, noise=NONE, releases=1000)
    mean = float(np.mean([rule.variance(tick) for tick in range(1, 1001)]))
    assert math.isclose(mean, tree.noise(1000)[0], rel_tol=1e-9)
    assert _weights((3,), (2,))[2] == 2.0


def test_rules_come_back_from_their_parameters() -> None:
    for kind, rule in (
        ("overwritten", OverwrittenBits(cells=7, rows=7, noise=DiscreteLaplace(5), releases=2)),
        ("moved", SaturatingCounters(cells=7, tau=9, low=8, noise=NONE)),
        ("summed", NoisyRunningSums(width=3, radices=(2, 2), noise=DiscreteLaplace(5), releases=4)),
    ):
        assert rule_from_parameters(kind, rule.parameters()) == rule
    cells = {"cells": 7, "rows": 1, "noise": 5, "releases": 1}
    sums = {"width": 1, "radices": [2], "noise": 5, "releases": 2}
    for kind, wrong in (
        ("other", {"noise": 1}),
        ("moved", {"noise": 1}),
        ("summed", {}),
        ("summed", []),
        ("overwritten", {**cells, "noise": -1}),
        ("overwritten", {**cells, "noise": 0.5}),
        ("overwritten", {**cells, "cells": -1}),
        ("overwritten", {**cells, "cells": 1 << 39}),
        ("overwritten", {**cells, "releases": "1"}),
        ("summed", {**sums, "radices": [2.0]}),
        ("summed", {**sums, "radices": 2}),
        ("summed", {**sums, "width": 1 << 35}),
    ):
        with pytest.raises(InvalidParameter, match="unknown rule"):
            rule_from_parameters(kind, wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidParameter, match="tau"):
        SaturatingCounters(cells=1, tau=65, noise=NONE)
    with pytest.raises(InvalidParameter, match="radices"):
        NoisyRunningSums(width=1, radices=(2, 2), noise=NONE, releases=5)


def test_numbers_of_a_ring() -> None:
    numbers = np.array([-3, 0, 1, -(1 << 62), (1 << 62) - 1])
    for ring, same in ((SUMS, numbers), (COUNTS, numbers[:3]), (Ring(5), np.array([-2, 0, 2]))):
        assert ring.centred(ring.of(same)) == same.tolist()
        total = ring.of(same)
        ring.add(total, ring.of(same))
        ring.subtract(total, ring.of(same))
        assert ring.centred(total) == same.tolist()
    for modulus, wide in ((1, False), (1 << 64, False), (1 << 128, False), (1 << 64, True)):
        with pytest.raises(InvalidParameter, match="modulus"):
            Ring(modulus, wide=wide)


def test_a_key_is_expanded_the_same_way_by_everybody() -> None:
    key = fresh()
    with Scratch() as scratch:
        one = Keystream(key, scratch)
        other = Keystream(key, scratch)
        assert np.array_equal(one.bits(1 << 21), other.bits(1 << 21))
        assert np.array_equal(one.words(9, SUMS), other.words(9, SUMS))
        with pytest.raises(InvalidParameter, match="modulo 5"):
            one.words(1, Ring(5))
        with pytest.raises(InvalidParameter, match="32 bytes"):
            Keystream(key[:16], scratch)


def test_a_message_of_another_step_is_refused() -> None:
    three = Three()
    three.step(StepTask(kind="idle", started={"a": OverwrittenBits(cells=64, noise=NONE)}))
    with pytest.raises(TwoPartyError, match="does not belong"):
        three.parties[0].close(np.zeros(3, np.uint8), None)  # type: ignore[arg-type]
