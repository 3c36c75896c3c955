"""PPDS, pan-private distinct sampling: a sample of ids whose level rises when the memory is full."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.density.presence import PresenceBatch
from panstream.algorithms.planning.density_published import ppds_failure
from panstream.core.algorithm import Algorithm, consume_release
from panstream.core.estimate import Estimate
from panstream.errors import InvalidBatch, InvalidParameter, NotSupported
from panstream.papers.as_printed.density_base import smallest_error
from panstream.papers.as_printed.density_distributions import laplace_quantile, uniforms
from panstream.primitives import validation as checks
from panstream.primitives.codec import FieldLayout, public
from panstream.primitives.inputs import integers
from panstream.primitives.noise import Coin, DiscreteLaplace, NoiseSource
from panstream.privacy.claim import Claim


@dataclass(slots=True)
class _PPDSState:
    """Stored ids in ascending order, the level, and the hash function.

    ``members`` and ``level`` are deliberately not declared as noised: no proof covers them.
    """

    members: NDArray[np.int64]
    level: int
    factor: int = public()
    shift: int = public()
    released: int = public()


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedPPDS(Algorithm[_PPDSState]):
    """PPDS: ids enter and leave a set by OptBern's coins; when it has ``sample`` ids, half of all users are dropped.

    Digalakis et al. 2018, Algorithm 3, with the hash h(u) = αu + β mod 2^Q, α odd, whose trailing zeros are
    the level of u. Insert-only, as printed.

    Mistake: the level depends on the data, and every event of a user draws the coin again. If the others fill the set
    up to one id, a user with k events leaves the level unchanged with probability (1+e^ε)^-k only, an absent user with
    certainty: an unbounded loss of k·ln(1+e^ε). It claims 2ε. Besides, the output noise is too small as in OptBern. And
    at level L the users that count are one residue class modulo 2^L: a stream of even ids only, for example, is
    estimated as empty or full.

    Args:
        universe: Number of users (ids 0..U-1).
        epsilon: The epsilon of the published form; its true loss is in ``claim``.
        sample: Maximum number of stored ids.
        factor: α; random by default.
        shift: β; random by default.
        integer_noise: Replace the output noise by discrete noise of the same decay rate, for enumeration.

    Examples:
        >>> estimator = PublishedPPDS(universe=1000, epsilon=0.5, sample=100)
        >>> estimator.claim().epsilon
        inf
    """

    state_type: ClassVar[type[Any]] = _PPDSState

    universe: int
    epsilon: float
    sample: int
    factor: int | None = None
    shift: int | None = None
    integer_noise: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.epsilon < math.inf:
            raise InvalidParameter(f"epsilon must be positive and finite, got epsilon={self.epsilon}")
        checks.require_integer_in_range(1, 1 << 40, universe=self.universe)
        checks.require_at_least(1, sample=self.sample)
        if self.factor is not None and not (self.factor % 2 == 1 and 0 < self.factor < max(2, 1 << self.bits)):
            raise InvalidParameter(f"factor must be odd and below 2**{self.bits}, got factor={self.factor}")
        if self.shift is not None:
            checks.require_integer_in_range(0, (1 << self.bits) - 1, shift=self.shift)

    @property
    def bits(self) -> int:
        """Return Q, the smallest with universe <= 2^Q."""
        return (self.universe - 1).bit_length()

    @property
    def gap(self) -> float:
        """Return p_upd - p_init = tanh(ε/2)."""
        return math.tanh(self.epsilon / 2)

    def claim(self) -> Claim:
        """Return the true loss, which is infinite."""
        return Claim(
            epsilon=math.inf,
            unit="user",
            parts={"state": math.inf, "output": math.inf},
            note=f"published as {2 * self.epsilon:g}-pan-private; the level follows the data",
        )

    def layout(self) -> Mapping[str, FieldLayout]:
        """Return the layout of the stored ids, the level and the hash function."""
        return {
            "members": FieldLayout("i8", (None,), at_least=0, below=self.universe),
            "level": FieldLayout("int", at_least=0, below=self.bits + 2),
            "factor": FieldLayout("int", at_least=1, below=max(2, 1 << self.bits)),
            "shift": FieldLayout("int", at_least=0, below=1 << self.bits),
            "released": FieldLayout("int", at_least=0, below=2),
        }

    def initial_state(self, rng: NoiseSource) -> _PPDSState:
        """Draw the hash function, then scan the universe: each user enters with probability p_init."""
        half = 1 << max(self.bits - 1, 0)
        factor = 2 * int(rng.uniform_below(half, 1)[0]) + 1 if self.factor is None else self.factor
        shift = int(rng.uniform_below(1 << self.bits, 1)[0]) if self.shift is None else self.shift
        state = _PPDSState(members=np.empty(0, np.int64), level=0, factor=factor, shift=shift, released=0)
        self._take(state, np.arange(self.universe), (1 - self.gap) / 2, rng)
        return state

    def batch(self, ids: Any) -> PresenceBatch:
        """Check ids that arrive."""
        if ids is None:
            raise InvalidBatch("ids are missing")
        checked, copied = integers(ids, name="ids", lower=0, upper=self.universe - 1)
        return PresenceBatch(checked, None, (checked,) if copied else ())

    def update(self, state: _PPDSState, batch: PresenceBatch, rng: NoiseSource) -> None:
        """Draw a coin of p_upd for each arrival: at 1 its id is stored, at 0 it is not."""
        self._take(state, batch.cells, (1 + self.gap) / 2, rng)

    def _take(self, state: _PPDSState, ids: NDArray[np.int64], chance: float, rng: NoiseSource) -> None:
        coins = rng.bernoulli(Coin.at_most(chance), ids.size)
        levels, new = (levels_of(user_ids, self.bits, state.factor, state.shift) for user_ids in (state.members, ids))
        members = dict(zip(state.members.tolist(), levels.tolist(), strict=True))
        state.level = _walk(members, state.level, ids, new, coins, self.sample)
        state.members = np.array(sorted(members), np.int64)

    def release(self, state: _PPDSState, rng: NoiseSource) -> Estimate:
        """Return the debiased share of stored ids plus Laplace(2^L/(ε·|U|)), unclipped as in the paper."""
        state.released = consume_release(state.released, 1)
        scale = math.ldexp(1.0, state.level) / self.universe
        count = float(state.members.size)
        released: tuple[int, ...] = ()
        noise = 0.0
        if self.integer_noise:
            noisy = np.array([state.members.size], np.int64)
            rng.add_discrete_laplace(noisy, DiscreteLaplace.at_most(self.epsilon / self.gap))
            released = (int(noisy[0]), state.level)
            count = float(noisy[0])
        else:
            noise = float(laplace_quantile(uniforms(rng, 1))[0]) * scale / self.epsilon
        bits = 0.25 / (self.gap**2) * scale  # [Theorem 5.2]
        return Estimate(
            value=(scale * count - 0.5 + self.gap / 2) / self.gap + noise,
            standard_error=math.sqrt(bits + 2 * (scale / self.epsilon) ** 2),
            claim=self.claim(),
            name="density (PPDS, as published)",
            released=released,
        )

    def refresh(self, state: _PPDSState, rng: NoiseSource) -> None:
        """Raise NotSupported: the paper prints no rule for announced intrusions."""
        raise NotSupported("the literal forms cannot be refreshed")

    def error_bound(self, *, beta: float) -> float:
        """Return the smallest alpha whose bound at a full stream is at most ``beta`` (1 if none is)."""
        capacity = min(self.sample, self.universe)
        return smallest_error(lambda alpha: ppds_failure(self.epsilon, alpha, capacity, self.universe), beta)


def levels_of(ids: NDArray[np.int64], bits: int, factor: int, shift: int) -> NDArray[np.int64]:
    """Return the trailing zeros of (factor·u + shift) mod 2**bits; ``bits`` for 0."""
    hashed = (ids * factor + shift) & ((1 << bits) - 1)
    lowest = np.where(hashed == 0, 1 << bits, hashed & -hashed)
    return np.frexp(lowest.astype(np.float64))[1].astype(np.int64) - 1


def _walk(
    members: dict[int, int],
    level: int,
    ids: NDArray[np.int64],
    levels: NDArray[np.int64],
    coins: NDArray[np.uint8],
    capacity: int,
) -> int:
    """Run Algorithm 3's loop over ``ids``: change ``members`` (id to level) in place and return the new level."""
    for user, height, coin in zip(ids.tolist(), levels.tolist(), coins.tolist(), strict=True):
        if user in members:
            if not coin:
                del members[user]
        elif height >= level:
            if coin:
                members[user] = height
            if len(members) >= capacity:
                for stored in [stored for stored, stored_level in members.items() if stored_level <= level]:
                    del members[stored]
                level += 1
    return level
