"""Closed forms for bitmaps of noisy cells: moments of decoded levels, optimal splits, and the loss of noisy merges.

A user hashes to one cell. Its bit is 1 with probability p0 if no user hashed there and p1 = 1 - p0 otherwise. Proofs:
docs/proofs/bitmap.md; every loss here is checked against an enumeration of the shipped code.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from panstream.errors import InvalidParameter
from panstream.primitives import validation as checks
from panstream.primitives.noise.distributions import COIN_BITS, exp_fraction
from panstream.privacy.budget_split import density_split, laplace_variance
from panstream.privacy.joint_loss import kappa_for, kappa_for_approx, present_probability
from panstream.privacy.numeric_search import minimise
from panstream.privacy.rounding import HAIR, log_up, remainder, round_down, round_up

Floats = NDArray[np.float64]
_MIN_VARIANCE = 1e-12  # instead of 0, for a bitmap without noise and without users


@dataclass(frozen=True, slots=True)
class Decoder:
    """The value that a stored bit counts as, ``zero`` or ``one``, chosen so that its mean is 1 for an empty cell.

    Arrivals re-draw a cell: (p1 - b)/(p1 - p0), whose mean is 0 for an occupied cell. Arrivals toggle it:
    (1 - 2b)/(p1 - p0), whose mean is -1 after an odd number of them.
    """

    zero: float
    one: float
    p0: float
    p1: float

    @classmethod
    def redrawn(cls, p1: float, p0: float | None = None) -> Decoder:
        """Return the decoder of cells that every arrival re-draws; p0 defaults to 1 - p1."""
        low = 1.0 - p1 if p0 is None else p0
        return cls(p1 / (p1 - low), (p1 - 1.0) / (p1 - low), low, p1)

    @classmethod
    def toggled(cls, p1: float) -> Decoder:
        """Return the decoder of cells that every arrival toggles."""
        gap = 2.0 * p1 - 1.0
        return cls(1.0 / gap, -1.0 / gap, 1.0 - p1, p1)

    def pattern_weights(self, phases: int) -> Floats:
        """Return, for every pattern of bits copied in announced intrusions, the product of their decoded values.

        Its mean over a user's bits is 1 if she was absent in all these phases and 0 otherwise, so it decodes "absent so
        far" without bias.
        """
        weights = np.ones(1)
        for _ in range(phases):
            weights = np.concatenate([weights * self.zero, weights * self.one])
        return weights

    def second_moments(self, phases: int) -> tuple[float, float]:
        """Return the mean square of the product over all phases, for a cell that stayed empty and one that did not.

        The second is an upper bound, attained by a cell that is touched in one phase only.
        """
        empty = self.p1 * self.zero**2 + self.p0 * self.one**2
        occupied = self.p0 * self.zero**2 + self.p1 * self.one**2
        return empty ** (phases + 1), occupied * empty**phases

    def noise(self, variance: float, phases: int) -> float:
        """Return the variance that release noise of ``variance`` on every pattern's count adds to a level."""
        return variance * (self.one - self.zero) ** 2 * (self.zero**2 + self.one**2) ** phases


def level_rates(buckets: int, levels: int) -> Floats:
    """Return, per level j, the probability that a user hashes to a given cell: 2**-(j+1)/B, for the last twice that."""
    shares = 0.5 ** np.minimum(np.arange(1, levels + 1), max(levels - 1, 0))
    return shares / buckets


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LevelMoments:
    """Mean and covariance, given the number of users, of the decoded number of empty cells on each level.

    The mean is B·e**(-rate·n). Cells filled by a Poisson number of users would be independent with variance
    B(m2(n) - mean²) + noise on each level; a fixed number n takes n·slope·slope' from the covariance
    (bitmap.md, Lemma 3).
    """

    cells: int
    rates: Floats
    second_empty: float | Floats  # one for all levels, or one per level
    second_occupied: float | Floats
    noise: float | Floats

    @classmethod
    def of(
        cls, decoder: Decoder, *, buckets: int, levels: int, noise: float, phases: int = 0, turns: int = 1
    ) -> LevelMoments:
        """Return the moments of a bitmap; ``turns`` is 2 for cells that toggle, else 1."""
        empty, occupied = decoder.second_moments(phases)
        return cls(
            cells=buckets,
            rates=turns * level_rates(buckets, levels),
            second_empty=empty,
            second_occupied=occupied,
            noise=decoder.noise(noise, phases),
        )

    def at(self, users: float | Floats) -> tuple[Floats, Floats, Floats]:
        """Return mean, slope and (Poisson) variance on each level; one row per element of ``users``."""
        empty = np.exp(-np.multiply.outer(users, self.rates))
        mean = self.cells * empty
        spread = self.second_empty * empty + self.second_occupied * (1.0 - empty) - empty**2
        return mean, -self.rates * mean, np.maximum(self.cells * spread + self.noise, _MIN_VARIANCE)

    def poisson_information(self, users: float) -> float:
        """Return the information about n if the number of users itself were Poisson with mean n."""
        _, slope, variance = self.at(users)
        return float((slope**2 / variance).sum())

    def variance(self, users: float) -> float:
        """Return the inverse Fisher information about n: 1/I_Poisson - n (bitmap.md, Theorem 3)."""
        information = self.poisson_information(users)
        return max(1.0 / information - users, 0.0) if information > 0.0 else math.inf

    def relative_error(self, users: float) -> float:
        """Return the standard error of the count divided by the count."""
        return math.sqrt(self.variance(users)) / users


def reference_users(buckets: int, levels: int) -> float:
    """Return the number of users for which a bitmap is tuned by default: the middle of its range."""
    return buckets * math.exp2(levels / 2.0)


@lru_cache(maxsize=1024)
def bitmap_split(
    epsilon: float, buckets: int, levels: int, users: float, releases: int = 1, announced: int = 0, turns: int = 1
) -> tuple[float, float]:
    """Return (epsilon_state, kappa) with the smallest error of the count at ``users``.

    Without announced intrusions every level has variance B·e(1-e) + [B·p0·p1 + Var DLap]/(p1-p0)², e the mean part of
    empty cells, so the best split is that of ``density_split`` for B bits, for any ``users``. ``turns`` is 2 for cells
    that toggle.

    >>> state, kappa = bitmap_split(1.0, 4096, 24, reference_users(4096, 24))
    >>> round(state, 3), round(kappa, 3)
    (0.901, 0.136)
    """

    if turns == 1 and announced == 0:
        return density_split(epsilon, buckets, releases)
    checks.require_positive(epsilon=epsilon)
    if math.isinf(epsilon):
        return math.inf, math.inf

    def error(state: float) -> float:
        p1 = present_probability(state)
        if turns == 1:
            decoder = Decoder.redrawn(p1)
            kappa = kappa_for_approx(epsilon, state, releases, announced)
        else:
            decoder = Decoder.toggled(p1)
            kappa = (epsilon - (announced + 1) * state) / releases
        noise = laplace_variance(kappa)
        moments = LevelMoments.of(decoder, buckets=buckets, levels=levels, noise=noise, phases=announced, turns=turns)
        return moments.variance(min(users, 2.0 / float(moments.rates.min())))  # with more users every cell is occupied

    top = epsilon / (announced + 1)
    state = minimise(error, 1e-6 * top, top * (1.0 - 1e-9), 1e-9)
    return state, (kappa_for if turns == 1 else toggling_kappa)(epsilon, state, releases, announced)


def toggling_kappa(epsilon: float, epsilon_state: float, releases: int = 1, announced: int = 0) -> float:
    """Return the kappa whose joint loss (k+1)·epsilon_state + n·kappa is ``epsilon``, rounded down."""
    remaining = remainder(epsilon, *[epsilon_state] * (announced + 1))
    if math.isinf(remaining):
        return math.inf
    if not remaining > 0:
        raise InvalidParameter(f"epsilon_state must leave something of epsilon={epsilon}, got {epsilon_state}")
    return round_down(remaining / releases)


def noisy_or(first: Fraction, second: Fraction) -> tuple[Fraction, Fraction, Fraction]:
    """Return the probabilities of a 1 after bits (1, 0), (0, 1), (1, 1) with these flip probabilities; 0 after (0, 0).

    They make the decoded result, on average, the product of what the two bits decode to, so that the result is a bit
    flipped with probability ``merged_flip([first, second])``, in any order of merging (bitmap.md, Theorem 2).
    """
    scale = 1 - 2 * first * second
    return (1 - second) / scale, (1 - first) / scale, (1 - first - second) / scale


def merged_flip(flips: Sequence[Fraction]) -> Fraction:
    """Return p* with (1-2p*)/(1-p*) = product of (1-2p)/(1-p), that is 1 - e**-eps* = product of 1 - e**-eps."""
    product = math.prod(((1 - 2 * flip) / (1 - flip) for flip in flips), start=Fraction(1))
    return (1 - product) / (2 - product)


def merged_loss(
    states: Sequence[float], kappa: float, releases: int = 1, *, seen: Collection[int], merged: bool = False
) -> float:
    """Return the joint loss of one copy of each site in ``seen``, of the merged state if ``merged``, and the releases.

    ``states`` are the sites' epsilon_state. A user may be at every site, so the losses of the copies add up; the rest
    depends on her rows after the copies. Given the bits seen, the merged bit is 1 with probability h(1 - y), h = 1 -
    p*: y = 0 if she came to any site afterwards (or to one that was not seen), else y is the product over the seen
    sites of 1 (a 0 was seen) or -e**-eps (a 1 was seen), times 1 - e**-eps for each site not seen. With T the product
    over those and P = h(1 - T), a copy of the merged state adds ln(1/(1-T)) + ln(P + (1-P)·e**(n·kappa)). Without it,
    all sites seen add ln(1 - h + h·e**(n·kappa)); if only some are, the computation grows with the cube of ``releases``
    (bitmap.md, Theorem 2).

    >>> round(merged_loss([math.log(3)] * 2, math.log(1.25), seen=[0]), 3)
    1.195
    >>> round(merged_loss([math.log(3)] * 2, math.log(1.25), seen=[0, 1]), 3)
    2.346
    """
    chosen = set(seen)
    if not states or not chosen <= set(range(len(states))):
        raise InvalidParameter(f"seen must name sites in 0..{len(states) - 1}, got {sorted(chosen)}")
    if math.isinf(kappa) or any(math.isinf(state) for state in states):
        return math.inf
    shown = [states[i] for i in chosen]
    high = 1.0 / (1.0 + _merged_odds(states))  # h = 1 - p*
    unseen_odds = _merged_odds(state for i, state in enumerate(states) if i not in chosen)  # 1 - T
    if merged:
        rest = (
            _extreme_output(high * unseen_odds, releases * kappa) - math.log(unseen_odds)
            if unseen_odds > 0.0
            else math.inf
        )
    elif unseen_odds == 0.0:
        rest = _extreme_output(1.0 - high, releases * kappa)
    else:
        # y lies between these two (all bits seen are 0; the likeliest one is 1), and every ratio is monotone in y.
        ends = [1.0 - unseen_odds, *([-(1.0 - unseen_odds) * math.exp(-min(shown))] if shown else [])]
        rest = max(outputs_loss(high * (1.0 - y), high, kappa, releases) for y in ends)
    return math.fsum(shown) + rest


def _extreme_output(low: float, exponent: float) -> float:
    """Return ln(low + (1 - low)·e**exponent)."""
    return exponent + math.log1p(low * math.expm1(-exponent))


def _merged_odds(states: Iterable[float]) -> float:
    """Return e**-eps* where 1 - e**-eps* is the product of 1 - e**-eps; 0 without any."""
    odds = 0.0
    for state in states:
        odds += math.exp(-state) * (1.0 - odds)
    return odds


@lru_cache(maxsize=1024)
def outputs_loss(first: float, high: float, kappa: float, releases: int) -> float:
    """Return the loss of the answers alone: the largest log-ratio of their weights for two behaviours of a user.

    Her bit is 1 with probability ``first`` or, after an arrival, ``high``; it may be re-drawn before every output. An
    output above (below) all sums weighs a bit of 1 by e**kappa (e**-kappa), others lie between. So an interval without
    an arrival weighs 1 - p + p·e**(kappa·m), m the number of outputs above less that of outputs below in it. ``best``
    is indexed, for both behaviours, by the probability in the last interval (``first`` or ``high``) and its m.
    """
    steps = kappa * np.arange(-releases, releases + 1)
    drawn = np.array([[first], [high]])
    with np.errstate(divide="ignore"):  # a bit that is certain
        weights = np.logaddexp(np.log1p(-drawn), np.log(drawn) + steps)
    more = weights[:, :, np.newaxis, np.newaxis]
    less = weights
    best = np.full((*weights.shape, *weights.shape), -np.inf)
    best[:, releases, :, releases] = 0.0
    for _ in range(releases):
        best[1, releases] = np.maximum(best[1, releases], (best + more).max(axis=(0, 1)))
        best[:, :, 1, releases] = np.maximum(best[:, :, 1, releases], (best - less).max(axis=(2, 3)))
        best = np.maximum(*(np.roll(best, output, axis=(1, 3)) for output in (1, -1)))
    return float((best + more - less).max())


def started_outputs_loss(first: float, high: float, kappa: float, start: float) -> float:
    """Return the loss of one answer and of the number of ones before any row, released at the rate ``start``.

    Her bit is 1 with probability ``first``, which the start weighs by e**x, and the answer weighs the same bit by e**y,
    or after an arrival one with probability ``high``; the ratio is largest at the ends of |x| <= start, |y| <= kappa.
    """

    def weight(chance: float, exponent: float) -> float:
        return math.log1p(chance * math.expm1(exponent))

    ends = [(x, y) for x in (start, -start) for y in (kappa, -kappa)]
    return max(abs(weight(first, x) + weight(high, y) - weight(first, x + y)) for x, y in ends)


@lru_cache(maxsize=1024)
def merged_claim(states: tuple[float, ...], kappa: float, releases: int = 1) -> float:
    """Return the loss of copying as many states as there are sites, the merged one included, rounded up.

    That is one copy of every site, or of all sites but one and of the merged state. The latter loses more, most if the
    site left out has the largest epsilon_state. Copies of all of them have no finite loss (bitmap.md, Theorem 2).

    Computed like ``merged_loss``, with 70 digits and a margin for the coins of the merges, which are multiples of
    2**-64: each changes the probability of a merged bit by less than that.
    """
    if math.isinf(kappa) or math.inf in states:
        return math.inf
    noisiest = states.index(max(states))
    odds = [exp_fraction(-Fraction(state)) for state in states]
    high = 1 / (2 - math.prod((1 - ratio for ratio in odds), start=Fraction(1)))  # h = 1 - p*
    unseen_odds = odds.pop(noisiest)  # 1 - T
    low = high * unseen_odds
    output = low + (1 - low) * exp_fraction(Fraction(kappa) * releases)
    # ``low`` bounds the probability of either value of a merged bit from below: a 0 has at least (1 - T(K + o))·h, o
    # the largest of the odds seen, K the product of one minus each of them, and K is at most 1 - o.
    margin = 4 * Fraction(len(states) - 1, 1 << COIN_BITS) / low
    shown = sum(map(Fraction, states), Fraction(0)) - Fraction(states[noisiest])
    return round_up(shown + Fraction(log_up(output / unseen_odds * (1 + HAIR))) + margin)
