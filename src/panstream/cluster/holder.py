"""The coordinator's side of divided states: rows out to the shards, whole noisy states back for a release.

States that cannot be divided (the continual ones: a few numbers each) stay with the coordinator, where they need no more noise
than on one machine; workers send them what a batch adds up to, not rows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from panstream import codec
from panstream.algorithm import built
from panstream.cluster import division
from panstream.cluster.division import Piece
from panstream.cluster.links import Call, Link
from panstream.cluster.ownership import Ownership
from panstream.cluster.shard import Part, label, wipe_pieces
from panstream.codec import FieldLayout, public
from panstream.engine.holding import Held, InThisProcess, Slot
from panstream.errors import NotSupported, StoreError
from panstream.estimate import Estimate
from panstream.randomness import Source

__all__ = ["ClusterHolder", "DividedState"]


@dataclass(slots=True)
class _Record:
    """What the coordinator keeps of a divided state: its releases, and the step that every shard must have reached."""

    released: int = public()
    step: int = public()


_FORGOTTEN = 1000  # producers that the shards forget at a time
_LAYOUT = {"released": FieldLayout("int", at_least=0), "step": FieldLayout("int", at_least=0)}


class ClusterHolder:
    """Holds the divided states of an engine on the shards of a link. ``source`` is for tests."""

    def __init__(self, link: Link, *, source: Source | None = None) -> None:
        self._link, self.source = link, source
        self._home = InThisProcess(source)
        self._opened: list[str] = []
        self._work: list[dict[str, list[Piece]]] = [{} for _ in range(link.shards)]
        self._parts: list[list[Part]] = [[] for _ in range(link.shards)]
        self._batch: tuple[str | None, int] = (None, 0)
        self.step, self.least, self.lowest = 0, 0, 0
        self._gone: set[str] = set()
        self.positions: dict[str, list[int]] = {}  # of producers whose batches some shards have and we do not

    def join(self) -> dict[int, list[str]]:
        """Ask every shard how far it came; return the states that each holds."""
        found = self._link.send([Call(shard, "status") for shard in range(self._link.shards)])
        self.step = max(step for step, _, _ in found)
        self.lowest = min(step for step, _, _ in found)
        for _, seen, _ in found:
            for producer, sequence in seen.items():
                self.positions.setdefault(producer, []).append(sequence)
        return {shard: slots for shard, (_, _, slots) in enumerate(found)}

    def check_reached(self) -> None:
        """Raise StoreError if a shard's directory is older than what the coordinator knows to be durable."""
        if self.lowest < self.least:
            raise StoreError(
                f"a shard is at step {self.lowest} but had come to step {self.least}: its directory is missing or was rolled back"
            )

    # What the engine asks of a holder.

    def start(self, query: str, slot: Slot, algorithm: Any) -> Held:
        """Return a fresh state; the shards start their parts with the next step."""
        if division.division_of(algorithm) is None:
            return self._home.start(query, slot, algorithm)
        self._opened.append(label(query, slot))
        return DividedState(self, label(query, slot), algorithm, 0)

    def restore(self, query: str, slot: Slot, data: bytes) -> Held:
        """Return the state again."""
        header, _ = codec.read_header(data, checked=False)  # the store has authenticated it
        algorithm = built(header)
        if division.division_of(algorithm) is None:
            return self._home.restore(query, slot, data)
        record = codec.decode(data, _Record, _LAYOUT, checked=False)
        self.least = max(self.least, record.step)
        return DividedState(self, label(query, slot), algorithm, record.released)

    def begin(self, producer: str | None, sequence: int) -> None:
        """Remember whose batch comes next."""
        self._batch = (producer, sequence)
        self._gone.discard(producer or "")

    def settle(self) -> None:
        """Close the batch; it waits to be sent."""
        if self._opened or any(self._work):
            for parts, work in zip(self._parts, self._work, strict=True):
                parts.append((*self._batch, tuple(self._opened), [*work.items()]))
            self._opened, self._batch, self._work = [], (None, 0), [{} for _ in self._work]

    def flush(self) -> None:
        """Send what waits to all shards, and return when every one of them has it durable."""
        self.settle()
        if not any(self._parts):
            return
        self.check_reached()
        parts, self._parts = self._parts, [[] for _ in self._parts]
        try:
            self.everywhere_own("apply", [(own,) for own in parts])
        finally:
            for own in parts:
                for _, _, _, work in own:
                    for _, pieces in work:
                        wipe_pieces(pieces)

    def drop(self, gone: Collection[tuple[str, Slot]]) -> None:
        """Tell all shards to give up states that are over."""
        self.flush()
        names = [label(query, slot) for query, slot in gone]
        if names:
            self.everywhere("drop", names)

    def forget(self, producers: Collection[str]) -> None:
        """Let the shards forget producers: many at a time, since each time costs them a commit."""
        self._gone.update(producers)
        if len(self._gone) >= _FORGOTTEN:
            self.flush()
            gone, self._gone = self._gone, set()
            for producer in gone:
                self.positions.pop(producer, None)
            self.everywhere("forget", sorted(gone))

    # What divided states ask.

    def send_rows(self, name: str, algorithm: Any, batch: Any) -> None:
        """Cut a checked batch up by owner, and wipe it."""
        try:
            for shard, pieces in enumerate(division.split(algorithm, batch, self.ownership(algorithm))):
                if pieces:
                    self._work[shard].setdefault(name, []).extend(pieces)
        finally:
            batch.wipe()

    def add_work(self, work: Mapping[str, list[Piece]], shard: int) -> None:
        """Take pieces that were cut up elsewhere."""
        for name, pieces in work.items():
            self._work[shard].setdefault(name, []).extend(pieces)

    def gather(self, name: str, algorithm: Any, released: int) -> Any:
        """Return the whole noisy state, with all rows in it that were applied."""
        self.flush()
        ownership = self.ownership(algorithm)
        parts = self._link.send([Call(shard, "gather", (name,)) for shard in range(self._link.shards)])
        states = [division.decode_part(algorithm, data, ownership.count(shard)) for shard, data in enumerate(parts)]
        try:
            return division.join(algorithm, states, ownership, released)
        finally:
            for state in states:
                division.wipe_state(state)

    def everywhere(self, method: str, *arguments: Any) -> None:
        """Let every shard do one more step."""
        self.everywhere_own(method, [arguments] * self._link.shards)

    def everywhere_own(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> None:
        """Let every shard do one more step, each with its own arguments."""
        self.step += 1
        self._link.send([Call(shard, method, (self.step, *own)) for shard, own in enumerate(arguments)])

    def ownership(self, algorithm: Any) -> Ownership:
        """Return who owns which cell of an algorithm's state."""
        found = division.division_of(algorithm)
        assert found is not None
        return Ownership(cells=found.cells, shards=self._link.shards)


class DividedState:
    """A state whose cells are with the shards."""

    __slots__ = ("_holder", "_name", "_released", "algorithm")

    def __init__(self, holder: ClusterHolder, name: str, algorithm: Any, released: int) -> None:
        self.algorithm = algorithm
        self._holder, self._name, self._released = holder, name, released

    def apply(self, batch: Any) -> None:
        """Take a checked batch, and wipe it; it is with the shards when the holder has settled."""
        self._holder.send_rows(self._name, self.algorithm, batch)

    def release(self) -> Estimate:
        """Bring the noisy cells together and let the algorithm release them, as on one machine."""
        state = self._holder.gather(self._name, self.algorithm, self._released)
        try:
            with self._random() as source:
                estimate: Estimate = self.algorithm.release(state, source)
            self._released = state.released
        finally:
            division.wipe_state(state)
        return estimate

    def tick(self) -> Estimate:
        """Refuse: no divided algorithm releases at ticks."""
        raise NotSupported(f"{type(self.algorithm).__name__} does not release at ticks")

    def refresh(self) -> None:
        """Freeze and start afresh on every shard, if the algorithm was built for it."""
        state = self._holder.gather(self._name, self.algorithm, self._released)
        try:
            with self._random() as source:
                self.algorithm.refresh(state, source)  # raises where it was not paid for; the copy is thrown away
        finally:
            division.wipe_state(state)
        self._holder.flush()
        self._holder.everywhere("refresh", [self._name])

    def to_bytes(self, *, checked: bool = True) -> bytes:
        """Return the record that the coordinator stores; the cells are not in it."""
        record = _Record(released=self._released, step=self._holder.step)
        return codec.encode(
            type(self.algorithm).__name__, self.algorithm.parameters(), record, _LAYOUT, checked=checked
        )

    def _random(self) -> Source:
        return Source() if self._holder.source is None else self._holder.source
