"""FrequentItems: heavy hitters of an open domain with their counts, from tables of noised prefixes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.heavy_hitters._batch_names import distinct_names
from panstream.algorithms.heavy_hitters.estimates import ItemEstimates, LazyDecodedTables
from panstream.algorithms.heavy_hitters.released_tables import (
    ReleasedTables,
    crowded_listing_threshold,
    listing_threshold,
    local_levels,
)
from panstream.core.algorithm import consume_release
from panstream.core.estimate import symmetric_interval
from panstream.core.shardable import ShardableTables, Touches
from panstream.errors import InvalidParameter, MergeError
from panstream.primitives import validation as checks
from panstream.primitives.codec import FieldLayout, noised, public
from panstream.primitives.hashing import check_key
from panstream.primitives.hashing.keys import key_words
from panstream.primitives.inputs import ItemBatch, items
from panstream.primitives.memory.scratch import Scratch, wipe
from panstream.primitives.noise import DiscreteGaussian, NoiseSource
from panstream.privacy.claim import Claim, Intrusions
from panstream.privacy.heavy_hitter_loss import Law, names_laws, names_losses, names_tail
from panstream.privacy.person_loss import WindowLoss
from panstream.privacy.rounding import rounded_up


@dataclass(slots=True, eq=False)
class FrequentState:
    """Noised cells, counted since the start or since the last release."""

    levels: NDArray[np.int32] = noised()
    rows: NDArray[np.int32] = noised()
    draws: int = public()  # of noise in every cell
    released: int = public()


@dataclass(frozen=True, slots=True, kw_only=True)
class FrequentItems(ShardableTables[FrequentState]):
    """The most frequent names of an open domain, and the count of any name afterwards.

    Every prefix of a name has one signed cell in the table of its length, and the whole name one in each of a few rows;
    an event moves them by one. All cells start as noise and are released once, with fresh noise; then the state starts
    again. Names are decoded from the released tables, prefix by prefix, and tested and counted in the released rows.

    Privacy:
        Unit: one event added or removed (``contributions=K``: a user of at most K events). One copy of the state at any
        time and the releases lose ``epsilon`` (and ``delta``) together; so do any number of announced copies with a
        refresh after each. Start and release noise each use the whole budget, since an event is protected by one of
        them (names.md, Theorem 1).
        With ``delta=0`` noise is discrete Laplace, else discrete Gaussian, and delta is exact. The hash key is public.
        Two unannounced copies between two releases: no bound.
        Proof: docs/proofs/names.md, Theorem 1.

    Error:
        A name with at least 3·sqrt(2)·sd events, sd that of the noise of a level's cell, is listed with probability 95%
        (``listing_threshold``), as long as the tables are wide enough; with ``repeats`` shorter names need fewer. At
        most .05 listed names are expected to be wrong. The standard error of a listed count is sqrt(2/rows)·sd of a
        row's cell.

    Args:
        epsilon: Total privacy loss; ``math.inf`` switches all noise off, for tests.
        delta: 0 for discrete Laplace noise, otherwise discrete Gaussian.
        max_item_bytes: Largest length of a name; longer ones are truncated at a character and shown with
            "…". Shorter is better: noise grows with its square root, with ``delta=0`` linearly.
        step: Bits of a symbol, 4 or 8; with ``delta=0`` whole bytes find less frequent names, and
            decoding takes longer.
        width: Cells of a level, a power of two.
        row_width: Cells of a row, a power of two.
        rows: How many rows there are.
        releases: How many answers there will be, each of the events since the one before.
        contributions: Events of one user that are protected together; the sender must enforce the
            limit.
        repeats: 1, 2 or 4. If a name fits this many times into ``max_item_bytes``, each of its symbols is on as many
            levels. With 4, names of up to a quarter of that length need half as many events, at the same noise.
        key: Public number that picks the hash functions. Cells are 32-bit integers, which wrap
            around; a name with more than 2**31 events falsifies answers, never the claim.

    Merging:
        ``a.merge(b)`` adds the tables of two sites with the same parameters, and their noise.

    Examples:
        >>> monitor = FrequentItems(epsilon=2.0, delta=1e-6, max_item_bytes=16, width=4096, row_width=8192).start()
        >>> monitor.update(["/index.html"] * 3000 + ["/about.html"] * 1000)
        >>> answer = monitor.release()
        >>> [item.name for item in answer.top(2)]
        ['/index.html', '/about.html']
        >>> abs(answer.count("/about.html").value - 1000) < 100
        True
    """

    theorem: ClassVar[str] = "Theorem 1"

    state_type = FrequentState
    proof: ClassVar[str] = "names.md"

    epsilon: float
    delta: float = 0.0
    max_item_bytes: int = 64
    step: int = 4
    width: int = 1 << 15
    row_width: int = 1 << 17
    rows: int = 5
    releases: int = 1
    contributions: int | None = None
    key: int = 0
    repeats: int = 1

    def __post_init__(self) -> None:
        checks.require_positive(epsilon=self.epsilon)
        if not 0 <= self.delta < 1:
            raise InvalidParameter(f"delta must be in [0, 1), got delta={self.delta}")
        checks.require_integer_in_range(1, 1024, max_item_bytes=self.max_item_bytes)
        checks.require_integer_in_range(1, 16, rows=self.rows)
        checks.require_at_least(1, releases=self.releases)
        if self.contributions is not None:
            checks.require_at_least(1, contributions=self.contributions)
        for name, value, options in (("step", self.step, (4, 8)), ("repeats", self.repeats, (1, 2, 4))):
            if value not in options:
                raise InvalidParameter(f"{name} must be one of {options}, got {name}={value}")
        min_widths = {"width": 1 << self.step, "row_width": 1}
        for name, value in (("width", self.width), ("row_width", self.row_width)):
            if not min_widths[name] <= value <= 1 << 24 or value & (value - 1):
                raise InvalidParameter(
                    f"{name} must be a power of two in {min_widths[name]}..2**24, got {name}={value}"
                )
        check_key(self.key)
        names_laws(*self._budget)

    def parameters(self) -> dict[str, Any]:
        """Return the public parameters, without ``repeats`` where it is 1, as in states that were stored without it."""
        return dict(item for item in ShardableTables.parameters(self).items() if item != ("repeats", 1))

    @property
    def levels(self) -> int:
        """Return the number of prefix tables, one per symbol."""
        return self.max_item_bytes * 8 // self.step

    @property
    def _budget(self) -> tuple[float, float, int, int, int]:
        return self.epsilon, self.delta, self.levels, self.rows, self.contributions or 1

    @property
    def laws(self) -> tuple[Law, Law]:
        """Return the noise distributions of a level's cell and of a row's."""
        return names_laws(*self._budget)

    @property
    def listing_threshold(self) -> float:
        """Return how many events a name needs to be listed with probability 95%, if the tables are wide enough."""
        level, row = (math.sqrt(2 * law.variance) for law in self.laws)
        return listing_threshold(level, row, self.rows)

    def listing_threshold_among(self, events: float) -> float:
        """Return how many events a name needs to be listed with probability 95% among ``events`` events in all."""
        return crowded_listing_threshold(self.listing_threshold, events, self.width)

    def loss_exceeds(self, times: float = 1.0) -> float:
        """Return the probability that one unit loses more than ``times`` epsilon; 0 where delta is 0."""
        if not self.delta or math.isinf(self.epsilon):
            return 0.0
        return names_tail(times * self.epsilon, *self.laws, self.levels, self.rows, self.contributions or 1)

    def claim(self) -> Claim:
        """Return the loss of one event, with one copy of the state."""
        claim = Claim.of_rows(
            self.epsilon,
            self.contributions,
            delta=0.0 if math.isinf(self.epsilon) else self.delta,
            intrusions=Intrusions(unannounced=1, announced=-1),
            inputs="adaptive",
            releases=self.releases,
        )
        if not claim.delta:
            return claim
        chance = rounded_up(self.loss_exceeds())
        note = f"the odds change by more than e^epsilon with a probability of at most {chance}"
        return replace(claim, note="; ".join(filter(None, [claim.note, note])))

    def window_loss(self) -> WindowLoss:
        """Return what one unit loses to a state with and without a copy of it."""
        claim = self.claim()
        loss = WindowLoss.of_claim(claim)
        if not claim.delta:
            return loss
        joint, answers = names_losses(*self.laws, self.levels, self.rows, self.contributions or 1)
        return replace(loss, rho_joint=joint, rho_answers=answers)

    def layout(self) -> Mapping[str, FieldLayout]:
        """Return the layout of both tables and of the number of draws in every cell."""
        return {
            "levels": FieldLayout("i4", (self.levels, self.width)),
            "rows": FieldLayout("i4", (self.rows, self.row_width)),
            "draws": FieldLayout("int", at_least=1),
            "released": FieldLayout("int", at_least=0),
        }

    def initial_state(self, rng: NoiseSource) -> FrequentState:
        """Return tables with one draw of noise in every cell."""
        state = self.zero_tables(np.arange(self.tables))
        self._add_noise(state.levels, state.rows, rng)
        state.draws = 1
        return state

    def _add_noise(self, levels: NDArray[np.int32], rows: NDArray[np.int32], rng: NoiseSource) -> None:
        for cells, law in zip((levels, rows), self.laws, strict=True):
            flat = cells.reshape(-1)
            if isinstance(law, DiscreteGaussian):
                rng.add_discrete_gaussian(flat, law)
            else:
                rng.add_discrete_laplace(flat, law)

    def batch(self, names: Any) -> ItemBatch:
        """Check ``names``, one per row: strings, bytes or integers in a list, NumPy, Arrow, pandas or polars column."""
        return items(names, name="names")

    def update(self, state: FrequentState, batch: ItemBatch, rng: NoiseSource) -> None:
        """Count equal names, then move the cells of each name by its count."""
        self.accumulate(state, batch, rng.scratch)

    def accumulate(self, state: FrequentState, batch: ItemBatch, scratch: Scratch) -> None:
        """Move the cells of all names of a batch in all tables."""
        everything = np.arange(self.tables)
        buffers = self._update_buffers(scratch)
        for names in distinct_names(batch, scratch):
            self._move(state, everything, names, buffers)

    def _update_buffers(self, scratch: Scratch) -> tuple[NDArray[Any], ...]:
        from panstream.primitives.kernels.algorithms.prefix_tables import scratch_for_update

        return scratch_for_update(self.max_item_bytes, scratch.array)

    def _move(
        self,
        state: FrequentState,
        local_tables: NDArray[np.int64],
        names: tuple[NDArray[Any], ...],
        buffers: tuple[NDArray[Any], ...],
    ) -> None:
        from panstream.primitives.kernels.algorithms.prefix_tables import update_cells

        here = local_levels(local_tables, self.max_item_bytes, self.step)
        arguments: Any = (*names, state.levels, state.rows, *here, self.step, self.repeats, self._seed, *buffers)
        update_cells(*arguments)

    # Shards own whole tables: all levels of one byte of a name together, or one count row.

    @property
    def tables(self) -> int:
        """Return the number of tables that can be assigned to shards: one per byte of a name, and the rows."""
        return self.max_item_bytes + self.rows

    def table_offsets(self, local_tables: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
        """Return the indices of the levels and rows of the given tables."""
        per = 8 // self.step
        levels = local_tables[local_tables < self.max_item_bytes, None] * per + np.arange(per)
        return {
            "levels": levels.reshape(-1),
            "rows": local_tables[local_tables >= self.max_item_bytes] - self.max_item_bytes,
        }

    def zero_tables(self, local_tables: NDArray[np.int64]) -> FrequentState:
        """Return tables of zeros, without noise."""
        indices = self.table_offsets(local_tables)
        levels = np.zeros((indices["levels"].size, self.width), np.int32)
        rows = np.zeros((indices["rows"].size, self.row_width), np.int32)
        return FrequentState(levels=levels, rows=rows, draws=0, released=0)

    @property
    def update_columns(self) -> tuple[np.dtype[Any], ...]:
        """Return the types of a count, a length, and a name's bytes plus one, which shows that it was truncated."""
        return np.dtype(np.int32), np.dtype(np.uint16), np.dtype((np.uint8, (self.max_item_bytes + 1,)))

    def to_update_columns(self, batch: ItemBatch, scratch: Scratch) -> Iterator[Touches]:
        """Yield the distinct names of a batch with their counts."""
        from panstream.primitives.kernels.algorithms.name_counts import pad_names

        for offsets, data, firsts, counts in distinct_names(batch, scratch):
            sizes = np.empty(firsts.size, np.uint16)
            text = np.zeros((firsts.size, self.max_item_bytes + 1), np.uint8)
            pad_names(offsets, data, firsts, sizes, text)
            yield counts.copy(), sizes, text

    def apply_update_columns(
        self,
        state: FrequentState,
        local_tables: NDArray[np.int64],
        columns: Touches,
        chosen: NDArray[np.int64],
        scratch: Scratch,
    ) -> None:
        """Move the cells of the ``chosen`` names in the tables of a shard."""
        from panstream.primitives.kernels.algorithms.name_counts import find_padded

        counts, sizes, text = columns
        offsets = scratch.array(2 * chosen.size, np.int64)
        firsts = scratch.array(chosen.size, np.int32)
        find_padded(chosen, sizes, text.shape[1], offsets)
        firsts[:] = np.arange(0, 2 * chosen.size, 2)
        weights = scratch.array(chosen.size, np.int32)
        weights[:] = counts[chosen]
        self._move(state, local_tables, (offsets, text.reshape(-1), firsts, weights), self._update_buffers(scratch))

    def estimate(self, state: FrequentState) -> ItemEstimates:
        """Return the answer from tables that have their release noise already."""
        return self.read(state.levels, state.rows, draws=state.draws)

    @property
    def _seed(self) -> np.uint64:
        return key_words(self.key, "names")[0]

    def release(self, state: FrequentState, rng: NoiseSource) -> ItemEstimates:
        """Publish the tables with fresh noise and start again; names are decoded when the list is first used."""
        state.released = consume_release(state.released, self.releases)
        self._add_noise(state.levels, state.rows, rng)
        answer = self.read(state.levels, state.rows, draws=state.draws + 1)
        fresh = self.initial_state(rng)
        state.levels = fresh.levels
        state.rows = fresh.rows
        state.draws = fresh.draws
        return answer

    def read(self, levels: NDArray[np.int32], rows: NDArray[np.int32], *, draws: int) -> ItemEstimates:
        """Return the answer from published tables, ``levels`` and ``rows``, with ``draws`` draws of noise in a cell."""
        level_sd, row_sd = (math.sqrt(draws * law.variance) for law in self.laws)
        tables = ReleasedTables(
            levels=levels,
            rows=rows,
            bits=self.step,
            seed=self._seed,
            laplace=not isinstance(self.laws[0], DiscreteGaussian),
            level_sd=level_sd,
            row_sd=row_sd,
            repeats=self.repeats,
        )
        # Every name has one of 2**step first symbols, so the cells of the first level add up to the number of events.
        total = tables.events
        cells = draws << self.step
        error = level_sd * math.sqrt(1 << self.step)
        return ItemEstimates(
            value=max(total, 0.0),
            unbiased=total,
            standard_error=error,
            claim=self.claim(),
            name="events with a name",
            support=(0.0, math.inf),
            interval_rule=symmetric_interval(total, lambda level: error * self._quantile(1 - level, cells)),
            listing_threshold=tables.listing_threshold,
            held=LazyDecodedTables(tables),
        )

    def _quantile(self, tail: float, draws: int) -> float:
        """Return the two-sided quantile of a sum of ``draws`` draws in standard deviations."""
        # Laplace draws: Cornish-Fisher expansion with their excess kurtosis 3, divided by the number of draws.
        z = NormalDist().inv_cdf(1 - tail / 2)
        return z if isinstance(self.laws[0], DiscreteGaussian) else z + max(z**3 - 3 * z, 0.0) * 3 / (24 * draws)

    def refresh(self, state: FrequentState, rng: NoiseSource) -> None:
        """Add fresh noise to every cell after an announced intrusion; any number of them is covered."""
        self._add_noise(state.levels, state.rows, rng)
        state.draws += 1

    def merge(
        self, mine: FrequentState, other: Any, theirs: FrequentState, rng: NoiseSource
    ) -> tuple[FrequentItems, FrequentState]:
        """Return the sum of ``mine`` and ``theirs``, of the site ``other``; both are wiped. ``rng`` is not used."""
        if other != self:
            raise MergeError("sites must be built with the same parameters")
        state = FrequentState(
            levels=mine.levels + theirs.levels,
            rows=mine.rows + theirs.rows,
            draws=mine.draws + theirs.draws,
            released=max(mine.released, theirs.released),
        )
        for cells in (mine.levels, mine.rows, theirs.levels, theirs.rows):
            wipe(cells)
        return self, state

    def count_error(self, *, beta: float) -> float:
        """Return the error that one name's count exceeds with probability at most ``beta``, if rows are wide enough."""
        checks.require_probability(beta=beta)
        return math.sqrt(2 * self.laws[1].variance / self.rows) * self._quantile(beta, 2 * self.rows)

    def error_bound(self, *, beta: float) -> float:
        """Return the error that the number of all events exceeds with probability at most ``beta``."""
        checks.require_probability(beta=beta)
        cells = 2 << self.step
        return math.sqrt(cells * self.laws[0].variance) * self._quantile(beta, cells)
