"""The loss of noisy merges against a walk over everything that one user can do and everything that can be seen."""

import math
from collections.abc import Iterator
from itertools import combinations, product

import pytest

from panstream.errors import InvalidParameter
from panstream.privacy import bitmap_loss as bitmap
from panstream.privacy.bitmap_loss import merged_claim, merged_loss
from panstream.privacy.joint_loss import pair_loss, symmetric_loss

Behaviour = tuple[float, float]
"""The chance of the bits that were seen at the sites, and that of a 1 right after the merge."""


def behaviours(flips: list[float], shown: dict[int, int]) -> Iterator[Behaviour]:
    """Yield what she can do before the merge: come to a site or not, before its look and after it."""
    sites = []
    for site, flip in enumerate(flips):
        bit = shown.get(site)
        if bit is None:
            sites.append([(1.0, flip), (1.0, 1.0 - flip)])
        else:
            starts = (flip, 1.0 - flip)
            sites.append([(p if bit else 1.0 - p, later) for p in starts for later in (float(bit), 1.0 - flip)])
    for done in product(*sites):
        one = done[0][1]
        merged = flips[0]
        for (_, other), flip in zip(done[1:], flips[1:], strict=True):
            # Hehir, Ting, Cormode 2023: a 1 comes out with these chances after (1, 0), (0, 1) and (1, 1), never after
            # (0, 0).
            scale = 1 - 2 * merged * flip
            one = (
                one * (1 - other) * (1 - flip) + (1 - one) * other * (1 - merged) + one * other * (1 - merged - flip)
            ) / scale
            merged = (merged + flip - 3 * merged * flip) / scale
        yield math.prod(chance for chance, _ in done), one


def weight(start: Behaviour, view: tuple[tuple[str, float], ...], come: tuple[int, ...], fresh: float) -> float:
    """Return the weight of the view after the merge; before each event she may come, and her bit is drawn
    afresh.
    """
    chance, one = start
    zeros = chance * (1 - one)
    ones = chance * one
    for (event, value), arrival in zip(view, come, strict=True):
        if arrival:
            zeros, ones = (zeros + ones) * (1 - fresh), (zeros + ones) * fresh
        if event == "output":
            ones *= value
        elif value:
            zeros = 0.0
        else:
            ones = 0.0
    return zeros + ones


def enumerated(states: tuple[float, ...], kappa: float, releases: int, seen: tuple[int, ...], merged: bool) -> float:
    """Return the largest log-ratio over all pairs of what she can do and all views, the look being anywhere between
    outputs.
    """
    flips = [1 / (1 + math.exp(state)) for state in states]
    factor = math.prod(1 - math.exp(-state) for state in states)
    fresh = 1 / (2 - factor)
    # Outputs above all sums weigh a 1 by K, those below by 1/K; a ratio of two mixtures is largest at one of both.
    output = [("output", math.exp(kappa)), ("output", math.exp(-kappa))]
    look = [("look", 0.0), ("look", 1.0)]
    orders = [[output] * at + [look] + [output] * (releases - at) for at in range(releases + 1)]
    worst = 0.0
    for bits in product((0, 1), repeat=len(seen)):
        starts = set(behaviours(flips, dict(zip(seen, bits, strict=True))))
        for order in orders if merged else [[output] * releases]:
            for view in product(*order):
                arrivals = list(product((0, 1), repeat=len(view)))
                weights = [weight(start, view, come, fresh) for start in starts for come in arrivals]
                if min(weights) < 1e-15 * max(weights):
                    return math.inf
                worst = max(worst, math.log(max(weights) / min(weights)))
    return worst


@pytest.mark.parametrize("states", [(0.7,), (0.3, 2.0), (3.0, 0.1), (1.0, 0.5, 1.5)], ids=str)
@pytest.mark.parametrize("kappa", [0.2, 2.5])
@pytest.mark.parametrize("releases", [1, 2])
def test_every_choice_of_looks_loses_what_is_enumerated(states: tuple[float, ...], kappa: float, releases: int) -> None:
    everyone = range(len(states))
    losses = {}
    for size, merged in product(range(len(states) + 1), (False, True)):
        for seen in combinations(everyone, size):
            losses[seen, merged] = enumerated(states, kappa, releases, seen, merged)
            assert merged_loss(states, kappa, releases, seen=seen, merged=merged) == pytest.approx(
                losses[seen, merged], rel=1e-9
            )
    covered = max(loss for (seen, merged), loss in losses.items() if len(seen) + merged <= len(states))
    assert merged_claim(states, kappa, releases) == pytest.approx(covered, rel=1e-9)


@pytest.mark.parametrize(("states", "kappa"), [((0.7,), 1.0), ((0.05, 0.05), 0.3), ((2.0, 0.05), 3.0)], ids=str)
def test_arrivals_between_three_outputs_tell_more_than_a_bit_that_stays(
    states: tuple[float, ...], kappa: float
) -> None:
    """Without a copy; outputs that go up and down are the worst for the last two."""
    loss = merged_loss(states, kappa, 3, seen=())
    assert loss == pytest.approx(enumerated(states, kappa, 3, (), False), rel=1e-9)
    factor = math.prod(1 - math.exp(-state) for state in states)
    high = 1 / (2 - factor)
    growth = math.exp(3 * kappa)
    assert loss > math.log((1 - high + high * growth) / (high + (1 - high) * growth)) + 1e-4


@pytest.mark.parametrize("states", [(0.4, 1.0), (2.0, 0.1, 1.0), (3.0, 3.0, 3.0, 0.2)], ids=str)
@pytest.mark.parametrize(("kappa", "releases"), [(0.3, 1), (1.5, 4), (0.001, 5000)])
def test_looks_at_all_sites_or_at_the_merged_state(states: tuple[float, ...], kappa: float, releases: int) -> None:
    """All bits seen: outputs tell of a bit of 0 that is drawn afresh or not. Merged: the loss of two coins, P and h."""
    factor = math.prod(1 - math.exp(-state) for state in states)
    high = 1 / (2 - factor)
    everyone = range(len(states))
    outputs = math.log(1 - high + high * math.exp(releases * kappa))
    assert merged_loss(states, kappa, releases, seen=everyone) == pytest.approx(sum(states) + outputs, rel=1e-9)
    for unseen in everyone:
        seen = [site for site in everyone if site != unseen]
        low = high * math.exp(-states[unseen])
        assert merged_loss(states, kappa, releases, seen=seen, merged=True) == pytest.approx(
            sum(states[site] for site in seen) + pair_loss(low, high, kappa, releases), rel=1e-9
        )


@pytest.mark.parametrize("seen", [[0], [1], [0, 1], [0, 2]])
def test_outputs_are_followed_from_the_rarest_and_the_likeliest_one(
    seen: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all chances of a 1 after the merge, over everything that she can do and that some sites can show."""
    states = [0.4, 1.1, 0.9]
    calls = []
    flips = [1 / (1 + math.exp(state)) for state in states]
    patterns = [dict(zip(seen, bits, strict=True)) for bits in product((0, 1), repeat=len(seen))]
    chances = [one for shown in patterns for _, one in behaviours(flips, shown)]
    monkeypatch.setattr(bitmap, "outputs_loss", lambda first, *_: calls.append(first) or 0.0)
    assert merged_loss(states, 0.3, 2, seen=seen) == pytest.approx(sum(states[site] for site in seen))
    assert sorted(calls) == pytest.approx([min(chances), max(chances)])


def test_no_look_or_one_site_is_the_bitmap_with_the_merged_flip() -> None:
    assert merged_claim((1.2,), 0.4, 2) == pytest.approx(symmetric_loss(1.2, 0.4, 2), rel=1e-12)
    assert merged_loss([60.0, 60.0], 0.4, seen=[0], merged=True) == pytest.approx(120.4, rel=1e-12)
    assert merged_loss([2000.0, 1.0], 0.4, seen=[1], merged=True) == math.inf  # more than a float can tell


@pytest.mark.parametrize(("states", "kappa"), [((math.inf, 1.0), 1.0), ((1.0, 1.0), math.inf)])
def test_sites_or_releases_without_noise_have_no_finite_loss(states: tuple[float, ...], kappa: float) -> None:
    for merged in (False, True):
        assert merged_loss(states, kappa, seen=[1], merged=merged) == math.inf
    assert merged_claim(states, kappa) == math.inf


def test_only_sites_can_be_seen() -> None:
    for states, seen in (([], []), ([1.0, 1.0], [2]), ([1.0, 1.0], [-1])):
        with pytest.raises(InvalidParameter, match="seen must name sites"):
            merged_loss(states, 1.0, seen=seen)


@pytest.mark.parametrize("states", [(25.0, 1.0), (20.0, 22.0, 0.5), (22.0, 0.3, 21.0, 20.0)], ids=str)
def test_coins_in_units_of_a_merge_are_allowed_for_where_a_bit_is_seldom(states: tuple[float, ...]) -> None:
    """Each merge may be off by 2**-64 either way under both behaviours, of the least chance that any bit has."""
    left_out = states.index(max(states))
    seen = [site for site in range(len(states)) if site != left_out]
    flips = [1 / (1 + math.exp(state)) for state in states]
    chances = [
        one
        for bits in product((0, 1), repeat=len(seen))
        for _, one in behaviours(flips, dict(zip(seen, bits, strict=True)))
    ]
    margin = merged_claim(states, 0.5) - merged_loss(states, 0.5, seen=seen, merged=True)
    assert margin == pytest.approx(4 * (len(states) - 1) * 2.0**-64 / min(chances), rel=1e-3)
    assert 1 - max(chances) > 0.999 * min(chances)
