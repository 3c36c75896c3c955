"""A running state whose bits are with the shards, and whose noisy tree over their numbers is here."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.continual_users.ones_counter import SetBitCounter, SetBitState
from panstream.core.estimate import Estimate
from panstream.distributed.sharded._partitioning import wipe_state
from panstream.engine.runtime.state_backend import Slot, state_name
from panstream.primitives import codec
from panstream.primitives.codec import FieldLayout, noised, public, published
from panstream.primitives.memory.scratch import wipe
from panstream.primitives.memory.secret_memory import move_to_secret_memory
from panstream.primitives.noise import NoiseSource
from panstream.privacy.claim import Refresh

if TYPE_CHECKING:
    from panstream.distributed.sharded._backend import ClusterBackend


@dataclass(slots=True, kw_only=True)
class CounterRecord:
    """What the coordinator stores: a `SetBitState` without its bits, and the step that every shard must have."""

    open: NDArray[np.int64] = noised()
    start: NDArray[np.int64] = published()
    draws: NDArray[np.int64] = public()
    digits: NDArray[np.int64] = public()
    closed: NDArray[np.int64] = published()
    ticks: int = public()
    epoch: int = public()
    step: int = public()

    @classmethod
    def layout(cls, algorithm: SetBitCounter) -> dict[str, FieldLayout]:
        """Return kind and shape of every field."""
        whole = {**algorithm.layout(), "step": FieldLayout("int", at_least=0)}
        return {declared.name: whole[declared.name] for declared in fields(cls)}


@dataclass(slots=True, eq=False)
class ShardedCounter:
    """A state of a `SetBitCounter` on a cluster; the array of bits in ``state`` is empty."""

    backend: ClusterBackend
    key: tuple[str, Slot]  # query and slot
    algorithm: SetBitCounter
    state: SetBitState

    @classmethod
    def start(cls, backend: ClusterBackend, query: str, slot: Slot, algorithm: SetBitCounter) -> ShardedCounter:
        """Let the shards start the bits at once, and start the tree over them."""
        backend.open_states([state_name(query, slot)])
        ones = _count_ones(backend, (query, slot), algorithm)
        try:
            with _random(backend) as rng:
                state = algorithm.start_counted(ones, rng)
        finally:
            wipe(ones)
        move_to_secret_memory(state)
        return cls(backend, (query, slot), algorithm, state)

    @classmethod
    def restore(
        cls, backend: ClusterBackend, query: str, slot: Slot, algorithm: SetBitCounter, record: CounterRecord
    ) -> ShardedCounter:
        """Return the state of a stored record."""
        stored = {declared.name: getattr(record, declared.name) for declared in fields(record)}
        del stored["step"]
        state = SetBitState(bits=np.empty(0, np.uint8), **stored)
        move_to_secret_memory(state)
        return cls(backend, (query, slot), algorithm, state)

    def apply(self, batch: Any) -> None:
        """Queue a checked batch, and wipe it; the shards have it when the step is over."""
        self.backend.send_rows(*self.key, batch)

    def tick(self) -> Estimate:
        """Close the slot with all applied rows."""
        self.backend.catch_up()
        ones = _count_ones(self.backend, self.key, self.algorithm)
        try:
            with _random(self.backend) as rng:
                return self.algorithm.tick_counted(self.state, ones, rng)
        finally:
            wipe(ones)

    def release(self) -> Estimate:
        """Return the answer of the last tick again; with one tick only, close it first."""
        if self.algorithm.horizon == 1:
            return self.tick()
        with _random(self.backend) as rng:
            return self.algorithm.release(self.state, rng)

    def refresh(self, *, rows_since_copy: bool | None = None) -> Refresh:
        """Raise NotSupported, as on one machine."""
        with _random(self.backend) as rng:
            self.algorithm.refresh(self.state, rng)
        raise AssertionError("unreachable")

    def to_bytes(self, *, checksum: bool = True) -> bytes:
        """Return the record that the coordinator stores."""
        algorithm = self.algorithm
        layout = CounterRecord.layout(algorithm)
        values = {name: getattr(self.state, name) for name in layout if name != "step"}
        record = CounterRecord(**values, step=self.backend.step)
        return codec.encode(type(algorithm).__name__, algorithm.parameters(), record, layout, checksum=checksum)


def _count_ones(backend: ClusterBackend, key: tuple[str, Slot], algorithm: SetBitCounter) -> NDArray[np.int64]:
    """Return the numbers of ones on all shards; they are exact, and the caller overwrites them."""
    cells = backend.assemble(state_name(*key), algorithm.table, 0)
    try:
        return algorithm.count_ones(cells)
    finally:
        wipe_state(cells)


def _random(backend: ClusterBackend) -> NoiseSource:
    return NoiseSource() if backend.rng is None else backend.rng
