"""The engine of a cluster: an ordinary engine whose divided states are with the shards.

Shards commit first, the coordinator afterwards. If it dies in between, shards are ahead of it: the rows come again, and each
shard leaves out what it has. For that a micro-batch is cut where a clock's slot ends and where a shard's position lies, since
a shard takes a piece as a whole or not at all.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.cluster import division
from panstream.cluster.holder import ClusterHolder
from panstream.cluster.links import Call, Link, LocalLink, Opening
from panstream.cluster.reading import Totals
from panstream.cluster.shard import destroy, label, query_of
from panstream.continual.tree_base import TreeBatch
from panstream.engine.config import Config, ConfigError
from panstream.engine.engine import Applied, Engine
from panstream.engine.fate import Refreshed
from panstream.engine.plan import QueryPlan, plan_all
from panstream.engine.running import Drawn
from panstream.engine.selection import Chosen, Rows
from panstream.errors import NotSupported
from panstream.estimate import Estimate
from panstream.randomness import Source
from panstream.store.releases import Release

__all__ = ["ClusterEngine", "divided_algorithms", "stored_shards"]

_BITS = 32
_LAST = (1 << _BITS) - 1  # stands for the end of a batch


def divided_algorithms(plans: Collection[QueryPlan]) -> dict[str, Any]:
    """Return the algorithm of every query whose state is with the shards."""
    return {plan.config.name: plan.algorithm for plan in plans if division.division_of(plan.algorithm) is not None}


class ClusterEngine(Engine):
    """Runs a configuration with its divided states on the shards of ``link``. May be used by several threads.

    ``positions`` says that a batch's sequence is the number of its last row, as of files; then batches may come
    again with other borders after a restart. Otherwise the same sequence must mean the same rows.
    """

    def __init__(
        self,
        config: Config,
        link: Link,
        *,
        operator_key: bytes | None = None,
        positions: bool = False,
        source: Source | None = None,
        zero_noise: bool = False,
        **options: Any,
    ) -> None:
        if config.durability == "interval":
            raise ConfigError('[store] durability must be "batch" or "none" on a cluster: shards commit every batch')
        self._link, self._positions, self._lock, self._inside = link, positions, threading.RLock(), False
        directory = config.directory if config.durability == "batch" else None
        algorithms = divided_algorithms(plan_all(config, zero_noise=zero_noise))
        opening = Opening(shards=link.shards, algorithms=algorithms, directory=directory, operator_key=operator_key)
        try:
            if directory is not None:
                _deal_out_anew(opening, directory)
            link.open(opening)
            self._divided = ClusterHolder(link, source=source)
            held = self._divided.join()
            super().__init__(
                config, operator_key=operator_key, source=source, zero_noise=zero_noise, holder=self._divided, **options
            )
        except BaseException:
            link.close()
            raise
        try:
            if directory is not None:
                _note_shards(directory, link.shards)
            self._drop_left_over({name for names in held.values() for name in names})
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close store, log and shards."""
        super().close()
        self._link.close()

    # Inside, a piece's number is sequence · 2**32 + the rows of the batch up to its end; outside, only whole batches are known.

    def seen(self, producer: str | None, sequence: int) -> bool:
        """Return whether a batch was applied already."""
        return super().seen(producer, sequence if self._inside else _whole(sequence))

    def positions(self) -> dict[str, int]:
        """Return how far every producer was applied."""
        return {producer: _complete(number) for producer, number in super().positions().items()}

    def last_sequence(self, producer: str) -> int:
        """Return the number of the last batch that was applied of a producer, -1 if there was none."""
        return self.positions().get(producer, -1)

    def forget_producers(self, most: int) -> None:
        """Remember only the producers that sent last, here and on the shards."""
        with self._lock:
            before = {*self._kept.seen}
            super().forget_producers(most)
            self._divided.forget(before - {*self._kept.seen})

    def apply(self, rows: Rows, *, commit: bool = True) -> Applied:
        """Take a micro-batch; with ``commit``, every shard has its part of it durable when this returns."""
        if rows.origins:
            raise NotSupported("a cluster takes every producer's batch by itself: some shards may have one already")
        with self._lock:
            self._check_whole()
            if self.seen(rows.producer, rows.sequence):
                return Applied(new=False)
            now = self._clock()
            clock, self._clock, self._inside = self._clock, lambda: now, True
            try:
                done = [self._apply_piece(piece, commit) for piece in self._pieces(rows)]
            finally:
                self._clock, self._inside = clock, False
            return Applied(
                new=True,
                skipped=tuple(number for each in done for number in each.skipped),
                late=tuple(number for each in done for number in each.late),
            )

    def _apply_piece(self, piece: Rows, commit: bool) -> Applied:
        """Draw what is due and make it durable before any row behind it goes to a shard; then apply the rows."""
        if self.seen(piece.producer, piece.sequence):
            return Applied(new=False)
        _, times = self._times(piece)
        if times is not None and piece.count:
            first = self._stream_clock.marks(times[:1])
            with self._all_or_nothing():
                for query in self._queries.values():
                    if query.schedule is not None and np.isfinite(first[0]):
                        query.reach(int(query.schedule.steps(first)[0]), self._drawer(query))
                if self._drawn:
                    self.commit()
        return super().apply(piece, commit=commit)

    def _pieces(self, rows: Rows) -> list[Rows]:
        """Return the batch in pieces: no slot ends and no shard's position lies within one."""
        found: set[int] = set()
        if rows.times is not None and rows.count:
            _, times = self._times(rows)
            assert times is not None
            marks = self._stream_clock.marks(times)
            for query in self._queries.values():
                if query.schedule is not None:
                    found |= {int(at) + 1 for at in np.flatnonzero(np.diff(query.schedule.steps(marks)))}
        numbers = rows.numbers() if self._positions and rows.numbers is not None else None
        if rows.producer is not None:
            known = {*self._divided.positions.get(rows.producer, ()), super().last_sequence(rows.producer)}
            found |= {_row_behind(position, rows.sequence, numbers) for position in known}
        cuts = sorted(at for at in found if 0 < at < rows.count)
        if cuts and self.config.stream.on_bad_row == "stop":
            self._check_all(rows)
        names = [_whole(int(numbers[at - 1])) if numbers is not None else (rows.sequence << _BITS) + at for at in cuts]
        ends = [*cuts, rows.count]
        return [
            _slice(rows, start, stop, name)
            for start, stop, name in zip([0, *cuts], ends, [*names, _whole(rows.sequence)], strict=True)
        ]

    def seen_apart(self, producer: str) -> bool:
        """Return whether a partition that workers read was taken in."""
        return super().seen(producer, 0)

    def begun_apart(self) -> set[str]:
        """Return partitions that some shards had when the stream was opened."""
        return {*self._divided.positions}

    def absorbed(self, producers: Sequence[str], totals: Totals) -> None:
        """Note that every shard has some partitions, and take in what they add to states that are here."""
        with self._lock:
            self._check_whole()
            if all(self.seen_apart(producer) for producer in producers):
                return
            with self._all_or_nothing():
                for name, slot, total, events in totals:
                    query = self._queries[name]
                    if not query.finished:
                        query.monitors[slot].apply(TreeBatch(total, events))
                self._kept.seen |= dict.fromkeys(producers, 0)
                self._kept.dirty = self._uncommitted = True

    def estimate(self, name: str) -> Estimate:
        """Release a query that is asked once, and return the estimate itself; not logged twice."""
        with self._lock:
            query = self._queries[self.config.query(name).name]
            found: list[Drawn] = []
            with self._all_or_nothing():
                query.draw_now(found.append)
            return found[0].estimate

    def _check_all(self, rows: Rows) -> None:
        known, times = self._times(rows)
        marks = None if times is None else self._stream_clock.marks(times)
        for _, prepared in self._prepare(rows, known, times, marks)[0]:
            prepared.wipe()

    def _drop_left_over(self, held: set[str]) -> None:
        """Drop windows that were over before the coordinator could say so."""
        over = []
        for name in held:
            query = self._queries.get(query_of(name))
            if query is None or not query.windowed or query.schedule is None or query.schedule.step is None:
                continue
            slot = (int(name.split("/")[0]), int(name.split("/")[1]))
            first_alive = query.schedule.step // query.ticks_per_window
            if slot not in query.monitors and slot[0] < first_alive:
                over.append(label(query.plan.config.name, slot))
        if over:
            self._divided.everywhere("drop", over)

    # One step at a time, whoever asks.

    def advance(self) -> None:
        """Draw what is due by the clock of arrival, and commit."""
        with self._lock:
            super().advance()

    def finish(self) -> None:
        """Close open slots and windows and answer what is asked at the end."""
        with self._lock:
            super().finish()

    def release(self, name: str) -> list[Release]:
        """Answer a query without schedule now; two who ask at once are answered one after the other."""
        with self._lock:
            return super().release(name)

    def announce_intrusion(self) -> list[Refreshed]:
        """Make every state safe again that can be."""
        with self._lock:
            return super().announce_intrusion()

    def commit(self, **options: Any) -> None:
        """Commit on all shards, then here, and publish."""
        with self._lock:
            super().commit(**options)


def _whole(sequence: int) -> int:
    return (sequence << _BITS) + _LAST


def _complete(number: int) -> int:
    return (number >> _BITS) - (number & _LAST != _LAST)


def _row_behind(position: int, sequence: int, numbers: NDArray[np.int64] | None) -> int:
    """Return the first row of a batch that lies behind a position; 0 if the position is not within the batch."""
    if numbers is not None:
        return int(np.searchsorted(numbers, position >> _BITS, side="right"))
    return position & _LAST if position >> _BITS == sequence else 0


def _slice(rows: Rows, start: int, stop: int, sequence: int) -> Rows:
    """Return some consecutive rows under a number of their own."""
    if stop - start == rows.count:
        return replace(rows, sequence=sequence)

    def cut(column: NDArray[Any] | None) -> Any:
        return None if column is None else column[start:stop]

    def chosen(each: Chosen) -> Chosen:
        return Chosen(
            rows=cut(each.rows),
            values=cut(each.values),
            weights=cut(each.weights),
            groups=cut(each.groups),
            unusable=cut(each.unusable),
        )

    def numbers() -> NDArray[np.int64]:
        return np.arange(start, stop) if rows.numbers is None else rows.numbers()[start:stop]

    return replace(
        rows,
        count=stop - start,
        queries={name: chosen(each) for name, each in rows.queries.items()},
        ids=None if rows.ids is None else rows.ids[start:stop],
        times=cut(rows.times),
        sequence=sequence,
        numbers=numbers,
    )


# How many shards there are, and how their cells are dealt out anew.


def stored_shards(directory: Path) -> int | None:
    """Return how many shards a stream's directory has, None if it has none yet."""
    note = directory / "cluster.json"
    return int(json.loads(note.read_text())["shards"]) if note.exists() else None


def _note_shards(directory: Path, shards: int) -> None:
    """Write how many shards count from now on: the point from which only they do."""
    if stored_shards(directory) != shards:
        new = directory / "cluster.json.new"
        with new.open("w") as file:
            json.dump({"shards": shards}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, directory / "cluster.json")
    _sweep(directory, shards)


def _sweep(directory: Path, shards: int) -> None:
    """Make shards of another number unreadable, and remove them."""
    for other in directory.glob("shards-*"):
        if other.name != f"shards-{shards}":
            for shard in other.iterdir():
                destroy(shard)
            other.rmdir()


def _deal_out_anew(opening: Opening, directory: Path) -> None:
    """Move all cells where the number of shards has changed. The directories must be within reach of this process."""
    before = stored_shards(directory)
    if before is None:
        return
    _sweep(directory, before)  # what an interrupted move left
    if before == opening.shards:
        return
    old, new = LocalLink(before), LocalLink(opening.shards)
    try:
        old.open(replace(opening, shards=before))
        new.open(opening)
        _move(old, new, opening)
    finally:
        old.close()
        new.close()
    _note_shards(directory, opening.shards)


def _move(old: LocalLink, new: LocalLink, opening: Opening) -> None:
    holder, target = ClusterHolder(old), ClusterHolder(new)
    names = holder.join()[0]
    seen: dict[str, int] = {}
    for producer, positions in holder.positions.items():
        if len(positions) < old.shards or len(set(positions)) > 1:
            raise ConfigError(
                "the shards stand at different positions, as after a crash: start once with the old number of "
                f"shards, {old.shards}, and feed the same input; then change it"
            )
        seen[producer] = positions[0]
    parts: list[dict[str, bytes]] = [{} for _ in range(new.shards)]
    for name in names:
        algorithm = opening.algorithms.get(query_of(name))
        if algorithm is None:
            raise ConfigError(f"query {query_of(name)!r} is stored but not asked: name it while the shards are moved")
        state, ownership = holder.gather(name, algorithm, 0), target.ownership(algorithm)
        for shard, found in enumerate(parts):
            part = division.cut(algorithm, state, ownership, shard)
            found[name] = division.encode_part(algorithm, part, ownership.count(shard))
            division.wipe_state(part)
        division.wipe_state(state)
    new.send([Call(shard, "replace", (holder.step + 1, parts[shard], seen)) for shard in range(new.shards)])
