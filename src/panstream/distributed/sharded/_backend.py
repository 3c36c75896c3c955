"""The coordinator's side of sharded states: sends updates to the shards, assembles noisy states for a release.

Every commit is one step of every shard, whatever the rows of the step were and whether there were any. States that
cannot be sharded (the continual ones: a few numbers each) stay with the coordinator, where they need no more noise
than on one machine; workers send them sums of batches, not rows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from panstream.algorithms.continual_users.ones_counter import SetBitCounter
from panstream.core.algorithm import consume_release
from panstream.core.estimate import Estimate
from panstream.core.registry import algorithm_from_header
from panstream.core.shardable import has_tables
from panstream.distributed.sharded._divided_states import is_divided
from panstream.distributed.sharded._outgoing_queue import Message, OutgoingQueue, wipe_messages
from panstream.distributed.sharded._partitioning import partitioning_for, wipe_state
from panstream.distributed.sharded._shard import Origin, Part, Status, position_of
from panstream.distributed.sharded._sharded_counter import CounterRecord, ShardedCounter
from panstream.distributed.sharded._transport import ShardCall, ShardTransport
from panstream.engine.runtime.state_backend import LocalBackend, RemoteStateRecord, Slot, StateHandle, state_name
from panstream.errors import NotSupported, StoreError
from panstream.primitives import codec
from panstream.primitives.noise import NoiseSource
from panstream.privacy.claim import Refresh

_FETCHED_CELLS = 1 << 24  # of states that are fetched in one call


@dataclass(slots=True, kw_only=True)
class _CommitGroup:
    """Batches that are sent to every shard together; ``is_retry``: a single one that some shards have already."""

    origins: list[Origin] = field(default_factory=list)
    opened: list[str] = field(default_factory=list)
    work: list[list[Message]] = field(default_factory=list)  # of every shard
    is_retry: bool = False


class ClusterBackend(LocalBackend):
    """State backend of an engine whose sharded states are with the shards of a transport.

    Args:
        transport: Reaches the shards.
        queries: The algorithm and the number of groups of every query.
        rng: For tests.
    """

    def __init__(
        self,
        transport: ShardTransport,
        queries: Mapping[str, tuple[Any, int]] | None = None,
        *,
        rng: NoiseSource | None = None,
    ) -> None:
        super().__init__(rng)
        self._transport = transport
        self.rng = rng
        self._outgoing = OutgoingQueue(queries or {}, transport.shards)
        self._open: dict[str, list[Slot]] = {}  # the sharded states of every query
        self._closed_groups: list[_CommitGroup] = []  # waiting to be sent
        self._group = _CommitGroup()
        self._next_batch: tuple[int, Sequence[Origin]] = (0, ())
        self._drawing = False
        self._gathered: dict[str, list[bytes]] = {}  # parts of states that are drawn next, by state
        self.has_unsent_batches = False
        self.has_new_counters = False  # whether numbers of bits were read that no commit has
        self.step = 0
        self.stored_step = 0  # that the coordinator's checkpoint has: every shard must have reached it
        self.lowest_step = 0  # of all shards, when they were opened
        self._committed = 0
        self.ahead: dict[str, set[Origin]] = {}  # batches that some shards have and the coordinator does not
        self.absorbed: set[str] = set()

    @property
    def transport(self) -> ShardTransport:
        """What reaches the shards."""
        return self._transport

    def join(self) -> list[Status]:
        """Ask every shard for its status, and record which steps, partitions and batches the shards have."""
        statuses: list[Status] = self._transport.send(
            [ShardCall(shard, "status") for shard in range(self._transport.shards)]
        )
        self.step = max(status.step for status in statuses)
        self.lowest_step = min(status.step for status in statuses)
        self.absorbed = {name for status in statuses for name in status.absorbed}
        for status in statuses:
            for origin in status.recent:
                self.ahead.setdefault(origin[0], set()).add(origin)
        return statuses

    def check_reached(self) -> None:
        """Raise StoreError if a shard's directory is older than what the coordinator knows to be durable."""
        if self.lowest_step < self.stored_step:
            raise StoreError(
                f"a shard is at step {self.lowest_step} but had reached step {self.stored_step}: its directory is "
                "missing or was rolled back"
            )

    # Interface of a state backend, called by the engine.

    def start(self, query: str, slot: Slot, algorithm: Any) -> StateHandle:
        """Return a new state; the shards start their parts with the next step."""
        if not is_divided(algorithm):
            return super().start(query, slot, algorithm)
        if isinstance(algorithm, SetBitCounter):
            self._open.setdefault(query, []).append(slot)
            self.has_new_counters = True
            return ShardedCounter.start(self, query, slot, algorithm)
        self._group.opened.append(state_name(query, slot))
        self._open.setdefault(query, []).append(slot)
        return _open_state(self, query, slot, algorithm, 0)

    def restore(self, query: str, slot: Slot, data: bytes) -> StateHandle:
        """Return the state of a checkpoint's record; its cells are with the shards.

        Raises:
            StoreError: If the checkpoint holds the state itself, as that of a single process does.
        """
        header, _ = codec.read_header(data, checked=False)  # the store has authenticated it
        algorithm = algorithm_from_header(header)
        if not is_divided(algorithm):
            return super().restore(query, slot, data)
        if "step" not in (name for name, *_ in header["fields"]):
            raise StoreError(
                f"the state of query {query!r} was stored by a single process, without shards: run it without workers, "
                "or start it in a new directory"
            )
        self._open.setdefault(query, []).append(slot)
        if isinstance(algorithm, SetBitCounter):
            stored: CounterRecord = codec.decode(data, CounterRecord, CounterRecord.layout(algorithm), checked=False)
            self._note_step(stored.step)
            return ShardedCounter.restore(self, query, slot, algorithm, stored)
        record = RemoteStateRecord.from_bytes(data)
        self._note_step(record.step)
        return _open_state(self, query, slot, algorithm, record.released)

    def _note_step(self, step: int) -> None:
        self.stored_step = self._committed = max(self.stored_step, step)

    def announce_batch(self, rows: int, origins: Sequence[Origin]) -> None:
        """Announce the number of rows of the next batch, selected or not, and its origins."""
        self._next_batch = (rows, origins)

    def begin(self, producer: str | None, sequence: int) -> None:
        """Begin the announced batch.

        One that some shards have already is a group of its own: a shard applies a group as a whole or not at all.
        """
        rows, origins = self._next_batch
        self._next_batch = (0, ())
        self._drawing = False
        self.forget_gathered()
        self.has_unsent_batches = True
        is_retry = any(producer in self.ahead for producer, _, _ in origins)
        if is_retry:
            assert len(origins) == 1
            self._close_group()
        self._group.is_retry = is_retry
        self._group.origins += origins
        self._outgoing.expect(rows)

    def end_batch(self) -> None:
        """Leave the batch queued until the step ends and all of its batches are sent together."""
        if self._group.is_retry:
            self._close_group()

    def flush(self) -> None:
        """Send the step to all shards, with rows or without; it is durable on every one of them when this returns."""
        self.check_reached()
        self._drawing = self.has_unsent_batches = False
        self._close_group()
        parts = self._closed_groups
        self._closed_groups = []
        parts_by_shard: list[list[Part]] = [
            [(part.origins, part.opened, part.work[shard]) for part in parts] for shard in range(self._transport.shards)
        ]
        try:
            self._call_all_shards("apply", self._committed, [*self.ahead], per_shard=parts_by_shard)
        finally:
            for part in parts:
                for work in part.work:
                    wipe_messages(work)

    def drop(self, closed_slots: Collection[tuple[str, Slot]]) -> None:
        """Note that the coordinator has committed, and drop the states that are over on all shards."""
        self._committed = self.step
        self.has_new_counters = False
        over = [(query, slot) for query, slot in closed_slots if slot in self._open.get(query, ())]
        if over:
            self.drop_stale([state_name(query, slot) for query, slot in over])
        for query, slot in over:
            self._open[query].remove(slot)

    def drop_stale(self, names: Collection[str]) -> None:
        """Drop states on all shards: those that are over, also if the coordinator ended before it could say so."""
        self._call_all_shards("drop", [*names])

    def caught_up(self, seen: Mapping[str, tuple[int, float]]) -> None:
        """Forget those batches ``ahead`` that the coordinator has committed by now, at position ``seen``."""
        for producer in [*self.ahead]:
            last_seen = seen.get(producer, (-1, 0.0))
            self.ahead[producer] = {origin for origin in self.ahead[producer] if position_of(origin) > last_seen}
            if not self.ahead[producer]:
                del self.ahead[producer]

    def forget_partitions(self, names: Collection[str]) -> None:
        """Let shards forget partitions that will not come again."""
        self.absorbed -= {*names}
        self._call_all_shards("forget_partitions", [*names])

    def forget(self, producers: Collection[str]) -> None:
        """Forget batches of producers that will not send again."""
        for producer in producers:
            self.ahead.pop(producer, None)

    # Called by the states.

    def send_rows(self, query: str, slot: Slot, batch: Any) -> None:
        """Queue a checked batch, and wipe it."""
        try:
            self._outgoing.add(query, slot, batch)
        finally:
            batch.wipe()

    def open_states(self, names: Collection[str]) -> None:
        """Let every shard start its part of some states at once, before rows that are queued."""
        self._call_all_shards("open_states", [*names])

    def gather(self, query: str, slot: Slot, algorithm: Any, released: int, *, shown: bool = False) -> Any:
        """Return the complete noisy state with all applied rows; if ``shown``, with release noise added by the shards.

        A draw begins with a step, whether rows are queued or not; its other states are gathered in the same one.
        """
        self.catch_up()
        return self.assemble(state_name(query, slot), algorithm, released, "noisy_tables" if shown else "gather")

    def gather_next(self, query: str, slot: Slot, algorithm: Any, released: int) -> Any:
        """Return what `gather` does, and fetch the window's other groups in the same call: they are drawn next."""
        self.catch_up()
        name = state_name(query, slot)
        if name not in self._gathered:
            window, first = slot
            groups = [group for w, group in self._open[query] if w == window and group >= first]
            names = [
                state_name(query, (window, group)) for group in groups[: max(1, _FETCHED_CELLS // algorithm.cells)]
            ]
            shards = range(self._transport.shards)
            parts = self._transport.send([ShardCall(shard, "gather_all", (names,)) for shard in shards])
            self._gathered = {name: list(own) for name, *own in zip(names, *parts, strict=True)}
        return self._assemble_parts(self._gathered.pop(name), algorithm, released)

    def forget_gathered(self) -> None:
        """Forget states that were fetched and not drawn: they may change from here on."""
        self._gathered.clear()

    def catch_up(self) -> None:
        """Send all applied rows to the shards before an answer is drawn from their states."""
        if not self._drawing:
            self.flush()
            self._drawing = True

    def assemble(self, name: str, algorithm: Any, released: int, method: str = "gather") -> Any:
        """Return the complete noisy state from the parts that ``method`` of every shard returns."""
        parts = self._transport.send([ShardCall(shard, method, (name,)) for shard in range(self._transport.shards)])
        return self._assemble_parts(parts, algorithm, released)

    def _assemble_parts(self, parts: Sequence[bytes], algorithm: Any, released: int) -> Any:
        partitioning = partitioning_for(algorithm, self._transport.shards)
        states = [partitioning.decode(data, shard) for shard, data in enumerate(parts)]
        try:
            return partitioning.assemble(states, released)
        finally:
            for state in states:
                wipe_state(state)

    def refresh(self, query: str, slot: Slot) -> None:
        """Refresh a state on every shard."""
        self._call_all_shards("refresh", [state_name(query, slot)])

    def _close_group(self) -> None:
        """End the current group: its batches become messages, whose size does not depend on what was selected."""
        self._group.work = self._outgoing.messages(self._open)
        self._closed_groups.append(self._group)
        self._group = _CommitGroup()

    def _call_all_shards(self, method: str, *shared: Any, per_shard: Sequence[Any] = ()) -> None:
        """Call a method of every shard as the next step, with ``shared`` arguments and then its own one, if any."""
        self.forget_gathered()
        self.step += 1
        shards = range(self._transport.shards)
        self._transport.send([ShardCall(n, method, (self.step, *shared, *per_shard[n : n + 1])) for n in shards])


@dataclass(slots=True, eq=False)
class _ShardedState:
    """A state whose cells are with the shards."""

    backend: ClusterBackend
    key: tuple[str, Slot]  # query and slot
    algorithm: Any
    released: int

    def apply(self, batch: Any) -> None:
        """Queue a checked batch, and wipe it; the shards have it when the step is over."""
        self.backend.send_rows(*self.key, batch)

    @contextlib.contextmanager
    def _assembled(self, *, several: bool = False) -> Iterator[tuple[Any, NoiseSource]]:
        """Assemble the noisy cells for the time of the block, then wipe them; ``several`` groups are drawn at once."""
        gather = self.backend.gather_next if several else self.backend.gather
        state = gather(*self.key, self.algorithm, self.released)
        try:
            with NoiseSource() if self.backend.rng is None else self.backend.rng as rng:
                yield state, rng
        finally:
            wipe_state(state)

    def release(self) -> Estimate:
        """Release the assembled state, as on one machine."""
        with self._assembled(several=True) as (state, rng):
            estimate: Estimate = self.algorithm.release(state, rng)
            self.released = state.released
        return estimate

    def tick(self) -> Estimate:
        """Raise NotSupported: no sharded algorithm releases at ticks."""
        raise NotSupported(f"{type(self.algorithm).__name__} does not release at ticks")

    def refresh(self, *, rows_since_copy: bool | None = None) -> Refresh:
        """Refresh the cells on every shard, if the algorithm was built for it."""
        if self.algorithm.freezes and self.algorithm.claim().intrusions.announced and rows_since_copy is not False:
            return Refresh.too_late(rows_since_copy)
        with self._assembled() as (state, rng):
            self.algorithm.refresh(state, rng)  # raises where the claim has no refresh; the copy is discarded
            self.released = state.released
        self.backend.refresh(*self.key)
        return Refresh(covered=True)

    def to_bytes(self, *, checksum: bool = True) -> bytes:
        """Return the record that the coordinator stores; the cells are not in it."""
        return RemoteStateRecord(self.released, self.backend.step).to_bytes(self.algorithm, checked=checksum)


class _ShardedTables(_ShardedState):
    """A state whose tables are with the shards, each of which adds release noise to its own."""

    def release(self) -> Estimate:
        """Compute the answer from tables to which the shards have added release noise; possible once."""
        released = consume_release(self.released, 1)
        noisy = self.backend.gather(*self.key, self.algorithm, released, shown=True)
        self.released = released
        estimate: Estimate = self.algorithm.estimate(noisy)
        return estimate

    def refresh(self, *, rows_since_copy: bool | None = None) -> Refresh:
        """Add noise on every shard; the number of refreshes is not limited."""
        self.backend.catch_up()
        self.backend.refresh(*self.key)
        return Refresh(covered=True)


def _open_state(backend: ClusterBackend, query: str, slot: Slot, algorithm: Any, released: int) -> _ShardedState:
    kind = _ShardedTables if has_tables(algorithm) else _ShardedState
    return kind(backend, (query, slot), algorithm, released)
