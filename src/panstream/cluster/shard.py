"""A shard: its own cells of every divided state, one snapshot, and what it has seen. It knows nothing of Dask.

A call that changes the state carries a step number that only grows. A step that was done is acknowledged again and not done
again, and so is a batch of a producer that came so far already: lost acknowledgements and retries change nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from panstream.cluster import division
from panstream.cluster.division import Piece
from panstream.cluster.ownership import Ownership
from panstream.errors import StoreDamaged, StoreError
from panstream.randomness import Source
from panstream.store.snapshot import SnapshotStore

__all__ = ["Part", "Shard", "Work", "destroy", "label", "wipe_pieces"]

_FORMAT = 1

Work = Sequence[tuple[str, Sequence[Piece]]]  # which state, and what happens to it
Part = tuple[str | None, int, Sequence[str], Work]  # a batch: its producer and number, states to start, work


def label(query: str, slot: tuple[int, int]) -> str:
    """Return the name of one state: ``window/group/query``."""
    return f"{slot[0]}/{slot[1]}/{query}"


def query_of(name: str) -> str:
    """Return the query that a state belongs to."""
    return name.split("/", 2)[2]


class Shard:
    """One shard's states. ``algorithms`` gives the algorithm of every query whose state is divided.

    With a directory every step is durable before it returns; without one, what is held dies with the process.
    ``least`` is a step that the directory must have reached: a shard never starts afresh where it is known to have state.
    """

    def __init__(
        self,
        *,
        number: int,
        shards: int,
        algorithms: Mapping[str, Any],
        directory: str | os.PathLike[str] | None = None,
        operator_key: bytes | None = None,
        least: int = 0,
        source: Source | None = None,
    ) -> None:
        self.number, self.shards = number, shards
        self.step = 0
        self.seen: dict[str, int] = {}
        self._algorithms = dict(algorithms)
        self._states: dict[str, Any] = {}
        self._parked: dict[str, bytes] = {}  # states of queries that are not asked any more
        self._broken = False
        self._source = source
        self._store = None if directory is None else SnapshotStore(directory, operator_key=operator_key)
        try:
            self._load()
            if self.step < least:
                raise StoreError(
                    f"shard {number} is known to have come to step {least}, but its directory here is at step {self.step}: "
                    "is it on another machine?"
                )
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Give up directory and states; what was committed stays on disk."""
        if self._store is not None:
            self._store.close()
        for state in self._states.values():
            division.wipe_state(state)
        self._states.clear()
        self._broken = True

    def status(self) -> tuple[int, dict[str, int], list[str]]:
        """Return the last step, how far every producer came, and the names of the states: all public."""
        self._check_whole()
        return self.step, dict(self.seen), [*self._states]

    def apply(self, step: int, parts: Sequence[Part]) -> None:
        """Take batches in, each once, after starting those of its states that are missing; durable when this returns."""
        self._check_whole()
        try:
            if step <= self.step:
                return
            with self._all_or_nothing():
                for producer, sequence, opened, work in parts:
                    for name in opened:
                        self._open(name)
                    if producer is None or self.seen.get(producer, -1) < sequence:
                        self._do(work)
                    if producer is not None:
                        self.seen[producer] = max(sequence, self.seen.get(producer, -1))
                self._commit(step)
        finally:
            for _, _, _, work in parts:
                _wipe_work(work)

    def absorb(self, producers: Sequence[str], work: Work) -> None:
        """Take in what some producers add together, in whatever order such calls come; durable when this returns.

        Each producer counts once, so that of those in one call all are new here or none is.
        """
        self._check_whole()
        try:
            fresh = [producer for producer in producers if producer not in self.seen]
            if not fresh:
                return
            if len(fresh) < len(producers):
                raise StoreError(f"shard {self.number} has some of these partitions and not others")
            with self._all_or_nothing():
                self._do(work)
                self.seen |= dict.fromkeys(producers, 0)
                self._commit(self.step)
        finally:
            _wipe_work(work)

    def _do(self, work: Work) -> None:
        for name, pieces in work:
            with self._random() as source:
                division.take(self._algorithms[query_of(name)], self._states[name], pieces, source)

    def gather(self, name: str) -> bytes:
        """Return this shard's part of a state: for one who is about to release it, and nobody else."""
        self._check_whole()
        query = query_of(name)
        return division.encode_part(
            self._algorithms[query], self._states[name], self._ownership(query).count(self.number)
        )

    def replace(self, step: int, states: Mapping[str, bytes], seen: Mapping[str, int]) -> None:
        """Take over whole parts, when cells are dealt out anew."""
        self._check_whole()
        if step <= self.step:
            return
        with self._all_or_nothing():
            for name, data in states.items():
                self._states[name] = self._decode(name, data)
            self.seen = dict(seen)
            self._commit(step)

    def refresh(self, step: int, names: Iterable[str]) -> None:
        """Freeze what was seen in an announced intrusion and start afresh."""
        self._check_whole()
        if step <= self.step:
            return
        with self._all_or_nothing():
            for name in names:
                query = query_of(name)
                count = self._ownership(query).count(self.number)
                with self._random() as source:
                    division.refresh(self._algorithms[query], self._states[name], count, source)
            self._commit(step)

    def drop(self, step: int, names: Collection[str]) -> None:
        """Give states up."""
        self._check_whole()
        if step <= self.step:
            return
        with self._all_or_nothing():
            for name in names:
                state = self._states.pop(name, None)
                if state is not None:
                    division.wipe_state(state)
            self._commit(step)

    def forget(self, step: int, producers: Iterable[str]) -> None:
        """Remember no longer how far some producers came."""
        self._check_whole()
        if step <= self.step:
            return
        with self._all_or_nothing():
            for producer in producers:
                self.seen.pop(producer, None)
            self._commit(step)

    def _open(self, name: str) -> None:
        if name not in self._states:
            query = query_of(name)
            with self._random() as source:
                state = division.begin_part(self._algorithms[query], self._ownership(query), self.number, source)
            self._states[name] = state

    def _ownership(self, query: str) -> Ownership:
        found = division.division_of(self._algorithms[query])
        assert found is not None
        return Ownership(cells=found.cells, shards=self.shards)

    def _decode(self, name: str, data: bytes) -> Any:
        query = query_of(name)
        return division.decode_part(self._algorithms[query], data, self._ownership(query).count(self.number))

    def _random(self) -> Source:
        return Source() if self._source is None else self._source

    def _load(self) -> None:
        parts = None if self._store is None else self._store.load()
        if parts is None:
            return
        damaged = "the store holds something else than a shard's state"
        try:
            meta = json.loads(parts.pop("meta"))
            found = (meta["format"], meta["number"], meta["shards"])
            self.step, self.seen = meta["step"], dict(meta["seen"])
        except (KeyError, ValueError, TypeError):
            raise StoreDamaged(damaged) from None
        if found != (_FORMAT, self.number, self.shards):
            raise StoreDamaged(
                f"the store is that of shard {found[1]} of {found[2]}, not of shard {self.number} of {self.shards}"
            )
        for name, data in parts.items():
            if query_of(name) in self._algorithms:
                self._states[name] = self._decode(name, data)
            else:
                self._parked[name] = data

    def _commit(self, step: int) -> None:
        self.step = step
        if self._store is None:
            return
        meta = {
            "format": _FORMAT,
            "number": self.number,
            "shards": self.shards,
            "step": step,
            "seen": self.seen,
        }
        states = {name: self.gather(name) for name in self._states}
        self._store.commit({"meta": json.dumps(meta).encode(), **self._parked, **states})

    def _check_whole(self) -> None:
        if self._broken:
            raise StoreError(f"shard {self.number} gave its state up: open it again from its snapshot")

    @contextlib.contextmanager
    def _all_or_nothing(self) -> Any:
        try:
            yield
        except BaseException:
            self.close()
            raise


def _wipe_work(work: Work) -> None:
    for _, pieces in work:
        wipe_pieces(pieces)


def wipe_pieces(pieces: Iterable[Piece]) -> None:
    """Overwrite arrays that have travelled, also where they came as memory that may not be written."""
    for _, columns in pieces:
        for array in columns:
            if array.nbytes and array.flags.c_contiguous:
                ctypes.memset(array.ctypes.data, 0, array.nbytes)
            elif array.nbytes:
                array.fill(0)


def destroy(directory: str | os.PathLike[str]) -> None:
    """Make a shard's directory unreadable: overwrite its key, then remove it."""
    path = Path(directory)
    names = [path / name for name in ("state.sealed", "state.new")]
    for name in names:
        with contextlib.suppress(FileNotFoundError), name.open("r+b", buffering=0) as file:
            file.write(bytes(os.fstat(file.fileno()).st_size))
            os.fsync(file.fileno())
    for name in [*names, path / "lock"]:
        name.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        path.rmdir()
