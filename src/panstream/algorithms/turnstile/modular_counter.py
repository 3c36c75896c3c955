"""One modular counter per sampled user or bucket: the state and steps that all turnstile algorithms share.

A counter starts at a random element of Z_q and every update is added to it modulo q, so it always is the start value
shifted by the user's net weight: deletes undo inserts exactly, in any order. Noise enters at the start of a counter and
at a release, never with an update.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.turnstile._placement import Placement
from panstream.algorithms.turnstile._residues import ResidueLaw
from panstream.core.algorithm import consume_release
from panstream.core.estimate import Estimate
from panstream.core.shardable import Shardable, Touches
from panstream.errors import InvalidBatch, InvalidParameter, NotSupported
from panstream.primitives import validation as checks
from panstream.primitives.codec import FieldLayout, noised, public
from panstream.primitives.inputs import ItemBatch, integers
from panstream.primitives.memory.scratch import Scratch
from panstream.primitives.noise import DiscreteLaplace, NoiseSource
from panstream.privacy.claim import Adjacency, Claim, Intrusions
from panstream.privacy.rounding import state_and_output
from panstream.privacy.turnstile_loss import counter_split, refresh_factor

_MAX_WEIGHT = (1 << 61) - 1  # a weight plus a residue below 2**62 fits into 63 bits


@dataclass(slots=True)
class _CounterState:
    """What the machine holds between two steps, and all an intruder can copy."""

    counters: NDArray[np.int64] = noised()
    released: int = public()


@dataclass(frozen=True, slots=True, kw_only=True)
class _CounterLaw:
    """The start distribution of every counter, the release noise, and their losses.

    ``start`` is None for epsilon = inf: counters start at 0 and are read without noise.
    """

    start: ResidueLaw | None
    noise: DiscreteLaplace
    epsilon_state: float
    kappa: float

    @property
    def at_zero(self) -> float:
        """Return P, the probability that a counter is in the plus class at net weight 0."""
        return 1.0 if self.start is None else self.start.at_zero

    @property
    def elsewhere(self) -> float:
        """Return w, the probability that a counter is in the plus class at any other net weight."""
        return 0.0 if self.start is None else self.start.elsewhere

    @property
    def gap(self) -> float:
        """Return P - w, by which a number of plus counters is divided to estimate a number of users."""
        return self.at_zero - self.elsewhere


@lru_cache(maxsize=256)
def _law(prime: int, epsilon_state: float, kappa: float) -> _CounterLaw:
    start = None if math.isinf(epsilon_state) else ResidueLaw.at_most(prime, epsilon_state)
    return _CounterLaw(start=start, noise=DiscreteLaplace.at_most(kappa), epsilon_state=epsilon_state, kappa=kappa)


@dataclass(frozen=True, slots=True, eq=False)
class CounterBatch:
    """Ids of one batch with a weight each; a single weight applies to all rows."""

    ids: ItemBatch | NDArray[np.int64]
    weights: NDArray[np.int64]
    owned: tuple[NDArray[Any], ...]

    @classmethod
    def read(cls, placement: Placement, ids: Any, weight: Any, lower: int, upper: int) -> Self:
        """Check ids and their weights, integers from ``lower`` to ``upper``; a single integer applies to all rows."""
        single = isinstance(weight, int | np.integer) and not isinstance(weight, bool)
        weights, copied = integers([weight] if single else weight, name="weight", lower=lower, upper=upper)
        owned: tuple[NDArray[Any], ...] = (weights,) if copied else ()
        try:
            read, copies = placement.read(ids)
            owned += copies
            if not single and weights.size != len(read):
                raise InvalidBatch(f"weight must have one value per id, got {weights.size} for {len(read)}")
        except BaseException:
            for array in owned:
                array.fill(0)
            raise
        return cls(read, weights, owned)

    def __len__(self) -> int:
        return len(self.ids)

    def wipe(self) -> None:
        """Overwrite the copies made of the input."""
        for array in self.owned:
            array.fill(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModularCounter(Shardable[_CounterState]):
    """Base of the modular counters. Subclasses give the modulus, what is counted, and how it is decoded.

    Args:
        epsilon: Total loss; ``math.inf`` starts every counter at 0 and counts exactly, for tests.
        universe: Number of users (ids 0..U-1).
        sample: How many users have a counter; all of them by default.
        buckets: Number of hash buckets, for ids of any kind instead of a universe.
        levels: Rows of buckets, each for half as many ids as the one before; 1 by default.
        independence: Use a k-wise independent hash family instead of the keyed mixer.
        max_weight: The largest weight of a row, of either sign; larger ones are refused.
        releases: How many answers there will be.
        adjacency: "add-remove" hides whether a user was there, "replace" which user it was.
        key: Public number that chooses the sample or the hash function.
    """

    state_type: ClassVar[type[Any]] = _CounterState
    proof: ClassVar[str] = "turnstile.md"

    epsilon: float
    universe: int | None = None
    sample: int | None = None
    buckets: int | None = None
    levels: int = 1
    independence: int | None = None
    max_weight: int = (1 << 31) - 1
    releases: int = 1
    adjacency: Adjacency = "add-remove"
    key: int = 0

    def __post_init__(self) -> None:
        checks.require_positive(epsilon=self.epsilon)
        checks.require_integer_in_range(1, _MAX_WEIGHT, max_weight=self.max_weight)
        checks.require_at_least(1, releases=self.releases)
        if self.adjacency not in ("add-remove", "replace"):
            raise InvalidParameter(f"adjacency must be add-remove or replace, got adjacency={self.adjacency!r}")
        self.placement.check()
        self._check()

    @property
    def min_weight(self) -> int:
        """Return the smallest weight that a row may have."""
        return -self.max_weight

    def _check(self) -> None:
        """Raise InvalidParameter if a parameter of the subclass is out of range."""

    @property
    @abstractmethod
    def prime(self) -> int:
        """Return p, the number of blocks."""

    @property
    def width(self) -> int:
        """Return how many values of a counter make a block: the modulus is ``prime * width``."""
        return 1

    @property
    def sensitivity(self) -> int:
        """Return by how much one counter changes the released integers at most, in L1 norm."""
        return 1

    @property
    def law(self) -> _CounterLaw:
        """Return the start distribution and the release noise at the best split."""
        return _law(self.prime, *self._split())

    def _split(self) -> tuple[float, float]:
        """Return (epsilon_state, kappa): the best split of a user's budget for the counters that one number sums."""
        row = self.cells // self.levels
        return counter_split(self.per_user, row, self.prime, releases=self.releases, sensitivity=self.sensitivity)

    @property
    def placement(self) -> Placement:
        """Return the public map from ids to cells."""
        return Placement(**{name: getattr(self, name) for name in Placement.__dataclass_fields__})

    @property
    def cells(self) -> int:
        """Return m, the number of counters."""
        return self.placement.cells

    @property
    def modulus(self) -> int:
        """Return q: net weights that differ by a multiple of q are indistinguishable."""
        return self.prime * self.width

    @property
    def per_user(self) -> float:
        """Return the budget for one user's counter: half of epsilon if one user may be replaced by another."""
        return self.epsilon / 2 if self.adjacency == "replace" else self.epsilon

    def claim(self, adjacency: Adjacency | None = None) -> Claim:
        """Return the exact joint loss of one copy at any time and all releases, in either order.

        By default it is under the adjacency that ``epsilon`` was given for; replacing one user by another costs twice
        as much as adding or removing one.
        """
        chosen_adjacency = self.adjacency if adjacency is None else adjacency
        law = self.law
        users = 2 if chosen_adjacency == "replace" else 1
        total = users * self.per_user
        public_fact = (
            "the buckets, hash key and multipliers" if self.placement.open else "the universe, the sample, its key"
        )
        return Claim(
            epsilon=total,
            unit="user",
            adjacency=chosen_adjacency,
            inputs="adaptive",
            parts=state_and_output(total, *[law.epsilon_state] * users * self._covered_copies),
            intrusions=Intrusions(unannounced=1, announced=self._covered_copies - 1),
            releases=self.releases,
            public=(public_fact, *self._public()),
            note="" if math.isfinite(total) else "no noise: for tests only",
        )

    @property
    def _covered_copies(self) -> int:
        """Return how many copies of the state the claim covers, announced ones included."""
        return 1

    def _public(self) -> tuple[str, ...]:
        """Return further facts that the claim of a subclass declares public."""
        return ()

    def layout(self) -> Mapping[str, FieldLayout]:
        """Return one integer below the modulus per cell, and the release count."""
        return {
            "counters": FieldLayout("i8", (self.cells,), at_least=0, below=self.modulus),
            "released": FieldLayout("int", at_least=0, below=self.releases + 1),
        }

    @property
    def update_columns(self) -> tuple[type[np.generic], ...]:
        """Return the types of a row's weight and, in an open universe, of its public factor."""
        weight = np.int32 if self.max_weight < 1 << 31 else np.int64
        return (weight, np.uint64) if self._factored else (weight,)

    def initial_cells(self, count: int, rng: NoiseSource) -> _CounterState:
        """Return random counters: a coin for the class, a uniform block of the class, a uniform offset in it."""
        counters = np.zeros(count, np.int64)
        self._draw_start(counters, rng)
        return _CounterState(counters=counters, released=0)

    def _draw_start(self, counters: NDArray[np.int64], rng: NoiseSource) -> None:
        """Overwrite counters with start values; leave them if there is no noise."""
        start = self.law.start
        if start is not None:
            from panstream.primitives.kernels.algorithms.modular_counters import draw_start

            coins = rng.bernoulli(start.plus, counters.size)
            squares = int(np.count_nonzero(coins))
            half = (self.prime - 1) // 2
            plus = rng.uniform_below(half, squares)
            minus = rng.uniform_below(half + 1, counters.size - squares)
            offsets = rng.uniform_below(self.width, counters.size if self.width > 1 else 0)
            draw_start(counters, coins, plus, minus, offsets, self.prime, self.width)

    def batch(self, ids: Any, weight: Any = 1) -> CounterBatch:
        """Check ids and their weights, integers from min_weight to max_weight; a single one applies to all rows."""
        return CounterBatch.read(self.placement, ids, weight, self.min_weight, self.max_weight)

    def cell_updates(self, batch: CounterBatch, scratch: Scratch) -> Iterator[Touches]:
        """Yield the counter, the weight and, in an open universe, the public factor of every row."""
        pieces = self.placement.pieces(batch.ids, scratch, multipliers=self.prime if self._factored else 0)
        for rows, cells, factors in pieces:
            weights = batch.weights if batch.weights.size == 1 else batch.weights[rows]
            yield (cells, weights) if factors is None else (cells, weights, factors)

    def apply_updates(self, state: _CounterState, touches: Touches, rng: NoiseSource) -> None:
        """Add every weight, times its factor, to its counter, modulo the modulus."""
        from panstream.primitives.kernels.algorithms.modular_counters import add, add_multiples

        cells, weights, *factors = touches
        # If no weight reaches the modulus, one addition or subtraction reduces the sum; else the kernel reduces weights
        # with the precomputed inverse, which is faster than a division.
        inverse = np.uint64((1 << 64) // self.modulus if self.max_weight >= self.modulus else 0)
        if factors:
            add_multiples(state.counters, cells, weights, factors[0], self.modulus, inverse)
        else:
            add(state.counters, cells, weights, self.modulus, inverse)

    @property
    def _factored(self) -> bool:
        """Return whether rows carry a public factor by which their weights are multiplied."""
        return self.placement.open and self._multiplied

    @property
    def _multiplied(self) -> bool:
        """Return whether only zero or not zero matters, so that weights may be multiplied by a public factor."""
        return False

    def release(self, state: _CounterState, rng: NoiseSource) -> Estimate:
        """Publish the counted integers with noise, decoded."""
        state.released = consume_release(state.released, self.releases)
        counts: NDArray[np.int64] = rng.scratch.array(self._outputs, np.int64)
        self._count(state.counters, counts)
        rng.add_discrete_laplace(counts, self.law.noise)
        return self._decode(tuple(counts.tolist()))

    @property
    def _outputs(self) -> int:
        """Return how many integers a release publishes."""
        return self.levels

    @abstractmethod
    def _count(self, counters: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
        """Write the integers that a release publishes, before noise."""

    def _read(self, counters: NDArray[np.int64], first: int, readings: int, counts: NDArray[np.int64]) -> None:
        """Count the counters in plus blocks, for ``readings`` blocks from ``first`` down; exactly without noise."""
        from panstream.primitives.kernels.algorithms.modular_counters import plus_counts, sum_hats

        if self.law.start is None:
            sum_hats(counters, self.modulus, self.width, first, readings, counts)
        else:
            plus_counts(counters, self.prime, self.width, first, readings, counts)

    @abstractmethod
    def _decode(self, released: tuple[int, ...]) -> Estimate:
        """Turn published integers into an estimate."""

    def refresh(self, state: _CounterState, rng: NoiseSource) -> None:
        """Raise NotSupported: with a second start value the published numbers could no longer be decoded."""
        factor = 1.0 if self.law.start is None else refresh_factor(self.law.epsilon_state, self.prime)
        raise NotSupported(
            f"{type(self).__name__} cannot be refreshed: a second start value needs the whole histogram of counters to "
            f"be decoded, and makes the variance {factor:.2g} times as large here. ProfileSketch(announced=) pays that "
            "price, for a small largest"
        )
