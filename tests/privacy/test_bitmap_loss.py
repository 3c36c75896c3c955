"""Closed forms of the bitmaps: splits against a grid, merges against matrices and limits."""

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from panstream.errors import InvalidParameter
from panstream.privacy.bitmap_loss import (
    Decoder,
    LevelMoments,
    bitmap_split,
    level_rates,
    merged_claim,
    merged_flip,
    merged_loss,
    noisy_or,
    reference_users,
    toggling_kappa,
)
from panstream.privacy.budget_split import laplace_variance
from panstream.privacy.joint_loss import kappa_for, present_probability, symmetric_loss

states = st.floats(0.05, 5.0)


@pytest.mark.parametrize("levels", [1, 2, 3, 24])
def test_rates_are_the_chances_of_the_cells(levels: int) -> None:
    shares = level_rates(7, levels) * 7
    assert shares.sum() == pytest.approx(1.0)
    assert shares[0] == (1.0 if levels == 1 else 0.5)
    assert shares[-1] == 0.5 ** (levels - 1)


@pytest.mark.parametrize("users", [10.0, 1e4, 1e9])
def test_a_table_that_would_be_full_is_tuned_too(users: float) -> None:
    for turns in (1, 2):
        state, kappa = bitmap_split(2.0, 512, 12, users, announced=1, turns=turns)
        assert 0.3 < state < 0.95
        assert kappa > 0.01


@pytest.mark.parametrize("announced", [0, 1, 2])
@pytest.mark.parametrize("kind", ["redrawn", "toggled"])
def test_split_is_the_best_of_a_grid(kind: str, announced: int) -> None:
    epsilon = 3.0
    buckets = 256
    levels = 10
    users = 3000.0
    releases = 2
    turns = 1 if kind == "redrawn" else 2
    state, kappa = bitmap_split(epsilon, buckets, levels, users, releases, announced, turns)

    def error(x: float) -> float:
        if kind == "redrawn":
            noise = kappa_for(epsilon - announced * x, x, releases)
        else:
            noise = toggling_kappa(epsilon, x, releases, announced)
        decoder = getattr(Decoder, kind)(present_probability(x))
        turns = 1 if kind == "redrawn" else 2
        return LevelMoments.of(
            decoder, buckets=buckets, levels=levels, noise=laplace_variance(noise), phases=announced, turns=turns
        ).variance(users)

    top = epsilon / (announced + 1)
    assert error(state) <= min(error(x) for x in np.linspace(0.005, 0.995, 199) * top) * (1 + 1e-9)
    if kind == "redrawn":
        assert announced * state + symmetric_loss(state, kappa, releases) == pytest.approx(epsilon)
    else:
        assert (announced + 1) * state + releases * kappa == pytest.approx(epsilon)


def test_no_noise_and_bad_budgets() -> None:
    assert bitmap_split(math.inf, 16, 4, 100.0) == (math.inf, math.inf)
    assert toggling_kappa(math.inf, 1.0) == math.inf
    with pytest.raises(InvalidParameter, match="epsilon must be positive"):
        bitmap_split(0.0, 16, 4, 100.0)
    with pytest.raises(InvalidParameter, match="must leave something"):
        toggling_kappa(1.0, 1.0)


@given(states, st.integers(0, 7))
def test_decoders_are_unbiased_for_an_empty_cell(state: float, phases: int) -> None:
    p1 = present_probability(state)
    redrawn = Decoder.redrawn(p1)
    toggled = Decoder.toggled(p1)
    for decoder, occupied in ((redrawn, 0.0), (toggled, -1.0)):
        assert p1 * decoder.zero + (1 - p1) * decoder.one == pytest.approx(1.0, rel=1e-9)
        assert (1 - p1) * decoder.zero + p1 * decoder.one == pytest.approx(occupied, abs=1e-6)
        weights = decoder.pattern_weights(phases)
        assert weights.size == 1 << phases
        assert decoder.noise(1.0, phases) == pytest.approx(
            (decoder.one - decoder.zero) ** 2 * (weights @ weights), rel=1e-6
        )


@pytest.mark.parametrize("kind", ["redrawn", "toggled"])
def test_second_moments_of_three_phases_are_those_of_the_product(kind: str) -> None:
    """Brute force over all bits of three phases, for a cell that stayed empty and for one come to in one phase."""
    p1 = 0.8
    decoder = getattr(Decoder, kind)(p1)
    for come, which in (((), 0), ((1,), 1)):
        total = 0.0
        for bits in product((0, 1), repeat=3):
            chance = 1.0
            value = 1.0
            for phase, bit in enumerate(bits):
                one = p1 if phase in come else 1 - p1
                chance *= one if bit else 1 - one
                value *= decoder.one if bit else decoder.zero
            total += chance * value**2
        assert decoder.second_moments(2)[which] == pytest.approx(total)


@given(states, states)
def test_noisy_or_gives_a_flipped_or(first: float, second: float) -> None:
    """Exactly, over the rationals: empty with empty flips with p*, anything else with 1 - p*."""
    flips = [Fraction(1 - present_probability(s)) for s in (first, second)]
    only_first, only_second, both = noisy_or(*flips)
    assert all(0 <= chance <= 1 for chance in (only_first, only_second, both))
    flip = merged_flip(flips)
    for come in product((0, 1), repeat=2):
        p, q = ((1 - f if c else f) for f, c in zip(flips, come, strict=True))
        one = p * (1 - q) * only_first + (1 - p) * q * only_second + p * q * both
        assert one == (1 - flip if any(come) else flip)
    published = (flips[0] + flips[1] - 3 * flips[0] * flips[1]) / (1 - 2 * flips[0] * flips[1])
    assert flip == published


@given(st.lists(states, min_size=2, max_size=5), st.floats(0.01, 3.0), st.integers(1, 3))
def test_losses_of_merges_grow_with_what_was_seen(sites: list[float], kappa: float, releases: int) -> None:
    nobody = merged_loss(sites, kappa, releases, seen=[])
    losses = [nobody]
    for seen in range(1, len(sites) + 1):
        losses.append(merged_loss(sites, kappa, releases, seen=range(seen)))
    assert all(a <= b + 1e-9 for a, b in zip(losses, losses[1:], strict=False))
    assert losses[-1] <= merged_claim(tuple(sites), kappa, releases) + 1e-12
    assert sum(sites) < losses[-1] <= sum(sites) + releases * kappa
    kept = math.prod(-math.expm1(-s) for s in sites)
    alone = merged_loss(sites, kappa, releases, seen=[], merged=True)
    assert alone == pytest.approx(symmetric_loss(-math.log1p(-kept), kappa, releases), rel=1e-6)
    assert merged_loss(sites, kappa, releases, seen=range(len(sites)), merged=True) == math.inf


def test_reference_is_the_middle_of_the_range() -> None:
    assert reference_users(4096, 24) == 4096 * 4096


def test_one_release_and_no_announced_look_unless_more_is_said() -> None:
    assert bitmap_split(1.0, 256, 4, 1e3) == bitmap_split(1.0, 256, 4, 1e3, 1, 0)
    assert bitmap_split(1.0, 256, 4, 1e3, turns=2) == bitmap_split(1.0, 256, 4, 1e3, 1, 0, 2)
    assert toggling_kappa(1.0, 0.4) == toggling_kappa(1.0, 0.4, 1, 0) == pytest.approx(0.6)
    assert toggling_kappa(1.0, 0.2, 2, 1) == pytest.approx(0.3)


def test_no_phase_unless_said() -> None:
    decoder = Decoder.redrawn(present_probability(1.0))
    plain, said = (
        LevelMoments.of(decoder, buckets=64, levels=4, noise=2.0, **more) for more in ({}, {"phases": 0, "turns": 1})
    )
    assert plain.variance(500.0) == said.variance(500.0)
    assert plain.noise == said.noise


def test_one_release_of_a_merged_state_unless_more_is_said() -> None:
    assert merged_claim((1.0, 1.0), 0.3) == merged_claim((1.0, 1.0), 0.3, 1) < merged_claim((1.0, 1.0), 0.3, 2)
    assert merged_loss([1.0, 1.0], 0.3, seen=[0]) == merged_loss([1.0, 1.0], 0.3, 1, seen=[0])


def test_without_noise_nobody_is_counted_exactly() -> None:
    """All cells are seen to be empty; a number of users far below that of the cells is known but for those who
    share one.
    """
    exact = LevelMoments.of(Decoder.redrawn(1.0), buckets=256, levels=8, noise=0.0)
    assert exact.variance(0.0) < 1e-9
    _, _, spread = exact.at(0.0)
    assert (spread < 1e-9).all()
    assert (spread > 0.0).all()
    assert exact.variance(2.0) < 0.5
    blind = LevelMoments.of(Decoder.redrawn(0.75), buckets=4, levels=1, noise=1.0)
    assert blind.variance(1e9) == math.inf  # every cell is occupied: no information


def test_a_bitmap_is_tuned_for_its_users_up_to_where_its_last_level_is_full() -> None:
    """With an announced look the best split moves with the number of users; two users for every cell of the last
    level are the most.
    """
    epsilon = 2.0
    buckets = 64
    levels = 6
    full = 2.0 * buckets * 2 ** (levels - 1)

    def error(state: float, users: float) -> float:
        noise = laplace_variance(kappa_for(epsilon - state, state))
        decoder = Decoder.redrawn(present_probability(state))
        return LevelMoments.of(decoder, buckets=buckets, levels=levels, noise=noise, phases=1).variance(users)

    found = {}
    for share in (0.01, 0.4, 1.0):
        state, _ = bitmap_split(epsilon, buckets, levels, share * full, announced=1)
        for nearby in (state * 0.999, state * 1.001):
            assert error(state, share * full) < error(nearby, share * full)
        found[share] = state
    assert min(abs(found[0.01] - found[0.4]), abs(found[0.4] - found[1.0])) > 0.002
    for beyond in (1.3, 1e6):
        assert bitmap_split(epsilon, buckets, levels, beyond * full, announced=1)[0] == found[1.0]
