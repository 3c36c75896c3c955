"""Noisy bits whose number of ones is published at every tick: the state and steps shared by densities and bitmaps.

Arrivals redraw bits. A tree of noisy sums covers the ticks: an open node holds -S plus a draw, S being the number of
ones when it opened, and is released as the change since then with a second draw. Rows do not change the nodes.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.continual.noise_sum_tails import Law, laplace_at_rate
from panstream.algorithms.continual.noisy_tree import NoisyTree, TreeState
from panstream.algorithms.continual.ticker import Ticker
from panstream.algorithms.continual.tree_shape import EPOCHS
from panstream.algorithms.continual_users.release_strategies import (
    METHODS,
    TUNED_TICKS,
    Method,
    Protected,
    ReleaseStrategy,
    StrategyInputs,
    best_strategy,
    strategy_from_parameters,
)
from panstream.algorithms.continual_users.slots import tick_each
from panstream.algorithms.randomized_bits import BitState, RandomizedBits
from panstream.core.estimate import Estimate, Estimates, format_number
from panstream.errors import InvalidParameter, NotSupported
from panstream.primitives import validation as checks
from panstream.primitives.codec import FieldLayout, noised, public, published
from panstream.primitives.kernels.algorithms.packed_bits import count_set_bits
from panstream.primitives.memory.scratch import Scratch
from panstream.primitives.noise import DiscreteLaplace, NoiseSource
from panstream.privacy.claim import Claim, Intrusions, count_of
from panstream.privacy.person_loss import WindowLoss
from panstream.privacy.rounding import state_and_output

_NAMES: dict[Method, str] = {
    "paid": "releases that are paid for one by one",
    "event": "priced at event level",
    "user": "priced at user level",
}
_TREE_FIELDS = ("open", "draws", "digits", "closed", "ticks", "epoch")


@dataclass(slots=True)
class SetBitState:
    """What the machine holds between two steps, and all an intruder can copy."""

    bits: NDArray[np.uint8] = noised()  # packed
    open: NDArray[np.int64] = noised()  # per open node: a draw minus the number of ones when it opened
    start: NDArray[np.int64] = published()  # the noisy number of ones before the first row, if it is released
    draws: NDArray[np.int64] = public()
    digits: NDArray[np.int64] = public()
    closed: NDArray[np.int64] = published()  # bits of float64 numbers, as in a tree; for paid releases the last one
    ticks: int = public()
    epoch: int = public()

    @property
    def cells(self) -> BitState:
        """Return a view of the bits in the form that the algorithm which redraws them takes."""
        return BitState(bits=self.bits, frozen=np.empty((0, self.bits.size), np.uint8), released=0)

    @property
    def tree(self) -> TreeState:
        """Return a tree state over the same arrays; its ``ticks`` and ``epoch`` are copies."""
        return TreeState(**{name: getattr(self, name) for name in _TREE_FIELDS}, events=0)


@dataclass(frozen=True, slots=True)
class PublicView:
    """What is public after a tick: the noisy sums of the answer, their noise, and the noisy start."""

    sums: NDArray[np.float64]
    noise: float  # variance of each sum, in ones
    law: Law
    start: NDArray[np.int64]
    released: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SetBitCounter(Ticker[SetBitState]):
    """Base of the algorithms that publish a number of ones at every tick. Subclasses give the cells and the decoding.

    Args:
        horizon: How many ticks there will be; at event level there need not be one.
        unit: "event" protects one row; "user-window" the rows of one user within ``window`` ticks in a row; "user" all
            rows of one user, or of a user who has at most ``contributions``.
        window: Ticks in a row in which a user's rows are protected together.
        expected: About how many users will come; only the split of epsilon is tuned for it.
        key: Public number that chooses the sample or the hash function.
        method: How ticks are released; the method with the smallest error by default, stored with the state.
        levels: Levels of the tree; the best by default, stored with the state.
        epsilon_state: Share of epsilon that is spent on the cells; the best by default, stored with the state.
        start_rate: Probability of a set bit at the start; the best by default, stored with the state.
    """

    state_type: ClassVar[type[Any]] = SetBitState
    proof: ClassVar[str] = "continual-users.md"

    unit: Protected = "event"
    window: int | None = None
    contributions: int | None = None
    expected: float | None = None
    key: int = 0
    method: Method | None = None
    levels: int | None = None
    epsilon_state: float | None = None
    start_rate: float | None = None
    strategy: ReleaseStrategy = field(init=False, repr=False, compare=False)
    engine: NoisyTree = field(init=False, repr=False, compare=False)  # not used where releases are paid for
    _claim: Claim = field(init=False, repr=False, compare=False)  # built once: every answer carries it

    def __post_init__(self) -> None:
        self._check_numbers()
        if self.unit not in ("event", "user-window", "user"):
            raise InvalidParameter(f"unit must be 'event', 'user-window' or 'user', got unit={self.unit!r}")
        if (self.window is not None) != (self.unit == "user-window"):
            raise InvalidParameter("window, a number of ticks, must be given for unit='user-window', and only there")
        if self.window is not None:
            checks.require_at_least(1, window=self.window)
        if self.contributions is not None and self.unit != "user":
            raise InvalidParameter(f"contributions needs unit='user', got unit={self.unit!r}")
        if self.expected is not None and not 0 < self.expected < math.inf:
            raise InvalidParameter(f"expected must be a positive number of users, got expected={self.expected}")
        if self.method is not None and self.method not in METHODS:
            raise InvalidParameter(f"method must be one of {', '.join(METHODS)}, got method={self.method!r}")
        self.check()
        self._choose_strategy()

    def _choose_strategy(self) -> None:
        inputs = self.strategy_inputs
        if self.method is None or self.levels is None or self.epsilon_state is None or self.start_rate is None:
            if (self.levels, self.epsilon_state, self.start_rate) != (None, None, None):
                raise InvalidParameter("method, levels, epsilon_state and start_rate must be given together")
            strategy = best_strategy(inputs, self.method)
        elif reason := inputs.unavailable_reason(self.method):
            raise NotSupported(reason)
        else:
            strategy = strategy_from_parameters(inputs, self.method, self.epsilon_state, self.levels, self.start_rate)
        # The chosen values become parameters, so that a stored state is read by the strategy that wrote it.
        for name, value in (
            ("method", strategy.method),
            ("levels", strategy.levels),
            ("epsilon_state", strategy.epsilon_state),
            ("start_rate", strategy.start),
            ("strategy", strategy),
            ("engine", NoisyTree(strategy.rate, 1, 1, self.width, False, strategy.shape(self.horizon))),
        ):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "_claim", self._build_claim())

    @property
    @abstractmethod
    def strategy_inputs(self) -> StrategyInputs:
        """Return what is published and what is protected."""

    def _inputs_for(self, cells: int, density: float, **more: Any) -> StrategyInputs:
        protected = {"unit": self.unit, "window": self.window, "rows": self.contributions, **more}
        return StrategyInputs(epsilon=self.epsilon, cells=cells, density=density, horizon=self.horizon, **protected)

    @property
    @abstractmethod
    def table(self) -> RandomizedBits:
        """Return the algorithm whose cells are counted."""

    @property
    def width(self) -> int:
        """Return how many numbers of ones an answer publishes."""
        return 1

    @abstractmethod
    def decode(self, seen: PublicView) -> Estimate:
        """Return the estimate from public numbers.

        Args:
            seen: What has been published so far.
        """

    @property
    def pays_per_release(self) -> bool:
        """Return whether every answer is charged as a release of its own, without a tree."""
        return self.strategy.method == "paid"

    @property
    def law(self) -> DiscreteLaplace:
        """Return the noise distribution of a paid release."""
        return laplace_at_rate(self.strategy.rate)

    def claim(self) -> Claim:
        """Return the joint loss of one copy at any time and all answers: exact, or bounded from above by Theorem B."""
        return self._claim

    def window_loss(self) -> WindowLoss:
        """Return what a user loses to the state of a single answer with and without a copy of it."""
        if self.horizon != 1 or self.unit != "user" or not self.pays_per_release or getattr(self, "deletions", False):
            return Ticker.window_loss(self)
        plan = self.strategy
        return WindowLoss.of_started_bits(self.epsilon, plan.epsilon_state, plan.rate, plan.start)

    def _build_claim(self) -> Claim:
        note = f"rows of one user within {self.window} ticks in a row" if self.unit == "user-window" else ""
        if self.contributions is not None:
            note = f"a user of at most {count_of(self.contributions, 'row')}"
        return Claim(
            epsilon=self.epsilon,
            unit=self.unit,
            parts={} if math.isinf(self.epsilon) else state_and_output(self.epsilon, self.strategy.epsilon_state),
            intrusions=Intrusions(unannounced=1, announced=0),
            inputs="adaptive",
            releases=-1 if self.horizon is None else self.horizon,
            horizon=self.horizon,
            public=self.public_facts,
            note="no noise: for tests only" if math.isinf(self.epsilon) else note,
        )

    @property
    @abstractmethod
    def public_facts(self) -> tuple[str, ...]:
        """Return what is public besides the answers."""

    def layout(self) -> Mapping[str, FieldLayout]:
        """Return the layout of the bits, the start and the tree; paid releases have no open nodes."""
        cells: dict[str, FieldLayout] = {
            "bits": FieldLayout("packed", (self.table.cells,)),
            "start": FieldLayout("i8", (self.width,)),
        }
        if self.pays_per_release:
            tree = {
                "open": FieldLayout("i8", (0, self.width)),
                "draws": FieldLayout("i8", (0,), at_least=0),
                "digits": FieldLayout("i8", (0,), at_least=0),
                "closed": FieldLayout("i8", (1, self.width + 1)),
                "ticks": FieldLayout("int", at_least=0, below=self.last_slot + 1),
                "epoch": FieldLayout("int", at_least=0, below=EPOCHS),
            }
        else:
            tree = self.engine.layout(self.last_slot)
        layout = {**cells, **tree}
        return {name: layout[name] for name in SetBitState.__dataclass_fields__}

    def initial_state(self, rng: NoiseSource) -> SetBitState:
        """Return untouched bits and open nodes over them; release the start if the strategy does."""
        cells = self.table.initial_state(rng)
        with Scratch() as scratch:
            state = self.start_counted(self._ones(cells, scratch), rng)
        state.bits = cells.bits
        return state

    def start_counted(self, ones: NDArray[np.int64], rng: NoiseSource) -> SetBitState:
        """Return a state over untouched bits that are elsewhere.

        Args:
            ones: The numbers of ones among them, which the caller overwrites; negated afterwards.
            rng: Source of the noise.
        """
        state = self.empty_state()
        state.bits = np.empty(0, np.uint8)
        if self.strategy.start:
            state.start[:] = ones
            rng.add_discrete_laplace(state.start, laplace_at_rate(self.strategy.start))
        if not self.pays_per_release:
            self.engine.open_all(state.tree, rng)
            self.engine.add(state.tree, np.negative(ones, out=ones))
        return state

    def batch(self, *args: Any, **kwargs: Any) -> Any:
        """Check rows as the algorithm of the cells does."""
        return self.table.batch(*args, **kwargs)

    def update(self, state: SetBitState, batch: Any, rng: NoiseSource) -> None:
        """Redraw the bits of the batch; raise BudgetExhausted after the last tick."""
        self.require_slots(state.ticks, 1)
        self.table.update(state.cells, batch, rng)

    def tick(self, state: SetBitState, rng: NoiseSource) -> Estimate:
        """Close the slot and return the estimate so far."""
        with Scratch() as scratch:  # not that of ``rng``, which closing a slot of the tree wipes
            return self.tick_counted(state, self._ones(state.cells, scratch), rng)

    def tick_counted(self, state: SetBitState, ones: NDArray[np.int64], rng: NoiseSource) -> Estimate:
        """Close the slot of a state whose bits may be elsewhere, and return the estimate so far.

        Args:
            state: The state; its bits are not read.
            ones: The numbers of ones, which the caller overwrites; changed.
            rng: Source of the noise.
        """
        self.require_slots(state.ticks, 1)
        if not self.pays_per_release:
            return self.decode(self._close(state, ones, rng))
        rng.add_discrete_laplace(ones, self.law)
        state.closed.view(np.float64)[0, :-1] = ones
        state.ticks += 1
        return self._answer(state, tuple(int(number) for number in ones))

    def _close(self, state: SetBitState, ones: NDArray[np.int64], rng: NoiseSource) -> PublicView:
        """Close the nodes that end at this tick and return what is public then."""
        # All open nodes are at -S + draw; with the present number of ones added they hold the noisy change, which the
        # tree releases. Subtracting it again leaves open nodes as they were and starts the new ones at -S.
        tree = state.tree
        self.engine.add(tree, ones)
        try:
            sums, variances, released = self.engine.close(tree, 1, None, rng)
        finally:
            self.engine.add(tree, np.negative(ones, out=ones))
        state.ticks = tree.ticks
        state.epoch = tree.epoch
        law = self.engine.law(tree.epoch)
        return PublicView(sums[0], float(variances[0]), law, state.start, tuple(released.tolist()))

    def tick_many(self, state: SetBitState, values: Sequence[Any], rng: NoiseSource) -> Estimates:
        """Take the ids of one slot after another, close each, and return all estimates."""
        return tick_each(self, state, values, rng)

    def release(self, state: SetBitState, rng: NoiseSource) -> Estimate:
        """Return the estimate of the last tick again, which is public; with ``horizon=1`` close the only tick first."""
        if self.horizon == 1:
            return self.tick(state, rng)
        self.require_tick(state.ticks)
        return self._answer(state, ())

    def refresh(self, state: SetBitState, rng: NoiseSource) -> None:
        """Raise NotSupported: once a bit is known, its later changes have no finite loss."""
        raise NotSupported(
            f"{type(self).__name__} covers one intrusion: a second copy would show every change of a bit"
        )

    def count_ones(self, cells: BitState, ones: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
        """Return the numbers of ones among all bits: they are exact, and the caller overwrites them."""
        ones = np.empty(self.width, np.int64) if ones is None else ones
        ones.fill(0)
        count_set_bits(cells.bits, cells.frozen, self.table.cells // self.width, ones.reshape(1, -1))
        return ones

    def _ones(self, cells: BitState, scratch: Scratch) -> NDArray[np.int64]:
        return self.count_ones(cells, scratch.array(self.width, np.int64))

    def _answer(self, state: SetBitState, released: tuple[int, ...]) -> Estimate:
        if self.pays_per_release:
            sums = state.closed.view(np.float64)[0, :-1]
            return self.decode(PublicView(sums, self.law.variance, self.law, state.start, released))
        total = self.engine.totals(state.tree)
        return self.decode(
            PublicView(total[:-1], float(total[-1]), self.engine.law(state.epoch), state.start, released)
        )

    @abstractmethod
    def expected_estimate(self, ticks: int, users: float) -> Estimate:
        """Return the answer after ``ticks`` ticks if ``users`` have appeared and every draw were 0."""

    @property
    @abstractmethod
    def planned(self) -> float:
        """Return the number of users for which errors are reported: ``expected``, or a default."""

    def errors(self) -> dict[int, float]:
        """Return the standard error at the first, the middle and the last tick; without a horizon up to the 1024th."""
        last = self.horizon or TUNED_TICKS
        return {
            tick: self.expected_estimate(tick, self.planned).standard_error for tick in (1, max(1, last // 2), last)
        }

    def explain(self) -> str:
        """Return which strategy was chosen, its error at the first, middle and last tick, and what was rejected."""
        about = f", with {self.planned:,.0f} users"
        lines = [f"Chosen: {self._describe_strategy(self.strategy)}; 95% error {self._figures()}{about}."]
        for method in METHODS:
            reason = self.strategy_inputs.unavailable_reason(method)
            if method == self.strategy.method or (method == "event" and self.unit != "event"):
                continue
            if reason is None and math.isfinite(self.epsilon):
                other = replace(self, method=method, levels=None, epsilon_state=None, start_rate=None)
                lines.append(f"Rejected: {other._describe_strategy(other.strategy)}; {other._figures()}.")
            elif reason is not None:
                lines.append(f"Not possible: {_NAMES[method]}; {reason}.")
        return "\n".join(lines)

    def _figures(self) -> str:
        return ", ".join(f"{format_number(1.96 * error)} at tick {tick:,}" for tick, error in self.errors().items())

    def _describe_strategy(self, strategy: ReleaseStrategy) -> str:
        if strategy.method == "paid":
            start = "the start released once, then " if strategy.start else ""
            return f"{start}{self.horizon:,} release{'s' if self.horizon != 1 else ''}, each paid for"
        many = "one tree per epoch" if self.horizon is None else f"a tree of {strategy.levels} level(s)"
        return f"{many} over the changes, {_NAMES[strategy.method]}"

    def noise_at(self, ticks: int) -> tuple[float, Law]:
        """Return the variance of the noise in the answer after ``ticks`` ticks, and the distribution of its draws."""
        if self.pays_per_release:
            return self.law.variance, self.law
        return self.engine.variance_at(ticks), self.engine.law()
