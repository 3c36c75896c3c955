"""The coordinator's side of divided states: rows out to the shards, whole noisy states back for a release.

Every commit is one step of every shard, whatever the rows of the step were and whether there were any. States that
cannot be divided (the continual ones: a few numbers each) stay with the coordinator, where they need no more noise
than on one machine; workers send them what a batch adds up to, not rows.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from panstream.core.algorithm import consume_release
from panstream.core.estimate import Estimate
from panstream.core.registry import algorithm_from_header
from panstream.core.shardable import ShardableTables, is_shardable
from panstream.distributed.sharded._links import InProcessShardTransport, ShardCall, ShardTransport
from panstream.distributed.sharded._outgoing_queue import Message, OutgoingQueue, wipe_messages
from panstream.distributed.sharded._partitioning import partitioning_for, wipe_state
from panstream.distributed.sharded._shard import Origin, Part, Status, position_of, query_of
from panstream.engine.runtime.state_backend import LocalBackend, RemoteStateRecord, Slot, StateHandle, state_name
from panstream.engine.storage.disk import Disk
from panstream.errors import ConfigError, NotSupported, StoreError
from panstream.primitives import codec
from panstream.primitives.noise import NoiseSource
from panstream.privacy.claim import Refresh


@dataclass(slots=True, kw_only=True)
class _CommitGroup:
    """Batches that reach every shard together, or, where one comes ``again``, those shards that do not have it."""

    origins: list[Origin] = field(default_factory=list)
    opened: list[str] = field(default_factory=list)
    work: list[list[Message]] = field(default_factory=list)  # of every shard
    again: bool = False


class ClusterBackend(LocalBackend):
    """Holds the divided states of an engine on the shards of a link.

    ``queries`` gives the algorithm and the number of groups of every query whose state is divided. ``rng`` is for
    tests.
    """

    def __init__(
        self,
        link: ShardTransport,
        queries: Mapping[str, tuple[Any, int]] | None = None,
        *,
        rng: NoiseSource | None = None,
    ) -> None:
        super().__init__(rng)
        self._link = link
        self.rng = rng
        self._outgoing = OutgoingQueue(queries or {}, link.shards)
        self._open: dict[str, list[Slot]] = {}  # the divided states of every query
        self._parts: list[_CommitGroup] = []  # closed, and waiting to be sent
        self._part = _CommitGroup()
        self._next: tuple[int, Sequence[Origin]] = (0, ())
        self._drawing = False
        self.waits = False  # whether batches came since the last step
        self.step = self.least = self.lowest = self._committed = 0
        self.ahead: dict[str, set[Origin]] = {}  # batches that some shards have and the coordinator does not
        self.absorbed: set[str] = set()

    def join(self) -> list[Status]:
        """Ask every shard how far it came."""
        statuses: list[Status] = self._link.send([ShardCall(shard, "status") for shard in range(self._link.shards)])
        self.step = max(step for step, _, _, _ in statuses)
        self.lowest = min(step for step, _, _, _ in statuses)
        self.absorbed = {name for _, _, absorbed, _ in statuses for name in absorbed}
        for _, recent, _, _ in statuses:
            for origin in recent:
                self.ahead.setdefault(origin[0], set()).add(origin)
        return statuses

    def check_reached(self) -> None:
        """Raise StoreError if a shard's directory is older than what the coordinator knows to be durable."""
        if self.lowest < self.least:
            raise StoreError(
                f"a shard is at step {self.lowest} but had reached step {self.least}: its directory is missing or was "
                "rolled back"
            )

    # What the engine asks of a backend.

    def start(self, query: str, slot: Slot, algorithm: Any) -> StateHandle:
        """Return a fresh state; the shards start their parts with the next step."""
        if not is_shardable(algorithm):
            return super().start(query, slot, algorithm)
        self._part.opened.append(state_name(query, slot))
        self._open.setdefault(query, []).append(slot)
        return _open_state(self, query, slot, algorithm, 0)

    def restore(self, query: str, slot: Slot, data: bytes) -> StateHandle:
        """Return the state again."""
        header, _ = codec.read_header(data, checked=False)  # the store has authenticated it
        algorithm = algorithm_from_header(header)
        if not is_shardable(algorithm):
            return super().restore(query, slot, data)
        if "step" not in (name for name, *_ in header["fields"]):
            raise StoreError(
                f"the state of query {query!r} was stored by a single process, without shards: run it without workers, "
                "or start it in a new directory"
            )
        record = RemoteStateRecord.from_bytes(data)
        self.least = self._committed = max(self.least, record.step)
        self._open.setdefault(query, []).append(slot)
        return _open_state(self, query, slot, algorithm, record.released)

    def announce_batch(self, rows: int, origins: Sequence[Origin]) -> None:
        """Hear how many rows the next batch has, selected or not, and whose they are."""
        self._next = (rows, origins)

    def begin(self, producer: str | None, sequence: int) -> None:
        """Begin the batch that is expected. One that some shards have goes by itself: it is taken whole or not."""
        (rows, origins), self._next = self._next, (0, ())
        self._drawing = False
        self.waits = True
        again = any(producer in self.ahead for producer, _, _ in origins)
        if again:
            assert len(origins) == 1
            self._close_part()
        self._part.again = again
        self._part.origins += origins
        self._outgoing.expect(rows)

    def end_batch(self) -> None:
        """Let the batch wait for the end of the step, where all of its batches are sent together."""
        if self._part.again:
            self._close_part()

    def flush(self) -> None:
        """Send the step to all shards, rows or none, and return when every one of them has it durable."""
        self.check_reached()
        self._drawing = self.waits = False
        self._close_part()
        parts = self._parts
        self._parts = []
        parts_by_shard: list[list[Part]] = [
            [(part.origins, part.opened, part.work[shard]) for part in parts] for shard in range(self._link.shards)
        ]
        try:
            self._call_all_shards("apply", self._committed, [*self.ahead], own=parts_by_shard)
        finally:
            for part in parts:
                for work in part.work:
                    wipe_messages(work)

    def drop(self, gone: Collection[tuple[str, Slot]]) -> None:
        """Hear that the coordinator has committed, and tell all shards to give up states that are over."""
        self._committed = self.step
        over = [(query, slot) for query, slot in gone if slot in self._open.get(query, ())]
        if over:
            self.drop_stale([state_name(query, slot) for query, slot in over])
        for query, slot in over:
            self._open[query].remove(slot)

    def drop_stale(self, names: Collection[str]) -> None:
        """Tell all shards to give up states that were over before they could hear of it."""
        self._call_all_shards("drop", [*names])

    def caught_up(self, seen: Mapping[str, tuple[int, float]]) -> None:
        """Forget batches of shards that the coordinator has too, and has committed."""
        for producer in [*self.ahead]:
            last_seen = seen.get(producer, (-1, 0.0))
            self.ahead[producer] = {origin for origin in self.ahead[producer] if position_of(origin) > last_seen}
            if not self.ahead[producer]:
                del self.ahead[producer]

    def forget(self, producers: Collection[str]) -> None:
        """Let batches of some producers be forgotten: they will not come again."""
        for producer in producers:
            self.ahead.pop(producer, None)

    # What divided states ask.

    def send_rows(self, query: str, slot: Slot, batch: Any) -> None:
        """Cut a checked batch up by owner, and wipe it."""
        try:
            self._outgoing.add(query, slot, batch)
        finally:
            batch.wipe()

    def gather(self, query: str, slot: Slot, algorithm: Any, released: int, *, shown: bool = False) -> Any:
        """Return the whole noisy state, with all rows in it that were applied; ``shown``, with release noise too.

        A draw begins with a step, whether rows wait or not; its other states are gathered in the same one.
        """
        self.catch_up()
        return self.assemble(state_name(query, slot), algorithm, released, "noisy_tables" if shown else "gather")

    def catch_up(self) -> None:
        """Let all rows that were applied reach the shards before something is drawn from their states."""
        if not self._drawing:
            self.flush()
            self._drawing = True

    def assemble(self, name: str, algorithm: Any, released: int, method: str = "gather") -> Any:
        """Return the whole noisy state as the shards hold it, or show it."""
        division = partitioning_for(algorithm, self._link.shards)
        parts = self._link.send([ShardCall(shard, method, (name,)) for shard in range(self._link.shards)])
        states = [division.decode(data, shard) for shard, data in enumerate(parts)]
        try:
            return division.assemble(states, released)
        finally:
            for state in states:
                wipe_state(state)

    def refresh(self, query: str, slot: Slot) -> None:
        """Let every shard refresh its part of a state."""
        self._call_all_shards("refresh", [state_name(query, slot)])

    def _close_part(self) -> None:
        """Turn the batches since the last part into messages: of as many bytes whatever was selected."""
        self._part.work = self._outgoing.messages(self._open)
        self._parts.append(self._part)
        self._part = _CommitGroup()

    def _call_all_shards(self, method: str, *shared: Any, own: Sequence[Any] = ()) -> None:
        """Let every shard do one more step, with arguments that all share and, behind them, what is its own."""
        self.step += 1
        shards = range(self._link.shards)
        self._link.send([ShardCall(n, method, (self.step, *shared, *own[n : n + 1])) for n in shards])


class _ShardedState:
    """A state whose cells are with the shards."""

    __slots__ = ("_backend", "_place", "_released", "algorithm")

    def __init__(self, backend: ClusterBackend, query: str, slot: Slot, algorithm: Any, released: int) -> None:
        self.algorithm = algorithm
        self._backend = backend
        self._place = (query, slot)
        self._released = released

    def apply(self, batch: Any) -> None:
        """Take a checked batch, and wipe it; it is with the shards when the step is over."""
        self._backend.send_rows(*self._place, batch)

    @contextlib.contextmanager
    def _whole(self) -> Iterator[tuple[Any, NoiseSource]]:
        """Bring the noisy cells together, and wipe them."""
        state = self._backend.gather(*self._place, self.algorithm, self._released)
        try:
            with NoiseSource() if self._backend.rng is None else self._backend.rng as rng:
                yield state, rng
        finally:
            wipe_state(state)

    def release(self) -> Estimate:
        """Let the algorithm release the whole state, as on one machine."""
        with self._whole() as (state, rng):
            estimate: Estimate = self.algorithm.release(state, rng)
            self._released = state.released
        return estimate

    def tick(self) -> Estimate:
        """Refuse: no divided algorithm releases at ticks."""
        raise NotSupported(f"{type(self.algorithm).__name__} does not release at ticks")

    def refresh(self, *, rows_since_copy: bool | None = None) -> Refresh:
        """Refresh the cells on every shard, if the algorithm was built for it."""
        if self.algorithm.freezes and self.algorithm.claim().intrusions.announced and rows_since_copy is not False:
            return Refresh.too_late(rows_since_copy)
        with self._whole() as (state, rng):
            self.algorithm.refresh(state, rng)  # raises where it was not paid for; the copy is thrown away
            self._released = state.released
        self._backend.refresh(*self._place)
        return Refresh(covered=True)

    def to_bytes(self, *, checksum: bool = True) -> bytes:
        """Return the record that the coordinator stores; the cells are not in it."""
        return RemoteStateRecord(self._released, self._backend.step).to_bytes(self.algorithm, checked=checksum)


class _ShardedTables(_ShardedState):
    """A state whose tables are with the shards, each of which adds release noise to its own."""

    __slots__ = ()

    def release(self) -> Estimate:
        """Read the answer off the tables that the shards show, once."""
        spent = consume_release(self._released, 1)
        shown = self._backend.gather(*self._place, self.algorithm, spent, shown=True)
        self._released = spent
        estimate: Estimate = self.algorithm.estimate(shown)
        return estimate

    def refresh(self, *, rows_since_copy: bool | None = None) -> Refresh:
        """Add noise on every shard, as often as asked."""
        self._backend.catch_up()
        self._backend.refresh(*self._place)
        return Refresh(covered=True)


def _open_state(backend: ClusterBackend, query: str, slot: Slot, algorithm: Any, released: int) -> _ShardedState:
    kind = _ShardedTables if isinstance(algorithm, ShardableTables) else _ShardedState
    return kind(backend, query, slot, algorithm, released)


def read_shard_count(directory: Path) -> int | None:
    """Return how many shards a stream's directory has, None if it has none yet."""
    note = directory / "cluster.json"
    return int(json.loads(note.read_text())["shards"]) if note.exists() else None


def write_shard_count(directory: Path, shards: int) -> None:
    """Write how many shards count from now on: the point from which only they do."""
    if read_shard_count(directory) != shards:
        new = directory / "cluster.json.new"
        with new.open("w") as file:
            json.dump({"shards": shards}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, directory / "cluster.json")
        Disk().sync_directory(directory)
    # Only now: until the note is replaced, the old shards are the only ones that count.
    _destroy_stale_shards(directory, shards)


def _destroy_stale_shards(directory: Path, shards: int) -> None:
    """Make shards of another number unreadable, and remove them."""
    for other in directory.glob("shards-*"):
        if other.name != f"shards-{shards}":
            for shard in other.iterdir():
                _destroy(shard)
            other.rmdir()


def reshard(shards: int, algorithms: Mapping[str, Any], directory: Path, operator_key: bytes | None = None) -> None:
    """Move all cells where the number of shards has changed. The directories must be within reach of this process."""
    old_shard_count = read_shard_count(directory)
    if old_shard_count is None:
        return
    _destroy_stale_shards(directory, old_shard_count)  # what an interrupted move left
    if old_shard_count == shards:
        return
    old = InProcessShardTransport(old_shard_count)
    new = InProcessShardTransport(shards)
    try:
        for link in (old, new):
            link.open(algorithms, directory, operator_key)
        _move(old, new, algorithms)
    finally:
        old.close()
        new.close()
    write_shard_count(directory, shards)


def _move(old: InProcessShardTransport, new: InProcessShardTransport, algorithms: Mapping[str, Any]) -> None:
    backend = ClusterBackend(old)
    statuses = backend.join()
    _, recent, absorbed, names = statuses[0]
    if any((sorted(other[1]), sorted(other[2])) != (sorted(recent), sorted(absorbed)) for other in statuses):
        raise ConfigError(
            "the shards are at different positions, probably after a crash: start once with the old number of "
            f"shards, {old.shards}, and feed the same input; then change it"
        )
    parts: list[dict[str, bytes]] = [{} for _ in range(new.shards)]
    for name in names:
        algorithm = algorithms.get(query_of(name))
        if algorithm is None:
            raise ConfigError(f"query {query_of(name)!r} is stored but not configured: keep it while shards are moved")
        state = backend.assemble(name, algorithm, 0)
        division = partitioning_for(algorithm, new.shards)
        for shard, shard_parts in enumerate(parts):
            part = division.extract_shard(state, shard)
            shard_parts[name] = division.encode(part, shard)
            wipe_state(part)
        wipe_state(state)
    new.send(
        [ShardCall(shard, "replace", (backend.step + 1, parts[shard], recent, absorbed)) for shard in range(new.shards)]
    )


def _destroy(directory: str | os.PathLike[str]) -> None:
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
