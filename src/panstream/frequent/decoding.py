"""From released tables to names: a search of the tree of prefixes, level by level, and a test in the count rows.

Everything here is computed from released cells: it costs no privacy, however it is done. The search is soft, as for
tree codes: a prefix is kept while the sum of evidence for it is not too low, though no single cell is convincing. It is
made in stages, for ever lighter names; each learns letters from the names before. Then the cells of all names found are
taken out of the tables, and what they had covered is looked for again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.frequent.letters import flat_letters, learned_letters, symbol_priors
from panstream.frequent.rows import CountRows, padded, scale_of

__all__ = ["Decoded", "Effort", "Tables", "decode"]

_WRONG = 0.02  # names expected in the list that never came; .05 is promised
_DECOYS = 8  # looked up beside every tested name
_ROUNDS = 2  # how often counts are fitted to rows that share cells
_NAMES_TO_LEARN = 5
_START = 1e9
_TOGETHER = 1 << 12

Name = tuple[bytes, bool]  # bytes, and whether more followed


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How hard is looked for names. Set on simulated names by the rule that benchmarks/names.py states and repeats."""

    stages: tuple[float, ...] = (30.0, 5.0, 2.5)  # scales that a name must have at least
    again: int = 2  # how often the cells of found names are taken out and the last stage is repeated
    lowest: float = -12.0  # score below which a prefix is dropped
    tested: float = -7.0  # score from which the end of a byte is tested in the rows
    beam: int = 20_000  # prefixes kept on a level


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Tables:
    """What was released, and the public numbers it takes to read it; standard deviations are those of its noise."""

    levels: NDArray[np.int32]
    rows: NDArray[np.int32]
    bits: int
    seed: np.uint64
    laplace: bool
    level_sd: float
    row_sd: float

    @property
    def per_byte(self) -> int:
        """Return the levels that a byte takes."""
        return 8 // self.bits

    @property
    def longest(self) -> int:
        """Return the bytes of the longest name."""
        return len(self.levels) // self.per_byte


@dataclass(frozen=True, slots=True, eq=False)
class Decoded:
    """Names in the order of their counts, with standard errors, and the rows without the names' cells."""

    names: list[Name]
    values: NDArray[np.float64]
    errors: NDArray[np.float64]
    rest: CountRows


_USUAL = Effort()


def decode(tables: Tables, effort: Effort = _USUAL) -> Decoded:
    """Return the names that stand out."""
    test = _Test(tables.laplace)
    names: dict[Name, float] = {}
    levels, rows = tables.levels, tables.rows
    letters: NDArray[np.float64] = flat_letters()
    stages = effort.stages
    for stage, least in enumerate((*stages, *stages[-1:] * effort.again)):
        if stage >= len(stages):
            if not names:
                break
            levels, rows = _without(tables, names)
        before = len(names)
        counts = CountRows(rows, scale_of(rows, tables.row_sd, tables.laplace))
        search = _Search(tables, levels, counts, symbol_priors(letters, tables.bits), effort)
        for name, ratio, value in search.run(least, test):
            test.pool.setdefault(name, (ratio, value))
        names |= {name: value for name, value in test.passed() if name not in names}
        if len(names) >= _NAMES_TO_LEARN:
            letters = learned_letters(name for name, _ in names)
        if stage >= len(stages) and len(names) == before:
            break
    return _fitted(tables, names)


def _fitted(tables: Tables, names: dict[Name, float]) -> Decoded:
    """Return the names with counts that allow for cells that several of them share."""
    hashes = _hashes(tables, list(names))
    values = np.array(list(names.values()), np.float64)
    scale = scale_of(tables.rows, tables.row_sd, tables.laplace)
    errors = np.zeros(values.size)
    for _ in range(_ROUNDS):
        rest = CountRows(_without(tables, dict(zip(names, values, strict=True)))[1], scale)
        more = rest.counts(hashes)
        values, errors = np.rint(values) + more.values, more.errors
    rest = CountRows(_without(tables, dict(zip(names, values, strict=True)))[1], scale)
    order = np.argsort(-values, kind="stable")
    listed = list(names)
    return Decoded([listed[i] for i in order], values[order], errors[order], rest)


def _hashes(tables: Tables, names: list[Name]) -> NDArray[np.uint64]:
    from panstream._kernels.names import hash_names

    found = np.empty(len(names), np.uint64)
    hash_names(*padded(names, tables.longest), tables.longest, tables.bits, tables.seed, found)
    return found


def _without(tables: Tables, names: dict[Name, float]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return levels and rows without the cells of some names."""
    from panstream._kernels.names import move_cells

    levels, rows = tables.levels.copy(), tables.rows.copy()
    counts = -np.rint(np.array(list(names.values()), np.float64)).astype(np.int32)
    places = np.arange(len(names), dtype=np.int32)
    room: list[Any] = [np.empty(_TOGETHER, kind) for kind in (np.uint64, np.int64, np.int64)]
    move_cells(*padded(list(names), tables.longest), places, counts, levels, rows, tables.bits, tables.seed, *room)
    return levels, rows


@dataclass(slots=True)
class _Test:
    """All candidates so far, and the threshold that keeps out all but ``_WRONG`` of those that never came."""

    laplace: bool
    tested: int = 0
    pool: dict[Name, tuple[float, float]] = field(default_factory=dict)  # count in standard errors, count
    decoys: list[float] = field(default_factory=list)

    def passed(self) -> Iterator[tuple[Name, float]]:
        """Yield the names above the threshold."""
        tail = _WRONG / max(self.tested, 1)
        threshold = NormalDist().inv_cdf(1 - min(tail, 0.5)) * (1.25 if self.laplace else 1.0)
        allowed = int(_WRONG * _DECOYS)
        if len(self.decoys) > allowed:
            threshold = max(threshold, sorted(self.decoys, reverse=True)[allowed] + 0.25)
        for name, (ratio, value) in self.pool.items():
            if ratio > threshold:
                yield name, value


class _Search:
    """One stage: all prefixes of a level at a time."""

    def __init__(
        self,
        tables: Tables,
        levels: NDArray[np.int32],
        counts: CountRows,
        priors: list[NDArray[np.float64]],
        effort: Effort,
    ) -> None:
        self.tables, self.levels, self.counts, self.priors, self.effort = tables, levels, counts, priors, effort
        self.unlikely = [np.exp(-prior) for prior in priors]
        self.trail: list[tuple[NDArray[np.int64], NDArray[np.uint8]]] = []  # parents and symbols, level by level
        room = effort.beam * 8
        self.hashes, self.codes = np.empty(room, np.uint64), np.empty(room, np.uint64)
        self.nodes = np.empty((4, room))
        self.parents, self.symbols = np.empty(room, np.int64), np.empty(room, np.uint8)

    def run(self, least: float, test: _Test) -> Iterator[tuple[Name, float, float]]:
        """Yield candidates with their counts, in standard errors and as they are."""
        from panstream._kernels.name_tree import grow

        tables, power = self.tables, self.levels.shape[1].bit_length() - 1
        hashes, codes = np.array([tables.seed], np.uint64), np.zeros(1, np.uint64)
        nodes = np.array([[0.0], [_START], [_START**2 / 100], [_START]])
        contexts = np.zeros(1, np.int64)
        for level, table in enumerate(self.levels):
            part = level % tables.per_byte
            scale = scale_of(table, tables.level_sd, tables.laplace)
            sizes = np.abs(table)
            shared = min(max(float((sizes > 4 * scale).mean()), 1e-4), 0.5)
            direct = tables.bits * (level + 1) <= power
            found = grow(
                table, power, tables.bits, direct, scale, shared, float(sizes.max()), least * scale, tables.laplace,
                self.effort.lowest, hashes, codes, nodes, contexts, self.priors[part], self.unlikely[part],
                self.hashes, self.codes, self.nodes, self.parents, self.symbols,
            )  # fmt: skip
            if not found:
                return
            keep = self._best(found, scale)
            hashes, codes, nodes = self.hashes[keep], self.codes[keep], self.nodes[:, keep]
            parents, symbols = self.parents[keep], self.symbols[keep]
            self.trail.append((parents, symbols))
            so_far = contexts[parents] if part else contexts[parents] & 255
            contexts = so_far << tables.bits | symbols
            if part == tables.per_byte - 1:
                contexts &= 255
                yield from self._tested(level, hashes, nodes, scale, test)

    def _best(self, found: int, scale: float) -> NDArray[np.int64]:
        beam = self.effort.beam
        if found <= beam:
            return np.arange(found)
        merit = self.nodes[0, :found] + 0.5 * np.log(np.maximum(self.nodes[1, :found], scale))
        return np.argpartition(-merit, beam)[:beam]

    def _tested(
        self, level: int, hashes: NDArray[np.uint64], nodes: NDArray[np.float64], scale: float, test: _Test
    ) -> Iterator[tuple[Name, float, float]]:
        """Look up the ends of names; what may be the beginning of a longer one that was cut, as that too."""
        from panstream._kernels.names import longer_all

        chosen = np.flatnonzero(nodes[0] >= self.effort.tested)
        size = (level + 1) // self.tables.per_byte
        most = np.maximum(nodes[1], nodes[3]) + 4 * np.sqrt(nodes[2] + scale**2)
        for cut in (False, True) if size >= self.tables.longest - 3 else (False,):
            ends = hashes[chosen]
            if cut:
                ends = longer_all(ends)
            test.tested += chosen.size
            for salt in range(_DECOYS + 1):
                counts = self.counts.counts(ends, salt)
                enough = counts.agreeing >= min(4, len(self.counts.cells))
                fits = enough & (counts.values > 3 * counts.errors) & (counts.values < most[chosen])
                if salt:
                    test.decoys += (counts.values[fits] / counts.errors[fits]).tolist()
                    continue
                for place in np.flatnonzero(fits).tolist():
                    value = float(counts.values[place])
                    yield (self._spelled(level, int(chosen[place])), cut), value / float(counts.errors[place]), value

    def _spelled(self, level: int, place: int) -> bytes:
        symbols = []
        for parents, letters in reversed(self.trail[: level + 1]):
            symbols.append(int(letters[place]))
            place = int(parents[place])
        symbols.reverse()
        per, bits = self.tables.per_byte, self.tables.bits
        return bytes(
            sum(symbol << bits * (per - 1 - part) for part, symbol in enumerate(symbols[at : at + per]))
            for at in range(0, len(symbols), per)
        )
