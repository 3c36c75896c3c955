"""Decode names from released tables: a search in the tree of prefixes, level by level, and a test in the count rows.

Everything is computed from released cells, so decoding has no privacy loss. The search is soft, as for tree codes: a
prefix survives while its accumulated log-likelihood is high enough, even if no single cell exceeds the noise. It runs
in stages with ever lower thresholds; each stage learns the byte prior from the names decoded before. Then the counts of
all decoded names are subtracted from the tables, and the last stage is repeated on the rest.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.heavy_hitters._byte_prior import default_byte_prior, learned_byte_prior, symbol_priors
from panstream.algorithms.heavy_hitters.count_rows import CountRows, noise_scale, padded
from panstream.algorithms.heavy_hitters.released_tables import ReleasedTables, local_levels

_MAX_WRONG_NAMES = 0.01  # expected number of listed names without any event; the claimed bound is .05
_DECOYS = 8  # looked up for every tested name
_MAX_TAIL_DECOYS = 50  # largest decoys from which the tail of all is extrapolated
_MIN_TAIL_DECOYS = 10
_ROUNDS = 2  # how often counts are refitted to rows in which names share cells
_NAMES_TO_LEARN = 5  # names from which on the byte prior is learned
_NEVER = -30.0  # log prior of what cannot be: far below the score at which a prefix is dropped
_START = 1e9  # count of the root prefix, without information

Name = tuple[bytes, bool]  # bytes, and whether more followed


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions:
    """Limits of the search; tuned on simulated names by the rule of benchmarks/accuracy/names.py."""

    stages: tuple[float, ...] = (30.0, 8.0, 3.5, 2.5)  # smallest count of a name, in noise scales
    stage_repeats: int = 2  # how often decoded names are subtracted and the last stage is repeated
    lowest: float = -12.0  # score below which a prefix is dropped
    tested: float = -7.0  # score from which the end of a byte is tested in the rows
    beam: int = 20_000  # prefixes that survive on a level


@dataclass(frozen=True, slots=True, eq=False)
class DecodedNames:
    """Names in the order of their counts, with standard errors, and the rows with these counts subtracted."""

    names: list[Name]
    values: NDArray[np.float64]
    errors: NDArray[np.float64]
    rest: CountRows


_DEFAULT_OPTIONS = SearchOptions()


def decode(tables: ReleasedTables, effort: SearchOptions = _DEFAULT_OPTIONS) -> DecodedNames:
    """Return the names whose counts exceed the noise significantly, most frequent first."""
    test = _SignificanceTest(tables.laplace)
    names: dict[Name, float] = {}
    rest = _ResidualTables(tables)
    letters: NDArray[np.float64] = default_byte_prior()
    stages = effort.stages
    for stage, threshold in enumerate((*stages, *stages[-1:] * effort.stage_repeats)):
        if stage >= len(stages):
            if not names:
                break
            rest.subtract(names)
        previous_count = len(names)
        repeats = tables.repeats
        while repeats:  # short names first: they need fewer events
            search = _PrefixSearch(rest, symbol_priors(letters, tables.bits), effort, repeats)
            for name, ratio, value in search.run(threshold, test):
                test.pool.setdefault(name, (ratio, value))
            repeats //= 2
        names |= {name: value for name, value in test.passed() if name not in names}
        if len(names) >= _NAMES_TO_LEARN:
            letters = learned_byte_prior(name for name, _ in names)
        if stage >= len(stages) and len(names) == previous_count:
            break
    fitted = _fit_counts(rest, names)
    law = fitted.rest.error_law(len(names))
    significant = fitted.values > law.quantile(min(2 * test.tail, 1.0)) * fitted.errors
    if significant.all():
        return fitted
    # Names that passed only because of cells shared with others fail once those are subtracted.
    return _fit_counts(
        rest, {fitted.names[index]: float(fitted.values[index]) for index in np.flatnonzero(significant)}
    )


def _fit_counts(rest: _ResidualTables, names: dict[Name, float]) -> DecodedNames:
    """Return the names with counts that account for cells that several of them share."""
    from panstream.primitives.kernels.algorithms.prefix_tables import hash_names

    tables = rest.tables
    hashes = np.empty(len(names), np.uint64)
    encoded = padded(list(names), tables.max_item_bytes)
    hash_names(*encoded, tables.max_item_bytes, tables.bits, tables.repeats, tables.seed, hashes)
    values = np.array(list(names.values()), np.float64)
    scale = noise_scale(tables.rows, tables.row_sd, tables.laplace)
    errors = np.zeros(values.size)
    for _ in range(_ROUNDS):
        rest.subtract(dict(zip(names, values.tolist(), strict=True)))
        more = CountRows(rest.rows, scale).counts(hashes)
        values = np.rint(values) + more.values
        errors = more.errors
    rest.subtract(dict(zip(names, values.tolist(), strict=True)))
    order = np.argsort(-values, kind="stable")
    listed = list(names)
    return DecodedNames([listed[i] for i in order], values[order], errors[order], CountRows(rest.rows, scale))


class _ResidualTables:
    """Released tables with the counts of decoded names subtracted, and the statistics of every level's cells."""

    def __init__(self, tables: ReleasedTables) -> None:
        self.tables = tables
        self.levels = tables.levels
        self.rows = tables.rows
        self._subtracted: dict[Name, int] = {}
        self._measured: list[tuple[float, float, float]] = []

    def subtract(self, names: dict[Name, float]) -> None:
        """Subtract the counts of ``names``, and no others, from the released tables."""
        from panstream.primitives.kernels.algorithms.prefix_tables import scratch_for_update, update_cells

        if self.levels is self.tables.levels:
            self.levels = self.levels.copy()
            self.rows = self.rows.copy()
        wanted = {name: round(value) for name, value in names.items()}
        # Only differences to what is subtracted already are applied: an earlier name is added back.
        moves = {name: count for name, count in self._subtracted.items() if name not in wanted}
        moves |= {name: self._subtracted.get(name, 0) - count for name, count in wanted.items()}
        counts = np.array(list(moves.values()), np.int32)
        indices = np.arange(len(moves), dtype=np.int32)
        buffers: Any = scratch_for_update(self.tables.max_item_bytes, np.empty)
        encoded = padded(list(moves), self.tables.max_item_bytes)
        tables = self.tables
        here = local_levels(np.arange(tables.max_item_bytes + len(tables.rows)), tables.max_item_bytes, tables.bits)
        update_cells(
            *encoded, indices, counts, self.levels, self.rows, *here, tables.bits, tables.repeats, tables.seed, *buffers
        )
        self._subtracted = wanted
        self._measured = []

    def counts(self) -> CountRows:
        """Return the count rows with their noise scale."""
        return CountRows(self.rows, noise_scale(self.rows, self.tables.row_sd, self.tables.laplace))

    def measured(self) -> list[tuple[float, float, float]]:
        """Return for every level the noise scale, the share of cells far beyond it, and the largest |cell|."""
        for table in self.levels if not self._measured else ():
            scale = noise_scale(table, self.tables.level_sd, self.tables.laplace)
            sizes = np.abs(table)
            shared = min(max(float((sizes > 4 * scale).mean()), 1e-4), 0.5)
            self._measured.append((scale, shared, float(sizes.max())))
        return self._measured


@dataclass(slots=True)
class _SignificanceTest:
    """All candidates so far, and the threshold that at most ``_MAX_WRONG_NAMES`` names without events exceed."""

    laplace: bool
    tested: int = 0
    pool: dict[Name, tuple[float, float]] = field(default_factory=dict)  # count in standard errors, count
    decoys: list[float] = field(default_factory=list)

    @property
    def tail(self) -> float:
        """Return the probability with which a single tested name without events may be listed (union bound)."""
        return min(_MAX_WRONG_NAMES / max(self.tested, 1), 0.5)

    def passed(self) -> Iterator[tuple[Name, float]]:
        """Yield the names above the threshold."""
        threshold = max(NormalDist().inv_cdf(1 - self.tail) * (1.25 if self.laplace else 1.0), self._beyond_decoys())
        for name, (ratio, value) in self.pool.items():
            if ratio > threshold:
                yield name, value

    def _beyond_decoys(self) -> float:
        """Return what decoys would exceed ``_MAX_WRONG_NAMES`` times in as many lookups as there were tests.

        There are only ``_DECOYS`` times as many decoys as tests, so their tail is extrapolated: as an exponential one,
        which is heavier than that of noise and of cells shared with infrequent names.
        """
        largest = sorted(self.decoys, reverse=True)[:_MAX_TAIL_DECOYS]
        if len(largest) < _MIN_TAIL_DECOYS:
            return largest[0] + 0.25 if largest else 0.0
        smallest = largest[-1]
        mean_excess = sum(largest) / len(largest) - smallest
        return max(smallest + mean_excess * math.log(len(largest) / (_MAX_WRONG_NAMES * _DECOYS)), largest[0])


class _PrefixSearch:
    """One stage of the search over all prefixes of a level at a time, for names with ``repeats`` levels a symbol."""

    def __init__(
        self, rest: _ResidualTables, priors: list[NDArray[np.float64]], effort: SearchOptions, repeats: int
    ) -> None:
        self.rest = rest
        self.repeats = repeats
        self.tables = rest.tables
        self.priors = priors
        self.effort = effort
        self.counts = rest.counts()
        self.unlikely = [np.exp(-prior) for prior in priors]
        self.again = np.where(np.eye(1 << rest.tables.bits, dtype=bool), 0.0, _NEVER)  # the same symbol once more
        self.unlikely_again = np.exp(-self.again)
        self.trail: list[tuple[NDArray[np.int64], NDArray[np.uint8]]] = []  # parents and symbols, level by level
        capacity = effort.beam * 8
        self.hashes = np.empty(capacity, np.uint64)
        self.codes = np.empty(capacity, np.uint64)
        self.nodes = np.empty((4, capacity))
        self.parents = np.empty(capacity, np.int64)
        self.symbols = np.empty(capacity, np.uint8)

    def run(self, threshold: float, test: _SignificanceTest) -> Iterator[tuple[Name, float, float]]:
        """Yield candidates with their counts, in standard errors and in events."""
        from panstream.primitives.kernels.algorithms.prefix_search import expand_level
        from panstream.primitives.kernels.algorithms.prefix_tables import root_hash

        tables = self.tables
        levels = self.rest.levels
        power = levels.shape[1].bit_length() - 1
        hashes = np.array([root_hash(tables.seed, self.repeats)], np.uint64)
        smallest = threshold / math.sqrt(self.repeats)
        codes = np.zeros(1, np.uint64)
        nodes = np.array([[0.0], [_START], [_START**2 / 100], [_START]])
        contexts = np.zeros(1, np.int64)
        yield from self._tested(-1, hashes, nodes, 0.0, test)  # the empty name
        for level, (scale, shared, top) in enumerate(self.rest.measured()):
            symbol, copy = divmod(level, self.repeats)
            part = symbol % tables.per_byte
            known = contexts & ((1 << tables.bits) - 1) if copy else contexts
            prior = self.again if copy else self.priors[part]
            unlikely = self.unlikely_again if copy else self.unlikely[part]
            direct = tables.bits * (level + 1) <= power
            node_count = expand_level(
                levels[level], power, tables.bits, direct, scale, shared, top, smallest * scale, tables.laplace,
                self.effort.lowest, hashes, codes, nodes, known, prior, unlikely,
                self.hashes, self.codes, self.nodes, self.parents, self.symbols,
            )  # fmt: skip
            if not node_count:
                return
            keep = self._best(node_count, scale)
            hashes = self.hashes[keep]
            codes = self.codes[keep]
            nodes = self.nodes[:, keep]
            parents = self.parents[keep]
            symbols = self.symbols[keep]
            self.trail.append((parents, symbols))
            contexts = contexts[parents]
            if not copy:
                contexts = (contexts if part else contexts & 255) << tables.bits | symbols
            if part < tables.per_byte - 1:
                continue
            contexts &= 255
            if copy == self.repeats - 1:
                yield from self._tested(level, hashes, nodes, scale, test)

    def _best(self, node_count: int, scale: float) -> NDArray[np.int64]:
        beam = self.effort.beam
        if node_count <= beam:
            return np.arange(node_count)
        merit = self.nodes[0, :node_count] + 0.5 * np.log(np.maximum(self.nodes[1, :node_count], scale))
        return np.argpartition(-merit, beam)[:beam]

    def _tested(
        self, level: int, hashes: NDArray[np.uint64], nodes: NDArray[np.float64], scale: float, test: _SignificanceTest
    ) -> Iterator[tuple[Name, float, float]]:
        """Look up prefixes as whole names in the rows and yield the significant ones, and look up their decoys.

        A prefix of nearly the full length may also be that of a truncated name, which has another hash.
        """
        from panstream.primitives.kernels.algorithms.prefix_tables import extend_hashes, repeats_of

        size = (level + 1) // (self.tables.per_byte * self.repeats)
        if repeats_of(size, self.tables.max_item_bytes, self.tables.repeats) != self.repeats:
            return
        chosen = np.flatnonzero(nodes[0] >= self.effort.tested)
        max_counts = np.maximum(nodes[1], nodes[3]) + 4 * np.sqrt(nodes[2] + scale**2)
        for cut in (False, True) if size >= self.tables.max_item_bytes - 3 else (False,):
            ends = hashes[chosen]
            if cut:
                ends = extend_hashes(ends)
            test.tested += chosen.size
            for salt in range(_DECOYS + 1):
                counts = self.counts.counts(ends, salt)
                enough = counts.agreeing >= min(4, len(self.counts.cells))
                fits = enough & (counts.values > 3 * counts.errors) & (counts.values < max_counts[chosen])
                if salt:
                    test.decoys += (counts.values[fits] / counts.errors[fits]).tolist()
                    continue
                names = self._names_at(level, chosen[fits])
                for name, value, error in zip(names, counts.values[fits], counts.errors[fits], strict=True):
                    yield (name, cut), float(value / error), float(value)

    def _names_at(self, level: int, nodes: NDArray[np.int64]) -> list[bytes]:
        """Return the names that end in some nodes of a level, by following their parents to the root."""
        per = self.tables.per_byte
        bits = self.tables.bits
        letters = np.zeros((nodes.size, (level + 1) // (per * self.repeats)), np.uint8)
        for ancestor_level in range(level, -1, -1):
            parents, symbols = self.trail[ancestor_level]
            byte, part = divmod(ancestor_level // self.repeats, per)
            letters[:, byte] |= symbols[nodes] << np.uint8(bits * (per - 1 - part))
            nodes = parents[nodes]
        return [name.tobytes() for name in letters]
