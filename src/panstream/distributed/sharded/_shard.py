"""A shard: its cells of every sharded state, a snapshot store, and the batches of its last steps; without Dask.

A call that changes the state carries a step number that only grows. A step or a batch that was applied before is
acknowledged and not applied again, so lost acknowledgements and retries change nothing. Every step reaches every
shard, whether it has rows for it or not, so that nothing here but the noisy cells depends on the rows.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from panstream.distributed.sharded._outgoing_queue import Message, wipe_messages
from panstream.distributed.sharded._partitioning import TablePartitioning, partitioning_for, wipe_state
from panstream.engine.runtime.state_backend import state_name
from panstream.engine.storage.snapshot_store import SnapshotStore
from panstream.errors import StoreDamaged, StoreError
from panstream.primitives.memory.secret_memory import move_to_secret_memory
from panstream.primitives.noise import NoiseSource

_FORMAT = 1

Origin = tuple[str, int, float | None]
"""A batch: its producer, its number and, if it is continued in another step, the time of its next row."""

Part = tuple[Sequence[Origin], Sequence[str], Sequence[Message]]  # batches, states to start, updates


SectionPosition = tuple[Sequence[str], int]
"""Partitions that are read together in order, and how many of their sections were applied."""


class Status(NamedTuple):
    """How far a shard came; all of it is public."""

    step: int
    recent: list[Origin]  # batches of the last steps
    absorbed: list[str]  # partitions
    states: list[str]
    reading: SectionPosition | None = None  # partitions that were applied in part


def position_of(origin: Origin) -> tuple[int, float]:
    """Return the position of a producer after a batch; later positions compare larger."""
    _, sequence, time = origin
    return sequence, math.inf if time is None else time


def query_of(name: str) -> str:
    """Return the query of a state from the state's name, ``window/group/query``."""
    return name.split("/", 2)[2]


class Shard:
    """One shard's part of every sharded state.

    Args:
        number: Which shard it is.
        shards: Number of shards.
        algorithms: The algorithm of every query whose state is sharded.
        directory: Where every step is committed before it returns; None holds the state in memory only.
        operator_key: Part of the key of the snapshot store.
        min_step: A step that the directory must have reached: a shard that is known to have state never starts again
            from an empty directory, which could be that of another machine.
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
        self.recent: dict[str, tuple[int, Origin]] = {}  # by producer: the step and the last batch, while it may recur
        self.absorbed: dict[str, None] = {}  # partitions that were applied, in order
        self.reading: SectionPosition | None = None
        self._partitionings = {query: partitioning_for(algorithm, shards) for query, algorithm in algorithms.items()}
        self._states: dict[str, Any] = {}
        self._unused: dict[str, bytes] = {}  # states of queries that are no longer configured, as they were stored
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
        """Close the store and wipe the states; what was committed stays on disk."""
        if self._store is not None:
            self._store.close()
        for state in self._states.values():
            wipe_state(state)
        self._states.clear()
        self._broken = True

    def status(self) -> Status:
        """Return the last step, the batches of the last steps, partitions, and names of the states."""
        self._require_usable()
        recent = [origin for _, origin in self.recent.values()]
        return Status(self.step, recent, [*self.absorbed], [*self._states], self.reading)

    def apply(self, step: int, committed: int, retained_producers: Collection[str], parts: Sequence[Part]) -> None:
        """Apply batches, each once, and start missing states before; durable when this returns.

        Args:
            step: The step's number.
            committed: The coordinator's last commit: batches up to it are not sent again, and are forgotten.
            retained_producers: Producers whose batches are remembered all the same.
            parts: Batches, the states to start, and the updates.
        """
        try:
            if self._already_did(step):
                return
            with self._transaction(step):
                self.recent = {
                    producer: entry
                    for producer, entry in self.recent.items()
                    if entry[0] > committed or producer in retained_producers
                }
                for origins, opened, work in parts:
                    for name in opened:
                        self._open(name)
                    # A batch that was applied before the coordinator crashed is a part of its own: it is skipped here.
                    if not origins or not all(self._has(origin) for origin in origins):
                        self._apply_messages(work)
                    self.recent |= {origin[0]: (step, origin) for origin in origins if not self._has(origin)}
        finally:
            for _, _, work in parts:
                wipe_messages(work)

    def _has(self, origin: Origin) -> bool:
        entry = self.recent.get(origin[0])
        return entry is not None and position_of(entry[1]) >= position_of(origin)

    def apply_partition(self, producers: Sequence[str], work: Sequence[Message]) -> None:
        """Apply the updates of a task's partitions; durable when this returns.

        Tasks may come in any order. Their updates are summed, so either all partitions of a call are new or none is.
        """
        try:
            self._require_usable()
            if self._has_partitions(producers):
                return
            with self._transaction(self.step):
                self._apply_messages(work)
                self.absorbed |= dict.fromkeys(producers)
        finally:
            wipe_messages(work)

    def apply_section(
        self, producers: Sequence[str], section: int, last: bool, opened: Iterable[str], work: Sequence[Message]
    ) -> None:
        """Apply one section of partitions whose order matters, and start missing states before; durable then.

        Args:
            producers: The partitions.
            section: Which section it is; those before it must have been applied.
            last: Whether the partitions are complete then.
            opened: The states to start.
            work: The updates.
        """
        try:
            self._require_usable()
            if self._has_partitions(producers):
                return
            partitions, done = ([*producers], 0) if self.reading is None else self.reading
            if [*partitions] == [*producers] and done > section:
                return
            if [*partitions] != [*producers] or done < section:
                raise StoreError(f"shard {self.number} lacks what comes before these partitions")
            with self._transaction(self.step):
                for name in opened:
                    self._open(name)
                self._apply_messages(work)
                self.reading = None if last else ([*producers], section + 1)
                if last:
                    self.absorbed |= dict.fromkeys(producers)
        finally:
            wipe_messages(work)

    def _has_partitions(self, producers: Sequence[str]) -> bool:
        new = [producer for producer in producers if producer not in self.absorbed]
        if 0 < len(new) < len(producers):
            raise StoreError(f"shard {self.number} has some of these partitions and not others")
        return not new

    def _apply_messages(self, messages: Sequence[Message]) -> None:
        for message in messages:
            query = message.query

            def state_of(slot: tuple[int, int], query: str = query) -> Any:
                return self._states[state_name(query, slot)]

            message.apply(self._partitionings[query], self.number, state_of, NoiseSource)

    def gather(self, name: str) -> bytes:
        """Serialize this shard's part of a state, for the coordinator that is about to release it."""
        self._require_usable()
        return self._partitionings[query_of(name)].encode(self._states[name], self.number)

    def gather_all(self, names: Iterable[str]) -> list[bytes]:
        """Serialize this shard's parts of several states."""
        return [self.gather(name) for name in names]

    def noisy_tables(self, name: str) -> bytes:
        """Serialize this shard's tables with the noise of a release, drawn here: none is sent without it.

        The state does not change. A repeated call, after a lost answer, draws again.
        """
        self._require_usable()
        partitioning = self._partitionings[query_of(name)]
        assert isinstance(partitioning, TablePartitioning)
        with NoiseSource() as rng:
            noisy = partitioning.with_release_noise(self._states[name], rng)
        try:
            return partitioning.encode(noisy, self.number)
        finally:
            wipe_state(noisy)

    def replace(
        self, step: int, states: Mapping[str, bytes], recent: Sequence[Origin], absorbed: Iterable[str]
    ) -> None:
        """Replace all states and positions by those of a resharded stream."""
        if self._already_did(step):
            return
        with self._transaction(step):
            for name, data in states.items():
                self._states[name] = self._partitionings[query_of(name)].decode(data, self.number)
                move_to_secret_memory(self._states[name])
            self.recent = {origin[0]: (step, origin) for origin in recent}
            self.absorbed = dict.fromkeys(absorbed)

    def forget_partitions(self, step: int, names: Collection[str]) -> None:
        """Forget partitions that were applied, and that the coordinator has recorded."""
        if self._already_did(step):
            return
        with self._transaction(step):
            for name in names:
                self.absorbed.pop(name, None)

    def open_states(self, step: int, names: Iterable[str]) -> None:
        """Start states; those that are open already stay as they are."""
        if self._already_did(step):
            return
        with self._transaction(step):
            for name in names:
                self._open(name)

    def refresh(self, step: int, names: Iterable[str]) -> None:
        """Refresh states after an announced intrusion."""
        if self._already_did(step):
            return
        with self._transaction(step):
            for name in names:
                with NoiseSource() as rng:
                    self._partitionings[query_of(name)].refresh(self._states[name], self.number, rng)
                move_to_secret_memory(self._states[name])

    def drop(self, step: int, names: Collection[str]) -> None:
        """Wipe states whose windows are over."""
        if self._already_did(step):
            return
        with self._transaction(step):
            for name in names:
                state = self._states.pop(name, None)
                if state is not None:
                    wipe_state(state)

    def _open(self, name: str) -> None:
        if name not in self._states:
            with NoiseSource() as rng:
                self._states[name] = self._partitionings[query_of(name)].initial_shard(self.number, rng)
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
            reading = meta.get("reading")
            self.reading = None if reading is None else (reading[0], int(reading[1]))
        except (KeyError, ValueError, TypeError):
            raise StoreDamaged(damaged) from None
        if stored != (self.number, self.shards):
            raise StoreDamaged(
                f"the store is that of shard {stored[0]} of {stored[1]}, not of shard {self.number} of {self.shards}"
            )
        for name, data in parts.items():
            if query_of(name) in self._partitionings:
                self._states[name] = self._partitionings[query_of(name)].decode(data, self.number)
            else:
                self._unused[name] = data

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
            **({} if self.reading is None else {"reading": self.reading}),
        }
        states = {name: self.gather(name) for name in self._states}
        self._store.commit({"meta": json.dumps(meta).encode(), **self._unused, **states})

    def _already_did(self, step: int) -> bool:
        self._require_usable()
        return step <= self.step

    def _require_usable(self) -> None:
        if self._broken:
            raise StoreError(f"shard {self.number} gave its state up: open it again from its snapshot")

    @contextlib.contextmanager
    def _transaction(self, step: int) -> Iterator[None]:
        """Commit what the block does as a step.

        After an error the state in memory may be half changed: it is wiped, and the snapshot on disk is the last step.
        """
        try:
            yield
            self._commit(step)
        except BaseException:
            self.close()
            raise
