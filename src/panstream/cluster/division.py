"""How a state is divided: algorithms whose cells are independent, and what one row does to one cell.

Each shard holds a state of the algorithm's own type whose arrays are shorter: its cells only. Rows are turned into cells
where they are read, so that ids do not travel; what travels is the place of a cell within its shard (see messages.py).
An algorithm that is not listed here cannot be divided: its state stays whole, in one place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from panstream import codec
from panstream.batch import Items
from panstream.cluster.ownership import Ownership
from panstream.codec import FieldLayout
from panstream.density.cropped_mean import CroppedMean
from panstream.density.graph import GraphDensity
from panstream.density.heavy_fraction import HeavyFraction
from panstream.density.presence import Presence
from panstream.distinct.counting import CellCounter
from panstream.distinct.toggling import TogglingBitmap
from panstream.errors import NotSupported
from panstream.packed import packed as pack_cells
from panstream.packed import toss, unpacked
from panstream.randomness import Coin, Source
from panstream.scratch import Scratch, wipe
from panstream.turnstile.counter import ModularCounter

__all__ = ["Columns", "Division", "decode_part", "division_of", "encode_part", "join", "mark", "split", "take"]

Columns = tuple[NDArray[Any], ...]


class Division(Protocol):
    """What may be done to some of an algorithm's cells without knowing the others."""

    @property
    def cells(self) -> int:
        """Return how many cells the whole state has."""
        ...

    @property
    def markable(self) -> bool:
        """Return whether it only matters which cells are touched, not how often or in which order."""
        ...

    @property
    def columns(self) -> tuple[type[np.generic], ...]:
        """Return what a row carries besides its place: the plan decides, whatever the rows hold."""
        ...

    def begin(self, count: int, source: Source) -> dict[str, NDArray[Any]]:
        """Return the arrays of ``count`` fresh cells."""
        ...

    def route(self, batch: Any, scratch: Scratch) -> Iterator[tuple[NDArray[Any], Columns]]:
        """Yield cells and columns of a checked batch, piece by piece; cells beyond the last are to be left out."""
        ...

    def take(self, state: Any, columns: Columns, source: Source) -> None:
        """Do to the cells at ``columns[0]`` what their rows do."""
        ...


@dataclass(frozen=True, slots=True)
class Bits:
    """One bit a user, re-drawn at every arrival (density) or drawn as absent at a delete."""

    law: Presence

    @property
    def cells(self) -> int:
        """Return how many users have a bit."""
        return self.law.cells

    @property
    def markable(self) -> bool:
        """Return True where nothing is ever deleted."""
        return not self.law.deletions

    @property
    def columns(self) -> tuple[type[np.generic], ...]:
        """Return the weight, -1 for a delete, where there are deletes."""
        return (np.int8,) if self.law.deletions else ()

    def begin(self, count: int, source: Source) -> dict[str, NDArray[Any]]:
        """Return bits of users who never came."""
        return _fresh_bits(self.law.law.absent, count, source)

    def route(self, batch: Any, scratch: Scratch) -> Iterator[tuple[NDArray[Any], Columns]]:
        """Yield the users' numbers in the sample."""
        cells = _sampled(self.law, batch.cells, scratch)
        if not self.law.deletions:
            yield cells, ()
        else:
            yield cells, (np.ones(cells.size, np.int64) if batch.weights is None else batch.weights,)

    def take(self, state: Any, columns: Columns, source: Source) -> None:
        """Draw afresh the bit of every row, in order."""
        from panstream._kernels.bits import choose, scatter

        places, law = columns[0], self.law.law
        coins = source.bernoulli(law.present, places.size)
        if len(columns) > 1:
            choose(coins, source.bernoulli(law.absent, places.size), columns[1].astype(np.int64), 0)
        scatter(state.bits, places, coins)


@dataclass(frozen=True, slots=True)
class Cells:
    """The cells of a bitmap, drawn afresh or toggled."""

    law: CellCounter

    @property
    def cells(self) -> int:
        """Return how many cells the table has."""
        return self.law.table.cells

    @property
    def markable(self) -> bool:
        """Return True unless an arrival toggles."""
        return not isinstance(self.law, TogglingBitmap)

    @property
    def columns(self) -> tuple[type[np.generic], ...]:
        """Return nothing."""
        return ()

    def begin(self, count: int, source: Source) -> dict[str, NDArray[Any]]:
        """Return cells to which nobody came."""
        return _fresh_bits(self.law.law.absent, count, source)

    def route(self, batch: Items, scratch: Scratch) -> Iterator[tuple[NDArray[Any], Columns]]:
        """Yield the cell of every row."""
        for cells in self.law.table.rows(batch, scratch):
            yield cells, ()

    def take(self, state: Any, columns: Columns, source: Source) -> None:
        """Draw the cells afresh, or toggle them."""
        from panstream._kernels.bits import scatter, toggle

        if self.markable:
            scatter(state.bits, columns[0], source.bernoulli(self.law.law.present, columns[0].size))
        else:
            toggle(state.bits, columns[0])


@dataclass(frozen=True, slots=True)
class Counters:
    """Counters modulo a prime, to which weights are added."""

    law: ModularCounter
    markable: bool = False

    @property
    def cells(self) -> int:
        """Return how many counters there are."""
        return self.law.cells

    @property
    def columns(self) -> tuple[type[np.generic], ...]:
        """Return the weight and, in an open universe, the public factor."""
        weight = np.int32 if self.law.max_weight < 1 << 31 else np.int64
        return (weight, np.uint64) if self.law.factored else (weight,)

    def begin(self, count: int, source: Source) -> dict[str, NDArray[Any]]:
        """Return counters at random."""
        return {"counters": self.law.fresh(count, source)}

    def route(self, batch: Any, scratch: Scratch) -> Iterator[tuple[NDArray[Any], Columns]]:
        """Yield the counter, the weight and, in an open universe, the public factor of every row."""
        for rows, cells, factors in self.law.pieces(batch, scratch):
            weights = np.broadcast_to(batch.weights, len(batch)) if batch.weights.size == 1 else batch.weights
            yield cells, (weights[rows],) if factors is None else (weights[rows], factors)

    def take(self, state: Any, columns: Columns, source: Source) -> None:
        """Add every weight to its counter."""
        places, weights = columns[0].astype(np.int64), columns[1].astype(np.int64)
        self.law.add(state, places, weights, columns[2] if len(columns) > 2 else None)
        wipe(places)
        wipe(weights)


@dataclass(frozen=True, slots=True)
class Cropped:
    """A counter modulo the crop and a bit a user; or two of both."""

    laws: tuple[CroppedMean, ...]
    names: tuple[tuple[str, str], ...]
    markable: bool = False

    @property
    def cells(self) -> int:
        """Return how many users are watched."""
        return self.laws[0].presence.cells

    @property
    def columns(self) -> tuple[type[np.generic], ...]:
        """Return nothing."""
        return ()

    def begin(self, count: int, source: Source) -> dict[str, NDArray[Any]]:
        """Return uniform counters and bits of absent users."""
        found: dict[str, NDArray[Any]] = {}
        for law, (counters, bits) in zip(self.laws, self.names, strict=True):
            found[bits] = toss(law.presence.law.absent, count, source)
            found[counters] = source.uniform_below(law.crop, count).astype(np.int32)
        return found

    def route(self, batch: Any, scratch: Scratch) -> Iterator[tuple[NDArray[Any], Columns]]:
        """Yield the users' numbers in the sample."""
        yield _sampled(self.laws[0].presence, batch.cells, scratch), ()

    def take(self, state: Any, columns: Columns, source: Source) -> None:
        """Move every arrival's counter on and re-draw the bits of those that wrap."""
        from panstream._kernels.bits import count_and_redraw

        places = columns[0].astype(np.int64)
        for law, (counters, bits) in zip(self.laws, self.names, strict=True):
            coins = source.bernoulli(law.presence.law.present, places.size)
            count_and_redraw(getattr(state, counters), getattr(state, bits), places, coins, law.crop)
        wipe(places)


def division_of(algorithm: Any) -> Division | None:
    """Return how an algorithm's state is divided, or None if it must stay whole."""
    if isinstance(algorithm, GraphDensity):
        return Bits(algorithm.edges)
    if isinstance(algorithm, Presence):
        return Bits(algorithm)
    if isinstance(algorithm, CellCounter):
        return Cells(algorithm) if algorithm.table.is_whole else None
    if isinstance(algorithm, ModularCounter):
        return Counters(algorithm)
    if isinstance(algorithm, CroppedMean):
        return Cropped((algorithm,), (("counters", "bits"),))
    if isinstance(algorithm, HeavyFraction):
        names = (("high_counters", "high_bits"), ("low_counters", "low_bits"))
        return Cropped((algorithm.high, algorithm.low), names)
    return None


def begin_part(algorithm: Any, ownership: Ownership, shard: int, source: Source) -> Any:
    """Return a fresh state of one shard."""
    return algorithm.state_type(**_division(algorithm).begin(ownership.count(shard), source), released=0)


def split(algorithm: Any, batch: Any, ownership: Ownership) -> Iterator[list[Columns]]:
    """Yield places and columns of a checked batch, for every shard; the caller wipes the batch and what is yielded."""
    with Scratch() as scratch:
        for cells, columns in _division(algorithm).route(batch, scratch):
            yield ownership.split(cells, columns, scratch)


def mark(algorithm: Any, batch: Any, marks: NDArray[np.uint8]) -> None:
    """Set ``marks`` to 1 at the cells that a checked batch touches; the caller wipes both."""
    with Scratch() as scratch:
        _mark(_division(algorithm), batch, marks, scratch)


def _mark(division: Division, batch: Any, marks: NDArray[np.uint8], scratch: Scratch) -> None:
    from panstream._kernels.marks import mark as mark_cells

    if isinstance(division, Cells):
        division.law.table.mark(batch, scratch, marks)
        return
    plain = isinstance(division, Bits) and not division.law.population.permuted
    for cells, _ in division.route(batch, scratch):
        mark_cells(marks, cells if plain else _inside(cells, marks.size))


def _inside(cells: NDArray[Any], limit: int) -> NDArray[Any]:
    return cells[cells < limit]


def take(algorithm: Any, state: Any, columns: Columns, source: Source) -> None:
    """Do to a shard's state what the rows at ``columns[0]`` do."""
    _division(algorithm).take(state, columns, source)


def take_marks(algorithm: Any, state: Any, bits: NDArray[np.uint8], source: Source) -> None:
    """Draw afresh the marked cells of a shard; there is a bit for each of its cells."""
    from panstream._kernels.bits import draw_marked

    division = _division(algorithm)
    assert isinstance(division, Bits | Cells)
    with Scratch() as scratch:
        marks = scratch.array(8 * bits.size)  # 0 beyond the last cell
        marks[:] = np.unpackbits(bits)
        draw_marked(state.bits, marks, source.bernoulli(division.law.law.present, marks.size))


def refresh(algorithm: Any, state: Any, count: int, source: Source) -> None:
    """Freeze the bits of ``count`` cells that were seen and start afresh; the caller has asked the algorithm whether it may."""
    from panstream.refresh import freeze

    division = _division(algorithm)
    if not isinstance(division, Bits | Cells):
        raise NotSupported(f"{type(algorithm).__name__} cannot be refreshed")
    state.frozen = freeze(state.frozen, state.bits, count, division.law.law.absent, source)


def join(algorithm: Any, parts: Sequence[Any], ownership: Ownership, released: int) -> Any:
    """Return the whole state that the shards' parts make up."""
    layout = algorithm.layout()
    values = {
        name: _union([getattr(part, name) for part in parts], ownership, kind=field.kind)
        for name, field in layout.items()
        if field.kind != "int"
    }
    return algorithm.state_type(**values, released=released)


def _union(parts: Sequence[NDArray[Any]], ownership: Ownership, *, kind: str) -> NDArray[Any]:
    if kind != "packed":
        return ownership.union(parts)
    cells = [unpacked(part, ownership.count(shard)) for shard, part in enumerate(parts)]
    return _packed_of(ownership.union(cells), *cells)


def cut(algorithm: Any, state: Any, ownership: Ownership, shard: int) -> Any:
    """Return one shard's part of a whole state."""
    layout = algorithm.layout()
    values = {
        name: _part(getattr(state, name), ownership, shard, kind=field.kind)
        for name, field in layout.items()
        if field.kind != "int"
    }
    return algorithm.state_type(**values, released=0)


def _part(whole: NDArray[Any], ownership: Ownership, shard: int, *, kind: str) -> NDArray[Any]:
    if kind != "packed":
        return ownership.part(whole, shard)
    cells = unpacked(whole, ownership.cells)
    return _packed_of(ownership.part(cells, shard), cells)


def _packed_of(cells: NDArray[np.uint8], *others: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return cells packed; the bytes that they and others were copied to are overwritten."""
    try:
        return pack_cells(cells)
    finally:
        for copied in (cells, *others):
            wipe(copied)


def encode_part(algorithm: Any, state: Any, count: int) -> bytes:
    """Return a shard's state as bytes, checked and without pickle."""
    return codec.encode(type(algorithm).__name__, algorithm.parameters(), state, _layout(algorithm, count))


def decode_part(algorithm: Any, data: bytes, count: int) -> Any:
    """Return the state that :func:`encode_part` wrote."""
    return codec.decode(data, algorithm.state_type, _layout(algorithm, count))


def wipe_state(state: Any) -> None:
    """Overwrite a state that is given up."""
    for declared in fields(state):
        value = getattr(state, declared.name)
        if isinstance(value, np.ndarray):
            wipe(value)


def _layout(algorithm: Any, count: int) -> dict[str, FieldLayout]:
    return {
        name: field
        if field.kind == "int"
        else FieldLayout(field.kind, (*field.shape[:-1], count), below=field.below, at_least=field.at_least)
        for name, field in algorithm.layout().items()
    }


def _division(algorithm: Any) -> Division:
    division = division_of(algorithm)
    if division is None:
        raise NotSupported(f"the state of {type(algorithm).__name__} cannot be divided")
    return division


def _fresh_bits(absent: Coin, count: int, source: Source) -> dict[str, NDArray[Any]]:
    bits = toss(absent, count, source)
    return {"bits": bits, "frozen": np.empty((0, bits.size), np.uint8)}


def _sampled(law: Presence, numbers: NDArray[np.int64], scratch: Scratch) -> NDArray[np.int64]:
    return (
        law.population.permute(numbers, scratch.array(numbers.size, np.int64)) if law.population.permuted else numbers
    )
