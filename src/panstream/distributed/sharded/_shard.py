"""A shard: its own cells of every divided state, one snapshot, and the batches of its last steps; nothing of Dask.

A call that changes the state carries a step number that only grows. A step that was done is acknowledged again and
not done again, and so is a batch that is here already: lost acknowledgements and retries change nothing. Every step
reaches every shard, whether it has rows for it or not, so that nothing here but the noisy cells depends on what rows
hold.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from panstream.distributed.sharded._outgoing_queue import Message, wipe_messages
from panstream.distributed.sharded._partitioning import TablePartitioning, partitioning_for, wipe_state
from panstream.engine.runtime.state_backend import state_name
from panstream.engine.storage.snapshot_store import SnapshotStore
from panstream.errors import StoreDamaged, StoreError
from panstream.primitives.memory.secret_memory import move_to_secret_memory
from panstream.primitives.noise import NoiseSource

_FORMAT = 1

Origin = tuple[str, int, float | None]
"""A batch: its producer, its number, and, if it goes on in another step, the time of its next row."""

Part = tuple[Sequence[Origin], Sequence[str], Sequence[Message]]  # batches, states to start, what happens to states
Status = tuple[int, list[Origin], list[str], list[str]]  # last step, batches of the last steps, partitions, states


def position_of(origin: Origin) -> tuple[int, float]:
    """Return how far a producer came by a batch: larger is later."""
    _, sequence, time = origin
    return sequence, math.inf if time is None else time


def query_of(name: str) -> str:
    """Return the query that a state belongs to."""
    return name.split("/", 2)[2]


class Shard:
    """One shard's states. ``algorithms`` gives the algorithm of every query whose state is divided.

    With a directory every step is durable before it returns; without one, what is held dies with the process.
    ``min_step`` is a step that the directory must have reached: a shard never starts afresh where it is known to have
    state.
    """

    def __init__(
        self,
        *,
        number: int,
        shards: int,
        algorithms: Mapping[str, Any],
        directory: str | os.PathLike[str] | None = None,
        operator_key: bytes | None = None,
        min_step: int = 0,
    ) -> None:
        self.number = number
        self.shards = shards
        self.step = 0
        self.recent: dict[str, tuple[int, Origin]] = {}  # the last batch of a producer and its step, while that matters
        self.absorbed: dict[str, None] = {}  # partitions that workers read
        self._divisions = {query: partitioning_for(algorithm, shards) for query, algorithm in algorithms.items()}
        self._states: dict[str, Any] = {}
        self._parked: dict[str, bytes] = {}  # states of queries that are not asked any more
        self._broken = False
        self._store = None if directory is None else SnapshotStore(directory, operator_key=operator_key)
        try:
            self._load()
            if self.step < min_step:
                raise StoreError(
                    f"shard {number} is known to have reached step {min_step}, but its directory here is at step "
                    f"{self.step}: is it on another machine?"
                )
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Give up directory and states; what was committed stays on disk."""
        if self._store is not None:
            self._store.close()
        for state in self._states.values():
            wipe_state(state)
        self._states.clear()
        self._broken = True

    def status(self) -> Status:
        """Return the last step, the batches of the last steps, partitions, and the names of the states: all public."""
        self._require_usable()
        return self.step, [origin for _, origin in self.recent.values()], [*self.absorbed], [*self._states]

    def apply(self, step: int, committed: int, retained_producers: Collection[str], parts: Sequence[Part]) -> None:
        """Take batches in, each once, after starting those of its states that are missing; durable when this returns.

        Batches up to step ``committed`` never come again and are forgotten, except those of the producers
        ``retained_producers``.
        """
        try:
            if self._already_did(step):
                return
            with self._all_or_nothing(step):
                self.recent = {
                    producer: entry
                    for producer, entry in self.recent.items()
                    if entry[0] > committed or producer in retained_producers
                }
                for origins, opened, work in parts:
                    for name in opened:
                        self._open(name)
                    if not origins or not all(self._has(origin) for origin in origins):
                        self._do(work)
                    self.recent |= {origin[0]: (step, origin) for origin in origins if not self._has(origin)}
        finally:
            for _, _, work in parts:
                wipe_messages(work)

    def _has(self, origin: Origin) -> bool:
        entry = self.recent.get(origin[0])
        return entry is not None and position_of(entry[1]) >= position_of(origin)

    def apply_partition(self, producers: Sequence[str], work: Sequence[Message]) -> None:
        """Take in what some partitions add together, in whatever order such calls come; durable when this returns.

        Each partition counts once, so that of those in one call all are new here or none is.
        """
        try:
            self._require_usable()
            fresh = [producer for producer in producers if producer not in self.absorbed]
            if not fresh:
                return
            if len(fresh) < len(producers):
                raise StoreError(f"shard {self.number} has some of these partitions and not others")
            with self._all_or_nothing(self.step):
                self._do(work)
                self.absorbed |= dict.fromkeys(producers)
        finally:
            wipe_messages(work)

    def _do(self, work: Sequence[Message]) -> None:
        for message in work:
            query = message.query

            def state_of(slot: tuple[int, int], query: str = query) -> Any:
                return self._states[state_name(query, slot)]

            message.apply(self._divisions[query], self.number, state_of, NoiseSource)

    def gather(self, name: str) -> bytes:
        """Return this shard's part of a state: for one who is about to release it, and nobody else."""
        self._require_usable()
        return self._divisions[query_of(name)].encode(self._states[name], self.number)

    def noisy_tables(self, name: str) -> bytes:
        """Return this shard's tables with the noise of a release, which is drawn here: none travels without it.

        The state stays as it is until it is dropped. Whoever calls again, for want of an answer, gets another draw.
        """
        self._require_usable()
        division = self._divisions[query_of(name)]
        assert isinstance(division, TablePartitioning)
        with NoiseSource() as rng:
            shown = division.shown(self._states[name], rng)
        try:
            return division.encode(shown, self.number)
        finally:
            wipe_state(shown)

    def replace(
        self, step: int, states: Mapping[str, bytes], recent: Sequence[Origin], absorbed: Iterable[str]
    ) -> None:
        """Take over whole parts, when cells are dealt out anew."""
        if self._already_did(step):
            return
        with self._all_or_nothing(step):
            for name, data in states.items():
                self._states[name] = self._divisions[query_of(name)].decode(data, self.number)
                move_to_secret_memory(self._states[name])
            self.recent = {origin[0]: (step, origin) for origin in recent}
            self.absorbed = dict.fromkeys(absorbed)

    def refresh(self, step: int, names: Iterable[str]) -> None:
        """Freeze what was seen in an announced intrusion and start afresh."""
        if self._already_did(step):
            return
        with self._all_or_nothing(step):
            for name in names:
                with NoiseSource() as rng:
                    self._divisions[query_of(name)].refresh(self._states[name], self.number, rng)
                move_to_secret_memory(self._states[name])

    def drop(self, step: int, names: Collection[str]) -> None:
        """Give states up."""
        if self._already_did(step):
            return
        with self._all_or_nothing(step):
            for name in names:
                state = self._states.pop(name, None)
                if state is not None:
                    wipe_state(state)

    def _open(self, name: str) -> None:
        if name not in self._states:
            with NoiseSource() as rng:
                self._states[name] = self._divisions[query_of(name)].initial_shard(self.number, rng)
            move_to_secret_memory(self._states[name])

    def _load(self) -> None:
        parts = None if self._store is None else self._store.load()
        if parts is None:
            return
        damaged = "the store holds something else than a shard's state"
        try:
            meta = json.loads(parts.pop("meta"))
            stored = (meta["number"], meta["shards"])
            self.step = meta["step"]
            if meta["format"] != _FORMAT:
                raise ValueError
            self.recent = {origin[0]: (step, tuple(origin)) for step, origin in meta["recent"]}
            self.absorbed = dict.fromkeys(meta["absorbed"])
        except (KeyError, ValueError, TypeError):
            raise StoreDamaged(damaged) from None
        if stored != (self.number, self.shards):
            raise StoreDamaged(
                f"the store is that of shard {stored[0]} of {stored[1]}, not of shard {self.number} of {self.shards}"
            )
        for name, data in parts.items():
            if query_of(name) in self._divisions:
                self._states[name] = self._divisions[query_of(name)].decode(data, self.number)
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
            "recent": [*self.recent.values()],
            "absorbed": [*self.absorbed],
        }
        states = {name: self.gather(name) for name in self._states}
        self._store.commit({"meta": json.dumps(meta).encode(), **self._parked, **states})

    def _already_did(self, step: int) -> bool:
        self._require_usable()
        return step <= self.step

    def _require_usable(self) -> None:
        if self._broken:
            raise StoreError(f"shard {self.number} gave its state up: open it again from its snapshot")

    @contextlib.contextmanager
    def _all_or_nothing(self, step: int) -> Iterator[None]:
        """Commit what the block does as a step, or give the state up: what is on disk is whole."""
        try:
            yield
            self._commit(step)
        except BaseException:
            self.close()
            raise
