"""Noisy merges: the claim is the enumerated loss of the shipped code, the count is unbiased, chains and bytes work."""

import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import chain, combinations, product
from typing import Any

import numpy as np
import pytest

from panstream import Monitor
from panstream.algorithms.distinct import merged_bitmap as merged_module
from panstream.algorithms.distinct.bitmap import Bitmap
from panstream.algorithms.distinct.merged_bitmap import MergedBitmap
from panstream.algorithms.distinct.toggling_bitmap import TogglingBitmap
from panstream.algorithms.randomized_bits import BitState
from panstream.errors import InvalidParameter, MergeError, NotSupported
from panstream.primitives.noise import DiscreteLaplace, NoiseSource, SeededSource
from panstream.privacy.bitmap_loss import merged_loss
from panstream.privacy.joint_loss import symmetric_loss
from panstream.testing.sources import outcomes
from tests.algorithms.distinct.bitmap_cases import ids_in
from tests.statistical import assert_mean

WINDOW = (-1, 2)
STATE = math.log(3)
KAPPA = math.log(1.25)
SITE = Bitmap(epsilon=symmetric_loss(STATE, KAPPA), epsilon_state=STATE, buckets=1, levels=1)
USER = ids_in(SITE, 0)
Bit = dict[int, Fraction]


def holding(bit: int) -> BitState:
    return BitState(bits=np.array([bit], np.uint8), frozen=np.empty((0, 1), np.uint8), released=0)


class Sites:
    """Several one-cell bitmaps merged one after the other, every step's law taken from the shipped code."""

    def __init__(self, sites: list[Bitmap]) -> None:
        self.sites = sites
        self.chain: list[Any] = [sites[0]]
        for site in sites[1:]:
            with NoiseSource() as rng:
                self.chain.append(self.chain[-1].merge(holding(0), site, holding(0), rng)[0])
        self.merged: MergedBitmap = self.chain[-1]
        self.join = cache(self._join)
        self.drawn = cache(self._drawn)
        self.released = cache(self._released)

    def _drawn(self, algorithm: Any, come: bool) -> Bit:
        """Return the law of a fresh cell, or of one that the user has come to."""

        def run(rng: NoiseSource) -> int:
            state = algorithm.initial_state(rng)
            if come:
                algorithm.update(state, algorithm.batch(USER), rng)
            return int(state.bits[0])

        return law(outcomes(run, WINDOW))

    def _join(self, step: int, mine: int, theirs: int) -> Bit:
        first = self.chain[step]
        second = self.sites[step + 1]

        def run(rng: NoiseSource) -> int:
            return int(first.merge(holding(mine), second, holding(theirs), rng)[1].bits[0])

        return law(outcomes(run, WINDOW))

    def _released(self, bit: int) -> Bit:
        def run(rng: NoiseSource) -> int:
            return self.merged.release(holding(bit), rng).released[0]

        return law(outcomes(run, WINDOW))

    def result(self, bits: tuple[Bit, ...]) -> Bit:
        """Return the law of the merged bit, given independent bits at the sites."""
        current = bits[0]
        for step, other in enumerate(bits[1:]):
            current = mixed(
                (a * b, self.join(step, x, y)) for (x, a), (y, b) in product(current.items(), other.items())
            )
        return current

    def behaviours(self, site: int, seen: int | None) -> list[tuple[Fraction, Bit]]:
        """Return, for all that one user can do at a site: the chance of what was seen, and the bit's law at the
        merge.
        """
        start = [self.drawn(self.sites[site], come) for come in (False, True)]
        if seen is None:
            return [(Fraction(1), bit) for bit in start]
        touched = self.drawn(self.sites[site], True)
        return [(bit[seen], later) for bit in start for later in ({seen: Fraction(1)}, touched)]

    def looked_at(self, seen: tuple[int, ...], *, merged: bool) -> float:
        """Return the exact loss: looks at ``seen`` sites, then merge, look at the merged state if asked, and
        release.
        """
        worst = Fraction(1)
        for shown in product((0, 1), repeat=len(seen)):
            views = dict(zip(seen, shown, strict=True))
            weights: dict[Any, list[Fraction]] = {}
            for done in product(*(self.behaviours(site, views.get(site)) for site in range(len(self.sites)))):
                chance = math.prod((chance for chance, _ in done), start=Fraction(1))
                bit = self.result(tuple(bit for _, bit in done))
                for view, weight in self.after(bit, merged):
                    weights.setdefault(view, []).append(chance * weight)
            for found in weights.values():
                lowest = min(found)
                if not lowest:
                    return math.inf
                worst = max(worst, max(found) / lowest)
        return math.log(worst.numerator) - math.log(worst.denominator)

    def after(self, bit: Bit, merged: bool) -> Iterator[tuple[Any, Fraction]]:
        """Yield (view, weight) for all that she can do after the merge; one view name for each comparable pair."""
        touched = self.drawn(self.merged, True)
        if not merged:
            for output in range(WINDOW[0], WINDOW[1] + 1):
                yield output, sum((p * self.released(b)[output] for b, p in bit.items()), Fraction(0))
            return
        for output, look in product(range(WINDOW[0], WINDOW[1] + 1), (0, 1)):
            for early, late in product((False, True), repeat=2):
                first = touched if early else bit
                # the look, then perhaps an arrival, then the output
                then = touched if late else {look: Fraction(1)}
                yield ("look first", output, look), first.get(look, Fraction(0)) * expectation(then, output, self)
                # the output, then perhaps an arrival, then the look
                if late:
                    yield ("output first", output, look), expectation(first, output, self) * touched[look]
                else:
                    yield ("output first", output, look), first.get(look, Fraction(0)) * self.released(look)[output]


def expectation(bit: Bit, output: int, sites: Sites) -> Fraction:
    return sum((p * sites.released(b)[output] for b, p in bit.items()), Fraction(0))


def law(weighted: Iterator[tuple[Fraction, int]]) -> Bit:
    found: Bit = {}
    for weight, value in weighted:
        found[value] = found.get(value, Fraction(0)) + weight
    return found


def mixed(parts: Iterator[tuple[Fraction, Bit]]) -> Bit:
    found: Bit = {}
    for weight, bit in parts:
        for value, chance in bit.items():
            found[value] = found.get(value, Fraction(0)) + weight * chance
    return found


@pytest.fixture(scope="module")
def pair() -> Sites:
    return Sites([SITE, SITE])


def test_losses_of_two_sites_are_those_of_the_design(pair: Sites) -> None:
    assert pair.looked_at((0,), merged=False) == pytest.approx(1.195, abs=5e-4)
    assert pair.looked_at((0, 1), merged=False) == pytest.approx(2.346, abs=5e-4)
    # what the single-state formula would say of the merged flip probability
    assert symmetric_loss(pair.merged.law.epsilon_state, KAPPA) == pytest.approx(0.737, abs=5e-4)


@pytest.mark.slow
@pytest.mark.parametrize("states", [(STATE, STATE), (0.3, 2.0), (1.0, 0.5, 1.5)])
@pytest.mark.parametrize("kappa", [KAPPA, 1.5])
def test_claim_and_every_partial_loss_are_enumerated(states: tuple[float, ...], kappa: float) -> None:
    sites = Sites([replace(SITE, epsilon=symmetric_loss(s, kappa), epsilon_state=s) for s in states])
    everyone = range(len(states))
    subsets = list(chain.from_iterable(combinations(everyone, size) for size in range(len(states) + 1)))
    found = {}
    for seen, merged in product(subsets, (False, True)):
        found[seen, merged] = sites.looked_at(seen, merged=merged)
        assert found[seen, merged] == pytest.approx(sites.merged.loss(seen=seen, merged=merged), rel=1e-9)
    covered = max(loss for (seen, merged), loss in found.items() if len(seen) + merged <= len(states))
    assert sites.merged.claim().epsilon == pytest.approx(covered, rel=1e-9)
    assert found[tuple(everyone), True] == math.inf
    assert sites.merged.claim().epsilon >= sum(states)


@pytest.mark.slow
@pytest.mark.parametrize("sites", [4, 8])
def test_losses_of_longer_chains(sites: int) -> None:
    """All sites seen: all bits shown for 4 sites; for 8 the extreme ones and a few more. Touched: none, each, all."""
    chained = Sites([SITE] * sites)
    assert len(chained.merged.sites) == sites
    rng = np.random.default_rng(sites)
    shown = list(product((0, 1), repeat=sites)) if sites == 4 else [
        (0,) * sites, (1,) * sites, *(tuple(int(i == j) for j in range(sites)) for i in range(sites)),
        *(tuple(int(b) for b in rng.integers(0, 2, sites)) for _ in range(10)),
    ]  # fmt: skip
    touched = [(0,) * sites, (1,) * sites, *(tuple(int(i == j) for j in range(sites)) for i in range(sites))]
    fresh = chained.drawn(SITE, True)
    outputs = range(WINDOW[0], WINDOW[1] + 1)
    worst = 1.0
    for bits in shown:
        laws = [
            chained.result(tuple(fresh if t else {b: Fraction(1)} for b, t in zip(bits, come, strict=True)))
            for come in touched
        ]
        for output in outputs:
            weights = [expectation(bit, output, chained) for bit in laws]
            worst = max(worst, float(max(weights) / min(weights)))
    # Before its look every site was come to or not, as suits the intruder: a factor of R for each.
    assert sites * STATE + math.log(worst) == pytest.approx(chained.merged.loss(seen=range(sites)), rel=1e-9)
    one_seen = [
        chained.result(({0: Fraction(1)}, *[chained.drawn(SITE, False)] * (sites - 1))),
        chained.result((fresh, *[chained.drawn(SITE, True)] * (sites - 1))),
    ]
    ratio = max(expectation(one_seen[1], o, chained) / expectation(one_seen[0], o, chained) for o in outputs)
    assert STATE + math.log(float(ratio)) == pytest.approx(chained.merged.loss(seen=[0]), rel=1e-9)


@pytest.mark.slow
def test_the_merged_bit_is_flipped_with_the_published_probability() -> None:
    """In whatever order sites are merged: 1 - e**-eps* = product of 1 - e**-eps, whoever came."""
    states = (0.4, 1.1, 2.5)
    for order in ((0, 1, 2), (2, 0, 1), (1, 2, 0)):
        sites = Sites([replace(SITE, epsilon=9.0, epsilon_state=states[i]) for i in order])
        kept = math.prod(-math.expm1(-s) for s in states)
        flip = (1 - kept) / (2 - kept)
        for come in product((False, True), repeat=3):
            bit = sites.result(tuple(sites.drawn(site, c) for site, c in zip(sites.sites, come, strict=True)))
            assert float(bit[1]) == pytest.approx(1 - flip if any(come) else flip, rel=1e-12)
        assert float(sites.merged.law.absent) == pytest.approx(flip, rel=1e-12)


@pytest.mark.parametrize("sabotage", ["single-state claim", "plain OR", "output noise halved", "coins off by 1%"])
def test_sabotage_is_caught(sabotage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Sites([SITE, SITE]).merged
    claimed = honest.loss(seen=[0])
    law = honest.law
    if sabotage == "single-state claim":
        claimed = symmetric_loss(law.epsilon_state, KAPPA)
    elif sabotage == "plain OR":
        monkeypatch.setattr(merged_module, "noisy_or", lambda first, second: (Fraction(1),) * 3)
    elif sabotage == "output noise halved":
        quieter = replace(law, noise=DiscreteLaplace.at_most(2 * KAPPA))
        monkeypatch.setattr(MergedBitmap, "law", property(lambda self: quieter))
    else:
        true = merged_module.noisy_or
        monkeypatch.setattr(merged_module, "noisy_or", lambda a, b: tuple(r * Fraction(101, 100) for r in true(a, b)))
    assert Sites([SITE, SITE]).looked_at((0,), merged=False) > claimed + 1e-4


RUNS = 60


@pytest.mark.slow
@pytest.mark.parametrize("sites", [2, 4, 8])
def test_merged_counts_are_unbiased(sites: int) -> None:
    """Sites whose users overlap; merged one after the other and in pairs. Bias under 4 standard errors at N = RUNS."""
    rng = SeededSource(sites)
    values = []
    errors = []
    covered = 0
    for run in range(RUNS):
        algorithm = Bitmap(epsilon=3.0, buckets=1024, levels=16, key=run)
        monitors = [Monitor[Any](algorithm, rng=rng) for _ in range(sites)]
        for i, monitor in enumerate(monitors):
            monitor.update(range(4000 * i, 4000 * i + 8000))
        if run % 2:
            while len(monitors) > 1:
                monitors = [monitors[i].merge(monitors[i + 1]) for i in range(0, len(monitors), 2)]
        else:
            while len(monitors) > 1:
                monitors[:2] = [monitors[0].merge(monitors[1])]
        estimate = monitors[0].release()
        values.append(estimate.unbiased)
        errors.append(estimate.standard_error)
        low, high = estimate.interval()
        covered += low <= 4000 * (sites + 1) <= high
    truth = 4000.0 * (sites + 1)
    z = (np.mean(values) - truth) / (np.mean(errors) / math.sqrt(RUNS))
    assert abs(z) < 4, f"{sites} sites: mean {np.mean(values):.0f}, truth {truth:.0f}, z = {z:.2f}"
    assert_mean(np.array(values), truth, f"{sites} merged sites")
    assert 0.75 < np.std(values) / np.mean(errors) < 1.35
    assert covered > 0.8 * RUNS


def test_sites_of_different_epsilon_and_updates_after_the_merge() -> None:
    first, second = (Monitor[Any](Bitmap(epsilon=e), rng=SeededSource(int(e))) for e in (2.0, 4.0))
    first.update(range(10_000))
    second.update(range(10_000, 20_000))
    kappas = [monitor.algorithm.law.noise.kappa for monitor in (first, second)]
    merged = first.merge(second)
    merged.update(range(20_000, 30_000))
    assert merged.algorithm.kappa == min(kappas)
    estimate = merged.release()
    assert abs(estimate.unbiased - 30_000) < 6 * estimate.standard_error


def test_bytes_round_trip_and_chains_go_on() -> None:
    monitors = [Bitmap(epsilon=3.0, buckets=256, expected=5000 + i).start() for i in range(3)]
    for monitor in monitors:
        monitor.update(range(5000))
    merged = monitors[0].merge(monitors[1])
    again = Monitor[Any].from_bytes(merged.to_bytes())
    assert again.algorithm == merged.algorithm
    assert again.algorithm.expected == 5001
    assert np.array_equal(again.state.bits, merged.state.bits)
    three = monitors[2].merge(again)
    assert len(three.algorithm.sites) == 3
    assert three.claim().intrusions.unannounced == 3
    assert three.claim().epsilon > merged.claim().epsilon
    assert three.release().claim == three.claim()


def test_merging_consumes_and_wipes_its_inputs() -> None:
    first = Bitmap(epsilon=1.0).start()
    second = Bitmap(epsilon=1.0).start()
    arrays = [first.state.bits, second.state.bits]
    first.merge(second)
    assert not any(array.any() for array in arrays)
    for consumed in (first, second):
        with pytest.raises(NotSupported, match="consumed"):
            consumed.update([1])


def test_without_noise_the_merge_is_an_or() -> None:
    first, second = (Bitmap(epsilon=math.inf, buckets=64, levels=8).start() for _ in range(2))
    first.update(range(50))
    second.update(range(30, 80))
    whole = Bitmap(epsilon=math.inf, buckets=64, levels=8).start()
    whole.update(range(80))
    merged = first.merge(second)
    assert np.array_equal(merged.state.bits, whole.state.bits)
    assert merged.claim().epsilon == math.inf


def test_refusals() -> None:
    def site(**rest: Any) -> Monitor[Any]:
        return Bitmap(epsilon=1.0, buckets=64, levels=8, **rest).start()

    released = site()
    released.release()
    with pytest.raises(MergeError, match="has released"):
        released.merge(site())
    refreshed = site(announced=1)
    refreshed.refresh(rows_since_copy=False)
    with pytest.raises(MergeError, match="refreshed"):
        site().merge(refreshed)
    toggling = TogglingBitmap(epsilon=1.0, buckets=64, levels=8).start()
    with pytest.raises(MergeError, match="TogglingBitmap"):
        site().merge(toggling)
    merged = site().merge(site())
    with pytest.raises(NotSupported, match="cannot be refreshed"):
        merged.refresh()
    with pytest.raises(MergeError, match="same key"):
        merged.merge(site(key=1))
    with pytest.raises(MergeError, match="same hash"):
        merged.merge(site(hash="siphash"))
    state = merged.state
    with NoiseSource() as rng, pytest.raises(MergeError, match="itself"):
        merged.algorithm.merge(state, merged.algorithm, state, rng)


def test_bad_parameters() -> None:
    with pytest.raises(InvalidParameter, match="sites must be two or more"):
        MergedBitmap(sites=(1.0,), kappa=0.1)
    with pytest.raises(InvalidParameter, match="sites must be two or more"):
        MergedBitmap(sites=(1.0, 0.0), kappa=0.1)
    with pytest.raises(InvalidParameter, match="kappa must be positive"):
        MergedBitmap(sites=(1.0, 1.0), kappa=0.0)
    with pytest.raises(InvalidParameter, match="seen must name sites in 0..1"):
        MergedBitmap(sites=(1.0, 1.0), kappa=0.1).loss(seen=[2])
    assert merged_loss([1.0, 1.0], math.inf, seen=[0]) == math.inf


def test_the_parts_of_a_claim_add_up_to_it() -> None:
    claim = MergedBitmap(sites=(0.5, 0.25), kappa=0.1, buckets=4, levels=2).claim()
    assert claim.parts["state"] == 0.75
    assert 0 < claim.parts["output"] == pytest.approx(claim.epsilon - 0.75)
    open_book = MergedBitmap(sites=(math.inf, 1.0), kappa=0.1, buckets=4, levels=2).claim()
    assert open_book.epsilon == open_book.parts["output"] == math.inf
    assert open_book.note == "no noise: for tests only"
