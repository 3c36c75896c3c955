"""Running sums as secret shares: totals, and the noise of a least-squares tree over time, neither ever in the clear."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.continual.tree_shape import node_draws
from panstream.algorithms.secret_shared.ring import SUMS, Bits, Numbers, Ring, SeedExpander
from panstream.algorithms.secret_shared.share_rules import Dealt, PendingReveal, draw_noise
from panstream.errors import InvalidParameter
from panstream.primitives.kernels.algorithms.least_squares_tree import draws_needed
from panstream.primitives.kernels.algorithms.secret_shared_tree import FRACTION, answer_wide, close_slot, open_nodes
from panstream.primitives.memory.scratch import wipe
from panstream.primitives.noise import DiscreteLaplace, NoiseSource

_NO_BYTES = np.empty(0, np.uint8)
_MAX_BITS = 127  # of a signed number modulo 2**128
_SUM_BITS = 50  # of a sum, above the fractional bits of its noise


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisyRunningSums:
    """Running totals of ``width`` numbers and the noise of a least-squares tree over time, answered at every tick.

    Each machine adds its own draw to its own share of a node's noise when the node opens; the step's re-randomisation
    masks it. So no noise is drawn for an answer, and none is stored in the clear. ``change`` is added to the totals.
    Without ``totals`` there is the noise only, and nothing to add to.
    """

    width: int
    radices: tuple[int, ...]
    noise: DiscreteLaplace
    releases: int
    ring: Ring = SUMS
    totals: bool = True
    unit: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "radices", tuple(self.radices))
        object.__setattr__(self, "unit", FRACTION * (len(self.radices) - 1))
        if self.unit + _SUM_BITS > _MAX_BITS or math.prod(self.radices) < self.releases:
            raise InvalidParameter(f"radices must be at most 7 and multiply to {self.releases} or more")

    @property
    def _shapes(self) -> tuple[tuple[int, ...], ...]:
        levels = len(self.radices)
        max_radix = max(self.radices[:-1], default=1)
        return (self.width if self.totals else 0, 2), (levels, max_radix, self.width, 2), (levels, self.width, 2)

    @property
    def size(self) -> int:
        """Return the bytes of a share: totals and noises."""
        return 8 * sum(math.prod(shape) for shape in self._shapes)

    def parameters(self) -> dict[str, Any]:
        """Return the public parameters that rebuild the rule: width, radices, noise and the number of ticks."""
        noise = self.noise.numerator
        return {"width": self.width, "radices": list(self.radices), "noise": noise, "releases": self.releases}

    def _views(self, share: Bits) -> list[Numbers]:
        """Return views of a share: totals, the noise of the nodes around the open slot, and that of closed ones."""
        words = share.view(np.uint64)
        offset = 0
        views = []
        for shape in self._shapes:
            views.append(words[offset : offset + math.prod(shape)].reshape(shape))
            offset += math.prod(shape)
        return views

    def start(self, rng: NoiseSource) -> Bits:
        """Return a share of zeros with this machine's draws for the first nodes."""
        share = np.zeros(self.size, np.uint8)
        top = len(self.radices) - 1
        noise = draw_noise((1 + sum(self.radices[:-1])) * self.width, self.noise, rng)
        self._open(top, self._views(share)[1], noise)
        return share

    def _open(self, level: int, siblings: Numbers, noise: NDArray[np.int64]) -> None:
        numbers = self.ring.of(noise)
        open_nodes(level, siblings, np.array(self.radices), numbers)
        wipe(numbers)

    def rerandomize(self, share: Bits, common: SeedExpander, *, first: bool) -> None:
        """Add common uniform numbers to the first machine's share, and subtract them from the second's."""
        numbers = share.view(np.uint64).reshape(-1, 2)
        (self.ring.add if first else self.ring.subtract)(numbers, common.words(len(numbers), self.ring))

    def empty_update(self) -> Dealt:
        """Return the change of a step without rows."""
        return (np.zeros(self.width, np.int64),)

    def deal(self, change: Dealt, first: SeedExpander, second: SeedExpander) -> Dealt:
        """Deal shares of the numbers to add: the first machine's come from its seed, the second's are sent to it."""
        added = self.ring.of(change[0])
        self.ring.subtract(added, first.words(len(added), self.ring))
        return (added,)

    def dealt(self, data: Bits) -> Dealt:
        """Return the second machine's shares from the bytes that it received."""
        return (data.view(np.uint64).reshape(-1, 2),)

    def dealt_size(self, *, answers: bool) -> int:
        """Return how many bytes the second machine is dealt; none for an answer."""
        return 0 if answers else 16 * self.width

    def begin_update(self, expander: SeedExpander, dealt: Dealt | None) -> Dealt:
        """Return the numbers that are added to this machine's share."""
        return (expander.words(self.width, self.ring),) if dealt is None else dealt

    def outgoing_message(self, share: Bits, held: Dealt) -> Bits:
        """Return no bytes: addition needs no exchange."""
        return _NO_BYTES

    def finish_update(self, share: Bits, sent: Bits, received: Bits, held: Dealt) -> None:
        """Add to the totals."""
        self.ring.add(self._views(share)[0], held[0])

    def deal_answer(self, first: SeedExpander, second: SeedExpander) -> Dealt:
        """Return no arrays: an answer is a linear function of the shares."""
        return ()

    def dealt_answer(self, data: Bits) -> Dealt:
        """Return no arrays."""
        return ()

    def hold_answer(
        self, expander: SeedExpander, dealt: Dealt | None, released: int, rng: NoiseSource
    ) -> PendingReveal:
        """Draw the noise of the nodes that open when this slot closes; none do after the last slot of the tree."""
        # The answer also uses nodes that open with it, so the last answer draws them too, unless the tree is over.
        last = released + 1 == math.prod(self.radices)
        count = 0 if last else int(draws_needed(self.digits(released), np.array(self.radices), 1)) * self.width
        return PendingReveal((), draw_noise(count, self.noise, rng), released)

    def send_answer(self, share: Bits, held: PendingReveal) -> Bits:
        """Return no bytes."""
        return _NO_BYTES

    def answer(self, share: Bits, sent: Bits, received: Bits, held: PendingReveal, *, first: bool) -> Numbers:
        """Close the slot, open the nodes that follow, and return a share of the totals with their noise."""
        total, siblings, complete = self._views(share)
        digits = self.digits(held.before)
        radices = np.array(self.radices)
        level = close_slot(siblings, complete, digits, radices, _folds(self.radices), self.ring.small)
        if held.noise.size:
            self._open(level, siblings, held.noise)
        out = self.ring.zeros(self.width)
        if not self.totals:
            total = self.ring.zeros(self.width)
        done, rest, _ = _weights(self.radices, tuple(digits.tolist()))
        answer_wide(total, siblings, complete, digits, radices, done, rest, self.ring.small, out)
        return out

    def digits(self, ticks: int) -> NDArray[np.int64]:
        """Return how many children of every open node are closed after ``ticks`` slots."""
        digits = np.zeros(len(self.radices), np.int64)
        for level, radix in enumerate(self.radices[:-1]):
            ticks, digits[level] = divmod(ticks, radix)
        digits[-1] = ticks
        return digits

    def variance(self, ticks: int) -> float:
        """Return the variance of the noise after ``ticks`` slots, of one machine's draws, in draws."""
        return _weights(self.radices, tuple(self.digits(ticks).tolist()))[2]


@lru_cache(maxsize=4096)
def _weights(radices: tuple[int, ...], digits: tuple[int, ...]) -> tuple[NDArray[np.int64], NDArray[np.int64], float]:
    """Return the weights, in units of 2**-12, of the complete and of the coming nodes of every level in an answer.

    Both machines must use the same weights, so only sums, products and quotients of floats occur, which IEEE 754 makes
    the same on every machine. The third result is the variance of the answer's noise in draws.
    """
    top = len(radices) - 1
    one = float(1 << FRACTION)
    done_weights, rest_weights = np.zeros((2, len(radices)), np.int64)
    draws = node_draws(radices)
    done = digits[0] * draws[0]
    both = 0.0
    rest = float(radices[0] - digits[0]) if top else 0.0
    for level in range(1, top + 1):
        a = done + both
        b = both + rest
        total = a + b + 1.0
        done_weights[level] = round(one * a / total)
        rest_weights[level] = round(one * b / total)
        done = done - a * a / total
        both = both - a * b / total
        rest = rest - b * b / total
        done += digits[level] * draws[level]
        rest += radices[level] - 1 - digits[level] if level < top else 0
    return done_weights, rest_weights, done


@lru_cache(maxsize=256)
def _folds(radices: tuple[int, ...]) -> NDArray[np.int64]:
    """Return the weights, in units of 2**-12, of a node's own draw against its children's when it is closed."""
    folds = np.zeros(len(radices), np.int64)
    draws = node_draws(radices)
    for level in range(1, len(radices)):
        spread = radices[level - 1] * draws[level - 1]
        folds[level] = round((1 << FRACTION) * spread / (spread + 1.0))
    return folds
